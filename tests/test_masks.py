"""Inputs of dtype bool, which formulas read by ``where(mask, a, b)``."""

import copy
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from conftest import Workshop
from emulated import emulated, run
from kernels import Modules, compiled, load
from parsed import spec
from torch import Tensor, nn
from torch.nn.functional import silu

from fusegen.codegen.printed import Binding
from fusegen.codegen.printers.notation import notation
from fusegen.evidence.bench.case import Case
from fusegen.evidence.bench.competitors import Competitors
from fusegen.evidence.certify import tried_inputs as judged
from fusegen.evidence.certify.specials import judged as judged_specials
from fusegen.evidence.certify.subject import of_spec
from fusegen.numerics.sample import sampled
from fusegen.project import build, standalone

Shapes = tuple[tuple[int, ...], ...]
X_AND_M = "inputs: {x: {shape: [8, 16]}, m: {shape: [8, 16], dtype: bool}}\n"
CHOICE = X_AND_M + "formula: where(m, x, -silu(x))\n"
BODIES: dict[str, tuple[str, Callable[..., Tensor], Shapes]] = {
    "choice": (CHOICE, lambda x, m: torch.where(m, x, -silu(x)), ((8, 16), (8, 16))),
    "broadcast_mask": (
        "inputs: {x: {shape: [8, 16]}, m: {shape: [8, 1], dtype: bool}, b: {shape: [16]}}\n"
        "formula: where(m, x * b, tanh(x))\n",
        lambda x, m, b: torch.where(m, x * b, torch.tanh(x)),
        ((5, 7), (5, 1), (7,)),
    ),
    "mask_first": (
        "inputs: {m: {shape: [3, 4], dtype: bool}, a: {shape: [4]}, b: {shape: [3, 1]}}\n"
        "formula: where(m, exp(a), b * b)\nreference: torch.where\n",
        lambda m, a, b: torch.where(m, torch.exp(a), b * b),
        ((3, 4), (4,), (3, 1)),
    ),
    "in_a_chain": (
        "inputs: {x: {shape: [8, 16]}, m: {shape: [8], dtype: bool}, s: 2}\nparams: {beta: 0.5}\n"
        "where: {scaled: 'where(unsqueeze(m, 1), s, beta)'}\n"
        "chain: [x * scaled, silu, 'where(unsqueeze(m, 1), x, 0)']\n",
        lambda x, m: torch.where(
            m[:, None], silu(x * torch.where(m[:, None], 3.0, 0.5).to(x.dtype)), torch.zeros_like(x)
        ),
        ((8, 16), (8,)),
    ),
    "masks_in_choices": (  # whose gradients, zero, are one term
        "inputs: {x: {shape: [6]}, m: {shape: [6], dtype: bool}, n: {shape: [6], dtype: bool}}\n"
        "formula: where(n, -2, where(m, x * exp(-x), x * 0.5))\n",
        lambda x, m, n: torch.where(n, -2.0, torch.where(m, x * torch.exp(-x), x * 0.5)),
        ((6,), (6,), (6,)),
    ),
    "two_masks": (
        "inputs: {x: {shape: [6]}, m: {shape: [6], dtype: bool}, n: {shape: [], dtype: bool}}\n"
        "numerics: eager\nformula: where(m, where(n, x * 3, x / 3), sigmoid(x))\n",
        lambda x, m, n: torch.where(m, torch.where(n, x * 3, x / 3), torch.sigmoid(x)),
        ((6,), (6,), ()),
    ),
}
BUILT = [
    name if name in ("choice", "mask_first") else pytest.param(name, marks=pytest.mark.full)
    for name in BODIES
]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModuleType]:
    folder = tmp_path_factory.mktemp("masks")
    bodies = {name: body.replace("reference: torch.where\n", "") for name, (body, _, _) in BODIES.items()}
    return Modules(folder, bodies)


