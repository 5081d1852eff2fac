"""Kernels of users' formulas keep the contract where the formulas' own operations lose digits.

float32 and float64: at most 4 ulp, or twice eager's largest error nearby. Where eager has lost most digits
of a function of one tensor it is no yardstick: 4 ulp are promised there, but where the exact result changes
sign nearby.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from statistics import median

import pytest
import torch
from elements import Elements
from formulas_of_users import EVERY_DTYPE, FORMULAS, Point
from verdicts import ULP, Result, results, wrong

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
WIDE = 2.0**-7  # the width of the box around a point, relative
NEIGHBOURS = 24
LOST = 128.0  # ulp; with larger errors eager is no yardstick
TWICE = 2.0  # for the chance of a sample


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Elements]:
    """Return a function from the name of a formula to its kernels, compiled once."""
    folder = tmp_path_factory.mktemp("users")
    return cache(lambda name: Elements(FORMULAS[name].formula, name, folder))


@pytest.mark.full
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", FORMULAS)
def test_a_users_formula_keeps_the_contract(
    build: Callable[[str], Elements], name: str, device: str
) -> None:
    row, elements = FORMULAS[name], build(name)
    found = [
        each for dtype in EVERY_DTYPE for each in broken(elements, device, held(row.points, dtype), dtype)
    ]
    lines = "\n".join((row.formula.formula, *map(str, found)))
    assert not found, lines


def held(points: tuple[Point, ...], dtype: torch.dtype) -> tuple[Point, ...]:
    """Return the points that a dtype holds: it rounds no coordinate to 0 or to infinity."""
    finite = torch.tensor(points, dtype=dtype).abs()
    kept = ((finite > 0) & finite.isfinite()).all(1).tolist()
    return tuple(point for point, keep in zip(points, kept, strict=True) if keep)


def broken(
    elements: Elements, device: str, points: tuple[Point, ...], dtype: torch.dtype
) -> Iterator[Result]:
    """Yield the results that break the contract."""
    for result in results(elements, device, points, dtype):
        if wrong(result) and not (result.ulp <= allowed(result, elements, device)):
            yield result


def allowed(result: Result, elements: Elements, device: str) -> float:
    """Return the largest error that eager's errors in the box around a result allow, in ulp."""
    if result.dtype.itemsize == 2:
        return result.limit
    around = neighbours(result.inputs)
    box = [each for each in results(elements, device, around, result.dtype) if each.name == result.name]
    errors = [each.eager_ulp for each in (result, *box)]
    signs = {(each.exact > 0) - (each.exact < 0) for each in (result, *box) if each.exact is not None}
    if len(result.inputs) == 1 and median(errors) > LOST and len(signs) == 1:
        return ULP
    return max(ULP, TWICE * max(errors))


def neighbours(point: Point) -> tuple[Point, ...]:
    """Return seeded points in the box around a point."""
    draw = random.Random(repr(point))
    return tuple(tuple(x * (1 + draw.uniform(-WIDE, WIDE)) for x in point) for _ in range(NEIGHBOURS))
