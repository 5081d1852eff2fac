"""The results of a program over the real numbers, rounded to doubles: the reference of the error estimate.

A program is evaluated in binary floating point of unbounded exponents, twice, the second time in twice as
many bits; where both agree, that is its value. That is enough for an estimate, but no proof.
Exponents beyond `HUGE` count as infinities and zeros, so that nothing takes long.

This is mpmath's door.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from mpmath import mp

from fusegen.term import Apply, Name, Number, Program, Term
from fusegen.values import value as value_in_double

BITS = (192, 384, 768, 1536, 3072)
AGREE, LEAST = -72, -1140  # binary exponents: of a relative difference, of a size that no type holds
HUGE = 2**11  # bits of an exponent, from which on it counts as infinite
FAR = 2**20  # no type holds e^-this
WHOLE = 2**15  # bits before the point of a sine's argument

Given = Mapping[str, float]
Row = Callable[..., Any]


def _exp(x: Any) -> Any:
    if mp.isinf(x) or (x and mp.mag(x) > HUGE):
        return mp.inf if x > 0 else mp.mpf(0)
    return mp.exp(x)


def _expm1(x: Any) -> Any:
    return mp.expm1(x) if abs(x) < 1 else _exp(x) - 1


def _log1p(x: Any) -> Any:
    return mp.log1p(x) if abs(x) < 1 else _log(1 + x)


def _log(x: Any) -> Any:
    if x == 0:
        return -mp.inf
    return mp.log(x) if x > 0 else mp.nan


def _sigmoid(x: Any) -> Any:
    e = _exp(-abs(x))
    return (e if x < 0 else 1) / (1 + e)


def _slope(x: Any) -> Any:
    e = _exp(-abs(x))
    return e / (1 + e) ** 2


def _softplus(x: Any) -> Any:
    return max(x, mp.mpf(0)) + mp.log1p(_exp(-abs(x)))


def _tanh(x: Any) -> Any:
    return mp.tanh(x) if abs(x) < FAR else mp.sign(x)


def _erfc(x: Any) -> Any:
    if x > 2**10:
        return mp.mpf(0)
    return mp.erfc(x) if x > -(2**10) else mp.mpf(2)


def _erf(x: Any) -> Any:
    return mp.erf(x) if abs(x) < 2**10 else mp.sign(x)


def _ndtr(x: Any) -> Any:
    return _erfc(-x / mp.sqrt(2)) / 2


def _bell(x: Any) -> Any:
    return _exp(-x * x)


def _normal(x: Any) -> Any:
    return _exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def _wave(function: Row) -> Row:
    def of(x: Any) -> Any:
        return function(x) if mp.isfinite(x) and mp.mag(x) < WHOLE else mp.nan

    return of


def _pow(x: Any, c: Any) -> Any:
    if c == mp.floor(c) and abs(c) < 2**16 and mp.isfinite(x):
        return x ** int(c) if x or c >= 0 else mp.inf
    if x == 0:
        return mp.mpf(0) if c > 0 else mp.inf
    return _exp(c * mp.log(x)) if x > 0 else mp.nan


def _sqrt(x: Any) -> Any:
    return mp.sqrt(x) if x >= 0 else mp.nan


def _times(a: Any, b: Any) -> Any:
    return mp.mpf(0) if (a == 0 and mp.isinf(b)) or (b == 0 and mp.isinf(a)) else a * b


def _divided(a: Any, b: Any) -> Any:
    if b == 0:
        return mp.nan if a == 0 else mp.inf * mp.sign(a)
    return mp.nan if mp.isinf(a) and mp.isinf(b) else a / b


def _least(x: Any, most: Any) -> Any:
    return most if x > most else x


def _most(x: Any, least: Any) -> Any:
    return least if x < least else x


def _mish(x: Any) -> Any:
    return _times(x, _tanh(_softplus(x)))


def _tanh_of_exp_slope(x: Any) -> Any:
    return _times(4 * _slope(2 * _exp(x)), _exp(x))


# fmt: off
ROWS: dict[str, Row] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": _times, "div": _divided,
    "neg": lambda a: -a,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "where": lambda holds, a, b: a if holds else b,
    "pi": lambda: +mp.pi, "e": lambda: +mp.e,
    "relu": lambda x: _most(x, mp.mpf(0)), "relu6": lambda x: _least(_most(x, mp.mpf(0)), mp.mpf(6)),
    "clamp": lambda x, low, high: _least(_most(x, low), high),
    "saturate": lambda x, low, high: _least(_most(x, low), high),
    "clamp_min": _most, "clamp_max": _least, "minimum": _least, "maximum": _most,
    "abs": abs, "sign": mp.sign, "square": lambda x: x * x, "cube": lambda x: x * x * x,
    "reciprocal": lambda x: _divided(mp.mpf(1), x), "sqrt": _sqrt,
    "rsqrt": lambda x: _divided(mp.mpf(1), _sqrt(x)), "pow": _pow,
    "exp": _exp, "exp2": lambda x: _exp(x * mp.log(2)), "expm1": _expm1, "log": _log,
    "log2": lambda x: _log(x) / mp.log(2), "log1p": _log1p, "sin": _wave(mp.sin), "cos": _wave(mp.cos),
    "tanh": _tanh, "erf": _erf, "erfc": _erfc, "ndtr": _ndtr, "sigmoid": _sigmoid, "softplus": _softplus,
    "sigmoid_slope": _slope, "tanh_slope": lambda x: 4 * _slope(2 * x),
    "soft_sign": lambda x: _divided(x, 1 + abs(x)), "tanh_shrink": lambda x: x - _tanh(x),
    "tanh_softplus": lambda x: _tanh(_softplus(x)),
    "tanh_softplus_slope": lambda x: (1 - _tanh(_softplus(x)) ** 2) * _sigmoid(x),
    "tanh_of_exp": lambda x: _tanh(_exp(x)), "tanh_of_exp_slope": _tanh_of_exp_slope,
    "times_ndtr": lambda x: _times(x, _ndtr(x)),
    "times_ndtr_slope": lambda x: _ndtr(x) + _times(x, _normal(x)),
    "times_tanh_softplus": _mish,
    "times_tanh_softplus_slope":
        lambda x: _tanh(_softplus(x)) + _times(x, (1 - _tanh(_softplus(x)) ** 2) * _sigmoid(x)),
    "gauss": _bell, "normal": _normal, "finite_below": lambda x: x, "finite_above": lambda x: x,
    "fma": lambda a, b, c: _times(a, b) + c, "quotient": _divided, "by_width": lambda narrow, wide: wide,
    "rounded": lambda x: x,
}
# fmt: on


class Reals:
    """A program's results over the real numbers, by the values of its inputs and parameters."""

    def __init__(self, program: Program) -> None:
        """Take a program; every call of another spec in it is replaced already."""
        self.names = (*program.inputs, *program.params)
        self.steps: list[tuple[str, tuple[int, ...]] | Fraction] = []
        self.places: dict[Term, int] = {Name(name): -1 - k for k, name in enumerate(self.names)}
        for let in program.lets:
            self.places[Name(let.name)] = self._place(let.term)
        self.results = tuple(map(self._place, program.results))

    def __call__(self, given: Given) -> tuple[float, ...]:
        """The nearest double of each result; NaN where it is not defined, or not decided by most bits.

        Args:
            given: a double for each input and parameter.
        """
        inputs = [given[name] for name in reversed(self.names)]
        before = self._at(inputs, BITS[0])
        if all(map(_near, self._in_double(inputs), before)):  # nothing has cancelled
            return tuple(map(_double, before))
        for bits in BITS[1:]:
            after = self._at(inputs, bits)
            if all(map(_agree, before, after)):
                return tuple(map(_double, after))
            before = after
        return tuple(_double(value) if _tiny(value) else math.nan for value in before)

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
        """The results in so many bits."""
        with mp.workprec(bits):
            found: list[Any] = [None] * len(self.steps) + [mp.mpf(x) for x in inputs]
            for k, step in enumerate(self.steps):
                if isinstance(step, Fraction):
                    found[k] = mp.mpf(step.numerator) / step.denominator
                else:
                    op, args = step
                    found[k] = _applied(op, [found[arg] for arg in args])
            return [found[place] for place in self.results]

    def _in_double(self, inputs: Sequence[float]) -> list[float]:
        """The results in doubles."""
        found: list[float] = [math.nan] * len(self.steps) + list(inputs)
        for k, step in enumerate(self.steps):
            if isinstance(step, Fraction):
                found[k] = _double(step)
            else:
                op, args = step
                found[k] = value_in_double(op, [found[arg] for arg in args])
        return [found[place] for place in self.results]


