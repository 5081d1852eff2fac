"""The call in C++: it gives the bits of the call in Python, and leaves to that what it does not take."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from kernels import generated as load
from processes import answer, environment
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import generated._runtime
from fusegen.codegen import runtime_text
from fusegen.core.header_files import reached
from fusegen.runtime import compiled_call
from fusegen.runtime.cache import locked
from fusegen.runtime.headers import inlined
from fusegen.runtime.sources import header

forward_ad: Any = torch.autograd.forward_ad
JIT: Any = torch.jit
F32, BF16 = torch.float32, torch.bfloat16
Call = Callable[..., Any]


@pytest.fixture(scope="module")
def library(extensions: Path) -> Path:
    """The library of the call in C++, which one worker builds."""
    folder = extensions / compiled_call.NAME
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch, locked(compiled_call.NAME, folder / "lock"):
        patch.setenv(
            "CXX", "g++"
        )  # of a run of tests, the compiler links none of PyTorch's libraries for Python
        if not (folder / "made.so").exists():
            (folder / "main.cpp").write_text(inlined(compiled_call.INCLUDED, header), encoding="utf-8")
            words = ["-O0" if word == "-O1" else word for word in compiled_call.words()]
            subprocess.run(words, cwd=folder, check=True)
    return folder / "made.so"


CALLS = generated._runtime.compiled_call  # of the committed modules


@pytest.fixture(scope="module", autouse=True)
def in_cpp(library: Path) -> None:
    """Has the tests find the library, and the modules that are imported not."""
    Counted.made = compiled_call.imported(library)


class Counted:
    """A module's call in C++, which counts what it leaves to Python."""

    made: Any = None  # of the library

    def __init__(self, name: str, in_front: Call = CALLS.in_front) -> None:
        self.kernels, self.left = load(name).KERNELS, 0
        self.python = self.kernels.run

        def python(*arguments: Any) -> Any:
            self.left += 1
            return self.python(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CALLS, "loaded", lambda: self.made)
            self.call: Call = in_front(self.kernels, python)
        assert self.call is not python

    def taken(self, *arguments: Any) -> Any:
        """The result of a call, which C++ takes."""
        before = self.left
        result = self.call(*arguments)
        assert self.left == before
        return result


def drawn(*shapes: tuple[int, ...], dtype: torch.dtype = F32) -> list[Tensor]:
    """Tensors that require gradients."""
    torch.manual_seed(1)
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


# for each kind of module one, the shapes of its tensors, and its scalars
MODULES: dict[str, tuple[str, list[tuple[int, ...]], list[float]]] = {
    "one tensor": ("gelu", [(3, 5)], []),
    "a saved result": ("relu", [(3, 5)], []),
    "a scalar": ("celu", [(3, 5)], [1.5]),
    "an integer as a scalar": ("celu", [(3, 5)], [2]),
    "two tensors": ("swiglu", [(3, 5), (3, 5)], []),
    "two that broadcast": ("swiglu", [(3, 5), (5,)], []),
    "a value": ("swiglu", [(3, 5), ()], []),
    "none": ("gelu", [(0, 5)], []),
    "rows": ("rows/softmax", [(3, 5)], []),
    "windows": ("windows/max_pool_of_relu", [(2, 3, 8, 9)], []),
    "rows with operands": ("rows/layer_norm", [(3, 5), (5,), (5,)], [1e-5]),
}  # fmt: skip


def both(kind: str) -> tuple[Counted, list[Tensor], list[float]]:
    name, shapes, scalars = MODULES[kind]
    return Counted(name), drawn(*shapes), scalars


@pytest.mark.parametrize("kind", MODULES)
def test_bits_are_those_of_the_call_in_python(kind: str) -> None:
    counted, tensors, scalars = both(kind)
    with torch.no_grad():
        plain = counted.taken(*tensors, *scalars)
    result, expected = counted.taken(*tensors, *scalars), counted.python(*tensors, *scalars)
    assert plain.grad_fn is None
    assert result.grad_fn is not None
    assert torch.equal(plain, result)
    assert torch.equal(result, expected)
    grad = torch.randn_like(result)
    found, wanted = (torch.autograd.grad(y, tensors, grad) for y in (result, expected))
    assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("one", [0, -1])
