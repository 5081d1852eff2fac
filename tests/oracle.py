"""The enclosures of every primitive beside mpmath: a second library, other formulas, random doubles.

    python tests/oracle.py                       # every primitive, 10,000 points each
    python tests/oracle.py --points 1000000 tanh # one

A point is a number for each argument: of ordinary size, of any size that a double has, at a kink and beside
it, and equal to another argument. mpmath computes value and slopes with more and more bits, until two
results agree to 115 bits. Prints, for each primitive, the largest difference, in units of 2**-100 of the
number itself; infinite where a zero, an infinity or a NaN is not where it should be, or `hi` is not the
double nearest to the number.
"""

import math
import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import click
import mpmath
from mpmath import mp, mpf

from fusegen.core.ops import OPS
from fusegen.core.term import Name, Program, call
from fusegen.evidence.certify.enclosures import Enclosure
from fusegen.evidence.certify.enclosures.doubles import Real

Function = Callable[..., Any]
PART = 10_000
PRECISIONS = tuple(160 * 2**k for k in range(7))
FAR = 2**15
AGREED, UNIT, LEAST = mpf(2) ** -115, mpf(2) ** -100, mpf(2) ** -1074


@dataclass(frozen=True, slots=True)
class Primitive:
    """A primitive and its slopes as mpmath has them; they raise where there are none."""

    value: Function  # of its arguments
    slopes: tuple[Function, ...]  # one for each argument that has one
    kinks: tuple[float, ...] = ()  # numbers to try, and their neighbours


def _exp(x: Any) -> Any:
    """e^x, of an x beyond which nothing changes for a double, nor for its sums and products."""
    return mpmath.exp(min(max(x, -FAR), FAR))


def _positive(x: Any) -> Any:
    if x <= 0:
        raise ValueError("outside the domain")
    return x


def _select(condition: bool, chosen: Any = 1, other: Any = 0) -> Any:
    return chosen if condition else other


def _power(x: Any, c: Any) -> Any:
    if x == 0:
        return 1 / _positive(c) * 0 if c else mpf(1)
    if x < 0 and c != int(c):
        raise ValueError("outside the domain")
    size = _exp(c * mpmath.log(abs(x)))
    return -size if x < 0 and int(c) % 2 else size


def _power_slope(x: Any, c: Any) -> Any:
    if x:
        return c * _power(x, c) / x
    return mpf(c == 1) / (c == 0 or c >= 1)


def _power_slope_of_exponent(x: Any, c: Any) -> Any:
    if x == 0 and c >= 0:
        return mpf(0)
    return _power(x, c) * mpmath.log(_positive(x))


def _clamp(x: Any, low: Any, high: Any) -> Any:
    return min(max(x, low), high)


def _sech2(x: Any) -> Any:
    return 1 / mpmath.cosh(min(abs(x), FAR)) ** 2


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + _exp(-x))


def _softplus(x: Any) -> Any:
    return max(x, 0) + mpmath.log1p(_exp(-abs(x)))


def _erfc(x: Any) -> Any:
    if x > FAR:
        return _exp(-x * x)
    return mpmath.erfc(x)


def _bell(x: Any) -> Any:
    return 2 / mpmath.sqrt(mp.pi) * _exp(-x * x)


def _density(x: Any) -> Any:
    return _exp(-x * x / 2) / mpmath.sqrt(2 * mp.pi)


def _tied(a: Any, b: Any) -> Any:
    return mpf(1) / 2 if a == b else mpf(a > b)


def _ndtr(x: Any) -> Any:
    return _erfc(-x / mpmath.sqrt(2)) / 2


def _mish_slope(x: Any) -> Any:
    return _sech2(_softplus(x)) * _sigmoid(x)


def _mish_curvature(x: Any) -> Any:
    own, outer = _sigmoid(x) * _sigmoid(-x), 2 * mpmath.tanh(_softplus(x)) * _sigmoid(x) ** 2
    return _sech2(_softplus(x)) * (own - outer)


