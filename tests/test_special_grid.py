"""Infinities, NaN and zeros of several tensors beside numbers of every size: what eager has right stays.

Values and gradients of programs with guards are compared with eager's wherever that is a number. They may
differ only where the exact result, or the limit as each infinity is approached, is ours.
"""

import math
import os
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache, partial
from itertools import count
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from elements import Elements, Formula
from special_grid import SIZES, Subject, eagers, grid, ours, subject
from torch import Tensor
from verdicts import exactly, ulps

from benchmarks.random_formulas import formula
from fusegen.core.poolings import poolings
from fusegen.language.library import Library, load
from fusegen.language.parse import parse_spec

LIBRARY = Library(ROOT / "specs")
COUNT = int(os.environ.get("FUSEGEN_FORMULAS", "200"))
DTYPES = (torch.float32, torch.float64)
NEAR = 1e-3  # relative: single words here where kernels have double words
FORMULAS = {  # of which a guard once changed what eager has right, or gave a wrong number
    "coefficient": "where(x <= 1, y, 0) + where(x <= 1, y, 0) / (2 * x) + where(x > 1, y, 0) / x",
    "swish": "x * sigmoid(y * x)",
    "cancelled": "x + y - x",
    "exponents": "exp(x - y) * exp(y)",
    "far slope": "x * tanh(maximum(y, 1.702))",
    "sum of exponents": "0.5 * x * (1 + erf(exp2(x) + y * 3))",
    "choice by NaN": "where(x > 0, x, exp(relu6((1 - y) * relu6(y))) - 1)",
    "choice of another": "y * where(x > 1, x, 2) + x * sigmoid(y)",
}
LEAST = {torch.float32: 9.999999350456404e-39, torch.float64: 1e-38}  # the least numbers of the grid
KNOWN: dict[int, frozenset[str]] = {  # where random formulas still differ, by their place
    # A selection by inf - inf, which is NaN: the gradient is of the branch that is not taken.
    7: frozenset(f"{dtype} gradient of x at (-inf, inf)" for dtype in DTYPES),
    # relu6 of a NaN: PyTorch's vectors pass on 0 in place of a NaN gradient, its other elements the NaN.
    38: frozenset(
        f"{dtype} gradient of y at ({float(x)}, nan)"
        for dtype in DTYPES
        for x in torch.tensor((math.inf, *SIZES), dtype=dtype)
    ),
    # The two terms of the slope of y / y cancel; in single words their roundings are left.
    81: frozenset(
        f"torch.float32 gradient of y at ({x}, {y})"
        for x in ("-inf", "0.0", "-0.0")
        for y in (0.75, 3.0, 1e4, -0.75, -3.0, -1e4)
    ),
    # An infinity is 2^126 in float64, too: the slope beside it is the inverse of its square, not 0.
    86: frozenset(
        f"torch.float64 gradient of y at ({sign * x}, {-sign * math.inf})"
        for x in (1e-3, 0.75, 1.0, 3.0, 1e4)
        for sign in (1, -1)
    ),
    # A slope by y beside an infinite y that is tiny, where eager's is 0; and one by z that float rounds.
    117: frozenset(
        f"{dtype} gradient of y at ({sign * x}, inf, {side * LEAST[dtype]})"
        for dtype, sizes in (
            (torch.float32, (0.75, 1.0, 3.0, 1e4)),
            (torch.float64, (1e-3, 0.75, 1.0, 3.0, 1e4)),
        )
        for x in sizes
        for sign in (1, -1)
        for side in (1, -1)
    )
    | {
        f"torch.float32 gradient of z at ({x}, {y}, 0.0010000000474974513)"
        for x, y in ((1e4, -math.inf), (1e4, 0.0), (1e4, -0.0), (-1e4, -math.inf))
    },
}
LARGE = (2.0**1000, 2.0**700)  # in place of infinities


@cache
def of(body: str) -> Subject:
    return subject(parse_spec(f"name: it\nsummary: A test.\n{body}", "it"), LIBRARY)


def specs() -> Iterator[Path]:
    """The specs of two or three tensors, those of a layer's bias among them, by one kernel of elements."""
    for path in sorted((ROOT / "specs").rglob("*.yaml")):
        spec = load(path)
        is_pointwise = spec.over is None and not poolings(spec) and len(spec.kernels) == 1
        if is_pointwise and 2 <= len(spec.tensors) <= 3 and not spec.masks:
            yield path


@cache
def random_number(place: int) -> int:
    """The number of the random formula at a place among those of several tensors."""
    numbers = count(random_number(place - 1) + 1 if place else 0)
    return next(number for number in numbers if len(formula(number).inputs) > 1)


