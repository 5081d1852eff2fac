"""Enclosures: what a formula and its derivatives are over the real numbers, to a hundred bits and proven.

A program is evaluated in balls, midpoint and radius, that hold the real number whatever was rounded; a
result whose ball is too wide is computed again with twice the bits, up to 4096. Balls come in power series
x + t, cut after t, so that a value brings its derivative along. PyTorch's conventions hold at the kinks:
relu'(0) = 0, relu6'(0) = relu6'(6) = 0, clamp'(bound) = 1, saturate'(bound) = 0, abs'(0) = 0, and half to
each of maximum's equal arguments. This shares nothing with `gradients` and `derive`, which it judges.

A comparison that its balls leave open makes the result undefined, which asks for more bits. Numbers that
4096 bits do not tell apart are equal, in comparisons and nowhere else.

This is the door to flint, whose context (precision and length of series) is this module's.

Source: Johansson 2017, Arb: Efficient Arbitrary-Precision Midpoint-Radius Interval Arithmetic, IEEE
Transactions on Computers 66; Griewank and Walther 2008, Evaluating Derivatives, chapter 13; PyTorch,
tools/autograd/derivatives.yaml.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from itertools import repeat
from typing import Any, NamedTuple

from flint import arb, arb_series, ctx, fmpq, fmpz

from fusegen.term import Apply, Name, Number, Program, Term

PRECISIONS = (128, 256, 512, 1024, 2048, 4096)
ACCURATE = 105  # bits of a result that is kept: 100 for the reader, the rest for the rounding of `lo`
CHUNK = 4096

Row = Callable[..., Any]  # from series and conditions to one; a condition is None where it is undecided
Pair = tuple[float, float]
Column = tuple["array[float]", "array[float]"]


@dataclass(frozen=True, slots=True)
class Real:
    """A real number as the unevaluated sum of two doubles, with a relative error below 2**-100.

    Attributes:
        hi: the double nearest to it, signed where it rounds to zero. NaN where the function is undefined
            (the logarithm of a negative number, 0 / 0, a pole) or where 4096 bits do not enclose it.
        lo: the double nearest to the rest, as far down as doubles go; 0 where `hi` is the number, or is
            infinite, NaN or zero.
    """

    hi: float
    lo: float


# --- the operations -------------------------------------------------------------------------------------


def _lift(value: arb | fmpz | float, slope: arb | float = 0) -> arb_series:
    return arb_series([value, slope])


ctx.cap = 2
_ZERO, _ONE, _TWO, _SIX = (_lift(value) for value in (0, 1, 2, 6))
_HALF, _MINUS_TWO, _NAN = _lift(0.5), _lift(-2), _lift(math.nan, math.nan)
_SMALL, _MINUS_SMALL = arb(2.0**-10), arb(-(2.0**-10))  # what 1 is added to, or taken from, without loss
_FAR_OUT = arb(32)  # from here on, flint has the tail of the error function better as a gamma function
_EVEN = arb((1, PRECISIONS[-1] + 1))  # from here on, no number of as many bits is odd
_INDISTINCT, _HALF_LEAST, _OVERFLOWING = arb((1, -1100)), arb((1, -1075)), arb((1, 1024))


def _order(a: arb_series, b: arb_series) -> int | None:
    """-1, 0 or 1 as a is below b, equal or above; None where that is open, or one of them undefined."""
    p, q = a[0], b[0]
    if p > q:
        return 1
    if p < q:
        return -1
    if p == q:
        return 0
    if ctx.prec < PRECISIONS[-1]:
        return None
    return 0 if abs(p - q).abs_upper() <= _INDISTINCT * (1 + abs(p) + abs(q)) else None


def _compare(*orders: int) -> Row:
    def holds(a: arb_series, b: arb_series) -> bool | None:
        order = _order(a, b)
        return None if order is None else order in orders

    return holds


def _pick(
    a: arb_series, b: arb_series, below: arb_series, equal: arb_series, above: arb_series
) -> arb_series:
    order = _order(a, b)
    return _NAN if order is None else (equal, above, below)[order]


def _where(condition: bool | None, chosen: arb_series, other: arb_series) -> arb_series:
    return _NAN if condition is None else chosen if condition else other


def _abs(x: arb_series) -> arb_series:
    return _pick(x, _ZERO, -x, _ZERO, x)


def _relu6(x: arb_series) -> arb_series:
    return _pick(x, _ZERO, _ZERO, _ZERO, _pick(x, _SIX, x, _SIX, _SIX))


def _clamp(x: arb_series, low: arb_series, high: arb_series) -> arb_series:
    beneath = _pick(low, high, low, _lift(low[0]), high)
    inside, above = _pick(x, low, beneath, x, x), high if low[0].is_finite() else _NAN
    return _pick(x, high, inside, inside, above)


def _saturate(x: arb_series, low: arb_series, high: arb_series) -> arb_series:
    below, above = _order(x, low), _order(x, high)
    if below is None or above is None:
        return _NAN
    followed = ((low, below <= 0), (high, above >= 0), (x, below > 0 > above))
    return _lift(_clamp(x, low, high)[0], sum((of[1] for of, holds in followed if holds), arb(0)))


def _minimum(a: arb_series, b: arb_series) -> arb_series:
    return _pick(a, b, a, (a + b) * _HALF, b)


def _mul(a: arb_series, b: arb_series) -> arb_series:
    product = a * b
    if product.length():
        return product
    return _lift(a[0] * b[0], a[0] * b[1] + a[1] * b[0])  # a series that is 0 hides what is undefined


def _div(a: arb_series, b: arb_series) -> arb_series:
    divisor = b[0]
    value = a[0] / divisor  # of series, flint's quotient is inexact, and t / t is 1
    return _lift(value, (a[1] - value * b[1]) / divisor)


def _root_of_zero(x: arb_series) -> arb_series:
    """A root where x is 0: its slope is a pole, unless x stays 0 as a relu does; so 0 + 0 t is read."""
    return _ZERO if x[1].is_zero() else _lift(0, math.nan)


def _sqrt(x: arb_series) -> arb_series:
    return _pick(x, _ZERO, _NAN, _root_of_zero(x), x.sqrt())


def _pow(x: arb_series, c: arb_series) -> arb_series:
    match _order(x, _ZERO):
        case 1:
            whole = c[0].unique_fmpz() if c[0].is_integer() and abs(c[0]) <= 4096 else None
            if whole is None:
                return (c * x.log()).exp()
            power = x ** int(whole)
            return power if c[1].is_zero() else power * ((c - _lift(whole)) * x.log()).exp()
        case 0:  # a pole, 1, a root, x itself, or a flat zero
            return _pick(c, _ZERO, _NAN, _ONE, _pick(c, _ONE, _root_of_zero(x), x, _ZERO))
        case -1 if (odd := _odd(c[0])) is not None:  # no slope by an exponent that moves
            return _lift(-1 if odd else 1, 0 if c[1].is_zero() else math.nan) * _pow(-x, _lift(c[0]))
    return _NAN


def _odd(c: arb) -> bool | None:
    """Whether an integer is odd; None for what is none, or is not known to be one."""
    if not c.is_integer() and ctx.prec < PRECISIONS[-1]:
        return None
    if abs(c) > _EVEN:
        return False if c.is_integer() else None
    whole = c.unique_fmpz()
    return None if whole is None else int(whole) % 2 == 1


def _expm1(x: arb_series) -> arb_series:
    if x[0] > _SMALL or x[0] < _MINUS_SMALL:
        return x.exp() - _ONE
    value = x[0].expm1()
    return _lift(value, (value + 1) * x[1])


def _log1p(x: arb_series) -> arb_series:
    if x[0] > _SMALL or x[0] < _MINUS_SMALL:
        return (x + _ONE).log()
    return _lift(x[0].log1p(), x[1] / (x[0] + 1))


def _log2(x: arb_series) -> arb_series:
    return _lift(x[0].log_base(2), x.log()[1] / arb.const_log2())  # exact for powers of two


def _tanh(x: arb_series) -> arb_series:
    if x[0] < 0:
        return -_tanh(-x)
    e = _expm1(x * _MINUS_TWO)
    return -e * (e + _TWO).inv()


def _erfc(x: arb_series) -> arb_series:
    return arb_series.gamma_upper(_HALF[0], x * x, 1) if x[0] > _FAR_OUT else x.erfc()


def _ndtr(x: arb_series) -> arb_series:
    if x[0] < -_FAR_OUT:
        return _HALF * arb_series.gamma_upper(_HALF[0], x * x * _HALF, 1)
    return _HALF * (x * _lift(-arb(0.5).sqrt())).erfc()


def _sigmoid(x: arb_series) -> arb_series:
    if x[0] < 0:
        return (e := x.exp()) * (e + _ONE).inv()
    return ((-x).exp() + _ONE).inv()


def _softplus(x: arb_series) -> arb_series:
    return x + _log1p((-x).exp()) if x[0] > 0 else _log1p(x.exp())


def _sech2(x: arb_series) -> arb_series:
    sinh, cosh = x[0].sinh_cosh()
    return ((y := _lift(cosh, sinh * x[1])) * y).inv()


def _soft_sign(x: arb_series) -> arb_series:
    more = _abs(x) + _ONE
    if more[0] > 2:
        y = _ONE - more.inv()
        return y if x[0] > 0 else -y
    return x * more.inv()


def _tanh_softplus_slope(x: arb_series) -> arb_series:
    return _mul(_sech2(_softplus(x)), _sigmoid(x))


def _tanh_of_exp_slope(x: arb_series) -> arb_series:
    if x[0] > 20:  # both it and its slope are below 2^-(10^9) in size
        tiny = (arb(2) ** -(10**8)).union(-(arb(2) ** -(10**8)))
        return _lift(tiny, tiny * x[1])
    return _mul(_sech2(x.exp()), x.exp())


def _gauss(x: arb_series) -> arb_series:
    return (-x * x).exp()


def _normal(x: arb_series) -> arb_series:
    return _gauss(x * _lift(arb(0.5).sqrt())) * _lift((2 * arb.pi()).rsqrt())


ROWS: dict[str, Row] = {
    # symbols
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": _mul,
    "div": _div,
    "neg": lambda a: -a,
    "lt": _compare(-1),
    "le": _compare(-1, 0),
    "gt": _compare(1),
    "ge": _compare(1, 0),
    "eq": _compare(0),
    "ne": _compare(-1, 1),
    "where": _where,
    # constants
    "pi": lambda: _lift(arb.pi()),
    "e": lambda: _lift(arb.const_e()),
    # selections
    "relu": lambda x: _pick(x, _ZERO, _ZERO, _ZERO, x),
    "relu6": _relu6,
    "clamp": _clamp,
    "saturate": _saturate,
    "clamp_min": lambda x, low: _pick(x, low, low, x, x),
    "clamp_max": lambda x, high: _pick(x, high, x, x, high),
    "minimum": _minimum,
    "maximum": lambda a, b: -_minimum(-a, -b),
    "abs": _abs,
    "sign": lambda x: _pick(x, _ZERO, -_ONE, _ZERO, _ONE),
    # arithmetic
    "square": lambda x: x * x,
    "cube": lambda x: x * x * x,
    "reciprocal": lambda x: _div(_ONE, x),
    "sqrt": _sqrt,
    "rsqrt": lambda x: x.rsqrt(),
    "pow": _pow,
    # the math library
    "exp": lambda x: x.exp(),
    "exp2": lambda x: _pow(_TWO, x),
    "expm1": _expm1,
    "log": lambda x: x.log(),
    "log2": _log2,
    "log1p": _log1p,
    "sin": lambda x: x.sin(),
    "cos": lambda x: x.cos(),
    "tanh": _tanh,
    "erf": lambda x: x.erf(),
    "erfc": _erfc,
    "ndtr": _ndtr,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    # forms and slopes of others
    "sigmoid_slope": lambda x: _sech2(x * _HALF) * _lift(0.25),
    "tanh_slope": _sech2,
    "soft_sign": _soft_sign,
    "tanh_shrink": lambda x: x - _tanh(x),
    "tanh_softplus": lambda x: _tanh(_softplus(x)),
    "tanh_softplus_slope": _tanh_softplus_slope,
    "times_ndtr": lambda x: _mul(x, _ndtr(x)),
    "times_ndtr_slope": lambda x: _ndtr(x) + _mul(x, _normal(x)),
    "times_tanh_softplus": lambda x: _mul(x, _tanh(_softplus(x))),
    "times_tanh_softplus_slope": lambda x: _tanh(_softplus(x)) + _mul(x, _tanh_softplus_slope(x)),
    "tanh_of_exp": lambda x: _tanh(x.exp()),
    "tanh_of_exp_slope": _tanh_of_exp_slope,
    "gauss": _gauss,
    "normal": _normal,
    "finite_below": lambda x: x,
    "finite_above": lambda x: x,
    # what PyTorch's own kernels compute with: over the real numbers nothing rounds
    "fma": lambda a, b, c: _mul(a, b) + c,
    "quotient": _div,
    "by_width": lambda narrow, wide: wide,
    "rounded": lambda x: x,
}


def _number(value: Fraction) -> arb_series:
    return _lift(arb(fmpq(value.numerator, value.denominator)))


# --- programs -------------------------------------------------------------------------------------------


class _Step(NamedTuple):
    """One operation on the slots of `args`, whose result goes into `slot`."""

    slot: int
    row: Row
    args: tuple[int, ...]


class _Steps:
    """The steps of a program, each different one once: those that no input reaches, and the others."""

    def __init__(self, program: Program, params: Mapping[str, Fraction]) -> None:
        self.fixed: list[_Step] = []
        self.moving: list[_Step] = []
        self._known: dict[tuple[object, tuple[int, ...]], int] = {}
        scope = {name: slot for slot, name in enumerate(program.inputs)}
        self._constant = [False] * len(scope)
        scope |= {name: self._number(params[name]) for name in program.params}
        for let in program.lets:
            scope[let.name] = self._slot(let.term, scope)
        [result] = program.results
        self.result = self._slot(result, scope)
        self.size = len(self._constant)

    def _slot(self, term: Term, scope: Mapping[str, int]) -> int:
        match term:
            case Number(value):
                return self._number(value)
            case Name(name):
                return scope[name]
            case Apply(op, args):
                return self._step(op, ROWS[op], tuple(self._slot(arg, scope) for arg in args))
        raise AssertionError(term)

    def _number(self, value: Fraction) -> int:
        return self._step(value, partial(_number, value), ())

    def _step(self, key: object, row: Row, args: tuple[int, ...]) -> int:
        if (key, args) not in self._known:
            slot = self._known[key, args] = len(self._constant)
            self._constant.append(all(self._constant[arg] for arg in args))
            (self.fixed if self._constant[slot] else self.moving).append(_Step(slot, row, args))
        return self._known[key, args]


class Enclosure:
    """A program of one result, made once and then called at many points.

    Two doubles that say all there is to say of a value may take 4096 bits to find, never more than a few
    milliseconds an operation, also at 1e308.
    """

    def __init__(self, program: Program, params: Mapping[str, Fraction]) -> None:
        """Prepare a program with values for its parameters.

        Args:
            program: of terms without calls of other specs.
            params: a number for each of its parameters.
        """
        self._inputs = len(program.inputs)
        self._steps = _Steps(program, params)
        self._starts: dict[int, list[Any]] = {}

    def __call__(self, *inputs: float) -> tuple[Real, ...]:
        """The value at a point, then the derivative by each input; NaN where an input is not finite."""
        return tuple(Real(hi, lo) for hi, lo in self.pairs(inputs))

    def pairs(self, inputs: Sequence[float]) -> list[Pair]:
        """The same as plain pairs of `hi` and `lo`."""
        if not all(map(math.isfinite, inputs)):
            return [(math.nan, 0.0)] * (1 + self._inputs)
        ctx.cap = 2
        for precision in PRECISIONS:
            if ctx.prec != precision:
                ctx.prec = precision
            found = self._results(inputs, precision)
            pairs = [pair for ball in found if (pair := _pair(ball)) is not None]
            if len(pairs) == len(found):
                return pairs
        return [_pair(ball) or _last(ball) for ball in found]

    def limit(self, *inputs: float) -> tuple[Real, ...]:
        """What value and derivative tend to at an infinity; at a number, their values.

        They are looked at along 2**64, 2**256, 2**1000 and along one and a half times these. Both times the
        last two must agree to 60 bits (that is the limit), or each must be at most half of the one before
        (it is 0), or at least twice as large (it is infinite); else it is NaN. This is evidence, no proof.

        Args:
            inputs: one number or infinity.

        Raises:
            ValueError: the program has more than one input.
        """
        if self._inputs != 1:
            raise ValueError("a limit is that of a function of one input")
        if not math.isinf(inputs[0]):
            return self(*inputs)
        runs = [
            zip(*(self(math.copysign(start * far, inputs[0])) for far in _FAR), strict=True)
            for start in (1.0, 1.5)
        ]
        return tuple(
            first if _near(first.hi, second.hi) else Real(math.nan, 0.0)
            for first, second in zip(*([_tendency(*three) for three in run] for run in runs), strict=True)
        )

    def _results(self, inputs: Sequence[float], precision: int) -> list[arb]:
        """Balls around the value and the derivatives, one pass an input."""
        if precision not in self._starts:
            self._starts[precision] = self._start()
        found: list[arb] = []
        for moving in range(self._inputs):
            slots = self._starts[precision].copy()
            for slot, x in enumerate(inputs):
                slots[slot] = arb_series([x, 1] if slot == moving else [x])
            for slot, row, args in self._steps.moving:
                slots[slot] = row(*[slots[arg] for arg in args])
            series = slots[self._steps.result]
            found += [series[1]] if found else [series[0], series[1]]
        return found

    def _start(self) -> list[Any]:
        """The slots, those filled that no input reaches."""
        slots: list[Any] = [None] * self._steps.size
        for slot, row, args in self._steps.fixed:
            slots[slot] = row(*[slots[arg] for arg in args])
        return slots


def values(
    program: Program,
    params: Mapping[str, Fraction],
    points: Sequence[tuple[float, ...]],
    jobs: int = 1,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Column]:
    """Value and derivatives at many points.

    Args:
        program: of one result.
        params: a number for each of its parameters.
        points: a double for each of its inputs.
        jobs: how many processes compute, if there is enough to do.
        progress: is told how many more points are done, again and again.

    Returns:
        For the value, then for the derivative by each input: the arrays of `hi` and of `lo`.
    """
    columns = [(array("d"), array("d")) for _ in range(1 + len(program.inputs))]
    chunks = [points[start : start + CHUNK] for start in range(0, len(points), CHUNK)]
    for chunk, found in zip(chunks, _mapped(program, params, chunks, min(jobs, len(chunks))), strict=True):
        for (hi, lo), (more_hi, more_lo) in zip(columns, found, strict=True):
            hi += more_hi
            lo += more_lo
        progress(len(chunk))
    return columns


def _mapped(
    program: Program, params: Mapping[str, Fraction], chunks: list[Sequence[tuple[float, ...]]], jobs: int
) -> Iterable[list[Column]]:
    """The columns of each chunk, in their order."""
    if jobs <= 1:
        return map(_columns, repeat(program), repeat(params), chunks)
    return _processes(os.cpu_count() or 1).map(_columns, repeat(program), repeat(dict(params)), chunks)


@cache
def _processes(count: int) -> ProcessPoolExecutor:
    """Processes that stay; they are forked from a fresh one, since this one may have threads."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([name for name in sys.modules if name.startswith("fusegen.")])
    return ProcessPoolExecutor(count, context)


