"""Equal gradients of operands that have the result's shape are one output of a kernel, and one tensor."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import Workshop
from emulated import Emulated, emulated, run, run_sums
from emulated import defined as defined
from kernels import assert_same, compiled
from nvrtc_emulated import launched_on_cpu
from torch import Tensor

from fusegen.core.method import Pass, Variant
from fusegen.core.targets import Device
from fusegen.project.build import compiled_file
from fusegen.runtime import sharding
from fusegen.runtime.launcher import Launcher

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

Shape = tuple[int, ...]
Modules = Callable[[str], Any]  # from a name of `BODIES`
PAIR, THREE = "inputs: {x: {}, r: {}}\n", "inputs: {x: {}, r: {}, s: {}}\n"
SMALL = "inputs: {x: {}, r: {}, b: {shape: [1]}}\n"
BEHIND = "inputs: {{x: {{shape: [2, 4, 9, 9]}}, r: {{shape: {shape}}}}}\n"
CONVOLUTION = "init: {channels: 4}\nlayers: [conv: 'Conv2d(channels, 8, 3)']\nformula: relu(x + r)\n"
OUTPUTS: dict[
    str, tuple[str, tuple[int, ...]]
] = {  # a spec, and for each tensor the output of its gradient
    "two": (PAIR + "formula: relu(x + r)\n", (0, 0)),
    "three": (THREE + "formula: relu(x + r + s)\n", (0, 0, 0)),
    "two of three": (THREE + "formula: silu(x + s) * r\n", (0, 1, 0)),
    "two pairs": (
        "inputs: {x: {}, r: {}, s: {}, u: {}}\nformula: relu(x + r) * tanh(s + u)\n",
        (0, 0, 1, 1),
    ),
    "by steps": (PAIR + "chain: [t: x + 1, t + r, relu(x)]\n", (0, 0)),
    "one is broadcast": (SMALL + "formula: relu(x + r + b)\n", (0, 0, 1)),
    "all but one are broadcast": (
        "inputs: {x: {}, r: {shape: [1]}, b: {shape: [1]}}\nformula: relu(x + r + b)\n",
        (0, 1, 2),
    ),
    "no one is whole": ("inputs: {x: {shape: [4, 1]}, r: {shape: [1, 4]}}\nformula: relu(x + r)\n", (0, 1)),
    "scaled alike": (PAIR + "formula: relu(x * 2 + r * 2)\n", (0, 0)),
    "scaled by a parameter": (PAIR + "params: {a: 2.0}\nformula: relu(x * a + r * a)\n", (0, 0)),
    "scaled otherwise": (PAIR + "formula: relu(x * 2 + r * 3)\n", (0, 1)),
    "a difference": (PAIR + "formula: relu(x - r)\n", (0, 1)),
    "a product": (PAIR + "formula: x * r\n", (0, 1)),
    "eager": (PAIR + "numerics: eager\nformula: relu(x + r)\n", (0, 0)),
    "stopped": (PAIR + "formula: relu(x + r) + detach(x)\n", (0, 0)),
    "halves": ("inputs: {x: {}, r: {split: -1}}\nformula: relu(x + r)\n", (0, 1)),
    "behind a convolution": (BEHIND.format(shape="[2, 8, 7, 7]") + CONVOLUTION, (0, 0, 1)),
    "a gate behind a convolution": (BEHIND.format(shape="[2, 8, 1, 1]") + CONVOLUTION, (0, 1, 2)),
}
DTYPES = (torch.float32, torch.bfloat16, torch.float64)
FORMULA = "dtypes: [float32, bfloat16, float64]\nformula: square(x + r) * s\n"
DOUBLE = "dtypes: [float64]\n"
BODIES = {  # by the name of a module; in that with the same gradients apart, r is declared smaller
    "shared": THREE + FORMULA,
    "apart": "inputs: {x: {}, r: {shape: [1]}, s: {}}\n" + FORMULA,
    "alone": DOUBLE + PAIR + "formula: square(x + r)\n",
    "unread": DOUBLE + THREE + "formula: square(s) + x + r\n",
}
SHAPES: dict[str, tuple[Shape, Shape, Shape]] = {  # of x, of r and of s
    "equal": ((3, 5, 8), (3, 5, 8), (3, 5, 8)),
    "s is broadcast": ((3, 5, 8), (3, 5, 8), (5, 1)),
    "both are broadcast": ((5, 1), (5, 1), (3, 5, 8)),
    "r is broadcast": ((3, 5, 8), (8,), (3, 5, 8)),
    "x is broadcast": ((5, 1), (3, 5, 8), ()),
    "both, otherwise": ((3, 1, 8), (5, 1), (3, 5, 8)),
    "one dimension more": ((1, 8), (8,), (8,)),
    "a value": ((), (6,), (6,)),
    "nothing": ((0, 8), (8,), (0, 8)),
}


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Modules:
    """The modules of `BODIES` by name, each built on first use."""
    folder, made = tmp_path_factory.mktemp("distinct"), dict[str, ModuleType]()

    def module(name: str) -> ModuleType:
        if name not in made:
            made[name] = compiled(folder, f"of_{name}", BODIES[name])
        return made[name]

    return module


def tensors(shapes: tuple[Shape, ...], dtype: torch.dtype = torch.float64, seed: int = 5) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(shape, generator=generator) * 2).to(dtype).requires_grad_() for shape in shapes]


def incoming(y: Tensor) -> Tensor:
    """The gradient of a result, the same for the same shapes and dtype."""
    return tensors((tuple(y.shape),), y.dtype, 11)[0].detach()


def gradients(function: Callable[..., Tensor], given: list[Tensor]) -> tuple[Tensor, ...]:
    """The gradients of some tensors."""
    y = function(*given)
    return torch.autograd.grad(y, given, incoming(y))


def eager(x: Tensor, r: Tensor, s: Tensor) -> Tensor:
    return (x + r).square() * s


@pytest.mark.few(3)
@pytest.mark.together
@pytest.mark.parametrize("name", OUTPUTS)
def test_equal_gradients_have_one_output(name: str, workshop: Workshop) -> None:
    body, outputs = OUTPUTS[name]
    of = compiled_file(workshop.spec("tried", body))
    assert of.outputs == outputs
    for (which, _, _), kernel in of.kernels.items():
        assert len(kernel.results) == (len({*outputs}) if which is Pass.BACKWARD else 1)


@pytest.mark.full
def test_an_output_less_is_moved(workshop: Workshop) -> None:
    moved = {
        name: compiled_file(workshop.spec("tried", OUTPUTS[name][0]))
        .kernels[Pass.BACKWARD, Device.CUDA, Variant.DOUBLE]
        .moved
        for name in ("two", "three", "a difference", "two pairs")
    }
    assert moved == {"two": 4, "three": 5, "a difference": 5, "two pairs": 7}


@pytest.mark.few(1)
@pytest.mark.together
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_gradients_have_the_bits_of_outputs_apart(name: str, dtype: torch.dtype, modules: Modules) -> None:
    """Also where operands have other shapes than declared: each then is added up by the kernel."""
    given = tensors(SHAPES[name], dtype)
    found, plain = gradients(modules("shared").of_shared, given), [t.detach() for t in given]
    apart = modules("apart").KERNELS.backward(incoming(eager(*plain)), *plain)
    for actual, right, t in zip(found, apart, given, strict=True):
        assert (actual.shape, actual.dtype, actual.stride()) == (t.shape, dtype, right.stride())
        assert_same(actual, right)


@pytest.mark.full
@pytest.mark.parametrize("name", SHAPES)
def test_gradients_of_one_output_are_those_of_eager(name: str, modules: Modules) -> None:
    given = tensors(SHAPES[name][:2])
    found = gradients(modules("alone").of_alone, given)
    for actual, right in zip(found, gradients(lambda x, r: (x + r).square(), given), strict=True):
        torch.testing.assert_close(actual, right)


def test_other_layouts_dtypes_and_orders_give_the_gradients_of_eager(modules: Modules) -> None:
    x, r, s = (t.detach() for t in tensors(((2, 3, 4, 5),) * 3, torch.float32))
    cases: list[list[Tensor]] = [
        [x, r.to(memory_format=torch.channels_last), s],
        [x.mT.contiguous().mT, r, s],
        [x, r[:1].expand_as(x), s],
        [x, r.double(), s],
        [x.bfloat16(), r, s],
        [x.bfloat16(), r.bfloat16(), s],
    ]
    for case in cases:
        given = [t.requires_grad_() for t in case]
        found, right = gradients(modules("shared").of_shared, given), gradients(eager, given)
        for actual, expected, t in zip(found, right, given, strict=True):
            assert (actual.shape, actual.dtype, actual.stride()) == (t.shape, t.dtype, expected.stride())
            coarse = any(each.dtype is torch.bfloat16 for each in given)
            torch.testing.assert_close(
                actual, expected, rtol=0.05 if coarse else 1e-5, atol=0.05 if coarse else 1e-5
            )


def once(y: Tensor, r: Tensor) -> None:
    torch.autograd.backward(y.sum())


def twice(y: Tensor, r: Tensor) -> None:
    torch.autograd.backward(y.sum(), retain_graph=True)
    torch.autograd.backward(y.sum())


def followed(y: Tensor, r: Tensor) -> None:
    torch.autograd.backward(y.sum(), create_graph=True)


def of_a_part(y: Tensor, r: Tensor) -> None:
    torch.autograd.backward(y.flatten()[2:].sum())


def with_a_hook(y: Tensor, r: Tensor) -> None:
    hooked: Any = r
    hooked.register_hook(lambda gradient: 2 * gradient)
    once(y, r)


def with_a_hook_in_place(y: Tensor, r: Tensor) -> None:
    def triple(leaf: Any) -> None:
        leaf.grad.mul_(3)

    hooked: Any = r
    hooked.register_post_accumulate_grad_hook(triple)
    once(y, r)


WAYS = (once, twice, followed, of_a_part, with_a_hook, with_a_hook_in_place)


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("way", WAYS)
def test_leaves_share_no_memory_of_their_gradients(way: Any, modules: Modules) -> None:
    """The same as of PyTorch's own addition, whose backward pass hands out one tensor, too."""
    seen = []
    for function in (modules("shared").of_shared, eager):
        leaves = tensors(SHAPES["equal"])
        way(function(*leaves), leaves[1])
        grads: list[Any] = [t.grad for t in leaves]
        before = [g.detach().clone() for g in grads]
        with torch.no_grad():
            grads[0].add_(100)
        changed = [not torch.equal(g, old) for g, old in zip(grads, before, strict=True)]
        seen.append((before, len({g.data_ptr() for g in grads}), changed))
    (found, *own), (right, *others) = seen
    assert own == others == [3, [True, False, False]]
    for actual, expected in zip(found, right, strict=True):
        torch.testing.assert_close(actual, expected)


