"""The operations of the formula language: symbols, selections, arithmetic and functions."""

from typing import Any

import sympy

from fusegen.core import interval
from fusegen.core.interval import INFINITY, REALS, between
from fusegen.core.ir import Body
from fusegen.core.ops.row import (
    COMPARE,
    PRODUCT,
    SELECT,
    SINGLE_RESULT,
    SUM,
    UNARY,
    WIDENED,
    Op,
    Words,
    X,
    always,
)

ZERO, SIX = between(0, 0), between(6, 6)


def _symbol(name: str, infix: str, strength: int, real: Any, range_: Any, *args: str, **more: Any) -> Op:
    return Op(name, args or ("a", "b"), real, range_, infix, strength, written=False, **more)


def definition(op: Op) -> str:
    """Return the real function of an operation in the names of its arguments, as sympy writes it."""
    return str(op.real(*map(sympy.Symbol, op.args)))


# fmt: off
LANGUAGE = (
    # symbols: name, C++ symbol, strength, real function, range
    _symbol("add", "+", SUM, lambda a, b: a + b, interval.add, words=Words.AS_GIVEN,
            header="double_word", cpp="two_sum", bodies=WIDENED),
    _symbol("sub", "-", SUM, lambda a, b: a - b, interval.subtract, words=Words.AS_GIVEN),
    _symbol("mul", "*", PRODUCT, lambda a, b: a * b, interval.multiply, words=Words.AS_GIVEN,
            header="double_word", cpp="two_prod", bodies=WIDENED),
    _symbol("div", "/", PRODUCT, lambda a, b: a / b, interval.divide,
            header="argument", cpp="two_quotient", bodies=WIDENED),
    _symbol("neg", "-", UNARY, lambda a: -a, interval.negate, "a", words=Words.AS_GIVEN),
    _symbol("lt", "<", COMPARE, sympy.Lt, always(0, 1), boolean=True),
    _symbol("le", "<=", COMPARE, sympy.Le, always(0, 1), boolean=True, notation="≤"),
    _symbol("gt", ">", COMPARE, sympy.Gt, always(0, 1), boolean=True),
    _symbol("ge", ">=", COMPARE, sympy.Ge, always(0, 1), boolean=True, notation="≥"),
    _symbol("eq", "==", COMPARE, sympy.Eq, always(0, 1), boolean=True, notation="="),
    _symbol("ne", "!=", COMPARE, sympy.Ne, always(0, 1), boolean=True, notation="≠"),
    Op("where", ("condition", "input", "other"), lambda c, a, b: sympy.Piecewise((a, c), (b, True)),
       lambda _, a, b: interval.union(a, b), strength=SELECT,
       words=Words.AS_GIVEN),
    # constants
    Op("pi", (), lambda: sympy.pi, lambda: between(3, 4), notation="π"),
    Op("e", (), lambda: sympy.E, lambda: between(2, 3), notation="e"),
    # selections: NaN fails every comparison, so it stays
    Op("relu", X, lambda x: sympy.Max(x, 0), lambda a: interval.maximum(a, ZERO),
       header="selections"),
    Op("relu6", X, lambda x: sympy.Min(sympy.Max(x, 0), 6), lambda a: interval.clamp(a, ZERO, SIX),
       header="selections"),
    Op("clamp", ("x", "min", "max"), lambda x, a, b: sympy.Min(sympy.Max(x, a), b), interval.clamp,
       notation="min(max({0}, {1}), {2})", header="selections"),
    Op("saturate", ("x", "min", "max"), lambda x, a, b: sympy.Min(sympy.Max(x, a), b), interval.clamp,
       notation="min(max({0}, {1}), {2})", header="selections"),
    Op("clamp_min", ("x", "min"), sympy.Max, interval.maximum,
       notation="max({0}, {1})", header="selections"),
    Op("clamp_max", ("x", "max"), sympy.Min, interval.minimum,
       notation="min({0}, {1})", header="selections"),
    Op("minimum", ("a", "b"), sympy.Min, interval.minimum,
       notation="min({0}, {1})", header="selections"),
    Op("maximum", ("a", "b"), sympy.Max, interval.maximum,
       notation="max({0}, {1})", header="selections"),
    Op("abs", X, sympy.Abs, interval.absolute, libm="fabs", notation="|{0}|"),
    Op("sign", X, sympy.sign, always(-1, 1), header="selections"),
    Op("detach", X, lambda x: x, lambda a: a),  # the identity; no kernel has it, see derive.attached
    # arithmetic
    Op("square", X, lambda x: x**2, interval.square, notation="{0}²", header="selections",
       words=Words.AS_GIVEN, bodies=WIDENED),
    Op("cube", X, lambda x: x**3, lambda a: interval.multiply(interval.square(a), a),
       notation="{0}³", header="selections", words=Words.AS_GIVEN, bodies=WIDENED),
    Op("reciprocal", X, lambda x: 1 / x, lambda a: interval.divide(between(1, 1), a),
       notation="1 / {0}", header="selections"),
    Op("sqrt", X, sympy.sqrt, lambda a: between(0, INFINITY) if a.low >= 0 else REALS,
       libm="sqrt", notation="√{0}"),
    Op("rsqrt", X, lambda x: 1 / sympy.sqrt(x), lambda a: between(0, INFINITY) if a.low > 0 else REALS,
       notation="1 / √{0}", header="selections"),
    Op("pow", ("x", "exponent"), sympy.Pow, lambda *_: REALS, libm="pow", transcendental=True),
    # the math library
    Op("exp", X, sympy.exp, always(0, INFINITY), libm="exp", header="exponential", transcendental=True,
       fast=True, single=True, words=Words.AS_GIVEN,
       bodies=(Body.DOUBLE_WORD, Body.SINGLE_WORD, *SINGLE_RESULT)),
    Op("exp2", X, lambda x: 2**x, always(0, INFINITY), libm="exp2", transcendental=True),
    Op("expm1", X, lambda x: sympy.exp(x) - 1, always(-1, INFINITY), libm="expm1", header="exponential",
       transcendental=True, fast=True, words=Words.AS_GIVEN, bodies=(*WIDENED, *SINGLE_RESULT)),
    Op("log", X, sympy.log, always(-INFINITY, INFINITY), libm="log",
       header="logarithm", transcendental=True),
    Op("log2", X, lambda x: sympy.log(x, 2), always(-INFINITY, INFINITY), libm="log2", transcendental=True),
    Op("log1p", X, lambda x: sympy.log(1 + x), always(-INFINITY, INFINITY), libm="log1p",
       header="logarithm", transcendental=True, bodies=SINGLE_RESULT),
    Op("sin", X, sympy.sin, always(-2, 2), libm="sin", header="trigonometric", transcendental=True),
    Op("cos", X, sympy.cos, always(-2, 2), libm="cos", header="trigonometric", transcendental=True),
    Op("tanh", X, sympy.tanh, always(-1, 1), libm="tanh", header="hyperbolic", transcendental=True,
       words=Words.AS_GIVEN, bodies=WIDENED),
    Op("erf", X, sympy.erf, always(-1, 1), libm="erf", header="normal", transcendental=True,
       words=Words.AS_GIVEN, bodies=WIDENED),
    Op("erfc", X, sympy.erfc, always(0, 2), libm="erfc", header="normal", transcendental=True, fast=True),
    Op("ndtr", X, lambda x: sympy.erfc(-x / sympy.sqrt(2)) / 2, always(0, 1), notation="Φ({0})",
       words=Words.DOUBLE, header="normal", transcendental=True, fast=True, single=True,
       bodies=SINGLE_RESULT),
    Op("sigmoid", X, lambda x: 1 / (1 + sympy.exp(-x)), always(0, 1), words=Words.DOUBLE,
       header="logistic", transcendental=True, fast=True, single=True,
       bodies=(*WIDENED, Body.NEAR, *SINGLE_RESULT)),
    Op("softplus", X, lambda x: sympy.log(1 + sympy.exp(x)), always(0, INFINITY), words=Words.DOUBLE,
       header="logistic", transcendental=True, fast=True, single=True, bodies=SINGLE_RESULT),
)
# fmt: on