def tensors_of(name: str, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Numbers and masks of a body's shapes."""
    body, _, shapes = BODIES[name]
    generator = torch.Generator().manual_seed(3)
    drawn = [torch.randn(shape, dtype=torch.float64, generator=generator) * 3 for shape in shapes]
    return [t > 0 if of.is_mask else t.to(dtype) for of, t in zip(spec(body).inputs, drawn, strict=True)]


def numbers(name: str) -> tuple[float, ...]:
    return (3.0,) if name == "in_a_chain" else ()


def results(function: Any, tensors: list[Tensor], *more: float) -> list[Tensor]:
    """The value and the gradients of the numbers."""
    given = [t.clone() if t.dtype == torch.bool else t.clone().requires_grad_() for t in tensors]
    y = function(*given, *more)
    grad = torch.linspace(-2, 3, y.numel(), dtype=torch.float64).reshape(y.shape).to(y.dtype)
    leaves = [t for t in given if t.requires_grad]
    return [y.detach(), *torch.autograd.grad(y, leaves, grad)]


@pytest.mark.few(1)
@pytest.mark.parametrize("name", BUILT)
@pytest.mark.parametrize("how", ["function", "model", "compiled"])
def test_value_and_gradients_are_those_of_torch_where(
    name: str, how: str, modules: dict[str, ModuleType]
) -> None:
    ours: Any = getattr(modules[name], name) if how == "function" else modules[name].ModelNew()
    if how == "compiled":
        torch.compiler.reset()
        ours = torch.compile(ours, fullgraph=True, backend="aot_eager")
    tensors = tensors_of(name)
    found, exact = results(ours, tensors, *numbers(name)), results(BODIES[name][1], tensors)
    torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-14)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", BUILT)
def test_every_dtype_keeps_its_own(name: str, dtype: torch.dtype, modules: dict[str, ModuleType]) -> None:
    tensors = tensors_of(name, dtype)
    wide = [t if t.dtype == torch.bool else t.double() for t in tensors]
    found = results(getattr(modules[name], name), tensors, *numbers(name))
    assert {t.dtype for t in found} == {dtype}
    exact = results(BODIES[name][1], wide)
    near = 1e-2 if dtype.itemsize == 2 else 1e-5
    narrow = [t.to(dtype) for t in exact]
    torch.testing.assert_close(found, narrow, rtol=4 * torch.finfo(dtype).eps, atol=near)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_what_is_not_selected_does_not_leak(dtype: torch.dtype, modules: dict[str, ModuleType]) -> None:
    function = modules["mask_first"].mask_first
    bad = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e30], dtype=dtype)
    for truth in (True, False):
        m = torch.full((4,), truth)
        a, b = (torch.ones(4, dtype=dtype), bad) if truth else (bad, torch.ones(4, dtype=dtype))
        value, *gradients = results(function, [m, a, b])
        exact = torch.e if truth else 1.0
        torch.testing.assert_close(value, torch.full((4,), exact, dtype=dtype))
        taken, left = gradients if truth else gradients[::-1]
        assert left.tolist() == [0.0] * 4
        assert taken.isfinite().all()


def test_second_derivatives_and_transforms(modules: dict[str, ModuleType]) -> None:
    choice, (x, m) = modules["choice"].choice, tensors_of("choice")
    expected = BODIES["choice"][1]
    graded = x.clone().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda t: choice(t, m), graded)
    assert torch.autograd.gradcheck(lambda t: choice(t, m), graded, check_forward_ad=True)
    vmapped = torch.func.vmap(choice, in_dims=(0, 1))(x, m.T)
    torch.testing.assert_close(vmapped, expected(x, m), rtol=1e-12, atol=1e-14)
    one = torch.func.vmap(choice, in_dims=(0, None))(x, m[0])
    torch.testing.assert_close(one, expected(x, m[0]), rtol=1e-12, atol=1e-14)
    slope = torch.func.grad(lambda t: choice(t, m).sum())(x)
    exact = torch.func.grad(lambda t: expected(t, m).sum())(x)
    torch.testing.assert_close(slope, exact, rtol=1e-12, atol=1e-14)