def _applied(op: str, args: Sequence[Any]) -> Any:
    if op != "where" and any(mp.isnan(arg) for arg in args):
        return mp.nan
    try:
        found = ROWS[op](*args)
    except (ValueError, ZeroDivisionError, OverflowError):
        return mp.nan
    if isinstance(found, bool) or not found or not mp.isfinite(found):
        return found
    exponent = mp.mag(found)
    if exponent.bit_length() <= HUGE:
        return found
    return mp.inf * mp.sign(found) if exponent > 0 else mp.mpf(0)


def _near(a: float, b: Any) -> bool:
    """Whether a double and a number of more bits agree to a few digits."""
    return math.isfinite(a) and abs(a) > 2.0**-900 and abs(a - _double(b)) < 2.0**-20 * abs(a)


def _agree(a: Any, b: Any) -> bool:
    if mp.isnan(a) or mp.isnan(b) or mp.isinf(a) or mp.isinf(b):
        return bool((mp.isnan(a) and mp.isnan(b)) or a == b)
    if _tiny(a) and _tiny(b):
        return True
    return bool(a == b or mp.mag(a - b) < mp.mag(b) + AGREE)


def _tiny(value: Any) -> bool:
    return bool(not mp.isnan(value) and not mp.isinf(value) and (value == 0 or mp.mag(value) < LEAST))


def _double(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)