def differences(
    tried: Subject,  # the subject
    dtype: torch.dtype,  # of the inputs
    # the results from columns of inputs; without, the programs are evaluated
    kernels: Callable[..., list[Tensor]] | None = None,
) -> list[str]:
    """Where results are neither eager's nor limits, as lines, and where NaN is lost."""
    names = tried.programs.forward.inputs
    points = grid(len(names))
    held = torch.tensor(points, dtype=dtype)
    mine = (
        [each.double() for each in kernels(*held.T.contiguous())] if kernels else ours(tried, points, dtype)
    )
    eager = eagers(tried, points, dtype)
    wide = [each.to(dtype).double() for each in eagers(tried, held.double().tolist(), torch.float64)]
    found = []
    for k, result in enumerate(("value", *(f"gradient of {name}" for name in names))):
        same = close(mine[k], eager[k], dtype) | close(mine[k], wide[k], dtype) | eager[k].isnan()
        if k:  # where the value is NaN there is no slope, and that by NaN may be NaN
            same |= eager[0].isnan() | (mine[k].isnan() & mine[0].isnan())
        else:
            same &= mine[0].isnan() | ~eager[0].isnan() | ~held.isnan().any(1) | held.isinf().any(1)
        for i in (~same).nonzero().flatten().tolist():
            at = tuple(held[i].double().tolist())
            if not limit(tried, at, k, (float(mine[k][i]), float(eager[k][i])), dtype):
                found.append(f"{dtype} {result} at {at}: {float(mine[k][i])}, eager {float(eager[k][i])}")
    return found


def close(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Where two columns have one number, one infinity, or NaN; a number below the normal ones is 0."""
    tiny = torch.finfo(dtype).tiny
    apart = (a - b).abs() <= NEAR * torch.maximum(a.abs(), b.abs()) + tiny
    return (a == b) | (a.isnan() & b.isnan()) | (a.isfinite() & b.isfinite() & apart)


def limit(
    tried: Subject, at: tuple[float, ...], k: int, pair: tuple[float, float], dtype: torch.dtype
) -> bool:
    """Tells whether a result is the exact one, or the limit however fast the infinities are approached."""
    if any(map(math.isnan, at)):
        return abs(pair[0] - pair[1]) <= NEAR * max(1.0, abs(pair[1]))
    reals = exactly(tried.declared.program, tried.params)
    for sizes in (LARGE, LARGE[::-1])[: 2 if any(map(math.isinf, at)) else 1]:
        large = iter((*sizes, sizes[0]))
        near = tuple(math.copysign(next(large), x) if math.isinf(x) else x for x in at)
        exact = reals(near)[k]
        if exact is None or not right(pair, exact, dtype):
            return False
    return True


def right(pair: tuple[float, float], exact: Fraction | float, dtype: torch.dtype) -> bool:
    """Tells whether the first of two results is as near to the exact one as the second, or in 13 bits."""
    if math.isinf(pair[0]) and abs(exact) > LARGE[1] ** 0.5:
        return (exact > 0) == (pair[0] > 0)
    mine, eager = (ulps(each, exact, dtype) for each in pair)
    return mine <= max(NEAR / torch.finfo(dtype).eps, 4 * eager)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FORMULAS)
def test_guards_change_nothing_that_eager_has_right(name: str, dtype: torch.dtype) -> None:
    tried = of(f'inputs: {{x: {{}}, y: {{}}}}\nformula: "{FORMULAS[name]}"\n')
    assert not differences(tried, dtype)


@pytest.mark.full
def test_specs_of_several_tensors_differ_nowhere_from_eager() -> None:
    for path in specs():
        tried = subject(load(path), Library(path.parent))
        assert not [line for dtype in DTYPES for line in differences(tried, dtype)], path


@pytest.mark.few(1)
@pytest.mark.parametrize("place", range(COUNT))
def test_random_formulas_of_several_tensors_differ_from_eager_where_it_is_known(place: int) -> None:
    tried = of(formula(random_number(place)).body)
    found = [line for dtype in DTYPES for line in differences(tried, dtype)]
    assert {line.partition(": ")[0] for line in found} == KNOWN.get(place, frozenset()), found


@pytest.mark.full
@pytest.mark.parametrize("name", FORMULAS)
def test_kernels_differ_nowhere_from_eager(name: str, tmp_path: Path) -> None:
    elements = Elements(Formula(FORMULAS[name], {}, ("x", "y")), "it", tmp_path)
    tried = of(f'inputs: {{x: {{}}, y: {{}}}}\nformula: "{FORMULAS[name]}"\n')
    for dtype in DTYPES:
        assert not differences(tried, dtype, partial(elements, "cpu"))