@pytest.mark.full
def test_other_calls_take_masks_too(modules: dict[str, ModuleType]) -> None:
    choice, (x, m) = modules["choice"].choice, tensors_of("choice", torch.float32)
    expected = BODIES["choice"][1](x, m)
    out = torch.empty(8, 16)
    assert choice(x, m, out=out) is out
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(choice(x.T, m.T), expected.T)
    torch.testing.assert_close(choice(x.half(), m), expected.half(), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(choice(x[:, :1], m), torch.where(m, x[:, :1], -silu(x[:, :1])))
    assert choice(torch.tensor(1.5, dtype=torch.float64), m).dtype == torch.float64
    mixed = modules["mask_first"].mask_first(m[0, 0], torch.tensor(1.0, dtype=torch.float64), x)
    assert mixed.dtype == torch.float32  # a tensor without dimensions does not decide the dtype
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(choice(x, m), expected)
    assert choice(x[:0], m[:0]).shape == (0, 16)


@pytest.mark.full
def test_the_eager_form_takes_the_mask_itself(modules: dict[str, ModuleType]) -> None:
    (x, m), eager = tensors_of("choice"), modules["choice"].eager
    assert torch.equal(eager(x, m), BODIES["choice"][1](x, m))
    integers = torch.arange(-64, 64).reshape(8, 16)  # which have no kernel
    found = modules["broadcast_mask"].eager(integers, m, integers)
    assert torch.equal(found, torch.where(m, integers * integers, torch.tanh(integers)))


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (torch.ones(8, 16), RuntimeError, "choice: m must be a tensor of bool, not of torch.float32"),
        (
            torch.ones(8, 16, dtype=torch.uint8),
            RuntimeError,
            "choice: m must be a tensor of bool, not of torch.uint8",
        ),
        (True, TypeError, "choice: m must be a tensor of bool, not bool"),
        (None, TypeError, "choice: m must be a tensor of bool, not NoneType"),
        (torch.ones(7, 16, dtype=torch.bool), RuntimeError, "choice: the shapes"),
    ],
)
def test_what_torch_where_refuses_is_refused(
    given: Any, error: type[Exception], says: str, modules: dict[str, ModuleType]
) -> None:
    for function in (modules["choice"].choice, modules["choice"].ModelNew()):
        with pytest.raises(error) as told:
            function(torch.ones(8, 16), given)
        assert str(told.value).startswith(says)


def test_get_inputs_makes_a_mask(modules: dict[str, ModuleType]) -> None:
    x, m = modules["choice"].get_inputs()
    assert (x.dtype, m.dtype, m.shape) == (torch.float32, torch.bool, (8, 16))
    assert 0 < int(m.sum()) < m.numel()
    modules["choice"].ModelNew(*modules["choice"].get_init_inputs())(x, m)


LAYERED = """inputs: {x: {shape: [2, 3, 5, 5]}, m: {shape: [2, 1, 4, 4], dtype: bool}}
init: {channels: 3, kernel_size: 2, shift: -2.5}
layers: [conv: 'Conv2d(channels, 4, kernel_size)', weight: 'Parameter(ones(4, 1, 1))']
formula: where(m, silu(x) * weight, shift)
"""


@pytest.mark.full
def test_masks_stand_beside_layers_parameters_and_numbers(tmp_path: Path) -> None:
    module = compiled(tmp_path, "layered", LAYERED)
    model = module.ModelNew(*module.get_init_inputs()).double()
    x, m = torch.randn(2, 3, 5, 5, dtype=torch.float64), torch.rand(2, 1, 4, 4) < 0.5
    other = copy.deepcopy(model)

    def expected(given: Tensor) -> Tensor:
        return torch.where(m, silu(other.conv(given)) * other.weight, -2.5)

    leaf, like = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, exact = model(leaf, m), expected(like)
    torch.testing.assert_close(y, exact, rtol=1e-12, atol=1e-13)
    found = torch.autograd.grad(y.square().sum(), [leaf, *model.parameters()])
    theirs = torch.autograd.grad(exact.square().sum(), [like, *other.parameters()])
    torch.testing.assert_close(found, theirs, rtol=1e-10, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(model(x, m), exact.detach(), rtol=1e-12, atol=1e-13)
    assert isinstance(model.weight, nn.Parameter)


@pytest.mark.full
def test_the_kernels_of_cuda_test_for_zero(tmp_path: Path) -> None:
    kernels = emulated(compiled(tmp_path, "choice", CHOICE), "choice", tmp_path)
    x, m = tensors_of("choice", torch.float32)
    x[0, :4] = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0])
    [y] = run(kernels.forward, x, m.float())
    slope, nothing = run(kernels.backward, torch.ones_like(x), x, m.float())
    exact = BODIES["choice"][1](x.double(), m)
    finite = x.isfinite()
    torch.testing.assert_close(y[finite], exact[finite].float(), rtol=1e-6, atol=1e-30)
    torch.testing.assert_close(y[m], x[m], rtol=0, atol=0, equal_nan=True)
    assert slope[m].tolist() == [1.0] * int(m.sum())
    assert nothing.tolist() == [[0.0] * 16] * 8