def _tanh_of_exp(x: Any) -> Any:
    return mpmath.tanh(mpmath.exp(min(x, 20)))  # 1 to a hundred million digits


def _tanh_of_exp_slope(x: Any) -> Any:
    return _exp(x) * _sech2(_exp(x)) if x < 20 else mpf(0)


def _tanh_of_exp_curvature(x: Any) -> Any:
    t = mpmath.exp(min(x, 20))
    return _tanh_of_exp_slope(x) * (1 - 2 * t * mpmath.tanh(t))


def _comparison(holds: Callable[[Any, Any], bool]) -> Primitive:
    return Primitive(
        lambda a, b: a if holds(a, b) else b,
        (lambda a, b: _select(holds(a, b)), lambda a, b: _select(not holds(a, b))),
    )


_ONE: Function = lambda *_: mpf(1)  # noqa: E731
_NONE: Function = lambda *_: mpf(0)  # noqa: E731
_LN2: Function = lambda: mpmath.log(2)  # noqa: E731

PRIMITIVES: dict[str, Primitive] = {
    "add": Primitive(lambda a, b: a + b, (_ONE, _ONE)),
    "sub": Primitive(lambda a, b: a - b, (_ONE, lambda a, b: mpf(-1))),
    "mul": Primitive(lambda a, b: a * b, (lambda a, b: b, lambda a, b: a)),
    "div": Primitive(lambda a, b: a / b, (lambda a, b: 1 / b, lambda a, b: -a / b / b)),
    "neg": Primitive(lambda a: -a, (lambda a: mpf(-1),)),
    "lt": _comparison(lambda a, b: a < b),
    "le": _comparison(lambda a, b: a <= b),
    "gt": _comparison(lambda a, b: a > b),
    "ge": _comparison(lambda a, b: a >= b),
    "eq": _comparison(lambda a, b: a == b),
    "ne": _comparison(lambda a, b: a != b),
    "where": Primitive(
        lambda c, a, b: a if c > 0 else b,
        (_NONE, lambda c, a, b: _select(c > 0), lambda c, a, b: _select(c <= 0)),
    ),
    "pi": Primitive(lambda x: mpf(mp.pi), (_NONE,)),
    "e": Primitive(lambda x: mpf(mp.e), (_NONE,)),
    "relu": Primitive(lambda x: max(x, 0), (lambda x: _select(x > 0),)),
    "relu6": Primitive(lambda x: min(max(x, 0), 6), (lambda x: _select(0 < x < 6),), (6.0,)),
    "clamp": Primitive(
        _clamp,
        (
            lambda x, low, high: _select(low <= x <= high),
            lambda x, low, high: _select(low < high and x < low),
            lambda x, low, high: _select(x > high or high < low),
        ),
    ),
    "saturate": Primitive(
        _clamp,
        (
            lambda x, low, high: _select(low < x < high),
            lambda x, low, high: _select(x <= low),
            lambda x, low, high: _select(x >= high),
        ),
    ),
    "clamp_min": Primitive(max, (lambda x, low: _select(x >= low), lambda x, low: _select(x < low))),
    "clamp_max": Primitive(min, (lambda x, high: _select(x <= high), lambda x, high: _select(x > high))),
    "minimum": Primitive(min, (lambda a, b: _tied(b, a), lambda a, b: _tied(a, b))),
    "maximum": Primitive(max, (_tied, lambda a, b: _tied(b, a))),
    "abs": Primitive(abs, (mpmath.sign,)),
    "sign": Primitive(mpmath.sign, (_NONE,)),
    "detach": Primitive(lambda x: x, (_NONE,)),
    "square": Primitive(lambda x: x * x, (lambda x: 2 * x,)),
    "cube": Primitive(lambda x: x * x * x, (lambda x: 3 * x * x,)),
    "reciprocal": Primitive(lambda x: 1 / x, (lambda x: -1 / (x * x),)),
    "sqrt": Primitive(
        lambda x: mpmath.sqrt(_positive(x)) if x else x, (lambda x: 1 / (2 * mpmath.sqrt(_positive(x))),)
    ),
    "rsqrt": Primitive(
        lambda x: 1 / mpmath.sqrt(_positive(x)), (lambda x: -1 / (2 * x * mpmath.sqrt(_positive(x))),)
    ),
    "pow": Primitive(
        _power, (_power_slope, _power_slope_of_exponent), (2.0, 0.5, -1.0, 3.0, 40.0, 4096.0, 5000.0)
    ),
    "exp": Primitive(_exp, (_exp,)),
    "exp2": Primitive(lambda x: _exp(x * _LN2()), (lambda x: _LN2() * _exp(x * _LN2()),)),
    "expm1": Primitive(lambda x: mpmath.expm1(min(x, FAR)), (_exp,)),
    "log": Primitive(lambda x: mpmath.log(_positive(x)), (lambda x: 1 / _positive(x),), (1.0,)),
    "log2": Primitive(
        lambda x: mpmath.log(_positive(x)) / _LN2(), (lambda x: 1 / (_positive(x) * _LN2()),), (1.0, 8.0)
    ),
    "log1p": Primitive(
        lambda x: mpmath.log1p(_positive(1 + x) - 1 if abs(x) > 1 else x) if x > -1 else _positive(0),
        (lambda x: 1 / _positive(1 + x),),
        (-1.0,),
    ),
    "sin": Primitive(mpmath.sin, (mpmath.cos,), (math.pi,)),
    "cos": Primitive(mpmath.cos, (lambda x: -mpmath.sin(x),), (math.pi / 2,)),
    "sinpi": Primitive(mpmath.sinpi, (lambda x: mpmath.pi * mpmath.cospi(x),), (1.0, 1.5)),
    "cospi": Primitive(mpmath.cospi, (lambda x: -mpmath.pi * mpmath.sinpi(x),), (1.0, 1.5)),
    "tanh": Primitive(mpmath.tanh, (_sech2,)),
    "erf": Primitive(mpmath.erf, (_bell,)),
    "erfc": Primitive(_erfc, (lambda x: -_bell(x),), (26.5, 27.2, 32.0)),
    "ndtr": Primitive(_ndtr, (_density,), (-32.0, -38.5)),
    "sigmoid": Primitive(_sigmoid, (lambda x: _sech2(x / 2) / 4,), (-745.0, 710.0)),
    "softplus": Primitive(_softplus, (_sigmoid,)),
    "sigmoid_slope": Primitive(
        lambda x: _sech2(x / 2) / 4, (lambda x: -_sech2(x / 2) / 4 * mpmath.tanh(x / 2),)
    ),
    "tanh_slope": Primitive(_sech2, (lambda x: -2 * _sech2(x) * mpmath.tanh(x),)),
    "scaled_hypot": Primitive(
        mpmath.hypot, (lambda a, b: a / mpmath.hypot(a, b), lambda a, b: b / mpmath.hypot(a, b))
    ),
    "scaled_hypot_slope": Primitive(
        lambda a, b: a / mpmath.hypot(a, b),
        (lambda a, b: b * b / mpmath.hypot(a, b) ** 3, lambda a, b: -a * b / mpmath.hypot(a, b) ** 3),
    ),
    "soft_sign": Primitive(lambda x: x / (1 + abs(x)), (lambda x: 1 / (1 + abs(x)) ** 2,)),
    "tanh_shrink": Primitive(lambda x: x - mpmath.tanh(x), (lambda x: mpmath.tanh(x) ** 2,)),
    "clamp_to_lowest": Primitive(lambda x: x, (_ONE,)),
    "clamp_to_highest": Primitive(lambda x: x, (_ONE,)),
    "times_ndtr": Primitive(lambda x: x * _ndtr(x), (lambda x: _ndtr(x) + x * _density(x),)),
    "times_ndtr_slope": Primitive(
        lambda x: _ndtr(x) + x * _density(x), (lambda x: (2 - x * x) * _density(x),)
    ),
    "times_tanh_softplus": Primitive(
        lambda x: x * mpmath.tanh(_softplus(x)), (lambda x: mpmath.tanh(_softplus(x)) + x * _mish_slope(x),)
    ),
    "times_tanh_softplus_slope": Primitive(
        lambda x: mpmath.tanh(_softplus(x)) + x * _mish_slope(x),
        (lambda x: 2 * _mish_slope(x) + x * _mish_curvature(x),),
    ),
    "tanh_of_exp": Primitive(_tanh_of_exp, (_tanh_of_exp_slope,)),
    "tanh_of_exp_slope": Primitive(_tanh_of_exp_slope, (_tanh_of_exp_curvature,)),
    "tanh_softplus": Primitive(lambda x: mpmath.tanh(_softplus(x)), (_mish_slope,)),
    "tanh_softplus_slope": Primitive(_mish_slope, (_mish_curvature,)),
    "gauss": Primitive(lambda x: _exp(-x * x), (lambda x: -2 * x * _exp(-x * x),)),
    "normal": Primitive(_density, (lambda x: -x * _density(x),)),
    "fma": Primitive(lambda a, b, c: a * b + c, (lambda a, b, c: b, lambda a, b, c: a, _ONE)),
    "quotient": Primitive(lambda a, b: a / b, (lambda a, b: 1 / b, lambda a, b: -a / b / b)),
    "select_by_width": Primitive(lambda narrow, wide: wide, (_NONE, _ONE)),
    "round_to_storage": Primitive(lambda x: x, (_ONE,)),
}