def _columns(
    program: Program, params: Mapping[str, Fraction], points: Sequence[tuple[float, ...]]
) -> list[Column]:
    enclosure = Enclosure(program, params)
    rows = [enclosure.pairs(point) for point in points]
    return [
        (array("d", [hi for hi, _ in pairs]), array("d", [lo for _, lo in pairs]))
        for pairs in zip(*rows, strict=True)
    ]


# --- from balls to doubles ------------------------------------------------------------------------------

_WHOLE = 2.0**-960  # from here on, `lo` has all its bits


def _pair(ball: arb) -> Pair | None:
    """The two doubles of the number in a ball, or nothing where the ball is too wide for them."""
    if ball.rel_accuracy_bits() < ACCURATE:
        return _end(ball)
    hi = float(ball)
    lo = float(ball - hi) + 0.0 if 0 < abs(hi) < math.inf else 0.0
    nearest = hi + lo * 1.0000001 == hi if _WHOLE <= abs(hi) < math.inf else ball.is_exact()
    if nearest or float(ball.lower()) == float(ball.upper()):
        return hi, lo
    return None  # the middle of two doubles lies in the ball


def _end(ball: arb) -> Pair | None:
    """A zero or an infinity, where a wide ball says as much."""
    sign = (ball > 0) - (ball < 0)
    if sign and abs(ball) < _HALF_LEAST:
        return math.copysign(0.0, sign), 0.0
    if sign and abs(ball) > _OVERFLOWING:
        return math.copysign(math.inf, sign), 0.0
    return None


