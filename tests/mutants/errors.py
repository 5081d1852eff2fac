"""Faults in results at ordinary inputs: everywhere, at drawn places, and where eager errs by more."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mutants import places
from mutants.faults import GRADIENT, VALUE, Fault, Where


@dataclass(frozen=True)
class Planted:
    """A module in which faults are planted."""

    name: str  # of the spec
    dtype: str  # in which it is judged
    rule: str  # that has to catch wrong results at ordinary inputs
    keywords: tuple[str, ...] = ()  # those that it takes
    negative: bool = True  # whether it shows at negative inputs
    tensors: int = 1
    params: tuple[str, ...] = ()  # the names of its parameters
    sweeps: bool = False  # whether its errors are counted in a sweep


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "1 % off": lambda t: t * 1.01,
    "2 % off": lambda t: t * 1.02,
    "50 % off": lambda t: t * 1.5,
    "negated": lambda t: -t,
    "zero": lambda t: t * 0,
}
PLACED = ((VALUE, "off"), (VALUE, "negated"), (GRADIENT, "off"), (GRADIENT, "zero"))
OUTPUTS = {VALUE: "value", GRADIENT: r"gradient of \w+"}
RULES = {
    **{name: f"break {name}:" for name in ("C1", "C1b", "C2", "C3")},
    "C4": "results are (neither|misrounded)|break C4:",
    "C5": r"misrounded.*\(C5\)",
    "C6 grown": r"has grown to.*\(C6\)",
    "C6 new": r"are new \(C6\)",
}
EXPONENTS = range(-3, 2)  # of the inputs of local faults
LOST, ZERO = -6.0, -0.75179159641  # inputs where eager's GELU, and its gradient, err by more than 1e6 ulp
WORSE = -2.5  # and where the value errs by less than 128 ulp, but more than 16
PERCENT, HALF = CHANGES["1 % off"], CHANGES["50 % off"]


def uniform(module: Planted) -> Iterator[Fault]:
    for part in (VALUE, GRADIENT):
        for name, change in CHANGES.items():
            yield Fault(f"{part} {name}", part, change, told(part, module.rule))
        next_one = "C5" if module.dtype == "float32" else module.rule
        if module.dtype != "float64":
            yield Fault(f"{part} the next number", part, _next, told(part, next_one))


def _drawn(module: Planted, draw: random.Random) -> tuple[tuple[float, float], tuple[float, float], float]:
    """Return a cell, an octave, and a number that chooses inputs everywhere."""
    sign = draw.choice((1, -1)) if module.negative else 1
    exponents = draw.sample(EXPONENTS, 2)
    step = draw.randrange(32)  # none of these cells has the zero of GELU's gradient
    low = sign * 2.0 ** exponents[0] * (1 + step / 64)
    cell = (low, low + sign * 2.0 ** (exponents[0] - 6))
    octave = (sign * 2.0 ** exponents[1], sign * 2.0 ** (exponents[1] + 1))
    return cell, octave, draw.uniform(1000, 2000)


def at_places(module: Planted, draw: random.Random) -> Iterator[Fault]:
    cell, octave, shift = _drawn(module, draw)
    at: dict[str, Where] = {
        f"for inputs from {cell[0]:g} to {cell[1]:g}": places.between(*sorted(cell)),
        f"for inputs from {octave[0]:g} to {octave[1]:g}": places.between(*sorted(octave)),
        f"for 1 of 100 inputs, by {shift:g}": lambda tensors, _: places.scattered(tensors[0], shift),
    }
    least = 2 if module.dtype == "bfloat16" else 1  # whose neighbours are up to 0.8 % apart
    for place, where in at.items():
        for part, how in PLACED:
            what = f"{least} % off" if how == "off" else how
            name = f"{part} {what} {place}"
            yield Fault(name, part, CHANGES[what], told(part, module.rule), where)


def where_eager_errs(draw: random.Random) -> Iterator[Fault]:
    """Faults of GELU in cells where eager errs by more: C1 does not tell of any of them."""
    shift = draw.uniform(1000, 2000)
    lost, zero = places.between(LOST - 0.01, LOST), places.between(ZERO - 0.007, ZERO + 0.007)
    worse = places.between(WORSE - 0.03, WORSE)
    nearest = places.between(ZERO - 4e-8, ZERO + 4e-8)
    for what in ("1 % off", "negated", "zero"):
        yield Fault(
            f"value {what} where eager has no digits", VALUE, CHANGES[what], told(VALUE, "C1b"), lost
        )
    rows: tuple[tuple[str, str, Callable[[Tensor], Tensor], str, Where], ...] = (
        ("1 % off around its zero", GRADIENT, PERCENT, "C2", zero),
        ("2 % off around its zero", GRADIENT, CHANGES["2 % off"], "C2", zero),
        ("40 ulp off where eager's are few", VALUE, _off_by_ulps, "C2", worse),
        ("50 % off at the zero", GRADIENT, HALF, "C6 grown", nearest),
        (
            f"40 ulp off for 1 of 100 inputs, by {shift:g}, where eager's are few",
            VALUE, _off_by_ulps, "C6 new", places.scattered_between(WORSE - 0.03, WORSE, shift),
        ),
    )  # fmt: skip
    for name, part, change, rule, where in rows:
        yield Fault(f"{part} {name}", part, change, told(part, rule), where)


def told(part: str, rule: str) -> str:
    """Return what matches the sentences on a part that tell of a rule."""
    return f"{OUTPUTS[part]}: .*({RULES[rule]})"


def starts(module: Planted, seed: int) -> Iterator[float]:
    """Return the inputs of a sweep: one of each place at which a fault is planted."""
    [first, second] = _drawn(module, random.Random(f"{seed} {module.name}"))[:2]
    yield from (first[0], second[0], LOST, LOST - 0.005, ZERO, WORSE - 0.005)
    yield from (sign * 2.0**exponent for exponent in EXPONENTS for sign in (1, -1))


def _next(result: Tensor) -> Tensor:
    return result * (1 + torch.finfo(result.dtype).eps)


def _off_by_ulps(result: Tensor) -> Tensor:
    return result * (1 + 20 * 2.0**-23)
