"""Random specs: formulas, chains, selections, steps, several tensors, numbers, parameters, halves."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from benchmarks.random_formulas import formula
from fusegen.evidence.certify.random_chains import STEPS

DTYPES = ("float32", "float64", "float16", "bfloat16")
NUMBERS = ("0.5", "-1.5", "2", "0", "1e-3", "30")
CONSTANT = (  # in a tensor, or altogether
    "where(x > 0, 1, 0)",
    "sign(x)",
    "where(x > 1, x, 0)",
    "x - x + 1",
    "detach(x)",
    "clamp(x, -1, 1)",
)
Lines = list[str]


def spec(chance: random.Random, name: str) -> str:
    """Return the text of a random spec."""
    kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
    dtypes = chance.sample(DTYPES, chance.choices((1, 2, 4), (6, 3, 1))[0])
    lines = [f"name: {name}", "summary: A random spec.", f"dtypes: [{', '.join(dtypes)}]", *kind(chance)]
    if chance.random() < 0.07:
        lines.append("numerics: eager")
    return "\n".join(lines) + "\n"


def _formula(chance: random.Random) -> Lines:
    return formula(chance.randrange(10**9)).body.splitlines()


def _term(chance: random.Random) -> str:
    """Return a formula of x alone."""
    while True:
        drawn = formula(chance.randrange(10**9))
        if drawn.inputs == ("x",) and not drawn.params:
            return drawn.formula


def _chain(chance: random.Random) -> Lines:
    steps = [chance.choice(STEPS) for _ in range(chance.randint(1, 4))]
    if chance.random() < 0.4:
        steps += [f"before: {chance.choice(('x', 'x * 2'))}", chance.choice(STEPS), "x + before"]
    others, params = "", "params: {}"
    if chance.random() < 0.4:
        others = ", b: {}"
        steps.insert(chance.randrange(len(steps) + 1), chance.choice(("x + b", "x * b", "b - x")))
    if chance.random() < 0.3:
        params = f"params: {{alpha: {chance.choice(NUMBERS)}}}"
        steps.append(chance.choice(("x * alpha", "x + alpha", "clamp_min(alpha)", "leaky_relu(alpha)")))
    return [f"inputs: {{x: {{}}{others}}}", params, f"chain: {json.dumps(steps)}"]


def _steps(chance: random.Random) -> Lines:
    first, second = (_term(chance) for _ in range(2))
    result = chance.choice(("a * b + a", "where(a > b, a, b)", "a / (1 + b * b)", "a - b"))
    return ["inputs: {x: {}}", f'where: {{a: "{first}", b: "{second}"}}', f'formula: "{result}"']


def _number(chance: random.Random) -> Lines:
    number, inner = chance.choice(NUMBERS), _term(chance)
    whole = chance.choice(("{} * s", "{} + s", "where(x > s, {}, 0)", "clamp({}, -1, s)")).format(inner)
    return [f"inputs: {{x: {{}}, y: {{}}, s: {number}}}", f'formula: "({whole}) + y"']


def _constant(chance: random.Random) -> Lines:
    part = chance.choice(CONSTANT)
    form = chance.choice(("{}", "({}) * y", "({}) + y", "where({} > y, y * y, x)"))
    inputs = "{x: {}, y: {}}" if "y" in form else "{x: {}}"
    return [f"inputs: {inputs}", f'formula: "{form.format(part)}"']


def _added(chance: random.Random) -> Lines:
    form = chance.choice(("{} * s + b", "({} + b) * s", "{} - b + s", "{} * tanh(s) + 2 * b"))
    return ["inputs: {x: {}, s: {}, b: {}}", f'formula: "{form.format(_term(chance))}"']


def _halves(chance: random.Random) -> Lines:
    gate = chance.choice(("silu(x) * g", "x * sigmoid(g)", "x - g", "gelu(x) * g", "where(x > g, x, g)"))
    return ["inputs: {x: {}, g: {split: -1}}", f'formula: "{gate}"']


def _mask(chance: random.Random) -> Lines:
    chosen = chance.choice(("x, 0", "x * y, y", "-inf, x + y", "silu(x), y"))
    other = "" if "y" in chosen else " + y"
    return ["inputs: {x: {}, y: {}, m: {dtype: bool}}", f'formula: "where(m, {chosen}){other}"']


KINDS: dict[Callable[[random.Random], Lines], int] = {
    _formula: 8, _chain: 6, _steps: 3, _number: 3, _constant: 3, _added: 3, _halves: 2, _mask: 2,
}  # fmt: skip