def counted(kernels: Any, patch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of the gradient's kernel from now on."""
    kernel, calls = kernels.backward, list[Any]()

    def counting(*arguments: Any) -> Any:
        calls.append(arguments)
        return kernel(*arguments)

    patch.setattr(kernels, "backward", counting)
    return calls


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_shapes_whose_gradients_nobody_asks_for_take_no_call(
    wanted: int, modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels, calls = modules("shared").KERNELS, counted(modules("shared").KERNELS, monkeypatch)
    plain = [t.detach() for t in tensors(SHAPES["r is broadcast"])]
    given = [t.clone().requires_grad_(k == wanted) for k, t in enumerate(plain)]
    y = kernels.differentiated(*given)
    torch.autograd.backward(y, incoming(y))
    right = gradients(eager, tensors(SHAPES["r is broadcast"]))[wanted]
    assert len(calls) == 1
    torch.testing.assert_close(given[wanted].grad, right)


@pytest.mark.full
@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_one_gradient_alone(wanted: int, modules: Modules, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two equal gradients one is asked for; the tensors are not saved, as no gradient reads them."""
    module = modules("unread")
    calls = counted(module.KERNELS, monkeypatch)
    assert module.KERNELS.signature.unread == ("x", "r")
    given = [t.detach().requires_grad_(k == wanted) for k, t in enumerate(tensors(SHAPES["equal"]))]
    y = module.of_unread(*given)
    torch.autograd.backward(y, torch.full_like(y, 3))
    expected = 6 * given[2].detach() if wanted == 2 else torch.full_like(y, 3)
    assert len(calls) == 1
    assert all(t.is_contiguous() for t in calls[0])
    found = given[wanted].grad
    assert found is not None
    assert torch.equal(found, expected)
    assert all(t.grad is None for k, t in enumerate(given) if k != wanted)


@pytest.mark.full
@pytest.mark.parametrize("shapes", [SHAPES["equal"], ((2, 3), (3,), (2, 1)), ((2, 1), (1, 3), (2, 3))])
def test_derivatives_of_any_order_agree_with_differences(
    shapes: tuple[Shape, ...], modules: Modules
) -> None:
    for name in ("alone", "shared"):
        module = modules(name)
        given = tensors(
            tuple(tuple(min(n, 2) for n in shape) for shape in shapes[: 2 + (name == "shared")])
        )
        function = getattr(module, f"of_{name}")
        assert torch.autograd.gradcheck(function, given, check_forward_ad=True, check_batched_grad=True)
        assert torch.autograd.gradgradcheck(function, given, check_fwd_over_rev=True)
        operator = getattr(module.KERNELS.operators, f"of_{name}_backward").default
        plain = [t.detach() for t in given]
        torch.library.opcheck(operator, (function(*plain), *plain))


@pytest.mark.parametrize("dims", [(0, None, None), (None, 0, None), (0, 0, 0), (1, None, 0)])
@pytest.mark.parametrize("shapes", [((2, 3), (2, 3), (2, 3)), ((2, 3), (3,), (2, 3))])
def test_vmap_gives_each_its_own_gradients(
    shapes: tuple[Shape, ...], dims: tuple[int | None, ...], modules: Modules
) -> None:
    batched = [s if d is None else (*s[:d], 4, *s[d:]) for s, d in zip(shapes, dims, strict=True)]
    given = [t.detach() for t in tensors(tuple(batched))]

    def each(function: Callable[..., Tensor], count: int) -> Any:
        of = torch.func.grad(lambda *t: function(*t).sin().sum(), argnums=tuple(range(count)))
        return torch.func.vmap(of, in_dims=dims[:count])(*given[:count])

    counts: dict[str, tuple[Callable[..., Tensor], int]] = {
        "alone": (lambda x, r: (x + r).square(), 2),
        "shared": (eager, 3),
    }
    for name, (right, count) in counts.items():
        if any(d is not None for d in dims[:count]):
            found = each(getattr(modules(name), f"of_{name}"), count)
            for actual, expected in zip(found, each(right, count), strict=True):
                torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("name", ["equal", "r is broadcast"])
@pytest.mark.parametrize("policy", ["kernel", "decompose"])
def test_compiled_gradients(
    name: str, policy: str, modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels under torch.compile, and the operations that Inductor's pass puts in their place."""
    for of, count in (("alone", 2), ("shared", 3)):
        kernels, given = modules(of).KERNELS, tensors(SHAPES[name][:count])
        if policy == "decompose":
            plain = [t.detach() for t in given]
            grad = kernels.forward(*plain)
            found, right = kernels.eager_outputs(grad, *plain), kernels.backward(grad, *plain)
            right = right if isinstance(right, tuple) else (right,)
        else:
            monkeypatch.setenv("FUSEGEN_COMPILE", policy)
            function = getattr(modules(of), f"of_{of}")
            run_compiled: Any = torch.compile(function, fullgraph=True, backend="aot_eager")
            found, right = gradients(run_compiled, given), gradients(function, given)
        for actual, expected in zip(found, right, strict=True):
            torch.testing.assert_close(actual, expected)


@pytest.fixture(scope="module")
def emulation(modules: Modules, tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    return emulated(modules("shared"), "of_shared", tmp_path_factory.mktemp("emulated"))


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_gives_the_bits_of_the_cpu(dtype: torch.dtype, emulation: Emulated, modules: Modules) -> None:
    given = [t.detach() for t in tensors(((3, 5, 24),) * 4, dtype)]
    right = modules("shared").KERNELS.backward(*given)
    for actual, expected in zip(run(emulation.backward, *given), right, strict=True):
        assert_same(actual, expected)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("small", ["r", "s"])
def test_cuda_sums_an_output_to_the_shape_of_its_smallest_tensor(
    small: str, dtype: torch.dtype, emulation: Emulated
) -> None:
    shapes = {"r": ((6, 7, 24), (7, 1), (6, 7, 24)), "s": ((6, 7, 24), (6, 7, 24), (24,))}[small]
    given = tensors(shapes, dtype)
    grad = incoming(eager(*given))
    plain = [t.detach() for t in given]
    exact = [t.double().requires_grad_() for t in plain]
    sizes = [t.double().abs().requires_grad_() for t in plain]
    right = torch.autograd.grad(eager(*exact), exact[1:], grad.double())
    bounds = torch.autograd.grad(eager(*sizes), sizes[1:], grad.double().abs())
    found = run_sums(emulation, grad, *plain, of=(1, 2))
    for actual, expected, size in zip(found, right, bounds, strict=True):
        assert bool(((actual.double() - expected).abs() <= 2 * torch.finfo(dtype).eps * size).all())


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["equal", "r is broadcast", "nothing"])
def test_python_launches_the_kernel_of_shared_outputs(
    name: str, modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NVRTC compiles it: the outputs have the shapes and the bits of those of the binding in C++."""
    launched_on_cpu(monkeypatch)
    kernels, given = modules("shared").KERNELS, [t.detach() for t in tensors(SHAPES[name])]
    grad = incoming(eager(*given))
    right = kernels.backward(grad, *given)
    for actual, expected in zip(Launcher(kernels, "backward").new(grad, *given), right, strict=True):
        assert (actual.shape, actual.stride()) == (expected.shape, expected.stride())
        torch.testing.assert_close(actual, expected)


PLACEMENTS: dict[str, tuple[str, ...]] = {  # of x, of r and of s, and of the two gradients
    "equal": ("S(1)", "S(1)", "S(1)", "S(1)", "S(1)"),
    "r is broadcast": ("S(1)", "R", "S(1)", "P(sum)", "S(1)"),
    "x is broadcast": ("S(0)", "S(1)", "R", "S(0)", "P(sum)"),
}


@pytest.mark.parametrize("name", PLACEMENTS)
def test_rules_of_sharding(name: str, modules: Modules) -> None:
    """Along the second dimension of the result; a gradient of what is replicated is a partial sum."""
    grad, *tensors = [SimpleNamespace(shape=shape) for shape in ((3, 5, 8), *SHAPES[name])]
    rules = sharding._rules(modules("shared").KERNELS.signature, "backward", 4, 2)(grad, *tensors)
    found = [[*map(str, given[1:]), *map(str, made)] for made, given in rules if str(given[0]) == "S(1)"]
    assert found == [list(PLACEMENTS[name])]


def test_the_module_says_what_is_shared(tmp_path: Path, modules: Modules) -> None:
    module = modules("shared")
    assert module.KERNELS.signature.kernels[1][2:] == (4, 2)
    assert "s: the common gradient of x and r; the gradient of s.\n" in module.CUDA_SOURCE
    assert "gradients=(0, 0, 1)" in Path(module.__file__).read_text(encoding="utf-8")