def test_a_gradient_of_one_tensor_alone(kind: str, one: int) -> None:
    counted, tensors, scalars = both(kind)
    alone = [t if t is tensors[one] else t.detach() for t in tensors]
    found, wanted = (
        torch.autograd.grad(call(*alone, *scalars).sum(), alone[one])
        for call in (counted.taken, counted.python)
    )
    assert torch.equal(found[0], wanted[0])


@pytest.mark.parametrize("kind", MODULES)
def test_second_derivatives_go_through_python(kind: str) -> None:
    counted, tensors, scalars = both(kind)

    def second(call: Call) -> list[Any]:
        y = call(*tensors, *scalars)
        first = torch.autograd.grad(y.square().sum(), tensors, create_graph=True)
        total = torch.stack([g.square().sum() for g in first]).sum()
        return [*torch.autograd.grad(total, tensors, allow_unused=True)]

    for a, b in zip(second(counted.taken), second(counted.python), strict=True):
        assert torch.equal(a, b)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float16, BF16, torch.float64])
def test_other_dtypes(dtype: torch.dtype) -> None:
    counted, tensors = Counted("swiglu"), drawn((3, 5), (3, 5), dtype=dtype)
    result = counted.taken(*tensors)
    assert result.dtype == dtype
    assert torch.equal(result, counted.python(*tensors))


