"""`max` and `min` of rows: the gradient goes to the first of equal elements, as PyTorch has it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rows_emulated import emulated
from test_rows import made
from torch import Tensor

CASES: dict[str, tuple[str, Callable[..., Tensor]]] = {
    "last_max": ("over: [-1]\nformula: max(2 * x)\n", lambda x: torch.max(2 * x, -1)[0]),
    "first_min": (
        "inputs: {x: {shape: [4, 6, 5]}}\nover: [1]\nformula: abs(min(relu(x)))\n",
        lambda x: torch.min(torch.relu(x), 1)[0].abs(),
    ),
    "less_max": (
        "over: [-1]\nformula: (x - max(x)) * min(x)\n",
        lambda x: (x - torch.max(x, -1, keepdim=True)[0]) * torch.min(x, -1, keepdim=True)[0],
    ),
    "weighted_max": (
        "inputs: {x: {shape: [4, 6]}, w: {shape: [6]}}\nover: [-1]\nformula: max(x * w)\n",
        lambda x, w: torch.max(x * w, -1)[0],
    ),
}
SHAPES = ((3, 5, 7), (2, 33, 16), (2, 3, 300), (5, 1, 1))
SPECIAL = {0: torch.nan, 1: torch.inf, 2: -torch.inf}


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Return the modules of the cases, each made once."""
    folder = tmp_path_factory.mktemp("extremes")
    return functools.cache(lambda name: made(folder, name, CASES[name][0]))


def drawn(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return whole numbers, of which many are equal."""
    torch.manual_seed(5)
    return torch.randint(-2, 3, shape).to(dtype)


def operands(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    """Return the tensors of a case; weights leave elements equal."""
    x = drawn(shape, dtype)
    return [x, torch.ones(shape[-1], dtype=dtype)] if name == "weighted_max" else [x]


def graded(function: Callable[..., Tensor], tensors: list[Tensor]) -> list[Tensor]:
    """Return a value and its gradients for incoming gradients that differ."""
    leaves = [each.clone().requires_grad_() for each in tensors]
    value = function(*leaves)
    grad = (torch.arange(value.numel()) % 7 + 1).view_as(value).to(value.dtype)
    return [value.detach(), *torch.autograd.grad(value, leaves, grad)]


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_ties_and_infinities_are_those_of_pytorch(modules: Any, name: str, dtype: torch.dtype) -> None:
    function = getattr(modules(name), name)
    for shape in SHAPES:
        given = operands(name, shape, dtype)
        exact = graded(CASES[name][1], [each.double() for each in given])
        for own, right in zip(graded(function, given), exact, strict=True):
            torch.testing.assert_close(own, right.to(dtype))
        if name != "less_max":  # infinities less infinities
            for place, value in SPECIAL.items():
                given[0][..., place % shape[-2], place % shape[-1]] = value
            exact = graded(CASES[name][1], [each.double() for each in given])
            made = graded(function, given)[:2]
            torch.testing.assert_close([each.double() for each in made], exact[:2], equal_nan=True)


OF_INFINITE_VALUES = {
    "x - max(x)": lambda x: x - x.amax(-1, keepdim=True),
    "max(x) - x": lambda x: x.amax(-1, keepdim=True) - x,
    "min(x) - x": lambda x: x.amin(-1, keepdim=True) - x,
    "x + sum(x)": lambda x: x + x.sum(-1, keepdim=True),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("formula", OF_INFINITE_VALUES)
def test_differences_to_infinite_values_of_rows_are_those_of_pytorch(formula: str, tmp_path: Path) -> None:
    """An infinity, and a sum beyond float's range, have no lower digits."""
    module: Any = made(tmp_path, "differs", f"over: [-1]\nformula: {formula}\n")
    for dtype, large in ((torch.bfloat16, 3e38), (torch.float16, torch.inf)):
        x = drawn((4, 11), dtype)
        x[0, 1], x[1, 2], x[2] = torch.inf, -torch.inf, large
        exact = OF_INFINITE_VALUES[formula](x.double()).to(dtype)
        assert torch.isinf(exact).sum() >= 10
        for own in (module.differs(x), emulated(module).forward([x])):
            torch.testing.assert_close(own, exact, equal_nan=True)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("apart", [False, True])
def test_cuda_text(modules: Any, dtype: torch.dtype, apart: bool) -> None:
    name = "first_min" if apart else "last_max"
    kernels = emulated(modules(name))
    for shape in ((2, 40, 16), (3, 33, 5), (1, 2, 1200)):
        x = drawn(shape, dtype)
        x[..., 1, 2] = torch.nan
        view = x.movedim(1, -1) if apart else x
        value, exact = graded(CASES[name][1], [x.double()])
        grad = (torch.arange(value.numel()) % 7 + 1).view_as(value).to(dtype)[..., None]
        assert torch.equal(kernels.forward([view])[..., 0].double().nan_to_num(9), value.nan_to_num(9))
        [own] = kernels.backward([grad, view])
        torch.testing.assert_close((own.movedim(-1, 1) if apart else own).double(), exact)


@pytest.mark.full
def test_at_home_in_pytorch(modules: Any) -> None:
    function, x = modules("first_min").first_min, drawn((4, 6, 5), torch.float32)
    torch.testing.assert_close(torch.vmap(function)(x[None]), function(x)[None])
    assert torch.equal(torch.func.grad(lambda x: function(x).sum())(x), graded_of_ones(x))
    assert torch.autograd.gradgradcheck(
        function, torch.randn(2, 4, 3, dtype=torch.float64).requires_grad_()
    )


def graded_of_ones(x: Tensor) -> Tensor:
    """Return PyTorch's gradient of the sum of the case first_min."""
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(CASES["first_min"][1](leaf).sum(), leaf)[0]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("inputs: {x: {shape: [4, 6, 5]}}\nover: [1, ...]\nformula: max(x)\n", "max"),
        ("over: [0, 2, ...]\nformula: x - min(x)\n", "min"),
        ('init: {g: 2}\nover: ["1 / g", ...]\nformula: x - max(x)\n', "max"),
        ("formula: max(x)\n", "max"),
    ],
)
def test_rows_of_several_dimensions_are_refused(tmp_path: Path, body: str, said: str) -> None:
    with pytest.raises(Exception, match=said):
        made(tmp_path, "wrong", body)
