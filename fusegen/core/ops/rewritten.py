"""Operations of the compiler in formulas: forms in which nothing cancels, and those of eager kernels."""

from typing import Any

import sympy

from fusegen.core import interval
from fusegen.core.interval import INFINITY, REALS, between
from fusegen.core.ir import Body
from fusegen.core.ops.row import CHAINED, SINGLE_RESULT, WIDENED, Op, Words, X, always


def _mish_slope(x: Any) -> Any:
    own = sympy.tanh(sympy.log(1 + sympy.exp(x)))
    return own + x * (1 - own**2) / (1 + sympy.exp(-x))


# fmt: off
FORMS = (
    # forms and slopes of others in which nothing cancels
    Op("sigmoid_slope", X, lambda x: sympy.exp(-x) / (1 + sympy.exp(-x)) ** 2, always(0, 1),
       written=False, words=Words.DOUBLE, bodies=(*WIDENED, *SINGLE_RESULT),
       header="logistic", transcendental=True, fast=True, single=True),
    Op("tanh_slope", X, lambda x: 1 / sympy.cosh(x) ** 2, always(0, 2),
       written=False, words=Words.DOUBLE,
       header="hyperbolic", transcendental=True, fast=True, single=True, bodies=(*WIDENED, *SINGLE_RESULT)),
    Op("sinpi", X, lambda x: sympy.sin(sympy.pi * x), always(-1, 1), written=False, notation="sin(π {0})",
       header="turns", transcendental=True),
    Op("cospi", X, lambda x: sympy.cos(sympy.pi * x), always(-1, 1), written=False, notation="cos(π {0})",
       header="turns", transcendental=True),
    Op("soft_sign", X, lambda x: x / (1 + sympy.Abs(x)), always(-1, 1), written=False,
       header="selections"),
    # 0 in front, as a difference is no -0
    Op("tanh_shrink", X, lambda x: x - sympy.tanh(x), lambda *_: REALS, written=False,
       header="hyperbolic", transcendental=True, fast=True),
    Op("tanh_softplus", X, lambda x: sympy.tanh(sympy.log(1 + sympy.exp(x))), always(0, 1), written=False,
       words=Words.DOUBLE, header="mish", transcendental=True, fast=True, single=True,
       bodies=SINGLE_RESULT),
    Op("tanh_softplus_slope", X, lambda x: 4 * sympy.exp(x) * (1 + sympy.exp(x))
       / ((1 + sympy.exp(x)) ** 2 + 1) ** 2, always(0, 1),
       written=False, words=Words.DOUBLE, header="mish", transcendental=True, fast=True, single=True),
    Op("tanh_of_exp", X, lambda x: sympy.tanh(sympy.exp(x)), always(0, 1), written=False,
       words=Words.DOUBLE, header="hyperbolic", transcendental=True, fast=True, single=True),
    # above 10 it is 0 in every type, and exp(x) soon infinite
    Op("tanh_of_exp_slope", X, lambda x: sympy.exp(x) / sympy.cosh(sympy.exp(x)) ** 2, always(0, 1),
       written=False, words=Words.DOUBLE, header="hyperbolic", transcendental=True, fast=True, single=True),
    Op("gauss", X, lambda x: sympy.exp(-(x**2)), always(0, 1), written=False, words=Words.DOUBLE,
       header="exponential", transcendental=True, fast=True, single=True, bodies=SINGLE_RESULT),
    Op("normal", X, lambda x: sympy.exp(-(x**2) / 2) / sympy.sqrt(2 * sympy.pi), always(0, 1),
       written=False, words=Words.DOUBLE, header="normal", transcendental=True, fast=True, single=True,
       bodies=SINGLE_RESULT),
    # products with a tail that may be too small for a float
    Op("times_tanh_softplus", X, lambda x: x * sympy.tanh(sympy.log(1 + sympy.exp(x))),
       lambda a: interval.multiply(a, between(0, 1)), written=False, notation="{0} tanh(softplus({0}))",
       header="mish", transcendental=True, fast=True, single=True, words=Words.AS_FIRST,
       bodies=(*WIDENED, Body.NEAR, *SINGLE_RESULT)),
    Op("times_tanh_softplus_slope", X, _mish_slope, always(-1, 2), written=False,
       header="mish", transcendental=True, fast=True, single=True, bodies=(*WIDENED, *SINGLE_RESULT),
       words=Words.AS_FIRST),
    Op("times_ndtr", X, lambda x: x * sympy.erfc(-x / sympy.sqrt(2)) / 2,
       lambda a: interval.multiply(a, between(0, 1)), notation="{0} Φ({0})", written=False,
       header="normal", transcendental=True, fast=True, single=True, bodies=(*CHAINED, *SINGLE_RESULT),
       words=Words.AS_FIRST),
    Op("times_ndtr_slope", X, lambda x: sympy.erfc(-x / sympy.sqrt(2)) / 2
       + x * sympy.exp(-(x**2) / 2) / sympy.sqrt(2 * sympy.pi), always(-1, 2), written=False,
       words=Words.DOUBLE, header="normal", transcendental=True, fast=True, single=True,
       bodies=SINGLE_RESULT),
    # whose squares neither overflow nor underflow
    Op("scaled_hypot", ("a", "b"), lambda a, b: sympy.sqrt(a**2 + b**2), always(0, INFINITY), written=False,
       notation="hypot({0}, {1})", header="roots"),
    Op("scaled_hypot_slope", ("a", "b"), lambda a, b: a / sympy.sqrt(a**2 + b**2), always(-1, 1),
       written=False, notation="{0} / hypot({0}, {1})", header="roots"),
    # infinities, and what is as good as they, as numbers that times 0 are 0 and times 3 no infinity
    Op("clamp_to_lowest", X, lambda x: x, lambda a: interval.maximum(a, between(-INFINITY, -(2**126))),
       written=False, header="selections", words=Words.AS_GIVEN),
    Op("clamp_to_highest", X, lambda x: x, lambda a: interval.minimum(a, between(2**126, INFINITY)),
       written=False, header="selections", words=Words.AS_GIVEN),
    # what PyTorch's own kernels compute with: one rounding for two operations, and a true division
    Op("fma", ("a", "b", "c"), lambda a, b, c: a * b + c,
       lambda a, b, c: interval.add(interval.multiply(a, b), c), libm="fma", written=False),
    Op("quotient", ("a", "b"), lambda a, b: a / b, interval.divide, written=False,
       notation="{0} / {1}", header="selections", fast=True),
    # the first for elements of 16 bits on CUDA, else the second
    Op("select_by_width", ("narrow", "wide"), lambda narrow, wide: wide, interval.union, written=False),
    # eager's rounding to the storage type between two operations
    Op("round_to_storage", X, lambda x: x, interval.rounded16, written=False),
)
# fmt: on