# modules whose gradient does not read a tensor, or is that of two tensors
OF_PYTHON: dict[str, tuple[str, list[tuple[int, ...]]]] = {
    "a shape that is read": ("kernelbench/conv2d_relu_shift", [(2, 4, 3, 3), (4, 1, 1), (4, 1, 1)]),
    "a gradient of two": (
        "kernelbench/conv_transpose3d_residual_hardswish",
        [(1, 4, 2, 2, 2), (1, 4, 2, 2, 2), (4, 1, 1, 1)],
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("kind", OF_PYTHON)
def test_a_gradient_that_is_shared_or_reads_a_shape_is_recorded_by_python(kind: str) -> None:
    name, shapes = OF_PYTHON[kind]
    counted, tensors = Counted(name), drawn(*shapes)
    with torch.no_grad():
        assert torch.equal(counted.taken(*tensors), counted.python(*tensors))
    result, expected = counted.call(*tensors), counted.python(*tensors)
    assert counted.left == 1
    grad = torch.randn_like(result)
    found, wanted = (torch.autograd.grad(y, tensors, grad) for y in (result, expected))
    assert all(map(torch.equal, found, wanted))


def test_nobody_holds_a_tensor_that_is_left_to_python() -> None:
    """As the runtime counts the owners of what it may write over."""
    counted, seen = Counted("celu"), []

    def python(x: Any, alpha: Any) -> None:
        seen.append(x._use_count())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted, "python", python)
        counted.call(torch.ones(3), True)
    assert seen == [1]


class Subclass(Tensor):
    """A class of tensors of somebody else."""


class Mode(torch.overrides.TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


def under_mode(call: Call, x: Tensor) -> Any:
    with Mode():
        return call(x)


def under_forward_mode(call: Call, x: Tensor) -> Any:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(call(forward_ad.make_dual(x.detach(), torch.ones_like(x)))).tangent


# what is called in Python: a call of some function and a tensor
LEFT: dict[str, Callable[[Call, Tensor], Any]] = {
    "integers": lambda call, x: call(torch.arange(-3, 3)),
    "another class": lambda call, x: call(x.detach().as_subclass(Subclass)),
    "a nested tensor": lambda call, x: torch.nested.to_padded_tensor(
        call(torch.nested.nested_tensor([x.detach(), x.detach()[:1]])), 0.0
    ),
    "a tensor of the meta device": lambda call, x: call(x.to("meta")).shape,
    "a lazy negation": lambda call, x: call(
        torch.view_as_complex(x.detach()[:, :2].contiguous()).conj().imag
    ),
    "vmap": lambda call, x: torch.func.vmap(call)(x.detach()),
    "a gradient of torch.func": lambda call, x: torch.func.grad(lambda t: call(t).sum())(x.detach()),
    "forward mode": under_forward_mode,
    "a mode": under_mode,
    "make_fx": lambda call, x: make_fx(call)(x.detach())(x.detach()),
    "a trace": lambda call, x: JIT.trace(call, (x.detach(),), check_trace=False)(x.detach()),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_python(name: str) -> None:
    counted, [x] = Counted("relu"), drawn((3, 4))
    found, wanted = LEFT[name](counted.call, x), LEFT[name](counted.python, x)
    assert counted.left > 0
    assert torch.equal(found, wanted) if isinstance(found, Tensor) else found == wanted


def test_scalars_that_are_no_numbers_are_left_to_python() -> None:
    counted, [x] = Counted("celu"), drawn((3,))
    for scalar in (torch.tensor(1.5), True, 10**400):
        errors = []
        for call in (counted.call, counted.python):
            try:
                errors.append(repr(call(x, scalar).tolist()))
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}")
        assert errors[0] == errors[1]
    assert counted.left == 3


NAN = float("nan")
# scalars that a module's function refuses, or leaves to PyTorch
REFUSED = {
    "celu": ([0.0], "celu: alpha cannot be 0"),
    "hardtanh": ([2.0, 1.0], "hardtanh: min_val cannot be greater than max_val"),
    "softshrink": ([-1.0], "softshrink: lambd cannot be less than 0"),
    "kernelbench/linear_scale_hardtanh_gelu": ([1.0, NAN, 1.0], ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_function_that_reads_its_scalars_is_called(name: str) -> None:
    counted, [x], (scalars, message) = Counted(name), drawn((3,)), REFUSED[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CALLS, "loaded", lambda: counted.made)
        call = CALLS.in_front_of_function(counted.call, counted.kernels.call)
    if message:
        with pytest.raises((RuntimeError, ValueError), match=f"^{message}$"):
            call(x, *scalars)
    else:
        assert call(x, *scalars).isnan().all()


@pytest.mark.full
def test_places_have_no_gradient() -> None:
    counted, [x] = Counted("scans/argmax"), drawn((3, 5))
    with torch.no_grad():
        wanted = counted.taken(x)
    found = counted.call(x)
    assert (counted.left, found.dtype, found.requires_grad) == (1, torch.int64, False)
    assert torch.equal(found, wanted)


def test_a_copy_of_a_call_is_itself() -> None:
    counted = Counted("gelu")
    assert copy.deepcopy([counted.call, copy.copy(counted.call)]) == [counted.call] * 2


def test_too_few_arguments_have_pythons_message() -> None:
    counted, [x] = Counted("swiglu"), drawn((3,))
    messages = []
    for call in (counted.call, counted.python):
        with pytest.raises(TypeError) as raised:
            call(x)
        messages.append(str(raised.value).replace("test_compiled_call", ""))
    assert counted.left == 1
    assert "missing" in messages[0]


def test_a_batch_of_gradients() -> None:
    counted, [x] = Counted("gelu"), drawn((3,))
    y, grads = counted.taken(x), torch.eye(3)
    [found] = torch.autograd.grad(y, x, grads, is_grads_batched=True)
    assert torch.equal(found, torch.diag(torch.autograd.grad(counted.python(x).sum(), x)[0]))


def test_hooks_of_saved_tensors() -> None:
    counted, [x] = Counted("gelu"), drawn((3,))
    seen: list[Tensor] = []

    def pack(t: Tensor) -> Tensor:
        seen.append(t)
        return t * 2

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t / 2):
        y = counted.taken(x)
    [found] = torch.autograd.grad(y.sum(), x)
    assert len(seen) == 1
    assert torch.equal(found, torch.autograd.grad(counted.python(x).sum(), x)[0])


def test_a_saved_tensor_that_was_written_over_is_refused() -> None:
    counted, [x] = Counted("gelu"), drawn((3,))
    written = x.clone()
    y = counted.taken(written)
    written.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_graph_can_be_used_twice_only_if_it_is_kept() -> None:
    counted, [x] = Counted("gelu"), drawn((3,))
    y = counted.taken(x).sum()
    first, second = torch.autograd.grad(y, x, retain_graph=True), torch.autograd.grad(y, x)
    assert torch.equal(first[0], second[0])
    with pytest.raises(RuntimeError, match="a second time"):
        torch.autograd.grad(y, x)


def test_inference_and_no_grad() -> None:
    counted, [x] = Counted("gelu"), drawn((3,))
    with torch.inference_mode():
        assert counted.taken(x).is_inference()
    with torch.no_grad():
        y = counted.taken(x)
    assert not y.requires_grad
    assert not y.is_inference()


def test_the_first_gradient_has_both_passes_built_at_once() -> None:
    counted, [x] = Counted("gelu"), drawn((3,))
    vars(counted.kernels).pop("_passes", None)
    with torch.no_grad():
        counted.taken(x)
    assert "_passes" not in vars(counted.kernels)
    counted.taken(x)
    assert vars(counted.kernels)["_passes"] == {"backward"}


def test_checkpointing() -> None:
    counted, [x] = Counted("swiglu"), drawn((3,))
    y = torch.utils.checkpoint.checkpoint(lambda t: counted.taken(t, t), x, use_reentrant=False)
    [found] = torch.autograd.grad(y.sum(), x)
    assert torch.equal(found, torch.autograd.grad(counted.python(x, x).sum(), x)[0])


def test_compiled_autograd() -> None:
    counted, [x] = Counted("gelu"), drawn((3,))
    compiler = torch.compile(backend="aot_eager")
    with torch._dynamo.compiled_autograd._enable(compiler):
        [found] = torch.autograd.grad(counted.taken(x).sum(), x)
    assert torch.equal(found, torch.autograd.grad(counted.python(x).sum(), x)[0])


def test_dynamo_records_the_operator() -> None:
    counted, [x] = Counted("gelu"), drawn((3,))
    torch._dynamo.reset()
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    y = torch.compile(counted.call, backend=backend, fullgraph=True)(x)
    assert torch.equal(y, counted.python(x))
    assert [str(node.target) for node in graphs[0].graph.nodes if node.op == "call_function"] == [
        str(counted.kernels.overload)
    ]


def test_a_graph_of_many_calls_is_freed_one_by_one() -> None:
    counted, [x] = Counted("gelu"), drawn((1,))
    y = x
    for _ in range(50_000):
        y = counted.taken(y)
    del y  # a call of the stack for each would overflow it
    assert x.grad is None


def test_a_gradient_that_is_none_counts_as_zeros() -> None:
    class Ends(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return None

    counted, [x] = Counted("gelu"), drawn((3,))
    apply: Any = Ends.apply
    for call in (counted.taken, counted.python):
        [found] = torch.autograd.grad(apply(call(x)).sum(), x)
        assert torch.equal(found, torch.zeros(3))


def test_nothing_is_kept_when_a_graph_is_gone() -> None:
    counted, [x] = Counted("gelu"), drawn((3,))
    held: Any = x.clone()
    before = held._use_count()
    for _ in range(3):
        torch.autograd.grad(counted.taken(held).sum(), x, retain_graph=True)
    assert held._use_count() == before


def test_an_error_in_python_comes_through_the_gradient() -> None:
    counted, [x] = Counted("gelu"), drawn((3,))

    def refuses(*_: Any) -> Any:
        raise ValueError("refused")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted.kernels.Backward, "apply", refuses)
        with pytest.raises(ValueError, match=r"^refused$"):
            torch.autograd.grad(counted.taken(x).sum(), x, create_graph=True)


def test_the_compiler_copies_the_headers_of_the_call() -> None:
    assert {*runtime_text.CALL} == {*reached(compiled_call.INCLUDED, header)}


def test_a_module_that_is_imported_makes_no_folder(tmp_path: Path) -> None:
    code = "from generated.hardsigmoid import KERNELS; print(KERNELS.run.__name__)"
    assert answer(code, environment(tmp_path / "none")) == "run\n"
    assert not (tmp_path / "none").exists()


def test_the_next_process_has_the_call(library: Path, tmp_path: Path) -> None:
    code = (
        "import torch; from fusegen.runtime import cache, compiled_call as own; from pathlib import Path;"
        "folder = cache.cache_folder('test');"
        f"own.keep(folder / own.library().name, Path({str(library)!r}).read_bytes());"
        "from generated._runtime import compiled_call as c; from generated.hardsigmoid import KERNELS as k;"
        "y = k.run(torch.ones(1, requires_grad=True));"
        "print(type(k.run) is c.loaded().Callable, k.run.__name__, y.grad_fn.name())"
    )
    assert (
        answer(code, environment(tmp_path))
        == f"True run {load('hardsigmoid').KERNELS.operators.name}::hardsigmoid_backward\n"
    )
