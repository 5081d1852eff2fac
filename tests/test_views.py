"""``unsqueeze(a, k)`` of an input: a view that is taken before the kernel."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from conftest import Workshop
from kernels import Modules
from parsed import spec
from torch import Tensor

from fusegen.codegen.printers.notation import notation
from fusegen.language.ambiguous_shapes import two_fits

ROWS = "inputs: {a: {shape: [4]}, b: {shape: [4, 4]}}\nformula: unsqueeze(a, 1) * b\n"
BODIES: dict[str, tuple[str, Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "rows": (ROWS, lambda a, b: a.unsqueeze(1) * b, ((5,), (5, 7))),
    "of_both": (
        "inputs: {a: {shape: [4]}, b: {shape: [3]}}\n"
        "formula: tanh(unsqueeze(a, -1) + unsqueeze(b, 0)) * unsqueeze(b, dim=0)\n",
        lambda a, b: torch.tanh(a.unsqueeze(-1) + b.unsqueeze(0)) * b.unsqueeze(0),
        ((5,), (3,)),
    ),
    "in_a_chain": (
        "inputs: {x: {shape: [2, 4, 3]}, b: {shape: [2, 4]}, s: 2}\nparams: {beta: 0.5}\n"
        "where: {scaled: 'unsqueeze(b, 2) * s'}\nchain: [x + scaled, silu, x * beta]\n",
        lambda x, b: torch.nn.functional.silu(x + b.unsqueeze(2) * 3) * 0.5,
        ((2, 4, 3), (2, 4)),
    ),
    "of_the_first_alone": (
        "inputs: {x: {shape: [4]}}\nformula: relu(unsqueeze(x, 0))\n",
        lambda x: torch.relu(x.unsqueeze(0)),
        ((5,),),
    ),
}
BUILT = [
    name if name in ("rows", "of_the_first_alone") else pytest.param(name, marks=pytest.mark.full)
    for name in BODIES
]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModuleType]:
    folder = tmp_path_factory.mktemp("views")
    return Modules(folder, {name: body for name, (body, _, _) in BODIES.items()})


def numbers(name: str) -> tuple[float, ...]:
    return (3.0,) if name == "in_a_chain" else ()


@pytest.mark.few(2)
@pytest.mark.parametrize("name", BUILT)
@pytest.mark.parametrize("how", ["function", "model", "compiled"])
def test_value_and_gradients_are_those_of_the_view(
    name: str, how: str, modules: dict[str, ModuleType]
) -> None:
    _, expected, shapes = BODIES[name]
    ours: Any = getattr(modules[name], name) if how == "function" else modules[name].ModelNew()
    if how == "compiled":
        ours = torch.compile(ours, fullgraph=True, backend="aot_eager")
    generator = torch.Generator().manual_seed(3)
    tensors = [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]

    def results(function: Any, *more: float) -> list[Tensor]:
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        y = function(*leaves, *more)
        grad = torch.linspace(-2, 3, y.numel(), dtype=torch.float64).reshape(y.shape)
        return [y, *torch.autograd.grad(y, leaves, grad)]

    for found, exact in zip(results(ours, *numbers(name)), results(expected), strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-14)


@pytest.mark.full
def test_other_calls_take_the_view_too(modules: dict[str, ModuleType]) -> None:
    rows = modules["rows"].rows
    a, b = torch.randn(4), torch.randn(4, 4)  # as large either way, so that nothing but the values tells
    expected = a.unsqueeze(1) * b
    out = torch.empty(4, 4)
    assert rows(a, b, out=out) is out
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(rows(a.half(), b, out=out), a.half().unsqueeze(1) * b)
    torch.testing.assert_close(rows(a.int(), b.int()), a.int().unsqueeze(1) * b.int())  # by PyTorch's own
    torch.testing.assert_close(rows(a.T if a.dim() > 1 else a, b.T), a.unsqueeze(1) * b.T)
    torch.testing.assert_close(torch.func.vmap(rows)(a.expand(3, 4), b.expand(3, 4, 4))[1], expected)
    with pytest.raises(RuntimeError, match=r"rows: the shapes .* do not broadcast"):
        rows(torch.randn(3), b)


def test_it_is_written_for_readers() -> None:
    assert notation(spec(ROWS)) == "y = unsqueeze(a, 1) · b"
    assert notation(spec(BODIES["in_a_chain"][0])) == (
        "scaled = unsqueeze(b, 2) · s,  x = x + scaled,  x = silu(x),  y = x · beta"
    )


def test_a_spec_with_a_view_is_no_part_of_another(workshop: Workshop) -> None:
    workshop.spec("rows", ROWS)
    workshop.spec("gate", "inputs: {x: {}, y: {}}\nformula: 'rows(x, y) + 1'")
    result = workshop.run("build", "gate")
    assert result.exit_code == 2
    assert "'rows' reads unsqueeze(a, 1), so it cannot be used inside another spec" in result.output


TWICE = (
    "gate: a of shape {} is aligned with the last dimensions of {}; as sizes are equal, "
    "unsqueeze(a, {}) in its place would fit, too"
)
FITS = {
    "a * b": ([4], [4, 4], TWICE.format([4], [4, 4], 1)),
    "a + b": ([4], [3, 4, 4], TWICE.format([4], [3, 4, 4], 1)),
    "a - b": ([4, 1], [4, 4, 4], TWICE.format([4, 1], [4, 4, 4], 2)),
    "a * b + 1": ([4], [3, 4], None),
    "a * b + 2": ([4], [4], None),
    "a * b + 3": ([64, 1, 1], [128, 64, 126, 126], None),
    "a * b + 4": ([], [4, 4], None),
    "a * b + 5": ([1], [4, 4], None),
    "a * b + 6": ([3], [4, 4], None),  # which fits in no way
    "unsqueeze(a, 1) * b": ([4], [4, 4], None),
    "unsqueeze(a, 0) * b": ([4], [4, 4], None),
}


@pytest.mark.parametrize("formula", FITS)
def test_shapes_that_fit_in_two_ways_are_remarked(formula: str) -> None:
    first, second, says = FITS[formula]
    found = spec(f"inputs: {{a: {{shape: {first}}}, b: {{shape: {second}}}}}\nformula: {formula}")
    assert list(two_fits(found)) == ([says] if says else [])
    assert not list(two_fits(replace(found, inputs=found.inputs[:1])))


def test_the_remark_is_printed_by_build(workshop: Workshop, tmp_path: Path) -> None:
    workshop.spec("gate", "inputs: {a: {shape: [4]}, b: {shape: [4, 4]}}\nformula: a * b")
    result = workshop.run("build", "gate")
    assert result.exit_code == 0
    assert "unsqueeze(a, 1) in its place would fit, too" in result.output
