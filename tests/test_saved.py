"""Autograd saves, for the gradients of several inputs, the tensors that these read, and no others."""

import functools
import gc
import itertools
import shutil
import weakref
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from kernels import NAMES, compiled, generated
from torch import Tensor
from torch.nn.functional import silu
from torch.utils.checkpoint import checkpoint

from fusegen.runtime import bitmask

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

Shape = tuple[int, ...]
WHOLE: Shape = (4, 5, 6)
SHAPES: tuple[Shape, ...] = (WHOLE, (6,), (), (5, 1))  # of r
BODIES = {  # by name, the spec, and the inputs that eager's gradient reads; `y` is the output
    "gated": ("inputs: {x: {}, s: {}, r: {}}\nformula: silu(x) * s + r\n", "xs"),
    "scaled": ("inputs: {x: {}, s: {}, r: {}}\nformula: x * s - 2 * r\n", "xs"),
    "added": ("inputs: {x: {}, r: {}}\nformula: x + r\n", ""),
    "squared": ("inputs: {x: {}, r: {}}\nformula: x + square(r)\n", "r"),
    "ratio": ("inputs: {x: {}, s: {}}\nformula: x / s * s\n", "xs"),
    "doubled": ("formula: 2 * x\n", ""),
    "power": ("formula: exp(x)\n", "y"),
    "rectified": ("formula: relu(x)\n", "y"),
    "halved": ("inputs: {x: {}, r: {split: -1}}\nformula: x - r\n", ""),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_module_saves_no_more_than_eager_and_no_output_that_eager_does_not(name: str) -> None:
    """An output may be changed in place where eager's may."""
    kernels = generated(name).KERNELS
    numbers = [0.5] * kernels.signature.params
    given = [torch.randn(64).requires_grad_() for _ in range(kernels.inputs)]
    held: dict[int, Tensor] = {}

    def hold(tensor: Tensor) -> Tensor:
        return held.setdefault(tensor.untyped_storage()._cdata, tensor)

    with torch.autograd.graph.saved_tensors_hooks(hold, lambda tensor: tensor):
        y = kernels.eager(*given, *numbers)
    ours = set(kernels.signature.saved) - set(kernels.unread)
    assert 64 * len(ours) <= sum(tensor.untyped_storage().nbytes() // 4 for tensor in held.values())
    if not ours <= set(kernels.signature.tensors):
        assert y.untyped_storage()._cdata in held


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    body = "inputs: {x: {}, s: {}, r: {}}\nformula: silu(x) * s + r\n"
    return compiled(tmp_path_factory.mktemp("saved"), "saved_test", body)


def eager(x: Tensor, s: Tensor, r: Tensor) -> Tensor:
    return silu(x) * s + r


def inputs(shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x, s, r = (
        torch.randn(of, generator=generator, dtype=torch.float64).requires_grad_()
        for of in (WHOLE, (5, 1), shape)
    )
    return x, s, r


def gradients(function: Any, given: tuple[Tensor, ...], grad: Tensor | None = None) -> Any:
    y = function(*given)
    return torch.autograd.grad(y, given, torch.ones_like(y) if grad is None else grad)


@pytest.mark.few(1)
@pytest.mark.parametrize("shape", SHAPES)
def test_tensors_that_no_gradient_reads_are_not_saved(module: ModuleType, shape: Shape) -> None:
    assert module.KERNELS.signature.unread == ("r",)
    node: Any = module.saved_test(*inputs(shape)).grad_fn
    assert [None if t is None else tuple(t.shape) for t in node.saved_tensors] == [WHOLE, (5, 1), None]


@pytest.mark.full
@pytest.mark.parametrize("shape", SHAPES)
def test_a_tensor_that_is_not_saved_is_freed_and_may_be_written_over(
    module: ModuleType, shape: Shape
) -> None:
    x, s, r = inputs(shape)
    expected = gradients(eager, (x, s, r))
    residual = r * 1
    alive = weakref.ref(residual)
    y = module.saved_test(x, s, residual)
    with torch.no_grad():
        residual.fill_(torch.nan)
    del residual
    gc.collect()
    assert alive() is None
    torch.testing.assert_close(torch.autograd.grad(y, (x, s, r), torch.ones_like(y)), expected)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModuleType]:
    folder = tmp_path_factory.mktemp("changed")
    return functools.cache(lambda name: compiled(folder, name, f"dtypes: [float32]\n{BODIES[name][0]}"))


def after_a_change(function: Any, leaves: tuple[Tensor, ...], changed: int) -> Any:
    """The gradients after one of the inputs, or the output behind these, is changed; None if refused."""
    inputs = [t * 1 for t in leaves]
    y = function(*inputs)
    tensors = [*inputs, y * 1]  # which holds y where it is changed itself
    with torch.no_grad():
        [*tensors[:-1], y][changed].mul_(3)
    try:
        return torch.autograd.grad(tensors[-1], leaves, torch.full_like(y, 2))
    except RuntimeError as error:
        if "has been modified by an inplace operation" not in str(error):
            raise
        return None


FULL = ("scaled", "squared", "power", "rectified")


@pytest.mark.full
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full if name in FULL else ()) for name in BODIES]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_change_in_place_is_refused_where_eager_refuses_it(
    name: str, dtype: torch.dtype, modules: Callable[[str], ModuleType]
) -> None:
    module, read = modules(name), BODIES[name][1]
    names = [*module.KERNELS.signature.tensors, "y"]
    generator = torch.Generator().manual_seed(1)
    for shape in SHAPES:
        shapes = (WHOLE, shape, shape)[: len(names) - 1]
        given = [torch.rand(of, generator=generator, dtype=dtype) + 0.5 for of in shapes]
        leaves = tuple(t.requires_grad_() for t in given)
        refused = [k for k, each in enumerate(names) if each in read]
        for k in range(len(names)):
            found, expected = (after_a_change(f, leaves, k) for f in (getattr(module, name), module.eager))
            assert ((found is None), (expected is None)) == (k in refused, k in refused)
            torch.testing.assert_close(found, expected)