def program(op: str) -> Program:
    """One primitive of its arguments as a program; a condition chooses between them."""
    names = OPS[op].args or ("x",)
    inputs = tuple(map(Name, names))
    term = call(op, *inputs[: len(OPS[op].args)])
    if op == "where":
        term = call(op, inputs[0] > 0, *inputs[1:])
    elif OPS[op].boolean:
        term = call("where", term, *inputs)
    return Program(names, (), (), (term,))


def points(op: str, count: int, seed: int = 0) -> Iterator[tuple[float, ...]]:
    """Random arguments of a primitive, the same ones every time."""
    chance = random.Random(f"{op} {seed}")
    for _ in range(count):
        point = [number(chance, PRIMITIVES[op].kinks) for _ in OPS[op].args or ("x",)]
        if chance.random() < 0.25:
            point[chance.randrange(len(point))] = chance.choice(point)
        yield tuple(point)


def number(chance: random.Random, kinks: tuple[float, ...]) -> float:
    """A double: mostly of ordinary size, at times of any, now and then a special one or its neighbour."""
    kind = chance.random()
    if kind < 0.2:
        x = chance.choice((0.0, 0.0, 1.0, -1.0, 5e-324, 1.7976931348623157e308, *kinks, *kinks))
        return math.nextafter(x, chance.choice((x, x, -1e308, 1e308)))
    if kind < 0.3:
        return float(chance.randint(-12, 12))
    low, high = (-8, 5) if kind < 0.7 else (-40, 12) if kind < 0.9 else (-1074, 1023)
    return chance.choice((-1, 1)) * chance.uniform(1, 2) * math.pow(2.0, chance.uniform(low, high))


