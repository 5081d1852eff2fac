"""Functions in binary floating point of unbounded exponents, and the row of each operation."""

from collections.abc import Callable
from typing import Any

from mpmath import mp

from fusegen.core.ops import ROWS as OPERATIONS

HUGE = 2**11  # bits of an exponent, from which on it counts as infinite
FAR = 2**20  # no type holds e^-this
WHOLE = 2**15  # bits before the point of a sine's argument
Row = Callable[..., Any]


def _exp(x: Any) -> Any:
    if mp.isinf(x) or (x and mp.mag(x) > HUGE):
        return mp.inf if x > 0 else mp.mpf(0)
    return mp.exp(x)


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
    if x > 2**10:  # its asymptotic series (NIST Handbook, 7.12.1)
        term, whole, k = mp.mpf(1), mp.mpf(0), 1
        while abs(term) > mp.eps:
            whole, term, k = whole + term, -term * k / (2 * x * x), k + 2
        return _exp(-x * x) * whole / (x * mp.sqrt(mp.pi))
    return mp.erfc(x) if x > -(2**10) else mp.mpf(2)


def _ndtr(x: Any) -> Any:
    return _erfc(-x / mp.sqrt(2)) / 2


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
    if a._mpf_[1] and b._mpf_[1]:  # the mantissas: neither is 0, infinite or NaN
        return a * b
    return mp.mpf(0) if (a == 0 and mp.isinf(b)) or (b == 0 and mp.isinf(a)) else a * b


def _divided(a: Any, b: Any) -> Any:
    if b == 0:
        return mp.nan if a == 0 else mp.inf * mp.sign(a)
    return mp.nan if mp.isinf(a) and mp.isinf(b) else a / b


def _least(x: Any, most: Any) -> Any:
    return most if x > most else x


def _most(x: Any, least: Any) -> Any:
    return least if x < least else x


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
    "exp": _exp, "exp2": lambda x: _exp(x * mp.log(2)), "log": _log,
    "sin": _wave(mp.sin), "cos": _wave(mp.cos), "sinpi": _wave(mp.sinpi), "cospi": _wave(mp.cospi),
    "expm1": lambda x: mp.expm1(x) if abs(x) < 1 else _exp(x) - 1,
    "log2": lambda x: _log(x) / mp.log(2), "log1p": lambda x: mp.log1p(x) if abs(x) < 1 else _log(1 + x),
    "erf": lambda x: mp.erf(x) if abs(x) < 2**10 else mp.sign(x), "erfc": _erfc, "ndtr": _ndtr,
    "tanh": _tanh, "sigmoid": _sigmoid, "softplus": _softplus,
    "sigmoid_slope": _slope, "tanh_slope": lambda x: 4 * _slope(2 * x),
    "soft_sign": lambda x: _divided(x, 1 + abs(x)), "tanh_shrink": lambda x: x - _tanh(x),
    "tanh_softplus": lambda x: _tanh(_softplus(x)),
    "tanh_softplus_slope": lambda x: (1 - _tanh(_softplus(x)) ** 2) * _sigmoid(x),
    "tanh_of_exp": lambda x: _tanh(_exp(x)), "tanh_of_exp_slope": _tanh_of_exp_slope,
    "times_ndtr": lambda x: _times(x, _ndtr(x)),
    "times_ndtr_slope": lambda x: _ndtr(x) + _times(x, _normal(x)),
    "times_tanh_softplus": lambda x: _times(x, _tanh(_softplus(x))),
    "times_tanh_softplus_slope":
        lambda x: _tanh(_softplus(x)) + _times(x, (1 - _tanh(_softplus(x)) ** 2) * _sigmoid(x)),
    "gauss": lambda x: _exp(-x * x), "normal": _normal,
    "clamp_to_lowest": lambda x: x, "clamp_to_highest": lambda x: x,
    "fma": lambda a, b, c: _times(a, b) + c, "quotient": _divided, "scaled_hypot": mp.hypot,
    "scaled_hypot_slope": lambda a, b: _divided(a, mp.hypot(a, b)),
    "select_by_width": lambda narrow, wide: wide, "round_to_storage": lambda x: x, "detach": lambda x: x,
}
# fmt: on
# the others of the math library, as mpmath has them
ROWS |= {op.name: getattr(mp, op.libm) for op in OPERATIONS.values() if op.libm and op.name not in ROWS}