@pytest.mark.full
def test_halves_that_are_only_added_may_be_changed_in_place(modules: Callable[[str], ModuleType]) -> None:
    leaf = torch.arange(8.0).requires_grad_()
    for function in (modules("halved").halved, lambda t: t[:4] - t[4:]):
        assert [g.tolist() for g in after_a_change(function, (leaf,), 0)] == [[2.0] * 4 + [-2.0] * 4]


@pytest.mark.full
def test_in_place_nothing_is_copied_that_no_gradient_reads(modules: Callable[[str], ModuleType]) -> None:
    leaf = torch.arange(4.0).requires_grad_()
    y = modules("doubled").doubled(leaf * 1, inplace=True)
    assert y.grad_fn.saved_tensors == (None,)
    assert torch.autograd.grad(y.sum(), leaf)[0].tolist() == [2.0] * 4


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_eager(module: ModuleType, shape: Shape) -> None:
    given = inputs(shape)
    dense = torch.randn(WHOLE, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    for grad in (None, dense, dense.movedim(0, -1).contiguous().movedim(-1, 0), dense[:1].expand(WHOLE)):
        found = gradients(module.saved_test, given, grad)
        torch.testing.assert_close(found, gradients(eager, given, grad))
        assert [t.shape for t in found] == [t.shape for t in given]


@pytest.mark.few(1)
@pytest.mark.together
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "needed", [n for n in itertools.product((True, False), repeat=3) if any(n)], ids=str
)
def test_only_gradients_that_are_asked_for_are_written(
    module: ModuleType, needed: tuple[bool, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tuple(
        t.detach().to(dtype).requires_grad_(n) for t, n in zip(inputs(WHOLE), needed, strict=True)
    )
    kernel = module.KERNELS.backward
    written: list[torch.Size] = []

    def backward(*arguments: Any) -> Any:
        found = kernel(*arguments)
        written.extend(t.shape for t in found)
        return found

    monkeypatch.setattr(module.KERNELS, "backward", backward)
    leaves = [t for t in given if t.requires_grad]
    grad = torch.linspace(-1, 1, 120).reshape(WHOLE).to(dtype)
    found, expected = (torch.autograd.grad(f(*given), leaves, grad) for f in (module.saved_test, eager))
    of_r = WHOLE if needed[2] or dtype is torch.bfloat16 else ()
    assert [tuple(shape) for shape in written] == [WHOLE, (5, 1), of_r]
    most = 2e-2 if dtype is torch.bfloat16 else 1e-5
    torch.testing.assert_close(found, expected, rtol=most, atol=most)
    assert [t.shape for t in found] == [t.shape for t in leaves]


def test_a_checkpoint_unpacks_each_saved_tensor_once(module: ModuleType) -> None:
    given = inputs(WHOLE)
    found = checkpoint(module.saved_test, *given, use_reentrant=False)
    torch.testing.assert_close(
        torch.autograd.grad(found, given, torch.ones_like(found)), gradients(eager, given)
    )


def test_a_gradient_by_a_bitmask_reads_each_saved_tensor_once() -> None:
    """Such a gradient runs on CUDA; here PyTorch takes the place of its kernel."""
    halved = SimpleNamespace(backward_by_mask=lambda grad, like, mask: grad * mask)
    gradient = bitmask._gradient(halved)
    grad, mask = torch.ones(3, requires_grad=True), torch.tensor([0.0, 1.0, 0.5])
    again = checkpoint(lambda g: gradient.apply(g, mask[:0], mask, mask), grad, use_reentrant=False)
    again.sum().backward()
    torch.testing.assert_close(grad.grad, mask)


@pytest.mark.full
@pytest.mark.parametrize("shape", SHAPES)
def test_second_derivatives_and_transforms(module: ModuleType, shape: Shape) -> None:
    given = inputs(shape)
    ways = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
    assert torch.autograd.gradcheck(module.saved_test, given, **ways)
    assert torch.autograd.gradgradcheck(module.saved_test, given)
    found, expected = (
        torch.func.hessian(lambda *t, of=of: of(*t).square().sum(), argnums=(0, 1, 2))(*given)
        for of in (module.saved_test, eager)
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["swiglu", "reglu", "geglu", "glu", "tanh", "mish"])
def test_gradients_that_read_every_input_save_every_input(name: str) -> None:
    assert generated(name).KERNELS.signature.unread == ()
