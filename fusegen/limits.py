"""The limits of a function of one variable at an infinity, read from its values in IEEE arithmetic.

The function is evaluated in the range of double and in that of float. A clamp is right if the function is
constant from there to the largest number; values that overflow on the way say nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Function = Callable[
    [float, float], tuple[float, bool]
]  # of a value and a range: a value, and if it overflowed
Kinds = tuple[str, str]  # of clamps, by side: "" (none), "far", "near"
INFINITY = math.inf
SIDES = (-1.0, 1.0)
NONE: Kinds = ("", "")
FLOAT = 2.0**128
RANGES = (INFINITY, FLOAT)
BOUNDS = {  # kind -> range -> the largest magnitude that is kept
    "far": {INFINITY: 2.0**1022, FLOAT: 2.0**126},
    "near": dict.fromkeys(RANGES, 2.0**40),  # whose cube is a float
}
LARGE = 1e200
EXACT = 2.0**-50  # of the doubles that a constant function gives
BEFORE = {"far": {INFINITY: LARGE, FLOAT: 2.0**120}, "near": dict.fromkeys(RANGES, 2.0**36)}
BEYOND = {  # where a constant function has the same value
    "far": (2.0**127, 2.0**200, 2.0**600, 2.0**1023 * 1.9),
    "near": (*(2.0**k for k in range(44, 344, 12)), 2.0**600, 2.0**1023 * 1.9),
}
GROWING = (2.0**1022, LARGE, 1.7e201, 2.9e202, 4.3e203)
WAY = (2.0**28, 2.0**32, 2.0**36, 2.0**40, 2.0**60, 2.0**80, 2.0**100)


def agree(a: float, b: float, tolerance: float = 1e-9) -> bool:
    """Whether both are one number, or NaN, or one infinity."""
    if math.isfinite(a) and math.isfinite(b):
        return abs(a) < LARGE / 10 and math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-150)
    return a == b or (math.isnan(a) and math.isnan(b))


def limit(f: Function, sign: float, kind: str) -> float | None:
    """The number that a function has at a bound and beyond, if it is one."""
    found = []
    for largest in RANGES:
        at = BOUNDS[kind][largest], BEFORE[kind][largest]
        found += [f(sign * size, largest)[0] for size in at]
    if not all(math.isfinite(each) and agree(each, found[0]) for each in found):
        return None
    first, _ = f(sign * BOUNDS[kind][FLOAT], INFINITY)
    further = (f(sign * size, INFINITY) for size in BEYOND[kind])
    same = all(overflowed or agree(each, first, EXACT) for each, overflowed in further)
    return found[0] if same else None


@dataclass(frozen=True)
class Trial:
    """The clamps that a function may have on each side, the best first, and its limits there."""

    accepted: tuple[tuple[str, ...], ...]
    limits: tuple[float | None, ...]

    @property
    def wanted(self) -> Kinds:
        """The best."""
        below, above = (kinds[0] for kinds in self.accepted)
        return below, above

    def own(self, common: Kinds) -> Kinds:
        """The clamps that it wants besides those that it shares."""
        sides = zip(self.wanted, common, self.accepted, strict=True)
        below, above = ("" if shared in kinds else best for best, shared, kinds in sides)
        return below, above

    def met(self, f: Function) -> int:
        """How many of the limits a function has at the infinities."""
        ends = (f(sign * INFINITY, INFINITY)[0] for sign in SIDES)
        return sum(found is None or agree(end, found) for end, found in zip(ends, self.limits, strict=True))


def trial(f: Function) -> Trial:
    """What a function gives at both infinities and before them."""
    below, above = (_at_side(f, sign) for sign in SIDES)
    return Trial((below[0], above[0]), (below[1], above[1]))


def _at_side(f: Function, sign: float) -> tuple[tuple[str, ...], float | None]:
    end, _ = f(sign * INFINITY, INFINITY)
    found = {kind: limit(f, sign, kind) for kind in BOUNDS}
    kinds = [kind for kind, value in found.items() if value is not None]
    if len({found[kind] for kind in kinds}) == 2 and not agree(*(found[kind] or 0.0 for kind in kinds)):
        kinds = ["near"]  # a square overflows far out
    if not math.isnan(end):
        return ("", *(kind for kind in kinds if found[kind] == end)), end
    if kinds:
        return tuple(kinds), found[kinds[0]]
    return ("",), grown(f, sign)


def shared(trials: Sequence[Trial]) -> Kinds:
    """The clamps that functions can share on each side."""
    below, above = (_shared([each.accepted[side] for each in trials]) for side in range(2))
    return below, above


def _shared(accepted: Sequence[tuple[str, ...]]) -> str:
    wanted = {kinds[0] for kinds in accepted}
    common = [kind for kind in sorted(wanted - {""}) if all(kind in kinds for kinds in accepted)]
    return common[0] if common else min(wanted, default="")


def clamped(value: float, kinds: Kinds, largest: float) -> float:
    """A value with clamps, in a range."""
    below, above = (BOUNDS[kind][largest] if kind else INFINITY for kind in kinds)
    return value if math.isnan(value) else min(max(value, -below), above)


def tendency(f: Function, sign: float) -> float | None:
    """The limit that values tend to and never reach: 0, or an infinity; None if they do not."""
    return tends([f(sign * size, INFINITY)[0] for size in WAY])


def tends(values: Sequence[float]) -> float | None:
    """The limit of values that differ by factors: 0, or an infinity; None where they settle."""
    pairs = list(itertools.pairwise(values))
    if all(abs(b) <= abs(a) / 2 < INFINITY for a, b in pairs):
        return 0.0
    if all(2 * abs(a) <= abs(b) and a * b > 0 for a, b in pairs):
        return math.copysign(INFINITY, values[0])
    return None


def grown(f: Function, sign: float) -> float | None:
    """The infinity that a function tends to, if it does."""
    values = [f(sign * size, INFINITY)[0] for size in GROWING]
    return INFINITY if min(values) > LARGE / 10 else -INFINITY if max(values) < -LARGE / 10 else None