def converged(function: Function, point: tuple[Any, ...]) -> Any:
    """The value of a function at a point, to 115 bits; nothing where it is undefined or not certain."""
    last = None
    for precision in PRECISIONS:
        found = computed(function, point, precision)
        if found is None:
            return None
        if last is not None and abs(found - last) <= AGREED * abs(found):
            return computed(function, point, PRECISIONS[-1]) if doubtful(found) else found
        last = found
    return None


def computed(function: Function, point: tuple[Any, ...], precision: int) -> Any:
    """The value of a function by mpmath with some bits; nothing where it is undefined."""
    mp.prec = precision
    try:
        return mpf(function(*point))
    except (ValueError, ZeroDivisionError):
        return None


def cut(exact: Any) -> tuple[int, int, int, int]:
    """A number of mpmath's cut to what a double holds: digits, exponent, what is cut off, how many bits."""
    _, mantissa, exponent, bits = exact._mpf_
    dropped = max(bits - 53, -1074 - exponent, 0)
    return mantissa >> dropped, exponent + dropped, mantissa & ((1 << dropped) - 1), dropped


def outside(exact: Any) -> bool:
    """True if a number is infinite as a double, or next to nothing."""
    _, mantissa, exponent, bits = exact._mpf_
    return bool(mantissa) and not -1100 < exponent + bits < 1025


