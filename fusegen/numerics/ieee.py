"""Operations in IEEE double: a row an operation of the table, or of the kernels.

A double-word or single-word body of a function has the values of the function. All operations but choices,
comparisons and the sign give NaN where an argument is NaN. `column` evaluates an operation at many points:
arithmetic by numpy, functions one by one, so that both give the same bits.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fusegen.core.ops import ROWS

Column = npt.NDArray[np.float64]  # a number for each point

INFINITY, ROOT_TWO, ROOT_TAU = math.inf, math.sqrt(2), math.sqrt(2 * math.pi)
LARGEST = 2.0**1022
DECIDED = ("where", "lt", "le", "gt", "ge", "eq", "ne", "sign")  # of NaN, too
FAR = 10.0  # from where on tanh(exp(x)) is 1 by far
# (x - tanh(x)) / x^3 by powers of x^2, up to |x| = 1.25, as functions/hyperbolic.h has it
# From 0.0 to 1.563, to 2^-52: python -m benchmarks.coefficients tanh_shrink_double
TANH_SHRINK = (0.3333333333333333, -0.13333333333333316, 0.05396825396823853, -0.02186948853562987,
               0.008863235520411152, -0.003592127931383934, 0.001455833607387484, -0.0005900233513532234,
               0.00023911332841141452, -9.686926720553123e-05, 3.9174286465576325e-05,
               -1.5734861799614973e-05, 6.19352085593154e-06, -2.3250472081440946e-06,
               7.975228710658438e-07, -2.3631394317179296e-07, 5.652480059872008e-08,
               -1.001293046608393e-08, 1.1497985946032148e-09, -6.355146496204461e-11)  # fmt: skip
FLAT = 400.0  # and tanh(softplus(x)), whose slope times an infinity would be none


def value(op: str, args: Sequence[float]) -> float:
    """Return the value of an operation of some numbers; infinite or NaN where Python refuses."""
    if op not in DECIDED and any(map(math.isnan, args)):
        return math.nan
    try:
        return float(VALUES[op](*args))
    except OverflowError:
        return INFINITY
    except (ValueError, ZeroDivisionError):
        return math.nan


def column(op: str, args: Sequence[Column]) -> Column:
    """The values of an operation of the numbers in some columns, as `value` gives them for each row."""
    if op in COLUMNS:
        with np.errstate(all="ignore"):
            found = np.asarray(COLUMNS[op](*args), np.float64)
    else:
        found = np.array(_rows(op, [arg.tolist() for arg in args]), np.float64)
    if op in DECIDED:
        return found
    undefined = np.zeros(found.shape, bool)
    for each in args:
        undefined |= np.isnan(each)
    return np.where(undefined, math.nan, found) if undefined.any() else found


def nearest_double(number: Any) -> float:
    """Return the double next to a number of more digits, or an infinity beyond the largest."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _rows(op: str, args: Sequence[Sequence[float]]) -> list[float]:
    """Return the values of a function of each row."""
    function = VALUES[op]
    try:
        return list(map(function, *args))
    except (OverflowError, ValueError, ZeroDivisionError):
        return [value(op, row) for row in zip(*args, strict=True)]


def _log(x: float, log: Callable[[float], float] = math.log) -> float:
    return -INFINITY if x == 0 else log(x)


def _quotient(a: float, b: float) -> float:
    return math.copysign(INFINITY, a) * math.copysign(1, b) if b == 0 and a != 0 else a / b


def _logistic(x: float) -> float:
    e = math.exp(-abs(x))
    return (e if x < 0 else 1) / (1 + e)


def _bell(x: float) -> float:
    return math.exp(-min(x * x, 1e4))


def _slope(x: float) -> float:
    return _logistic(x) * _logistic(-x)


def _sinpi(x: float) -> float:
    turned = math.remainder(x, 2.0)  # exact, as what follows
    return math.sin(math.pi * (turned if abs(turned) <= 0.5 else math.copysign(1.0, turned) - turned))


def _ndtr(x: float) -> float:
    return math.erfc(-x / ROOT_TWO) / 2


def _tanh_softplus(x: float) -> float:
    v = math.exp(-abs(x))
    return (1 + 2 * v) / (1 + 2 * v + 2 * v * v) if x > 0 else v * (v + 2) / (v * (v + 2) + 2)


def _tanh_softplus_slope(x: float) -> float:
    v = math.exp(-abs(x))
    if x > 0:
        return 4 * v * v * (1 + v) / (1 + 2 * v + 2 * v * v) ** 2
    return 4 * v * (1 + v) / (v * (v + 2) + 2) ** 2


def _tanh_of_exp_slope(x: float) -> float:
    u = math.exp(min(x, FAR))
    return 4 * u * _slope(2 * u)


def _tanh_shrink(x: float) -> float:
    if x * x >= 1.5625:
        return x - math.tanh(x)
    series = 0.0
    for coefficient in reversed(TANH_SHRINK):
        series = series * (x * x) + coefficient
    return 0.0 + x * (x * x) * series  # 0 at either zero, as the difference is


