"""Random formulas of up to three tensors and one scalar; formula k is the same in every run."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from pathlib import Path

from fusegen.compiler.stages import real
from fusegen.errors import FusegenError, SpecErrors
from fusegen.language.library import Library
from fusegen.language.parse import parse_spec

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
NAME = "it"


@dataclass(frozen=True)
class Formula:
    """A formula as a user would declare it."""

    formula: str  # in the spec language
    params: dict[str, float] = field(default_factory=dict)  # its scalars with their values
    inputs: tuple[str, ...] = ("x",)  # its tensors

    @property
    def body(self) -> str:
        """The spec, but for its name, its summary and its dtypes."""
        inputs = ", ".join(f"{name}: {{}}" for name in self.inputs)
        params = ", ".join(f"{name}: {value!r}" for name, value in self.params.items())
        return f'inputs: {{{inputs}}}\nparams: {{{params}}}\nformula: "{self.formula}"\n'


def formula(number: int, values: tuple[float, ...] = PARAMS) -> Formula:
    """Return the formula of a number, whose scalar has one of some values."""
    chance = random.Random(f"formula {number}")
    while True:
        inputs = ("x", "y", "z")[: chance.choices((1, 2, 3), (6, 3, 1))[0]]
        params = {"alpha": chance.choice(values)} if chance.random() < 0.3 else {}
        text = _term(chance, inputs, chance.randint(1, 3), (*params, *params, *CONSTANTS))
        if chance.random() < 0.5:
            text = chance.choice(COMMON).format(text)
        found = Formula(text, params, inputs)
        if set(re.findall(r"\w+", text)) >= {*inputs, *params} and _accepted(found):
            return found


def _term(chance: random.Random, inputs: tuple[str, ...], depth: int, scalars: tuple[str, ...]) -> str:
    """Return a random term of some depth; scalars and constants are second operands only."""
    if depth == 0:
        return chance.choice(inputs)
    if chance.random() < 0.5:
        return chance.choice(UNARY).format(_term(chance, inputs, depth - 1, scalars))
    first = _term(chance, inputs, depth - 1, scalars)
    if chance.random() < 0.4:
        return chance.choice(BINARY).format(first, chance.choice(scalars))
    return chance.choice(BINARY).format(first, _term(chance, inputs, depth - 1, scalars))


def _accepted(candidate: Formula) -> bool:
    """Return whether the compiler takes a formula."""
    text = f"name: {NAME}\nsummary: A test.\n{candidate.body}"
    try:
        return bool(real(parse_spec(text, NAME), Library(Path("."))))
    except (FusegenError, SpecErrors):
        return False