def doubtful(exact: Any) -> bool:
    """True if all digits have cancelled, or 115 of them do not say to which double a number rounds."""
    if not exact or outside(exact):
        return not exact
    digits, _, rest, dropped = cut(exact)
    from_tie = abs(2 * rest - (1 << dropped))
    return dropped > 0 and from_tie <= ((digits << dropped) + rest) >> 113


def rounded(exact: Any) -> float:
    """The double nearest to a number of mpmath's, ties to even."""
    if outside(exact):
        size = math.inf if exact._mpf_[2] > 0 else 0.0
    else:
        digits, exponent, rest, dropped = cut(exact)
        past_tie = 2 * rest - (1 << dropped) if dropped else -1
        try:
            size = math.ldexp(digits + (past_tie > 0 or (past_tie == 0 and digits & 1)), exponent)
        except OverflowError:
            size = math.inf
    return -size if exact._mpf_[0] else size


def difference(found: Real, exact: Any) -> float:
    """The distance of two doubles from a number, in units of 2**-100 of it."""
    if exact is None:
        return 0.0 if math.isnan(found.hi) else math.inf
    hi = rounded(exact)
    if (found.hi, math.copysign(1, found.hi)) != (hi, math.copysign(1, hi)):
        return math.inf
    if hi == 0 or math.isinf(hi):
        return math.inf if found.lo else 0.0
    mp.prec = 400
    gap = abs(exact - found.hi - found.lo)
    return float(max(gap - LEAST / 2, 0) / abs(exact) / UNIT) if gap else 0.0


def differences(op: str, count: int, seed: int = 0) -> Iterator[tuple[float, tuple[float, ...]]]:
    """The largest difference at each point, and the point."""
    row, enclosure = PRIMITIVES[op], Enclosure(program(op), {})
    for point in points(op, count, seed):
        given = tuple(map(mpf, point))
        exact = [converged(function, given) for function in (row.value, *row.slopes)]
        yield max(map(difference, enclosure(*point), exact)), point


def largest(op: str, count: int, seed: int) -> tuple[float, tuple[float, ...]]:
    """The largest difference of some points, and where it is."""
    return max(differences(op, count, seed))


@click.command()
@click.option("--points", "count", default=PART, help="How many a primitive, in parts of 10,000.")
@click.option("--seed", default=0, help="Of the first part; each further part has the next.")
@click.option("--jobs", default=os.cpu_count() or 1, help="How many parts at a time.")
@click.argument("names", nargs=-1, metavar="[OP...]")
def main(count: int, seed: int, jobs: int, names: tuple[str, ...]) -> None:
    print("| primitive | points | largest difference, in 2^-100 | at |\n|---|---|---|---|")
    sizes = [min(PART, count - start) for start in range(0, count, PART)]
    with ProcessPoolExecutor(jobs) as pool:
        for op in names or OPS:
            seeds = range(seed, seed + len(sizes))
            worst, point = max(pool.map(largest, repeat(op), sizes, seeds))
            print(f"| {op} | {count:,} | {worst:.3g} | {', '.join(map(repr, point))} |", flush=True)


if __name__ == "__main__":
    main()
