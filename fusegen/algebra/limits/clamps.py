"""The limits of a function of one variable at an infinity, read from its values in IEEE arithmetic.

The function is evaluated in the range of double and in that of float. A clamp is right if the function is
constant from there to the largest number; values that overflow on the way say nothing.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Function = Callable[
    [float, float], tuple[float, bool]
]  # value and range -> value, and if a part overflowed
Kinds = tuple[str, str]  # of clamps, by side; "" is none
INFINITY = math.inf
SIDES = (-1.0, 1.0)
NONE: Kinds = ("", "")
FLOAT = 2.0**128
RANGES = (INFINITY, FLOAT)
LARGE = 1e200
EXACT = 2.0**-50  # of the doubles that a constant function gives
LARGEST = (2.0**600, 2.0**1023 * 1.9)


@dataclass(frozen=True)
class Clamp:
    """A magnitude that a name is clamped to."""

    bound: Mapping[float, float]  # it, by range
    before: Mapping[float, float]  # a smaller one, at which the function has its limit, too
    beyond: tuple[float, ...]  # larger ones


def _same(exponent: int) -> Clamp:
    beyond = (2.0**k for k in range(exponent + 1, 344, 12))
    bound, before = (dict.fromkeys(RANGES, 2.0**k) for k in (exponent, exponent - 4))
    return Clamp(bound, before, (*beyond, *LARGEST))


CLAMPS = {  # the best first
    "far": Clamp(
        {INFINITY: 2.0**1022, FLOAT: 2.0**126},
        {INFINITY: LARGE, FLOAT: 2.0**120},
        (2.0**126, 2.0**127, 2.0**200, *LARGEST),
    ),
    "cube": _same(40),  # whose cube is a float
    "square": _same(62),
}
NEAREST = ("cube", "square", "far")
GROWING = (2.0**1022, LARGE, 1.7e201, 2.9e202, 4.3e203)
WAY = (2.0**28, 2.0**32, 2.0**36, 2.0**40, 2.0**60, 2.0**80, 2.0**100)


def agree(a: float, b: float, tolerance: float = 1e-9) -> bool:
    """Return True if both are one number, or NaN, or one infinity."""
    if math.isfinite(a) and math.isfinite(b):
        return abs(a) < LARGE / 10 and math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-150)
    return a == b or (math.isnan(a) and math.isnan(b))


def limit(f: Function, sign: float, clamp: Clamp) -> float | None:
    """Return the number that a function has at a bound and beyond, if it is one."""
    at = [
        f(sign * sizes[largest], largest)[0] for largest in RANGES for sizes in (clamp.bound, clamp.before)
    ]
    further = [f(sign * size, INFINITY) for size in clamp.beyond]
    known = [value for value, overflowed in further if not overflowed]
    converges = all(math.isfinite(value) and agree(value, at[0]) for value in (*at, *known))
    return at[0] if converges and all(agree(value, known[0], EXACT) for value in known) else None


@dataclass(frozen=True)
class Trial:
    """The clamps that a function may have on each side, the best first, and its limits there."""

    accepted: tuple[tuple[str, ...], ...]
    limits: tuple[float | None, ...]

    @property
    def wanted(self) -> Kinds:
        """The best clamp on each side."""
        below, above = (kinds[0] for kinds in self.accepted)
        return below, above

    def own(self, common: Kinds) -> Kinds:
        """Return the best clamp on each side where the shared one is not among the accepted ones."""
        sides = zip(self.wanted, common, self.accepted, strict=True)
        below, above = ("" if shared in kinds else best for best, shared, kinds in sides)
        return below, above

    def met(self, f: Function) -> int:
        """Return the number of limits that a function has at the infinities, and from its clamps on."""
        sides = zip(SIDES, self.wanted, self.limits, strict=True)
        return sum(
            agree(f(sign * size, largest)[0], limit)
            for sign, kind, limit in sides
            if limit is not None
            for size, largest in _reached(kind)
        )


UNTRIED = Trial((("",), ("",)), (None, None))  # of a function that takes no clamp


def _reached(kind: str) -> list[tuple[float, float]]:
    """Return magnitudes at which a function has its limit if it has a clamp, each with a range."""
    further = [(size, FLOAT) for size in CLAMPS[kind].beyond if size < FLOAT] if kind else []
    return [(INFINITY, INFINITY), *further]


def trial(f: Function) -> Trial:
    """Return the clamps of a function and its limits on both sides."""
    below, above = (_at_side(f, sign) for sign in SIDES)
    return Trial((below[0], above[0]), (below[1], above[1]))


def _at_side(f: Function, sign: float) -> tuple[tuple[str, ...], float | None]:
    end, _ = f(sign * INFINITY, INFINITY)
    found = {kind: value for kind, clamp in CLAMPS.items() if (value := limit(f, sign, clamp)) is not None}
    nearest = (
        end if not math.isnan(end) else next((found[kind] for kind in NEAREST if kind in found), math.nan)
    )
    kinds = [kind for kind, value in found.items() if agree(value, nearest)]  # far out, a square overflows
    if not math.isnan(end):
        return ("", *kinds), end
    return (tuple(kinds), nearest) if kinds else (("",), grown(f, sign))


def shared(trials: Sequence[Trial]) -> Kinds:
    """Return the clamps that functions can share on each side."""
    below, above = (_shared([each.accepted[side] for each in trials]) for side in range(2))
    return below, above


def _shared(accepted: Sequence[tuple[str, ...]]) -> str:
    wanted = {kinds[0] for kinds in accepted}
    common = (kind for kind in CLAMPS if kind in wanted and all(kind in kinds for kinds in accepted))
    return next(common, "" if "" in wanted else min(wanted, key=list(CLAMPS).index, default=""))


def clamped(value: float, kinds: Kinds, largest: float) -> float:
    """Return a value with clamps, in a range."""
    below, above = (CLAMPS[kind].bound[largest] if kind else INFINITY for kind in kinds)
    return value if math.isnan(value) else min(max(value, -below), above)


def tendency(f: Function, sign: float) -> float | None:
    """The limit of a function that no clamp gives: a number, or an infinity; None if there is none."""
    values = [f(sign * size, INFINITY)[0] for size in WAY]
    further = [f(sign * size, INFINITY) for size in LARGEST]
    last = values[-3:] if any(overflowed for _, overflowed in further) else [value for value, _ in further]
    converges = all(math.isfinite(value) and agree(value, last[-1], EXACT) for value in last)
    return last[-1] if converges else tends(values)


def tends(values: Sequence[float]) -> float | None:
    """Return the limit of values that differ by factors: 0, or an infinity; None where they converge."""
    pairs = list(itertools.pairwise(values))
    if all(abs(b) <= abs(a) / 2 < INFINITY for a, b in pairs):
        return 0.0
    if all(2 * abs(a) <= abs(b) and a * b > 0 for a, b in pairs):
        return math.copysign(INFINITY, values[0])
    return None


def grown(f: Function, sign: float) -> float | None:
    """Return the infinity that a function tends to, if it does."""
    values = [f(sign * size, INFINITY)[0] for size in GROWING]
    return INFINITY if min(values) > LARGE / 10 else -INFINITY if max(values) < -LARGE / 10 else None
