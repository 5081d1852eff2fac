"""Random formulas over the whole range of floats, against their exact values.

A result is wrong by at most 4 ulp, or twice the largest error of PyTorch's operations at the same inputs.
It is NaN or a wrong infinity only where theirs is, and there it may be anything; NaN in gives NaN out where
it does in PyTorch. Formula k is the same in every run; FUSEGEN_FORMULAS says how many are tried.
"""

from __future__ import annotations

import math
import os
import random
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from elements import DTYPES, Elements, Formula
from verdicts import Result, results

from fusegen.errors import FusegenError, SpecErrors
from fusegen.library import Library
from fusegen.parse import parse_spec
from fusegen.stages import real

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
COUNT = int(os.environ.get("FUSEGEN_FORMULAS", "4"))
POINTS = 24
UNARY = (
    "exp({0}) log({0}) tanh({0}) sigmoid({0}) erf({0}) softplus({0}) sqrt({0}) abs({0}) relu({0}) "
    "expm1({0}) log1p({0}) sin({0}) cos({0}) exp2({0}) erfc({0}) rsqrt({0}) square({0}) cube({0}) "
    "sign({0}) relu6({0})"
).split()
UNARY += ["-{0}", "1 / {0}", "clamp({0}, -1, 2)", "(1 + {0})", "(1 - {0})", "2 * {0}", "{0}**3"]
BINARY = ["({0} + {1})", "({0} - {1})", "({0} * {1})", "({0} * {1})", "({0} / {1})"]
BINARY += ["maximum({0}, {1})", "minimum({0}, {1})", "where({0} > {1}, {0}, 2 * {1})"]
COMMON = [  # as activations are made
    "x * sigmoid({0})",
    "x * tanh({0})",
    "0.5 * x * (1 + erf({0}))",
    "log(1 + exp({0}))",
    "x / (1 + exp(-{0}))",
    "where(x > 0, x, exp({0}) - 1)",
    "x / sqrt(1 + square({0}))",
]
CONSTANTS = ("0.5", "1", "2", "3", "0.044715", "1e-6", "1.702", "sqrt(2)", "pi", "6")
PARAMS = (1.0, 0.5, -1.0, 0.0, 3.0, 30.0, 1e-3)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 3.0, 6.0, -3.0, math.inf, -math.inf, math.nan)
NAME = "it"


def formula(number: int) -> Formula:
    """The formula of a number: of up to three tensors and one scalar, which is in the language."""
    chance = random.Random(f"formula {number}")
    while True:
        inputs = ("x", "y", "z")[: chance.choices((1, 2, 3), (6, 3, 1))[0]]
        params = {"alpha": chance.choice(PARAMS)} if chance.random() < 0.3 else {}
        text = _term(chance, inputs, chance.randint(1, 3), (*params, *params, *CONSTANTS))
        if chance.random() < 0.5:
            text = chance.choice(COMMON).format(text)
        found = Formula(text, params, inputs)
        if set(re.findall(r"\w+", text)) >= {*inputs, *params} and _accepted(found):
            return found


def _term(chance: random.Random, inputs: tuple[str, ...], depth: int, scalars: tuple[str, ...]) -> str:
    """A random term of some depth; scalars and constants are second operands only."""
    if depth == 0:
        return chance.choice(inputs)
    if chance.random() < 0.5:
        return chance.choice(UNARY).format(_term(chance, inputs, depth - 1, scalars))
    first = _term(chance, inputs, depth - 1, scalars)
    if chance.random() < 0.4:
        return chance.choice(BINARY).format(first, chance.choice(scalars))
    return chance.choice(BINARY).format(first, _term(chance, inputs, depth - 1, scalars))


def _accepted(candidate: Formula) -> bool:
    """Tells whether the compiler takes a formula."""
    text = f"name: {NAME}\nsummary: A test.\n{candidate.body}"
    try:
        return bool(real(parse_spec(text, NAME), Library(Path("."))))
    except (FusegenError, SpecErrors):
        return False


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
            made[number] = Elements(formula(number), f"formula_{number}", folder)
        return made[number]

    return get


@pytest.mark.few
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
