"""Laurent series around 0: the coefficients of the function that a term of one name is.

Source: Knuth 1997, The Art of Computer Programming 2, section 4.7: each function satisfies a differential
equation, which gives a coefficient from those before it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any

from mpmath import mp

from fusegen.core.term import Apply, Name, Number, Term
from fusegen.numerics.reals.laurent import LENGTH, NOUGHT, NoSeries, Series

DIGITS = 90  # of a coefficient
SHOWN = 70  # digits of a coefficient that is given back
LARGE = 2**12  # arguments at 0 from which on a function is not expanded


@lru_cache(maxsize=4096)
def series(term: Term, name: str) -> Series:
    """Return the Laurent series of a term in one name around 0, in the precision of `expansion`.

    Raises:
        NoSeries: there is none, or it is not known.
    """
    match term:
        case Number(value):
            return Series(0, (mp.mpf(value.numerator) / value.denominator, *[mp.mpf(0)] * (LENGTH - 1)))
        case Name(own) if own == name:
            return Series(1, (mp.mpf(1), *[mp.mpf(0)] * (LENGTH - 1)))
        case Apply("pow", (a, Number(power))):
            return series(a, name).to_the(power)
        case Apply(op, args) if op in _ARITHMETIC:
            return _ARITHMETIC[op](*(series(arg, name) for arg in args))
        case Apply(op, (a,)) if op in FUNCTIONS:
            s = series(a, name).from_0()
            if abs(s[0]) > LARGE:
                raise NoSeries
            try:
                return Series(0, tuple(FUNCTIONS[op](s)))
            except (ValueError, ZeroDivisionError):
                raise NoSeries from None
    raise NoSeries


def _negated(a: Series) -> Series:
    return Series(a.low, tuple(-c for c in a.c))


_ARITHMETIC: dict[str, Callable[..., Series]] = {
    "add": Series.added,
    "sub": lambda a, b: a.added(_negated(b)),
    "mul": Series.times,
    "div": lambda a, b: a.times(b.to_the(Fraction(-1))),
    "neg": _negated,
    "square": lambda a: a.times(a),
    "cube": lambda a: a.times(a).times(a),
    "reciprocal": lambda a: a.to_the(Fraction(-1)),
    "sqrt": lambda a: a.to_the(Fraction(1, 2)),
    "rsqrt": lambda a: a.to_the(Fraction(-1, 2)),
    "scaled_hypot": lambda a, b: a.times(a).added(b.times(b)).to_the(Fraction(1, 2)),
}


def _integrated(first: Any, s: Sequence[Any], slope: Callable[[list[Any], int], Any]) -> list[Any]:
    """Return y with y(0) = first and y' = slope s'; `slope` gives its k-th coefficient from y."""
    y, slopes = [first], list[Any]()
    for n in range(1, len(s)):
        slopes.append(slope(y, n - 1))
        y.append(sum(slopes[n - k] * k * s[k] for k in range(1, n + 1)) / n)
    return y


def _product(a: Sequence[Any], b: Sequence[Any], k: int) -> Any:
    return sum(a[j] * b[k - j] for j in range(k + 1))


def _times(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    return [_product(a, b, k) for k in range(len(a))]


def _exp(s: Sequence[Any]) -> list[Any]:
    return _integrated(mp.exp(s[0]), s, lambda y, k: y[k])


def _less_one(y: list[Any]) -> list[Any]:
    return [y[0] - 1, *y[1:]]


def _log(s: Sequence[Any]) -> list[Any]:
    if s[0] <= 0:
        raise NoSeries
    inverse = Series(0, tuple(s)).to_the(Fraction(-1)).c
    return _integrated(mp.log(s[0]), s, lambda y, k: inverse[k])


def _sine_and_cosine(s: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    sine, cosine = [mp.sin(s[0])], [mp.cos(s[0])]
    for n in range(1, len(s)):
        rows = [sum(other[n - k] * k * s[k] for k in range(1, n + 1)) / n for other in (cosine, sine)]
        sine.append(rows[0])
        cosine.append(-rows[1])
    return sine, cosine


def _tanh(s: Sequence[Any]) -> list[Any]:
    return _integrated(mp.tanh(s[0]), s, lambda y, k: (k == 0) - _product(y, y, k))


def _tanh_slope(s: Sequence[Any]) -> list[Any]:
    y = _tanh(s)
    return [(k == 0) - _product(y, y, k) for k in range(len(y))]


def _sigmoid(s: Sequence[Any]) -> list[Any]:
    return _integrated(1 / (1 + mp.exp(-s[0])), s, lambda y, k: y[k] - _product(y, y, k))


def _softplus(s: Sequence[Any]) -> list[Any]:
    slope = _sigmoid(s)
    return _integrated(mp.log(1 + mp.exp(s[0])), s, lambda y, k: slope[k])


def _gauss(s: Sequence[Any]) -> list[Any]:
    return _exp([-_product(s, s, k) for k in range(len(s))])


def _erf(s: Sequence[Any]) -> list[Any]:
    bell = _gauss(s)
    return _integrated(mp.erf(s[0]), s, lambda y, k: 2 / mp.sqrt(mp.pi) * bell[k])


def _erfc(s: Sequence[Any]) -> list[Any]:
    first, *others = _erf(s)
    return [1 - first, *(-c for c in others)]


def _ndtr(s: Sequence[Any]) -> list[Any]:
    first, *others = _erf([c / mp.sqrt(2) for c in s])
    return [(1 + first) / 2, *(c / 2 for c in others)]


FUNCTIONS: dict[str, Callable[[Sequence[Any]], list[Any]]] = {
    "exp": _exp,
    "expm1": lambda s: _less_one(_exp(s)),
    "log": _log,
    "log1p": lambda s: _log([1 + s[0], *s[1:]]),
    "sin": lambda s: _sine_and_cosine(s)[0],
    "cos": lambda s: _sine_and_cosine(s)[1],
    "sinpi": lambda s: _sine_and_cosine([mp.pi * c for c in s])[0],
    "cospi": lambda s: _sine_and_cosine([mp.pi * c for c in s])[1],
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "gauss": _gauss,
    "erf": _erf,
    "erfc": _erfc,
    "ndtr": _ndtr,
    "times_ndtr": lambda s: _times(s, _ndtr(s)),
    "tanh_shrink": lambda s: [x - y for x, y in zip(s, _tanh(s), strict=True)],
    "tanh_slope": _tanh_slope,
    "sigmoid_slope": lambda s: _times(_sigmoid(s), _sigmoid([-x for x in s])),
}


@dataclass(frozen=True, slots=True)
class Expansion:
    """The Laurent series of a sum."""

    low: int  # the power of its first coefficient that is not 0
    c: tuple[Fraction, ...]  # the coefficients from there on
    cancels: bool  # whether one of the terms has a lower power, so that terms cancel next to 0


def expansion(terms: Sequence[Term], name: str) -> Expansion | None:
    """Return the Laurent series of the sum of some terms of one name; None where one has none."""
    with mp.workdps(DIGITS):
        try:
            rows = [series(term, name).trimmed() for term in terms]
            whole = reduce(Series.added, rows)
            largest = max(abs(c) for row in rows for c in row.c[:4])
            # a coefficient that is 0 but for the rounding of the terms is 0
            clean = Series(whole.low, tuple(c if abs(c) > largest * NOUGHT else mp.mpf(0) for c in whole.c))
            found = clean.trimmed()
        except (NoSeries, OverflowError, ValueError):
            return None
        c = tuple(
            Fraction(mp.nstr(x, SHOWN)) if abs(x) > abs(found.c[0]) * NOUGHT else Fraction(0)
            for x in found.c
        )
    return Expansion(found.low, c, found.low > min(row.low for row in rows))
