"""The results of a program over the real numbers, rounded to doubles: the reference of the error estimate.

A program is evaluated in binary floating point of unbounded exponents, twice, the second time in twice as
many bits; where both agree, that is its value. That is enough for an estimate, but no proof.
Exponents beyond `HUGE` count as infinities and zeros, so that nothing takes long.

This is mpmath's door.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from mpmath import mp
from mpmath.libmp import fnan

from fusegen.core.term import INFINITY, Apply, Name, Number, Program, Term
from fusegen.numerics.ieee import nearest_double
from fusegen.numerics.ieee import value as value_in_double
from fusegen.numerics.reals.functions import HUGE, ROWS

BITS = (192, 384, 768, 1536, 3072)
NAN = mp.mpf("nan")
AGREE, LEAST = -72, -1140  # binary exponents: of a relative difference, of a size that no type holds

Given = Mapping[str, float]


class Reals:
    """A program's results over the real numbers, by the values of its inputs and parameters."""

    def __init__(self, program: Program, bits: tuple[int, ...] = BITS) -> None:
        """Take a program; every call of another spec in it is replaced already.

        The first bits are enough for what float holds: 1 + 2^-150 is not 1 in them.
        """
        self.bits = bits
        self.names = (*program.inputs, *program.params)
        self.steps: list[tuple[str, tuple[int, ...]] | Fraction] = []
        self.numbers: dict[int, list[Any]] = {}  # by bits, in the places of steps
        self.places: dict[Term, int] = {Name(name): -1 - k for k, name in enumerate(self.names)}
        for let in program.lets:
            self.places[Name(let.name)] = self._place(let.term)
        self.results = tuple(map(self._place, program.results))
        # apart, since a check of the type of every step takes as long as most operations
        self.constants = {k: step for k, step in enumerate(self.steps) if isinstance(step, Fraction)}
        self.operations = [
            (k, *step) for k, step in enumerate(self.steps) if not isinstance(step, Fraction)
        ]
        self.doubles = [math.nan] * len(self.steps)  # of the constants, in the places of steps
        for k, number in self.constants.items():
            self.doubles[k] = nearest_double(number)

    def __call__(self, given: Given) -> tuple[float, ...]:
        """The nearest double of each result; NaN where it is not defined, or not decided by most bits."""
        inputs = [given[name] for name in reversed(self.names)]
        before = self._at(inputs, self.bits[0])
        if all(map(_near, self._in_double(inputs), before)):  # nothing has cancelled
            return tuple(map(nearest_double, before))
        for bits in self.bits[1:]:
            after = self._at(inputs, bits)
            if all(map(_agree, before, after)):
                return tuple(map(nearest_double, after))
            before = after
        return tuple(nearest_double(value) if _tiny(value) else math.nan for value in before)

    def _place(self, term: Term) -> int:
        """Where the value of a term is among the steps; inputs come from the end."""
        if term in self.places:
            return self.places[term]
        match term:
            case Number(value):
                self.steps.append(value)
            case Apply(op, args):
                self.steps.append((op, tuple(map(self._place, args))))
            case _:
                raise AssertionError("compose has replaced every call of a spec")
        self.places[term] = len(self.steps) - 1
        return self.places[term]

    def _at(self, inputs: Sequence[float], bits: int) -> list[Any]:
        """Return the results in so many bits."""
        with mp.workprec(bits):
            if bits not in self.numbers:
                numbers = {k: _number(number) for k, number in self.constants.items()}
                self.numbers[bits] = [numbers.get(k) for k in range(len(self.steps))]
            found = [*self.numbers[bits], *(_exact(x) if x == x else NAN for x in inputs)]
            for k, op, args in self.operations:
                found[k] = _applied(op, [found[arg] for arg in args])
            return [found[place] for place in self.results]

    def _in_double(self, inputs: Sequence[float]) -> list[float]:
        """Return the results in doubles."""
        found: list[float] = [*self.doubles, *inputs]
        for k, op, args in self.operations:
            found[k] = value_in_double(op, [found[arg] for arg in args])
        return [found[place] for place in self.results]


@lru_cache(maxsize=4096)  # most inputs of a sample stay while one moves
def _exact(value: float) -> Any:
    """Return a double, which the fewest bits hold as they are."""
    return mp.mpf(value)


def _number(value: Fraction) -> Any:
    if abs(value) == INFINITY:
        return mp.inf if value > 0 else -mp.inf
    return mp.mpf(value.numerator) / value.denominator


def _applied(op: str, args: Sequence[Any]) -> Any:
    """Return the value of an operation; one that is not a number is `NAN` itself."""
    if op != "where":
        for arg in args:  # twice as fast as any()
            if arg is NAN:
                return NAN
    try:
        found = ROWS[op](*args)
    except (ValueError, ZeroDivisionError, OverflowError):
        return NAN
    if isinstance(found, bool):
        return found
    _, mantissa, exponent, bits = found._mpf_
    if not mantissa:
        return NAN if found._mpf_ == fnan else found
    if (exponent + bits).bit_length() <= HUGE:
        return found
    return mp.inf * mp.sign(found) if exponent > 0 else mp.mpf(0)


def _near(a: float, b: Any) -> bool:
    """Return True if a double and a number of more bits agree to a few digits."""
    return math.isfinite(a) and abs(a) > 2.0**-900 and abs(a - nearest_double(b)) < 2.0**-20 * abs(a)


def _agree(a: Any, b: Any) -> bool:
    if mp.isnan(a) or mp.isnan(b) or mp.isinf(a) or mp.isinf(b):
        return bool((mp.isnan(a) and mp.isnan(b)) or a == b)
    if _tiny(a) and _tiny(b):
        return True
    return bool(a == b or mp.mag(a - b) < mp.mag(b) + AGREE)


def _tiny(value: Any) -> bool:
    return bool(not mp.isnan(value) and not mp.isinf(value) and (value == 0 or mp.mag(value) < LEAST))
