"""Random formulas that reduce rows, as users chain them; formula k is the same in every run."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

FRONTS = (  # elements of a row
    "x", "x", "x + shift", "x / cap", "cap * tanh(x / cap)", "silu(x)", "gelu(x) * gate", "x * silu(gate)",
    "relu(x - shift)", "abs(x) + 0.1", "where(gate > 0, x, -x)", "x * scale + shift", "(x - gate) / cap",
)  # fmt: skip
NORMS = (  # values of elements, of h
    "softmax({h})", "log_softmax({h})", "{h} - mean({h})", "{h} - amax({h})",
    "{h} / (amax(abs({h})) + eps)",
    "({h} - mean({h})) * rsqrt(var({h}, correction=0) + eps)", "{h} * rsqrt(mean({h}**2) + eps)",
    "{h} / sqrt(sum({h}**2) + eps)", "({h} - mean({h})) / (std({h}, correction=1) + cap)",
    "softmax({h}) * (log_softmax({h}) - log_softmax(gate / cap))", "{h} * sigmoid(mean({h}))",
    "softmax({h} / cap) * gate - mean({h})", "exp({h} - logsumexp({h} / cap))",
)  # fmt: skip
VALUES = (  # of a row
    "sum({h})", "mean({h}**2)", "logsumexp({h})", "amax({h}) - amin({h})", "sqrt(sum({h}**2) + eps)",
    "sum(softmax({h}) * gate)", "cap * logsumexp({h} / cap)", "mean(abs({h} - mean({h})))",
    "sum({h} * gate) / (norm({h}) * norm(gate) + eps)", "logsumexp({h}) - sum(softmax({h}) * {h})",
    "var({h}, correction=1) / (mean({h})**2 + cap)",
)  # fmt: skip
BEHIND = (
    "{n}",
    "{n}",
    "{n} * scale",
    "{n} * scale + shift",
    "gelu({n})",
    "x + {n}",
    "tanh({n} / cap)",
    "{n} * gate",
)
BEHIND_VALUES = ("{n}", "{n}", "cap * {n}", "{n}**2", "softplus({n})")
LAYOUTS = (  # a shape, the dimensions of its rows, and the shape of an operand with a row's elements
    ((5, 37), "[-1]", (37,)),
    ((3, 4, 16), "[-1]", (16,)),
    ((2, 3, 4, 5), "[-2, -1]", (4, 5)),
    ((3, 6, 2, 4), "[1]", (6, 1, 1)),
)


@dataclass(frozen=True)
class RowFormula:
    """A formula as a user would declare it."""

    formula: str  # of `h`, a step that is declared beside it
    front: str  # what `h` is
    over: str  # the dimensions of a row
    shapes: Mapping[str, tuple[int, ...]]  # of its tensors, by name
    params: Mapping[str, float]  # its scalars with their values

    @property
    def body(self) -> str:
        """The spec, but for its name and its summary."""
        inputs = ", ".join(f"{each}: {{shape: {list(shape)}}}" for each, shape in self.shapes.items())
        params = ", ".join(f"{each}: {value!r}" for each, value in self.params.items())
        steps = "" if self.front == "x" else f"where: {{h: '{self.front}'}}\n"
        scalars = f"params: {{{params}}}\n" if params else ""
        return f"inputs: {{{inputs}}}\n{scalars}over: {self.over}\n{steps}formula: '{self.formula}'\n"


def row_formula(number: int) -> RowFormula:
    """Return the formula of a number."""
    chance = random.Random(f"rows {number}")
    front = chance.choice(FRONTS)
    of_rows = chance.random() < 0.4
    core = chance.choice(VALUES if of_rows else NORMS)
    if not of_rows and chance.random() < 0.2:
        core = f"{core} + {chance.choice(NORMS)}"
    formula = chance.choice(BEHIND_VALUES if of_rows else BEHIND).format(n=f"({core})")
    formula = formula.format(h="x" if front == "x" else "h")
    whole, over, row = chance.choice(LAYOUTS)
    text = f"{front} {formula}"
    shapes = {"x": whole, "gate": whole, "scale": row, "shift": row}
    params = {"cap": chance.choice((1.5, 3.0, 30.0)), "eps": 1e-5}
    read = {name: shape for name, shape in shapes.items() if name == "x" or name in text}
    return RowFormula(formula, front, over, read, {name: params[name] for name in params if name in text})