# fmt: off
VALUES: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": _quotient,
    "neg": lambda a: -a, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "where": lambda condition, a, b: a if condition else b,
    "pi": lambda: math.pi, "e": lambda: math.e,
    "relu": lambda x: max(x, 0.0), "relu6": lambda x: min(max(x, 0.0), 6.0),
    "clamp": lambda x, low, high: min(max(x, low), high),
    "saturate": lambda x, low, high: min(max(x, low), high),
    "clamp_min": max, "clamp_max": min, "minimum": min, "maximum": max, "abs": abs,
    "clamp_to_lowest": lambda x: max(x, -LARGEST), "clamp_to_highest": lambda x: min(x, LARGEST),
    "sign": lambda x: (x > 0) - (x < 0), "square": lambda x: x * x, "cube": lambda x: x * x * x,
    "reciprocal": lambda x: _quotient(1.0, x),
    "scaled_hypot": math.hypot,
    "scaled_hypot_slope": lambda a, b: math.nan if a == b == 0 else a / math.hypot(a, b),
    "rsqrt": lambda x: _quotient(1.0, math.sqrt(x)), "pow": math.pow,
    "exp2": lambda x: 2.0**x, "log": _log,
    "log2": lambda x: _log(x, math.log2), "log1p": lambda x: -INFINITY if x == -1 else math.log1p(x),
    "sinpi": _sinpi, "cospi": lambda x: _sinpi(0.5 - abs(math.fmod(x, 2.0))),
    "ndtr": _ndtr, "sigmoid": _logistic, "sigmoid_slope": _slope,
    "softplus": lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))),
    "tanh_slope": lambda x: 4 * _slope(2 * x), "tanh_shrink": _tanh_shrink,
    "soft_sign": lambda x: x / (abs(x) + 1),
    "times_ndtr": lambda x: x * _ndtr(x),
    "times_ndtr_slope": lambda x: _ndtr(x) + x * _bell(x / ROOT_TWO) / ROOT_TAU,
    "tanh_softplus": _tanh_softplus, "tanh_softplus_slope": _tanh_softplus_slope,
    "times_tanh_softplus": lambda x: x * _tanh_softplus(x),
    "times_tanh_softplus_slope": lambda x: _tanh_softplus(x) + min(x, FLAT) * _tanh_softplus_slope(x),
    "tanh_of_exp": lambda x: math.tanh(math.exp(min(x, FAR))), "tanh_of_exp_slope": _tanh_of_exp_slope,
    "gauss": _bell, "normal": lambda x: _bell(x / ROOT_TWO) / ROOT_TAU,
    "fma": lambda a, b, c: a * b + c, "quotient": _quotient, "select_by_width": lambda narrow, wide: wide,
    "round_to_storage": lambda x: x, "detach": lambda x: x,
    # words
    "words": lambda hi, lo: hi + lo,
    "narrow": lambda x: x, "scaled": lambda x, hi, lo: x * (hi + lo),
    "product_plus": lambda a, b, c, d: a * b * c + d,
    "linear": lambda b, b_lo, a, a_lo, x: (a + a_lo) + (b + b_lo) * x,
    "prescaled": lambda x: x + 37 if x < -64 else x, "unscale": lambda x: math.exp(-37) if x < -64 else 1.0,
    "x_sigmoid": lambda x, t: x * _logistic(t),
    "times_sigmoid": lambda x, t: x * _logistic(t),
    "x_sigmoid_slope": lambda a, b, t: _logistic(t) + a * b * _slope(t),
    "ndtr_tail": lambda x: _ndtr(-abs(x)),
}
# fmt: on
VALUES |= {op.name: getattr(math, op.libm) for op in ROWS.values() if op.libm and op.name not in VALUES}


def _chosen(condition: npt.ArrayLike, a: Column, b: Column) -> Column:
    return np.where(condition, a, b)


def _larger(a: Column, b: Column) -> Column:
    return _chosen(b > a, b, a)


def _smaller(a: Column, b: Column) -> Column:
    return _chosen(b < a, b, a)


def _each(function: Callable[[float], float], x: Column) -> Column:
    return np.array(list(map(function, x.tolist())), np.float64)


def _logistics(x: Column) -> Column:
    e = _each(math.exp, -np.abs(x))
    return _chosen(x < 0, e, np.ones_like(x)) / (1 + e)


def _slopes(x: Column) -> Column:
    e = _each(math.exp, -np.abs(x))
    small, large = e / (1 + e), 1 / (1 + e)
    return _chosen(x < 0, small, large) * _chosen(x > 0, small, large)


def _bells(x: Column) -> Column:
    return _each(math.exp, -_smaller(x * x, np.full_like(x, 1e4)))


# of columns; what Python's max and min give where two are equal, too
COLUMNS: dict[str, Callable[..., Column]] = {
    **{"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative},
    **{"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal},
    **{"eq": np.equal, "ne": np.not_equal, "abs": np.abs, "sqrt": np.sqrt, "square": np.square},
    **{"words": np.add, "quotient": np.divide},
    "where": lambda condition, a, b: _chosen(condition != 0, a, b),
    "fma": lambda a, b, c: a * b + c,
    "narrow": lambda x: x,
    "round_to_storage": lambda x: x,
    "relu": lambda x: _chosen(x < 0, np.zeros_like(x), x),
    **dict.fromkeys(("maximum", "clamp_min"), _larger),
    **dict.fromkeys(("minimum", "clamp_max"), _smaller),
    **dict.fromkeys(("clamp", "saturate"), lambda x, low, high: _smaller(_larger(x, low), high)),
    "relu6": lambda x: _smaller(_larger(x, np.zeros_like(x)), np.full_like(x, 6.0)),
    "reciprocal": lambda x: 1.0 / x,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "cube": lambda x: x * x * x,
    "sigmoid": _logistics,
    "sigmoid_slope": _slopes,
    "tanh_slope": lambda x: 4 * _slopes(2 * x),
    **dict.fromkeys(("times_sigmoid", "x_sigmoid"), lambda x, t: x * _logistics(t)),
    "x_sigmoid_slope": lambda a, b, t: _logistics(t) + a * b * _slopes(t),
    "softplus": lambda x: _larger(x, np.zeros_like(x)) + _each(math.log1p, _each(math.exp, -np.abs(x))),
    "gauss": _bells,
    "normal": lambda x: _bells(x / ROOT_TWO) / ROOT_TAU,
}
