"""Functions of balls in power series, and the row of each operation."""

import math
from fractions import Fraction

from flint import arb, arb_series, fmpq

from fusegen.evidence.certify.enclosures.power_series import (
    FAR_OUT,
    HALF,
    MINUS_SMALL,
    MINUS_TWO,
    ONE,
    SMALL,
    TWO,
    ZERO,
    Row,
    absolute,
    clamp,
    compare,
    div,
    lift,
    minimum,
    mul,
    pick,
    relu6,
    saturate,
    select,
    sqrt,
    to_the_power,
)


def _expm1(x: arb_series) -> arb_series:
    if x[0] > SMALL or x[0] < MINUS_SMALL:
        return x.exp() - ONE
    value = x[0].expm1()
    return lift(value, (value + 1) * x[1])


def _log1p(x: arb_series) -> arb_series:
    if x[0] > SMALL or x[0] < MINUS_SMALL:
        return (x + ONE).log()
    return lift(x[0].log1p(), x[1] / (x[0] + 1))


def _log2(x: arb_series) -> arb_series:
    return lift(x[0].log_base(2), x.log()[1] / arb.const_log2())  # exact for powers of two


def _tanh(x: arb_series) -> arb_series:
    if x[0] < 0:
        return -_tanh(-x)
    e = _expm1(x * MINUS_TWO)
    return -e * (e + TWO).inv()


def _erfc(x: arb_series) -> arb_series:
    return arb_series.gamma_upper(HALF[0], x * x, 1) if x[0] > FAR_OUT else x.erfc()


def _ndtr(x: arb_series) -> arb_series:
    if x[0] < -FAR_OUT:
        return HALF * arb_series.gamma_upper(HALF[0], x * x * HALF, 1)
    return HALF * (x * lift(-arb(0.5).sqrt())).erfc()


def _sigmoid(x: arb_series) -> arb_series:
    if x[0] < 0:
        return (e := x.exp()) * (e + ONE).inv()
    return ((-x).exp() + ONE).inv()


def _softplus(x: arb_series) -> arb_series:
    return x + _log1p((-x).exp()) if x[0] > 0 else _log1p(x.exp())


def _sech2(x: arb_series) -> arb_series:
    sinh, cosh = x[0].sinh_cosh()
    return ((y := lift(cosh, sinh * x[1])) * y).inv()


def _hypot(a: arb_series, b: arb_series) -> arb_series:
    if a[0].is_zero() and b[0].is_zero() and not (a[1].is_zero() and b[1].is_zero()):
        return lift(0, math.nan)  # the squares hide that the root has a kink
    return sqrt(a * a + b * b)


def _soft_sign(x: arb_series) -> arb_series:
    more = absolute(x) + ONE
    if more[0] > 2:
        y = ONE - more.inv()
        return y if x[0] > 0 else -y
    return x * more.inv()


def _tanh_softplus_slope(x: arb_series) -> arb_series:
    return mul(_sech2(_softplus(x)), _sigmoid(x))


def _tanh_of_exp_slope(x: arb_series) -> arb_series:
    if x[0] > 20:  # both it and its slope are below 2^-(10^9) in size
        tiny = (arb(2) ** -(10**8)).union(-(arb(2) ** -(10**8)))
        return lift(tiny, tiny * x[1])
    return mul(_sech2(x.exp()), x.exp())


def _gauss(x: arb_series) -> arb_series:
    return (-x * x).exp()


def _normal(x: arb_series) -> arb_series:
    return _gauss(x * lift(arb(0.5).sqrt())) * lift((2 * arb.pi()).rsqrt())


ROWS: dict[str, Row] = {
    # symbols
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": mul,
    "div": div,
    "neg": lambda a: -a,
    "lt": compare(-1),
    "le": compare(-1, 0),
    "gt": compare(1),
    "ge": compare(1, 0),
    "eq": compare(0),
    "ne": compare(-1, 1),
    "where": select,
    # constants
    "pi": lambda: lift(arb.pi()),
    "e": lambda: lift(arb.const_e()),
    # selections
    "relu": lambda x: pick(x, ZERO, ZERO, ZERO, x),
    "relu6": relu6,
    "clamp": clamp,
    "saturate": saturate,
    "clamp_min": lambda x, low: pick(x, low, low, x, x),
    "clamp_max": lambda x, high: pick(x, high, x, x, high),
    "minimum": minimum,
    "maximum": lambda a, b: -minimum(-a, -b),
    "abs": absolute,
    "sign": lambda x: pick(x, ZERO, -ONE, ZERO, ONE),
    "detach": lambda x: lift(x[0]),
    # arithmetic
    "square": lambda x: x * x,
    "cube": lambda x: x * x * x,
    "reciprocal": lambda x: div(ONE, x),
    "sqrt": sqrt,
    "rsqrt": lambda x: x.rsqrt(),
    "pow": to_the_power,
    # the math library
    "exp": lambda x: x.exp(),
    "exp2": lambda x: to_the_power(TWO, x),
    "expm1": _expm1,
    "log": lambda x: x.log(),
    "log2": _log2,
    "log1p": _log1p,
    "sin": lambda x: x.sin(),
    "cos": lambda x: x.cos(),
    "sinpi": lambda x: x.sin_pi(),
    "cospi": lambda x: x.cos_pi(),
    "tanh": _tanh,
    "erf": lambda x: x.erf(),
    "erfc": _erfc,
    "ndtr": _ndtr,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    # forms and slopes of others
    "sigmoid_slope": lambda x: _sech2(x * HALF) * lift(0.25),
    "tanh_slope": _sech2,
    "scaled_hypot": _hypot,
    "scaled_hypot_slope": lambda a, b: div(a, sqrt(a * a + b * b)),
    "soft_sign": _soft_sign,
    "tanh_shrink": lambda x: x - _tanh(x),
    "tanh_softplus": lambda x: _tanh(_softplus(x)),
    "tanh_softplus_slope": _tanh_softplus_slope,
    "times_ndtr": lambda x: mul(x, _ndtr(x)),
    "times_ndtr_slope": lambda x: _ndtr(x) + mul(x, _normal(x)),
    "times_tanh_softplus": lambda x: mul(x, _tanh(_softplus(x))),
    "times_tanh_softplus_slope": lambda x: _tanh(_softplus(x)) + mul(x, _tanh_softplus_slope(x)),
    "tanh_of_exp": lambda x: _tanh(x.exp()),
    "tanh_of_exp_slope": _tanh_of_exp_slope,
    "gauss": _gauss,
    "normal": _normal,
    "clamp_to_lowest": lambda x: x,
    "clamp_to_highest": lambda x: x,
    # what PyTorch's own kernels compute with: over the real numbers nothing rounds
    "fma": lambda a, b, c: mul(a, b) + c,
    "quotient": div,
    "select_by_width": lambda narrow, wide: wide,
    "round_to_storage": lambda x: x,
}


def number(value: Fraction) -> arb_series:
    """Return a number as a series."""
    return lift(arb(fmpq(value.numerator, value.denominator)))
