"""Power series of functions at 0, where a sum cancels, and the asymptotic series of e^(x²) erfc(x).

`near_0` replaces a function of one name x, next to 0, by its Taylor polynomial x^n (c_0 + c_1 x + ...).
What is left out is less than `LEFT` of the polynomial wherever that is used. Coefficients are integers
times 2^-BITS.

Source: Griewank and Walther 2008, Evaluating Derivatives, chapter 13; Olver et al. 2010, NIST Handbook of
Mathematical Functions, 7.12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import reduce
from itertools import accumulate
from typing import Any

import sympy

from fusegen.simplify.differences import factored, moves
from fusegen.simplify.monomials import ONCE, Product, product_of, sum_of, sum_term, term_of, total
from fusegen.term import Apply, Name, Number, Term, call

BITS = 640  # of a coefficient behind the point
VANISHES = 1 << (BITS - 160)  # a coefficient below this is 0: constants have sixty digits
LONGEST = 8 * BITS  # of a coefficient in all: a formula that grows beyond has no series here
LARGE = 512  # bits before the point of a coefficient of a polynomial
DIGITS = 200  # of a function's value at 0
ORDER = 48  # coefficients of a series
RADII = (2.0, 1.0, 0.5, 0.25, 0.125)  # up to which a polynomial may be used
MOST_TERMS = 20  # of a polynomial
LEFT = 2.0**-58
WHOLE = 1 << BITS
FAR_OUT, FAR_TERMS = 8, 19  # the asymptotic series, from where on and how many terms: 2^-60 is left out


class Singular(Exception):
    """A term has no power series at 0, or it is not known."""


class Series:
    """x^valuation times a power series, whose first coefficient is not 0."""

    __slots__ = ("coefficients", "valuation")

    def __init__(self, coefficients: list[int], valuation: int = 0) -> None:
        if max(map(int.bit_length, coefficients)) > LONGEST or abs(valuation) > 4 * ORDER:
            raise Singular
        zeros = next((k for k, c in enumerate(coefficients) if abs(c) > VANISHES), len(coefficients))
        self.coefficients = coefficients[zeros:] + [0] * zeros
        self.valuation = valuation + zeros if zeros < len(coefficients) else ORDER

    def at_0(self) -> int:
        """The value at 0."""
        if self.valuation < 0:
            raise Singular
        return 0 if self.valuation else self.coefficients[0]

    def from_0(self) -> list[int]:
        """The coefficients from x^0 on."""
        if self.valuation < 0:
            raise Singular
        return ([0] * self.valuation + self.coefficients)[:ORDER]


def number(value: Fraction) -> Series:
    """A constant as a series."""
    return Series([value.numerator * WHOLE // value.denominator] + [0] * (ORDER - 1))


def plus(a: Series, b: Series) -> Series:
    """The sum of two series."""
    least = min(a.valuation, b.valuation)
    left, right = ([0] * (s.valuation - least) + s.coefficients for s in (a, b))
    return Series([p + q for p, q in zip(left, right, strict=False)][:ORDER], least)


def times(a: Series, b: Series) -> Series:
    """The product of two series."""
    return Series(_product(a.coefficients, b.coefficients), a.valuation + b.valuation)


def _product(a: list[int], b: list[int]) -> list[int]:
    return [sum(map(int.__mul__, a[: k + 1], reversed(b[: k + 1]))) >> BITS for k in range(ORDER)]


def over(a: Series, b: Series) -> Series:
    """The quotient of two series."""
    first = b.coefficients[0]
    if abs(first) <= VANISHES:
        raise Singular
    found: list[int] = []
    for k in range(ORDER):
        known = sum(map(int.__mul__, found, reversed(b.coefficients[1 : k + 1])))
        found.append(((a.coefficients[k] << BITS) - known) // first)
    return Series(found, a.valuation - b.valuation)


def _slope(a: list[int]) -> list[int]:
    return [*[k * c for k, c in enumerate(a)][1:], 0]


def _integral(first: int, slope: list[int]) -> Series:
    return Series([first, *(c // (k + 1) for k, c in enumerate(slope[: ORDER - 1]))])


def _at(function: Callable[..., Any], *args: int) -> int:
    """The value of a function of sympy, whose arguments are no large numbers."""
    if any(abs(arg) > WHOLE << 8 for arg in args):
        raise Singular
    try:
        found = sympy.N(function(*(sympy.Rational(arg, WHOLE) for arg in args)), DIGITS)
        return int(sympy.floor(found * WHOLE)) if found.is_real and found.is_finite else _singular()
    except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise Singular from error


def _singular() -> int:
    raise Singular


def _exp(u: Series, function: Callable[..., Any] = sympy.exp) -> Series:
    """e^u by y' = u' y."""
    at, slope = u.at_0(), _slope(u.from_0())
    found = [_at(function, at)]
    for k in range(ORDER - 1):
        found.append(sum(map(int.__mul__, slope[: k + 1], reversed(found))) // (k + 1) >> BITS)
    return Series(found)


def _log(u: Series) -> Series:
    at = u.at_0()
    if at <= VANISHES:
        raise Singular
    slope = over(Series(_slope(u.from_0())), u)
    return _integral(_at(sympy.log, at), slope.from_0())


def _power(u: Series, exponent: Fraction) -> Series:
    """A power by y' u = c u' y; whole powers by products."""
    if exponent.denominator == 1 and abs(exponent) <= 16:
        whole = reduce(times, [u] * abs(int(exponent)), number(ONCE))
        return whole if exponent >= 0 else over(number(ONCE), whole)
    return _exp(times(number(exponent), _log(u)))


def _waves(u: Series) -> tuple[Series, Series]:
    """The sine and the cosine."""
    at, slope = u.at_0(), _slope(u.from_0())
    sine, cosine = [_at(sympy.sin, at)], [_at(sympy.cos, at)]
    for k in range(ORDER - 1):
        rises = sum(map(int.__mul__, slope[: k + 1], reversed(cosine))) // (k + 1) >> BITS
        falls = sum(map(int.__mul__, slope[: k + 1], reversed(sine))) // (k + 1) >> BITS
        sine.append(rises)
        cosine.append(-falls)
    return Series(sine), Series(cosine)


def _sigmoid(u: Series) -> Series:
    return over(number(ONCE), plus(number(ONCE), _exp(_scaled(u, -1))))


def _scaled(u: Series, by: int | Fraction) -> Series:
    return times(number(Fraction(by)), u)


def _tanh(u: Series) -> Series:
    return plus(_scaled(_sigmoid(_scaled(u, 2)), 2), number(-ONCE))


def _bell(u: Series) -> Series:
    return _exp(_scaled(times(u, u), -1))


def _erf(u: Series) -> Series:
    by = Series([_at(lambda: 2 / sympy.sqrt(sympy.pi))] + [0] * (ORDER - 1))
    slope = times(times(by, _bell(u)), Series(_slope(u.from_0())))
    return _integral(_at(sympy.erf, u.at_0()), slope.from_0())


def _softplus(u: Series) -> Series:
    slope = times(_sigmoid(u), Series(_slope(u.from_0())))
    return _integral(_at(lambda x: sympy.log(1 + sympy.exp(x)), u.at_0()), slope.from_0())


def _ndtr(u: Series) -> Series:
    root = Series([_at(lambda: 1 / sympy.sqrt(2))] + [0] * (ORDER - 1))
    return plus(number(Fraction(1, 2)), _scaled(_erf(times(u, root)), Fraction(1, 2)))


FUNCTIONS: dict[str, Callable[..., Series]] = {
    "add": plus, "sub": lambda a, b: plus(a, _scaled(b, -1)), "mul": times, "div": over,
    "neg": lambda a: _scaled(a, -1), "square": lambda a: times(a, a),
    "cube": lambda a: _power(a, Fraction(3)),
    "reciprocal": lambda a: over(number(ONCE), a), "sqrt": lambda a: _power(a, Fraction(1, 2)),
    "rsqrt": lambda a: _power(a, Fraction(-1, 2)), "exp": _exp,
    "expm1": lambda a: plus(_exp(a), number(-ONCE)), "log": _log,
    "log1p": lambda a: _log(plus(number(ONCE), a)), "sin": lambda a: _waves(a)[0],
    "cos": lambda a: _waves(a)[1],
    "tanh": _tanh, "sigmoid": _sigmoid, "softplus": _softplus, "erf": _erf, "ndtr": _ndtr, "gauss": _bell,
    "erfc": lambda a: plus(number(ONCE), _scaled(_erf(a), -1)),
    "tanh_slope": lambda a: plus(number(ONCE), _scaled(times(_tanh(a), _tanh(a)), -1)),
    "sigmoid_slope": lambda a: times(_sigmoid(a), _sigmoid(_scaled(a, -1))),
    "tanh_shrink": lambda a: plus(a, _scaled(_tanh(a), -1)),
    "times_ndtr": lambda a: times(a, _ndtr(a)),
    "scaled_hypot": lambda a, b: _power(plus(times(a, a), times(b, b)), Fraction(1, 2)),
}  # fmt: skip


def series(term: Term, name: str) -> Series:
    """The series of a term in powers of a name.

    Raises:
        Singular: there is none.
    """
    match term:
        case Number(value):
            return number(value)
        case Name(own) if own == name:
            return Series([0, WHOLE] + [0] * (ORDER - 2))
        case Apply("pow", (base, Number(exponent))):
            return _power(series(base, name), exponent)
        case Apply(op, args) if op in FUNCTIONS:
            return FUNCTIONS[op](*(series(arg, name) for arg in args))
    raise Singular


def near_0(term: Term) -> Iterator[Term]:
    """A function of one name times other factors as a polynomial next to 0, up to each of some radii."""
    if not isinstance(term, Apply):
        return
    for name in sorted(moves(term)):
        common, rest = factored(term) or (product_of(term), [Product(ONCE)])
        whole = common.times(product_of(sum_term(rest)))
        own = [f for f in whole.factors if moves(f.base) == {name}]
        others = [f for f in whole.factors if name not in moves(f.base)]
        if len(own) + len(others) < len(whole.factors):
            continue
        try:
            if not any(_cancels(f.base, name) for f in own):
                continue
            found = series(term_of(Product(ONCE, tuple(own))), name)
        except Singular:
            continue
        by = Product(whole.coefficient, tuple(others))
        yield from _polynomials(term, Name(name), found, by)


def _cancels(term: Term, name: str) -> bool:
    """True if a sum is of higher order at 0 than its terms."""
    if not (isinstance(term, Apply) and term.op in ("add", "sub")):
        return False
    parts = [series(term_of(part), name).valuation for part in sum_of(term)]
    return series(term, name).valuation > min(parts)


def _polynomials(term: Term, x: Name, found: Series, by: Product) -> Iterator[Term]:
    if not 0 <= found.valuation < 8 or max(map(int.bit_length, found.coefficients)) > BITS + LARGE:
        return
    floats = [c / WHOLE for c in found.coefficients[: ORDER - found.valuation]]
    kept = 0
    for radius in RADII:
        count = terms_needed(floats, radius)
        if count is None or count == kept:
            continue
        kept = count
        own = found.coefficients[:count]
        near = term_of(by) * _horner(own, x) if by != Product(ONCE) else _horner(own, x)
        if found.valuation:
            near = near * _whole_power(x, found.valuation)
        yield call("where", call("lt", call("abs", x), radius), near, term)


def _polynomial(coefficients: list[float], x: float) -> float:
    whole = 0.0
    for c in reversed(coefficients):
        whole = whole * x + c
    return whole


def terms_needed(coefficients: list[float], radius: float) -> int | None:
    """The number of terms after which less than `LEFT` of the polynomial is left out up to a radius."""
    sizes = [float(abs(c)) * radius**k for k, c in enumerate(coefficients)]
    left = list(accumulate(reversed(sizes)))[::-1]
    points = [radius * k / 16 for k in range(-16, 17)]
    least = min(abs(_polynomial(coefficients, x)) for x in points)
    if max(sizes[-4:]) > LEFT / 256 * least or least < abs(coefficients[0]) / 64:
        return None
    count = next(k for k, size in enumerate([*left, 0.0]) if size <= LEFT * least)
    used = sum(1 for c in coefficients[:count] if c)
    return count if used <= MOST_TERMS else None


def _horner(coefficients: list[int], x: Term) -> Term:
    """A polynomial; in x² where every other coefficient is 0."""
    step: Term = x
    if all(abs(c) <= VANISHES for c in coefficients[1::2]):
        coefficients, step = coefficients[::2], call("square", x)
    numbers = [Number(Fraction(c, WHOLE)) for c in coefficients]
    whole: Term = numbers[-1]
    for c in reversed(numbers[:-1]):
        whole = c + step * whole
    return whole


def _whole_power(x: Term, power: int) -> Term:
    return reduce(lambda a, b: a * b, [x] * power)


def scaled_erfc(term: Term) -> Iterator[Term]:
    """The product e^(a²) erfc(a) by its asymptotic series where erfc(a) is too small."""
    if not (isinstance(term, Apply) and term.op in ("mul", "div", "neg")):
        return
    product = product_of(term)
    for i, first in enumerate(product.factors):
        for j, second in enumerate(product.factors):
            match first.base, second.base:
                case Apply("exp", (u,)), Apply("erfc", (a,)) if first.power == second.power == 1:
                    more = total(u, call("neg", a * a))
                    if len(sum_of(more)) >= len(sum_of(u)) and more != Number(Fraction(0)):
                        continue
                    rest = product.without(max(i, j)).without(min(i, j))
                    by = term_of(rest) if more == Number(Fraction(0)) else term_of(rest) * call("exp", more)
                    far = by * _asymptotic(a)
                    yield call("where", call("gt", a, FAR_OUT), far, term)


def _asymptotic(a: Term) -> Term:
    """The sum of (-1)^k (2k - 1)!! / (2 a²)^k over a and the root of pi."""
    over_a = call("reciprocal", call("clamp_min", a, FAR_OUT))  # finite where it is not taken, too
    t = call("square", over_a)
    numbers = [Fraction(_at(lambda: 1 / sympy.sqrt(sympy.pi)), WHOLE)]
    for k in range(1, FAR_TERMS):
        numbers.append(-numbers[-1] * (2 * k - 1) / 2)
    whole: Term = Number(numbers[-1])
    for c in reversed(numbers[:-1]):
        whole = Number(c) + t * whole
    return whole * over_a
