"""Random formulas over the whole range of floats, against their exact values.

A result is wrong by at most 4 ulp, or twice the largest error of PyTorch's operations at the same inputs.
It is NaN or a wrong infinity only where theirs is, and there it may be anything; NaN in gives NaN out where
it does in PyTorch. Formula k is the same in every run; FUSEGEN_FORMULAS says how many are tried.
"""

import math
import os
import random
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest
import torch
from elements import DTYPES, Elements, Formula
from verdicts import Result, results

from benchmarks.random_formulas import formula

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
COUNT = int(os.environ.get("FUSEGEN_FORMULAS", "2"))
POINTS = 24
SPECIAL = (0.0, -0.0, 1.0, -1.0, 3.0, 6.0, -3.0, math.inf, -math.inf, math.nan)


def points(number: int, inputs: int, dtype: torch.dtype) -> tuple[tuple[float, ...], ...]:
    """Inputs of every size that a dtype has: special ones, ordinary ones, and any."""
    chance, info = random.Random(f"points {number} {dtype}"), torch.finfo(dtype)
    ends = (info.max, info.tiny, info.tiny / 4)
    least, most = math.log2(info.tiny), math.log2(info.max)

    def one() -> float:
        kind = chance.random()
        if kind < 0.25:
            return chance.choice((*SPECIAL, *ends, *(-x for x in ends)))
        if kind < 0.6:
            return chance.gauss(0, 4)
        low, high = (-12, 12) if kind < 0.8 else (least, most)
        return chance.choice((1, -1)) * math.pow(2.0, chance.uniform(low, high))

    return tuple(tuple(one() for _ in range(inputs)) for _ in range(POINTS))


def broken(found: list[Result]) -> Iterator[str]:
    """The breaches of the contract among the results of one formula in one dtype."""
    largest: dict[str, float] = defaultdict(float)
    for result in found:
        if math.isfinite(result.eager_ulp):
            largest[result.name] = max(largest[result.name], result.eager_ulp)
    for result in found:
        if any(map(math.isnan, result.inputs)):
            if result.name == "value" and math.isnan(result.eager) and not math.isnan(result.got):
                yield f"NaN is lost: {result}"
        elif math.isinf(result.ulp):
            if math.isfinite(result.eager_ulp):
                yield str(result)
        elif result.ulp > max(result.limit, 2 * largest[result.name], result.eager_ulp):
            yield f"{result}, eager at most {largest[result.name]:.3g} ulp"


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Elements]:
    """A function from the number of a formula to its kernels, compiled once."""
    folder, made = tmp_path_factory.mktemp("random"), dict[int, Elements]()

    def get(number: int) -> Elements:
        if number not in made:
            drawn = formula(number)
            made[number] = Elements(
                Formula(drawn.formula, drawn.params, drawn.inputs), f"formula_{number}", folder
            )
        return made[number]

    return get


@pytest.mark.few(1)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("number", range(COUNT))
def test_random_formulas_hold_the_contract(
    build: Callable[[int], Elements], number: int, device: str
) -> None:
    elements, found = build(number), list[str]()
    for dtype in DTYPES:
        at = points(number, len(elements.formula.inputs), dtype)
        found += broken(list(results(elements, device, at, dtype)))
    assert not found, f"{elements.formula}\n" + "\n".join(found)