@pytest.mark.full
@pytest.mark.parametrize(
    "binding", [pytest.param(b, marks=pytest.mark.full) if b is Binding.PYBIND else b for b in Binding]
)
def test_standalone_files_hold_all_that_masks_need(binding: Binding, tmp_path: Path) -> None:
    path = tmp_path / "choice.yaml"
    path.write_text(f"name: choice\nsummary: A test.\n{CHOICE}", encoding="utf-8")
    text = standalone.text(build.module(build.compiled_file(path), binding), binding.value)
    single = tmp_path / "single.py"
    single.write_text(text, encoding="utf-8")
    x, m = tensors_of("choice")
    torch.testing.assert_close(load(single).choice(x, m), BODIES["choice"][1](x, m), rtol=1e-12, atol=1e-14)


@pytest.mark.full
def test_masks_are_handed_on(workshop: Workshop) -> None:
    workshop.spec("gate", CHOICE)
    workshop.spec(
        "outer",
        "inputs: {x: {}, keep: {dtype: bool}}\nchain: [x / 2, 'gate(x, keep)', 'gate(m=keep, x=x * x)']\n",
    )
    result = workshop.run("build", "outer")
    assert result.exit_code == 0, result.output


def test_masks_are_written_for_readers() -> None:
    assert notation(spec(CHOICE)) == "y = x if m else -silu(x)"
    body = X_AND_M.replace("[8, 16]", "[]") + "formula: where(m, x, 0)"
    assert spec(body).inputs[1].dtype == "bool"
    assert notation(spec(body)) == "y = x if m else 0"


@pytest.mark.full
def test_estimates_and_certificates_try_both_values(workshop: Workshop) -> None:
    given = spec(CHOICE)
    points = sampled(["x", "m"], "", {}, given.ranges, lambda _: ()).points
    assert {point["m"] for point in points} == {0.0, 1.0}
    assert min(sum(point["m"] == truth for point in points) for truth in (0.0, 1.0)) > len(points) / 3
    workshop.spec("gate", CHOICE)
    assert workshop.run("build", "gate").exit_code == 0
    subject = of_spec(build.compiled_file(Path("specs/gate.yaml")), Path("generated"))
    _, column = judged.sample(subject.program, subject.params, torch.float32, subject.masks)
    assert set(column.tolist()) == {0.0, 1.0}
    assert 0.3 < float(column.mean()) < 0.7
    assert judged_specials(subject, "m", torch.float32).tolist() == [0.0]


def test_a_number_is_not_handed_on_as_a_mask(workshop: Workshop) -> None:
    workshop.spec("gate", CHOICE)
    workshop.spec("outer", "formula: 'gate(x, x)'\n")
    result = workshop.run("build", "outer")
    assert result.exit_code == 2
    assert result.output == (
        "specs/outer.yaml:3:11: a number stands where the mask 'm' of 'gate' is expected\n"
        "    formula: 'gate(x, x)'\n"
        "              ^\n"
        "  hint: hand on an input with  dtype: bool\n"
    )


@pytest.mark.parametrize("what", ["forward", "backward"])
def test_a_bench_gives_masks_of_bool_and_counts_their_bytes(
    what: str, modules: dict[str, ModuleType]
) -> None:
    case = Case("choice", what, "float32", (64,), "cpu")
    found = Competitors(spec(CHOICE), modules["choice"], case)
    x, m = found.inputs
    assert (x.dtype, m.dtype) == (torch.float32, torch.bool)
    assert found.moved == 64 * (4 + 1 + 4 + 4 * (what == "backward"))
    for function in found.functions((), compiled=False).values():
        assert not found.wrong(found.run(function))
