"""The primitives: one row per operation of the formula language.

A row says everything any stage needs to know of an operation: its arguments, the real function it is
(as sympy writes it), the interval of its values, and how C++ and mathematics spell it. The names, and
the meaning at NaN and at the ends, are PyTorch's.

C++ spelling is one of three: an infix symbol, a function of the math library (`exp` on CUDA, where it is
overloaded, `std::exp` on the CPU), or a body that becomes a small template function over the math type M.
In a body `{m}` stands for the library's prefix. Selections are written so that a NaN operand fails the
comparison and stays.

Source: PyTorch documentation of torch and torch.nn.functional; ATen's BinaryOps, UnaryOps and Activation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import sympy

from fusegen import interval
from fusegen.errors import counted
from fusegen.interval import REALS, Interval, between
from fusegen.term import Apply, Term, walk

SELECT, COMPARE, SUM, PRODUCT, UNARY, ATOM = range(6)  # how tightly a spelling binds, loosest first


@dataclass(frozen=True, slots=True)
class Op:
    """One operation.

    Attributes:
        name: its name in a formula; `None` arguments aside, PyTorch's.
        args: the names of its arguments, in order.
        real: the sympy function it denotes over the real numbers.
        range: from the intervals of the arguments to the interval of the value.
        infix: its symbol, where it has one (prefix for one argument).
        strength: how tightly that symbol binds.
        libm: its name in the C math library.
        body: C++ statements over M that return its value.
        notation: how mathematics writes it, `{0}` being the first argument.
        meaning: what a module says above the body, where that is another thing than the notation.
        written: whether a formula may name it; the others come from symbols or from the compiler.
        boolean: whether its value is a condition.
        wide: whether it takes one word or two and gives two. A body over X, which is M or Two<M>, takes its
            last argument so.
    """

    name: str
    args: tuple[str, ...]
    real: Callable[..., Any]
    range: Callable[..., Interval]
    infix: str = ""
    strength: int = ATOM
    libm: str = ""
    body: str = ""
    notation: str = ""
    meaning: str = ""
    written: bool = True
    boolean: bool = False
    wide: bool = False

    @property
    def signature(self) -> str:
        """How a call is written, for example ``clamp(x, min, max)``."""
        return f"{self.name}({', '.join(self.args)})"


_PER_ROOT_TAU = (
    "words(M(0.39894228040143268), sizeof(M) == 8 ? M(-2.4923272022777433e-17) : M(-1.13351701e-08))"
)


def _always(low: int | float, high: int | float) -> Callable[..., Interval]:
    return lambda *_: between(low, high)


def _where(_: Interval, a: Interval, b: Interval) -> Interval:
    return interval.union(a, b)


def _sqrt(a: Interval) -> Interval:
    return between(0, interval.INFINITY) if a.low >= 0 else REALS


def _rsqrt(a: Interval) -> Interval:
    return between(0, interval.INFINITY) if a.low > 0 else REALS  # at -0.0 it is -inf


def _mish_slope(x: Any) -> Any:
    own = sympy.tanh(sympy.log(1 + sympy.exp(x)))
    return own + x * (1 - own**2) / (1 + sympy.exp(-x))


def _piecewise(condition: Any, a: Any, b: Any) -> Any:
    return sympy.Piecewise((a, condition), (b, True))


def _symbol(name: str, infix: str, strength: int, real: Any, range_: Any, *args: str, **more: Any) -> Op:
    return Op(name, args or ("a", "b"), real, range_, infix, strength, written=False, **more)


def _word(
    name: str, *args: str, range_: Any, body: str = "", wide: bool | None = None, meaning: str = ""
) -> Op:
    gives_two = bool(body) if wide is None else wide
    return Op(name, args, _no_function, range_, body=body, meaning=meaning, written=False, wide=gives_two)


def _no_function(*_: Any) -> Any:
    raise AssertionError("no formula holds it")


_INF = interval.INFINITY
_X = ("x",)
_ZERO, _SIX = between(0, 0), between(6, 6)

_E = "const Wide<X> e = {m}exponential(minus_size(x)); "
# tanh(softplus(x)) is n / d, where n = u^2 + 2 u, u = e^x and d = n + 2; it is 1 soon
_MOST = "const M most = sizeof(M) == 8 ? M(40) : M(20); "
_U = _MOST + (
    "const Two<M> u = {m}exponential<false>(lifted(at_least(at_most(x, most), M(-125)))), "
    "n = quadratic(u), d = plus_two(n); "
)
_FAR = _U.replace("plus_two(n)", "n + M(2)")  # also of an n that 2 is half a unit of
_SETTLED = "return words(y.hi, y.lo == y.lo ? y.lo : M(0));"
# Φ(-|x|), lifted as exp(t) is
_TAIL = "const Wide<X> t = product(x, x) * M(-0.5), tail = ndtr_tail(x); "
# In float, polynomials that are minimax in the relative error: of log1p(e) = e - e^2 / 2 + e^3 p(e), of the
# normal distribution's tail over exp(-x^2 / 2) as k p(k), where k = 1 / (1 + |x| / 4) (in the manner of
# Cody 1969, Math. Comp. 23), of tanh(x) = x + x^3 p(x^2) and of erf(x) = 2 x / sqrt(pi) + x^3 p(x^2).
LOG1P = (0.3333309292793274, -0.24993328750133514, 0.19926466047763824, -0.16228903830051422,
          0.12680786848068237, -0.08593566715717316, 0.04431314766407013, -0.014689257368445396,
          0.002277808031067252)  # fmt: skip
MILLS = (0.09974633157253265, 0.0995214581489563, 0.09528786689043045, 0.07301277667284012,
          0.08385130017995834, 0.017734583467245102, 0.02261105738580227, 0.05587935820221901,
          -0.06453712284564972, 0.01689239591360092)  # fmt: skip
ERF = (-0.37612637877464294, 0.11283770948648453, -0.026864048093557358, 0.005214054137468338,
       -0.0008310915436595678, 9.185887029161677e-05)  # fmt: skip
TANH = (-0.33333298563957214, 0.13331958651542664, -0.053786683827638626, 0.02080538496375084,
        -0.005905868019908667)  # fmt: skip
# The same tail in double from 25 to 39, by powers of (|x| - 32) / 7; it is 0 beyond.
_MILLS_FAR = (0.012454807005573594, -0.002719193561543745, 0.0005930927436513156,
              -0.00012923664591724435, 2.813393841730016e-05, -6.118688880279523e-06,
              1.3294450357627637e-06, -2.885811037574175e-07, 6.258234034284736e-08,
              -1.3558583736995122e-08, 2.9347754604053426e-09, -6.351735268968079e-10,
              1.3722459061959175e-10, -2.90408504117585e-11, 6.26281968197227e-12,
              -1.679465889571381e-12, 3.6134757122700257e-13)  # fmt: skip

# (x - tanh(x)) / x^3 by powers of x^2, up to |x| = 1.25; in double above.
_TANH_SHRINK_FLOAT = (0.3333333432674408, -0.1333332657814026, 0.05396692827343941, -0.021858293563127518,
                0.008814364671707153, -0.0034663931000977755, 0.00125079823192209, -0.0003682256501633674,
                7.378138980129734e-05, -7.177246970968554e-06)  # fmt: skip
TANH_SHRINK = (0.3333333333333333, -0.13333333333333316, 0.05396825396823853, -0.02186948853562987,
                       0.008863235520411152, -0.003592127931383934, 0.001455833607387484,
                       -0.0005900233513532234, 0.00023911332841141452, -9.686926720553123e-05,
                       3.9174286465576325e-05, -1.5734861799614973e-05, 6.19352085593154e-06,
                       -2.3250472081440946e-06, 7.975228710658438e-07, -2.3631394317179296e-07,
                       5.652480059872008e-08, -1.001293046608393e-08, 1.1497985946032148e-09,
                       -6.355146496204461e-11)  # fmt: skip


# (exp(x) - 1) / x in float, up to |x| = 0.5
EXPM1 = (1.0, 0.5000000596046448, 0.16666662693023682, 0.041665319353342056, 0.008333634585142136,
         0.0013997324276715517, 0.00019841187167912722)  # fmt: skip


def _constants(coefficients: tuple[float, ...]) -> str:
    return "{{" + ", ".join(f"M({c!r})" for c in coefficients) + "}}"


# fmt: off
_ROWS = (
    # symbols: name, C++ symbol, strength, real function, range
    _symbol("add", "+", SUM, lambda a, b: a + b, interval.add),
    _symbol("sub", "-", SUM, lambda a, b: a - b, interval.subtract),
    _symbol("mul", "*", PRODUCT, lambda a, b: a * b, interval.multiply),
    _symbol("div", "/", PRODUCT, lambda a, b: a / b, interval.divide),
    _symbol("neg", "-", UNARY, lambda a: -a, interval.negate, "a"),
    _symbol("lt", "<", COMPARE, sympy.Lt, _always(0, 1), boolean=True),
    _symbol("le", "<=", COMPARE, sympy.Le, _always(0, 1), boolean=True, notation="≤"),
    _symbol("gt", ">", COMPARE, sympy.Gt, _always(0, 1), boolean=True),
    _symbol("ge", ">=", COMPARE, sympy.Ge, _always(0, 1), boolean=True, notation="≥"),
    _symbol("eq", "==", COMPARE, sympy.Eq, _always(0, 1), boolean=True, notation="="),
    _symbol("ne", "!=", COMPARE, sympy.Ne, _always(0, 1), boolean=True, notation="≠"),
    Op("where", ("condition", "input", "other"), _piecewise, _where, strength=SELECT),
    # constants
    Op("pi", (), lambda: sympy.pi, lambda: between(3, 4), notation="π"),
    Op("e", (), lambda: sympy.E, lambda: between(2, 3), notation="e"),
    # selections: NaN fails every comparison, so it stays
    Op("relu", _X, lambda x: sympy.Max(x, 0), lambda a: interval.maximum(a, _ZERO),
       body="return x < 0 ? M(0) : x;"),
    Op("relu6", _X, lambda x: sympy.Min(sympy.Max(x, 0), 6), lambda a: interval.clamp(a, _ZERO, _SIX),
       body="return x < 0 ? M(0) : x > 6 ? M(6) : x;"),
    Op("clamp", ("x", "min", "max"), lambda x, a, b: sympy.Min(sympy.Max(x, a), b), interval.clamp,
       body="x = x < min ? min : x; return x > max ? max : x;", notation="min(max({0}, {1}), {2})"),
    Op("saturate", ("x", "min", "max"), lambda x, a, b: sympy.Min(sympy.Max(x, a), b), interval.clamp,
       body="x = x < min ? min : x; return x > max ? max : x;", notation="min(max({0}, {1}), {2})"),
    Op("clamp_min", ("x", "min"), sympy.Max, interval.maximum,
       body="return x < min ? min : x;", notation="max({0}, {1})"),
    Op("clamp_max", ("x", "max"), sympy.Min, interval.minimum,
       body="return x > max ? max : x;", notation="min({0}, {1})"),
    Op("minimum", ("a", "b"), sympy.Min, interval.minimum,
       body="const M least = a < b ? a : b; return a == a ? least : a;", notation="min({0}, {1})"),
    Op("maximum", ("a", "b"), sympy.Max, interval.maximum,
       body="const M most = a > b ? a : b; return a == a ? most : a;", notation="max({0}, {1})"),
    Op("abs", _X, sympy.Abs, interval.absolute, libm="fabs", notation="|{0}|"),
    Op("sign", _X, sympy.sign, _always(-1, 1), body="return M(x > 0) - M(x < 0);"),
    # arithmetic
    Op("square", _X, lambda x: x**2, interval.square, body="return x * x;", notation="{0}²"),
    Op("cube", _X, lambda x: x**3, lambda a: interval.multiply(interval.square(a), a),
       body="return x * x * x;", notation="{0}³"),
    Op("reciprocal", _X, lambda x: 1 / x, lambda a: interval.divide(between(1, 1), a),
       body="return M(1) / x;", notation="1 / {0}"),
    Op("sqrt", _X, sympy.sqrt, _sqrt, libm="sqrt", notation="√{0}"),
    Op("rsqrt", _X, lambda x: 1 / sympy.sqrt(x), _rsqrt,
       body="return M(1) / {m}sqrt(x);", notation="1 / √{0}"),
    Op("pow", ("x", "exponent"), sympy.Pow, lambda *_: REALS, libm="pow"),
    # the math library
    Op("exp", _X, sympy.exp, _always(0, _INF), libm="exp"),
    Op("exp2", _X, lambda x: 2**x, _always(0, _INF), libm="exp2"),
    Op("expm1", _X, lambda x: sympy.exp(x) - 1, _always(-1, _INF), libm="expm1"),
    Op("log", _X, sympy.log, _always(-_INF, _INF), libm="log"),
    Op("log2", _X, lambda x: sympy.log(x, 2), _always(-_INF, _INF), libm="log2"),
    Op("log1p", _X, lambda x: sympy.log(1 + x), _always(-_INF, _INF), libm="log1p"),
    Op("sin", _X, sympy.sin, _always(-2, 2), libm="sin"),
    Op("cos", _X, sympy.cos, _always(-2, 2), libm="cos"),
    Op("tanh", _X, sympy.tanh, _always(-1, 1), libm="tanh"),
    Op("erf", _X, sympy.erf, _always(-1, 1), libm="erf"),
    Op("erfc", _X, sympy.erfc, _always(0, 2), libm="erfc"),
    Op("ndtr", _X, lambda x: sympy.erfc(-x / sympy.sqrt(2)) / 2, _always(0, 1), notation="Φ({0})",
       body=_TAIL + "const Wide<X> y = tail * lift_back(t); return x < M(0) ? y : one_plus(-y);",
       wide=True),
    Op("sigmoid", _X, lambda x: 1 / (1 + sympy.exp(-x)), _always(0, 1), wide=True,
       body=_E + "return ratio(x < M(0) ? e : Wide<X>(M(1)), one_plus(e));"),
    Op("softplus", _X, lambda x: sympy.log(1 + sympy.exp(x)), _always(0, _INF), wide=True,
       body=_E + "const Wide<X> high = x < M(0) ? Wide<X>(M(0)) : Wide<X>(x); const M s = e.hi; "
       "if constexpr (sizeof(M) == 8) return high + {m}log1p(s); "
       f"const M c[] = {_constants(LOG1P)}, cubic = s * (s * (s * polynomial(c, s))); "
       "const Wide<X> square = product(s, M(-0.5) * s), near = ordered_sum(s, square.hi); "
       "return high + ordered_sum(near.hi, near.lo + (square.lo + e.lo + cubic));"),
    # forms and slopes of others in which nothing cancels
    Op("sigmoid_slope", _X, lambda x: sympy.exp(-x) / (1 + sympy.exp(-x)) ** 2, _always(0, 1),
       body=_E + "const Wide<X> r = ratio(Wide<X>(M(1)), one_plus(e)); return e * r * r;",
       meaning="sigmoid'({0})", written=False, wide=True),
    Op("tanh_slope", _X, lambda x: 1 / sympy.cosh(x) ** 2, _always(0, 2),
       body="const Wide<X> t = minus_size(x) * M(2), e = {m}exponential(lifted(t)); "
       "const Wide<X> r = ratio(Wide<X>(M(2)), one_plus(e)); return e * r * r * lift_back(t);",
       meaning="tanh'({0})", written=False, wide=True),
    Op("soft_sign", _X, lambda x: x / (1 + sympy.Abs(x)), _always(-1, 1), written=False,
       meaning="{0} / (|{0}| + 1)", body="return x / ({m}fabs(x) + M(1));"),
    # 0 in front, as a difference is no -0
    Op("tanh_shrink", _X, lambda x: x - sympy.tanh(x), lambda *_: REALS, written=False,
       meaning="{0} - tanh({0})",
       body="const M s = x * x, far = x - {m}tanh(x); "
       f"const M fine[] = {_constants(TANH_SHRINK)}; if constexpr (sizeof(M) == 8) "
       "return s < M(1.5625) ? M(0) + x * (s * {m}polynomial(fine, s)) : far; "
       f"const M c[] = {_constants(_TANH_SHRINK_FLOAT)}; "
       "return s < M(1.5625) ? M(0) + x * (s * polynomial(c, s)) : far;"),
    Op("tanh_softplus", _X, lambda x: sympy.tanh(sympy.log(1 + sympy.exp(x))), _always(0, 1), written=False,
       meaning="tanh(softplus({0}))",
       body=_MOST + "const Wide<X> n = quadratic({m}exponential(x > most ? X(most) : x)); "
       "return ratio(n, plus_two(n));", wide=True),
    Op("tanh_softplus_slope", _X, lambda x: 4 * sympy.exp(x) * (1 + sympy.exp(x))
       / ((1 + sympy.exp(x)) ** 2 + 1) ** 2, _always(0, 1),
       body=_E + "const Wide<X> n = x > M(0) ? one_plus(e + e) : e * (e + M(2)); "
       "const Wide<X> r = ratio(Wide<X>(M(2)), n + (x > M(0) ? (e + e) * e : Wide<X>(M(2)))); "
       "return e * one_plus(e) * (x > M(0) ? e : Wide<X>(M(1))) * (r * r);",
       meaning="the slope of tanh(softplus({0}))", written=False, wide=True),
    Op("tanh_of_exp", _X, lambda x: sympy.tanh(sympy.exp(x)), _always(0, 1), written=False,
       meaning="tanh(exp({0}))",
       body="return tanh_of_two({m}exponential(x > M(10) ? X(M(10)) : x));", wide=True),
    # above 10 it is 0 in every type, and exp(x) soon infinite
    Op("tanh_of_exp_slope", _X, lambda x: sympy.exp(x) / sympy.cosh(sympy.exp(x)) ** 2, _always(0, 1),
       body="const Wide<X> t = {m}exponential(x > M(10) ? X(M(10)) : x), e = {m}exponential(t * M(-2)); "
       "const Wide<X> r = ratio(Wide<X>(M(2)), one_plus(e)); return t * e * (r * r);",
       meaning="the slope of tanh(exp({0}))", written=False, wide=True),
    Op("gauss", _X, lambda x: sympy.exp(-(x**2)), _always(0, 1), written=False, wide=True,
       meaning="exp(-{0}²)",
       body="const Wide<X> t = -product(x, x); return {m}exponential(lifted(t)) * lift_back(t);"),
    Op("normal", _X, lambda x: sympy.exp(-(x**2) / 2) / sympy.sqrt(2 * sympy.pi), _always(0, 1),
       body="const Wide<X> t = product(x, x) * M(-0.5); "
       f"return {{m}}exponential(lifted(t)) * {_PER_ROOT_TAU} * lift_back(t);",
       meaning="exp(-{0}² / 2) / √(2π)", written=False, wide=True),
    # products with a tail that may be too small for a float
    Op("times_tanh_softplus", _X, lambda x: x * sympy.tanh(sympy.log(1 + sympy.exp(x))),
       lambda a: interval.multiply(a, between(0, 1)), written=False, notation="{0} tanh(softplus({0}))",
       body=_U + "return M(x * ratio(n, d)) * lift_back(x);"),
    Op("times_tanh_softplus_slope", _X, _mish_slope, _always(-1, 2), written=False,
       meaning="the slope of {0} tanh(softplus({0}))",
       body=_U + "const Two<M> rise = (n - u) * (x > most ? most : x) * M(4); "
       "return M(ratio(n + ratio(rise, d), d)) * lift_back(x);"),
    Op("times_ndtr", _X, lambda x: x * sympy.erfc(-x / sympy.sqrt(2)) / 2,
       lambda a: interval.multiply(a, between(0, 1)), notation="{0} Φ({0})", written=False,
       body="const Two<M> t = product(x, x) * M(-0.5), tail = ndtr_tail(x); const M q = x * tail.lo; "
       "const M below = {m}fma(x, tail.hi, q) * lift_back(t), above = {m}fma(-x, tail.hi, x - q); "
       "return x > M(0) ? (above == above ? above : x) : below;"),
    Op("times_ndtr_slope", _X, lambda x: sympy.erfc(-x / sympy.sqrt(2)) / 2
       + x * sympy.exp(-(x**2) / 2) / sympy.sqrt(2 * sympy.pi), _always(-1, 2), written=False, wide=True,
       meaning="the slope of {0} Φ({0})",
       body=_TAIL + f"const Wide<X> near = {{m}}exponential(lifted(t)) * {_PER_ROOT_TAU} * x; "
       "return x < M(0) ? (tail + near) * lift_back(t) : one_plus(-tail) + near;"),
    # infinities, and what is as good as they, as numbers that times 0 are 0 and times 3 no infinity
    Op("finite_below", _X, lambda x: x, lambda a: interval.maximum(a, between(-_INF, -(2**126))),
       meaning="{0}, or the least number that times 3 is no infinity",
       body="if constexpr (sizeof(M) == 8) return x < M(-0x1p1022) ? M(-0x1p1022) : x; "
       "return x < M(-0x1p126) ? M(-0x1p126) : x;", written=False),
    Op("finite_above", _X, lambda x: x, lambda a: interval.minimum(a, between(2**126, _INF)),
       meaning="{0}, or the largest number that times 3 is no infinity",
       body="if constexpr (sizeof(M) == 8) return x > M(0x1p1022) ? M(0x1p1022) : x; "
       "return x > M(0x1p126) ? M(0x1p126) : x;", written=False),
    # what PyTorch's own kernels compute with: one rounding for two operations, and a true division
    Op("fma", ("a", "b", "c"), lambda a, b, c: a * b + c,
       lambda a, b, c: interval.add(interval.multiply(a, b), c), libm="fma", written=False),
    Op("quotient", ("a", "b"), lambda a, b: a / b, interval.divide, written=False,
       notation="{0} / {1}", meaning="{0} / {1}, rounded once",
       body="const M c = M(1) / b, q = a * c, y = {m}fma({m}fma(-b, q, a), c, q); return y == y ? y : q;"),
    # the first for elements of 16 bits on CUDA, else the second
    Op("by_width", ("narrow", "wide"), lambda narrow, wide: wide, interval.union, written=False),
    # eager's rounding to the storage type between two operations
    Op("rounded", _X, lambda x: x, interval.rounded16, written=False),
)
# fmt: on

OPS = {row.name: row for row in _ROWS}

# What kernels compute with besides: numbers of two words, and what is too small to be one. None stands in a
# formula, so that none has a real function.
WORDS = {row.name: row for row in (
    _word("words", "hi", "lo", range_=interval.add),
    _word("product", "a", "b", range_=interval.multiply),
    _word("sum", "a", "b", range_=interval.add),
    _word("narrow", "x", range_=lambda a: a),
    _word("scaled", "x", "hi", "lo", range_=lambda x, hi, lo: interval.multiply(x, interval.add(hi, lo)),
          meaning="{0} ({1} + {2})", body="return {m}fma(x, hi, x * lo);", wide=False),
    _word("product_plus", "a", "b", "c", "d", wide=False,
          range_=lambda a, b, c, d: interval.add(interval.multiply(interval.multiply(a, b), c), d),
          meaning="{0} {1} {2} + {3}",
          body="const M p = a * b; return {m}fma(p, c, {m}fma({m}fma(a, b, -p), c, d));"),
    _word("lifted", "x", range_=lambda a: a),
    _word("lift_back", "x", range_=_always(0, 1)),
    _word("gate", "x", "t", range_=lambda x, t: interval.multiply(x, between(0, 1)), wide=False,
          meaning="{0} sigmoid({1})",
          body="const X v = lifted(at_most(at_least(t, M(-126)), M(87))); "
          "const Wide<X> d = one_plus({m}exponential<false>(-v)); "
          "const M r = inverse(d.hi), q = x * r, y = {m}fma({m}fma(-q, d.lo, {m}fma(-q, d.hi, x)), r, q); "
          "return (y < q || y > q ? y : q) * lift_back(t);"),  # a q of 0 or infinity leaves no rest
    # in singles only
    _word("gate_slope", "a", "b", "t", range_=lambda a, b, t: REALS,
          meaning="sigmoid({2}) + {0} {1} sigmoid'({2})"),
    _word("square_of_two", "x", range_=interval.square, body="return product(x, x);"),
    _word("cube_of_two", "x", range_=lambda a: interval.multiply(interval.square(a), a),
          body="return product(x, x) * x;"),
    # a + b x of an a and a b of one sign and an x from 0; half the bits of a word are enough for a. The
    # second word may be larger than a rounding in float, whose exponential takes it as it is.
    _word("line_of_two", "b", "b_lo", "a", "a_lo", "x", range_=lambda b, b_lo, a, a_lo, x: interval.add(
        interval.add(a, a_lo), interval.multiply(interval.add(b, b_lo), x)),
          meaning="({2} + {3}) + ({0} + {1}) {4}",
          body="const M v = x.hi, y = {m}fma(b, v, a), rest = {m}fma(b, v, a - y) + {m}fma(b_lo, v, a_lo); "
          "const M lo = {m}fma(b, x.lo, rest); "
          "return sizeof(M) == 8 && lo == lo ? ordered_sum(y, lo) : words(y, lo);"),
    # 2^n in two factors: it may be subnormal, or more than half of the largest float
    _word("exp_of_two", "x", range_=_always(0, _INF), meaning="exp({0})",
          body="const Wide<X> t = x, near = at_least(at_most(t, M(89)), M(-104)); "
          "if constexpr (sizeof(M) == 8) return {m}exp(t.hi) * words(M(1), t.lo); "
          "const Raised<float> e = raised(float(near.hi), float(near.lo)); const int32_t half = e.n >> 1; "
          "const M one = M(1) + e.more; "
          "const M size = power_of_two<float>(half), rest = power_of_two<float>(e.n - half); "
          "return {{one * size * rest, (e.more - (one - M(1))) * size * rest}};"),
    _word("expm1_of_two", "x", range_=_always(-1, _INF), meaning="exp({0}) - 1",
          body="const Wide<X> t = x; const M v = t.hi, own = sizeof(M) == 8 ? {m}expm1(v) : M(0); "
          "if constexpr (sizeof(M) == 8) return words(own, {m}fma(own, t.lo, t.lo)); "
          f"const M c[] = {_constants(EXPM1[1:])}; "
          "const Wide<X> near = ordered_sum(v, {m}fma(v * v, polynomial(c, v), {m}fma(v, t.lo, t.lo))); "
          # word by word: a choice of both in a formula's own choice keeps its loop from being vectorised
          "const Wide<X> far = exp_of_two(t) - M(1); const bool small = {m}fabs(v) < M(0.5); "
          "return words(small ? near.hi : far.hi, small ? near.lo : far.lo);"),
    # in double, and over exp(-x^2 / 2) far out
    _word("half_erfc", "x", range_=_always(0, 1), meaning="Φ(-|{0}|)",
          body="const Wide<X> root = words(M(0.70710678118654757), M(-4.83364665672645e-17)); "
          "const Wide<X> z = -minus_size(x) * root; "
          "const M rest = M(0) - M(0.56418958354775628) * z.lo * {m}exp(-z.hi * z.hi); "
          "return {{M(0.5) * {m}erfc(z.hi), rest}};"),
    _word("mills", "x", range_=_always(0, 1), wide=False,
          meaning="Φ(-{0}) / exp(-{0}² / 2), of an {0} from 25 to 39",
          body=f"const M c[] = {_constants(_MILLS_FAR)}; "
          "return polynomial(c, (x - M(32)) * M(0.14285714285714286));"),
    _word("ndtr_tail", "x", range_=_always(0, _INF), meaning="Φ(-|{0}|), lifted as exp(-{0}² / 2) is",
          body="const M size = {m}fabs(M(x)), s = size > M(39) ? M(39) : size; "
          "const Wide<X> bell = {m}exponential(lifted(product(x, x) * M(-0.5))); "
          "if constexpr (sizeof(M) == 8) return s < M(25) ? half_erfc(x) : bell * mills(s); "
          f"const double c[] = {{{{{', '.join(map(repr, MILLS))}}}}}; "
          "const double k = 1.0 / (1.0 + 0.25 * s), y = k * polynomial(c, k); "
          "const M hi = M(y); return bell * words(hi, M(y - hi));"),
    _word("erf_of_two", "x", range_=_always(-1, 1),
          body="const M v = M(x), s = v * v; if constexpr (sizeof(M) == 8) return {m}erf(v); "
          "const Wide<X> line = v * words(M(1.1283792257308960), M(-5.8635383e-08)); "
          f"const M c[] = {_constants(ERF)}; "
          "const Wide<X> near = ordered_sum(line.hi, line.lo + v * (s * polynomial(c, s))); "
          "const X most = at_least(at_most(x, M(7.5)), M(-7.5)); "  # beyond, the tail is nothing beside 1
          "const Wide<X> tail = ndtr_tail(most * words(M(1.4142135381698608), M(2.4203234e-08))); "
          "const Wide<X> far = one_plus(-(tail + tail)); "
          "return s < M(0.64) ? near : x < M(0) ? -far : far;"),
    _word("tanh_of_two", "x", range_=_always(-1, 1),
          body="const M v = M(x), s = v * v; "
          f"const M c[] = {_constants(TANH)}, fine[] = {_constants(TANH_SHRINK)}; "
          "const M bend = sizeof(M) == 8 ? -{m}polynomial(fine, s) : polynomial(c, s); "
          "const Wide<X> near = ordered_sum(v, v * (s * bend)); "
          "const Wide<X> e = {m}exponential(minus_size(x) * M(2)), far = ratio(one_plus(-e), one_plus(e)); "
          "return s < M(0.36) ? near : x < M(0) ? -far : far;"),
    # of an argument that an earlier function has rounded; what comes of an infinity has one word
    _word("gate_of_two", "x", "t", range_=lambda x, t: interval.multiply(x, between(0, 1)),
          meaning="{0} sigmoid({1})",
          body="const Wide<X> e = {m}exponential(minus_size(lifted(t))), one = M(1); "
          "const Wide<X> y = x * ratio(t < M(0) ? e : one, one_plus(e)) * lift_back(t); " + _SETTLED),
    _word("times_tanh_softplus_of_two", "x", range_=lambda a: interval.multiply(a, between(0, 1)),
          meaning="{0} tanh(softplus({0}))",
          body=_FAR + "const Wide<X> y = x * ratio(n, d) * lift_back(x); " + _SETTLED),
    _word("times_tanh_softplus_slope_of_two", "x", range_=_always(-1, 2),
          meaning="the slope of {0} tanh(softplus({0}))",
          body=_U + "const Two<M> rise = (n - u) * (x > most ? X(most) : x) * M(4); "
          "return ratio(n + ratio(rise, d), d) * lift_back(x);"),
    _word("times_ndtr_of_two", "x", range_=lambda a: interval.multiply(a, between(0, 1)),
          meaning="{0} Φ({0})",
          body=_TAIL + "const Wide<X> part = x * tail, y = x > M(0) ? x - part : part * lift_back(t); "
          "const M above = y.hi == y.hi ? y.hi : M(x), hi = x > M(0) ? above : y.hi; "
          "return words(hi, y.lo == y.lo ? y.lo : M(0));"),
    # the same in one word of two, in singles only
    _word("gate_at_two", "x", "t", range_=lambda x, t: interval.multiply(x, between(0, 1)),
          meaning="{0} sigmoid({1})"),
    _word("times_tanh_softplus_at_two", "x", range_=lambda a: interval.multiply(a, between(0, 1)),
          meaning="{0} tanh(softplus({0}))"),
    _word("times_tanh_softplus_slope_at_two", "x", range_=_always(-1, 2),
          meaning="the slope of {0} tanh(softplus({0}))"),
    _word("times_ndtr_at_two", "x", range_=lambda a: interval.multiply(a, between(0, 1)),
          meaning="{0} Φ({0})"),
)}  # fmt: skip
# The same of one word and in one, in links only.
LINKED = {row.name: row for row in (
    _word("capped", "x", "most", range_=interval.minimum,
          meaning="{0}, or {1} where it is above that or NaN; that is positive"),
    _word("gate_short", "x", range_=lambda a: interval.multiply(a, between(0, 1)),
          meaning="{0} sigmoid({0})"),
    _word("gate_near", "x", range_=lambda a: interval.multiply(a, between(0, 1)),
          meaning="{0} sigmoid({0}), of an {0} from -1.2"),
    _word("sigmoid_near", "x", range_=_always(0, 1), meaning="sigmoid({0}), of an {0} from -1.2"),
    _word("times_tanh_softplus_near", "x", range_=lambda a: interval.multiply(a, between(0, 1)),
          meaning="{0} tanh(softplus({0})), of an {0} from -1.2"),
    _word("times_ndtr_short", "x", range_=lambda a: interval.multiply(a, between(0, 1)),
          meaning="{0} Φ({0})"),
    _word("times_ndtr_near", "x", range_=lambda a: interval.multiply(a, between(0, 1)),
          meaning="{0} Φ({0}), of an {0} from -0.3"),
)}  # fmt: skip
WORDS |= LINKED
# Functions of what an earlier one has rounded, by what they are functions of. The first take two words as
# they are, and single ones give one; of the others there are rows for two words in, and two or one out.
DOUBLED = ("sigmoid", "sigmoid_slope", "tanh_slope")
PRODUCTS = ("gate", "times_tanh_softplus", "times_tanh_softplus_slope", "times_ndtr")
NESTED = {f"{name}_of_two": name for name in (*DOUBLED, *PRODUCTS)}
NESTED |= {f"{name}_at_two": name for name in PRODUCTS}
WORDS |= {f"{name}_of_two": replace(OPS[name], name=f"{name}_of_two", written=False) for name in DOUBLED}
ROWS = OPS | WORDS
_APPROXIMATED = {row.name for row in _ROWS if row.libm not in ("", "fabs", "sqrt", "fma")}
# what calls exp, erfc or tanh
_FUNCTIONS = {row.name for row in ROWS.values() if re.search("{m}[et]|exponential|_tail", row.body)}
TRANSCENDENTAL = frozenset(_APPROXIMATED | _FUNCTIONS | NESTED.keys() | LINKED.keys())
_FEWER: dict[tuple[str, tuple[str, ...]], str] = {
    ("clamp", ("x", "min")): "clamp_min",
    ("clamp", ("x", "max")): "clamp_max",
}
FUNCTIONS = {name: row for name, row in OPS.items() if row.written and row.args}
CONSTANTS = {name: row for name, row in OPS.items() if not row.args}


def called(op: Op, given: Collection[str]) -> Op | None:
    """The row that a call of `op` with the given arguments means, or nothing where some are missing."""
    present = tuple(arg for arg in op.args if arg in given)
    return op if present == op.args else OPS.get(_FEWER.get((op.name, present), ""))


def on_host(term: Term) -> bool:
    """Whether plain C++ computes a term: by symbols and the math library, without our functions."""
    operations = (OPS[part.op] for part in walk(term) if isinstance(part, Apply))
    return all((row.infix or row.libm) and not row.boolean for row in operations)


def argument_count(op: Op) -> str:
    """How many arguments a call of `op` takes, in words."""
    count = len(op.args)
    if any(name == op.name for name, _ in _FEWER):
        return f"{count - 1} or {count} arguments"
    return counted(count, "argument")