def _last(ball: arb) -> Pair:
    """What is said of a ball that no precision makes narrow."""
    if abs(ball) < _HALF_LEAST:
        return 0.0, 0.0
    near = ball.rel_accuracy_bits() >= ACCURATE  # between two doubles, to the last bit
    return (hi := float(ball), float(ball - hi)) if near else (math.nan, 0.0)


# --- limits ---------------------------------------------------------------------------------------------

_FAR = (2.0**64, 2.0**256, 2.0**1000)


def _near(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= 2.0**-60 * abs(b)


def _tendency(a: Real, b: Real, c: Real) -> Real:
    """The limit of a sequence that begins, far out, with these three."""
    if b == c or abs((b.hi - c.hi) + (b.lo - c.lo)) <= 2.0**-60 * abs(c.hi):
        return Real(c.hi, c.lo if abs(c.lo) >= 2.0**-100 * abs(c.hi) else 0.0)
    if abs(c.hi) <= abs(b.hi) / 2 <= abs(a.hi) / 4:
        return Real(0.0, 0.0)
    if c.hi / 2 >= b.hi >= 2 * a.hi > 0 or c.hi / 2 <= b.hi <= 2 * a.hi < 0:
        return Real(math.copysign(math.inf, c.hi), 0.0)
    return Real(math.nan, 0.0)
