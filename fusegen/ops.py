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
from dataclasses import dataclass
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
        written: whether a formula may name it; the others come from symbols or from the compiler.
        boolean: whether its value is a condition.
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
    written: bool = True
    boolean: bool = False

    @property
    def signature(self) -> str:
        """How a call is written, for example ``clamp(x, min, max)``."""
        return f"{self.name}({', '.join(self.args)})"


def _always(low: int | float, high: int | float) -> Callable[..., Interval]:
    return lambda *_: between(low, high)


def _where(_: Interval, a: Interval, b: Interval) -> Interval:
    return interval.union(a, b)


def _sqrt(a: Interval) -> Interval:
    return between(0, interval.INFINITY) if a.low >= 0 else REALS


def _rsqrt(a: Interval) -> Interval:
    return between(0, interval.INFINITY) if a.low > 0 else REALS  # at -0.0 it is -inf


def _piecewise(condition: Any, a: Any, b: Any) -> Any:
    return sympy.Piecewise((a, condition), (b, True))


def _symbol(name: str, infix: str, strength: int, real: Any, range_: Any, *args: str, **more: Any) -> Op:
    return Op(name, args or ("a", "b"), real, range_, infix, strength, written=False, **more)


_INF = interval.INFINITY
_X = ("x",)
_ZERO, _SIX = between(0, 0), between(6, 6)

# exp(-x^2 / 2), with the rounding of the square mended
_BELL = ("const M s = x * x, rest = {m}fma(x, x, -s), e = {m}exp(M(-0.5) * s); "
         "const M bell = e > 0 ? e - e * (M(0.5) * rest) : e; ")  # fmt: skip
# In float, polynomials that are minimax in the relative error: log1p(e) / e, and the normal distribution's
# tail over its density times t, where t = 1 / (1 + |x| / 4) (in the manner of Cody 1969, Math. Comp. 23).
_LOG1P = (1.0, -0.4999990165233612, 0.3332996368408203, -0.24954132735729218, 0.19675935804843903,
          -0.1530558466911316, 0.10603640973567963, -0.056959398090839386, 0.01985139027237892,
          -0.0032440091017633677)  # fmt: skip
_MILLS = (0.09974633157253265, 0.0995214581489563, 0.09528784453868866, 0.07301288098096848,
          0.08385100960731506, 0.017735116183757782, 0.022610414773225784, 0.05587983876466751,
          -0.06453732401132584, 0.016892435029149055)  # fmt: skip

# (x - tanh(x)) / x^3 by powers of x^2, up to |x| = 1.25; in double above.
_TANH_SHRINK = (0.3333333432674408, -0.1333332657814026, 0.05396692827343941, -0.021858293563127518,
                0.008814364671707153, -0.0034663931000977755, 0.00125079823192209, -0.0003682256501633674,
                7.378138980129734e-05, -7.177246970968554e-06)  # fmt: skip
_TANH_SHRINK_DOUBLE = (0.3333333333333333, -0.13333333333333316, 0.05396825396823853, -0.02186948853562987,
                       0.008863235520411152, -0.003592127931383934, 0.001455833607387484,
                       -0.0005900233513532234, 0.00023911332841141452, -9.686926720553123e-05,
                       3.9174286465576325e-05, -1.5734861799614973e-05, 6.19352085593154e-06,
                       -2.3250472081440946e-06, 7.975228710658438e-07, -2.3631394317179296e-07,
                       5.652480059872008e-08, -1.001293046608393e-08, 1.1497985946032148e-09,
                       -6.355146496204461e-11)  # fmt: skip


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
       body="return a < b || a != a ? a : b;", notation="min({0}, {1})"),
    Op("maximum", ("a", "b"), sympy.Max, interval.maximum,
       body="return a > b || a != a ? a : b;", notation="max({0}, {1})"),
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
       body="if constexpr (sizeof(M) == 8) return M(0.5) * {m}erfc(x * M(-0.70710678118654752)); "
       + _BELL + f"const M c[] = {_constants(_MILLS)}; "
       "const M t = M(1) / {m}fma(M(0.25), {m}fabs(x), M(1)); "
       "const M y = bell * t * polynomial(c, t); return x < 0 ? y : M(1) - y;"),
    Op("sigmoid", _X, lambda x: 1 / (1 + sympy.exp(-x)), _always(0, 1),
       body="const M e = {m}exp(-{m}fabs(x)); return (x < 0 ? e : M(1)) / (M(1) + e);"),
    Op("softplus", _X, lambda x: sympy.log(1 + sympy.exp(x)), _always(0, _INF),
       body="const M e = {m}exp(-{m}fabs(x)), high = x < 0 ? M(0) : x; "
       "if constexpr (sizeof(M) == 8) return high + {m}log1p(e); "
       f"const M c[] = {_constants(_LOG1P)}; return high + e * polynomial(c, e);"),
    # forms and slopes of others in which nothing cancels; products, as a tiny dividend divides slowly
    Op("sigmoid_slope", _X, lambda x: sympy.exp(-x) / (1 + sympy.exp(-x)) ** 2, _always(0, 1),
       body="const M e = {m}exp(-{m}fabs(x)), r = M(1) / (M(1) + e); return e * (r * r);", written=False),
    Op("tanh_slope", _X, lambda x: 1 / sympy.cosh(x) ** 2, _always(0, 2),
       body="const M e = {m}exp(M(-2) * {m}fabs(x)), r = M(1) / (M(1) + e); return M(4) * e * (r * r);",
       written=False),
    Op("soft_sign", _X, lambda x: x / (1 + sympy.Abs(x)), _always(-1, 1), written=False,
       body="return x / ({m}fabs(x) + M(1));"),
    # 0 in front, as a difference is no -0
    Op("tanh_shrink", _X, lambda x: x - sympy.tanh(x), lambda *_: REALS, written=False,
       body="const M s = x * x, far = x - {m}tanh(x); "
       f"const M fine[] = {_constants(_TANH_SHRINK_DOUBLE)}; if constexpr (sizeof(M) == 8) "
       "return s < M(1.5625) ? M(0) + x * (s * polynomial(fine, s)) : far; "
       f"const M c[] = {_constants(_TANH_SHRINK)}; "
       "return s < M(1.5625) ? M(0) + x * (s * polynomial(c, s)) : far;"),
    Op("tanh_softplus", _X, lambda x: sympy.tanh(sympy.log(1 + sympy.exp(x))), _always(0, 1), written=False,
       body="const M e = {m}exp(-{m}fabs(x)), n = x > 0 ? M(1) + M(2) * e : e * (e + M(2));"
       " return n * (M(1) / (n + (x > 0 ? M(2) * e * e : M(2))));"),
    Op("tanh_softplus_slope", _X, lambda x: 4 * sympy.exp(x) * (1 + sympy.exp(x))
       / ((1 + sympy.exp(x)) ** 2 + 1) ** 2, _always(0, 1),
       body="const M e = {m}exp(-{m}fabs(x)), n = x > 0 ? M(1) + M(2) * e : e * (e + M(2));"
       " const M r = M(1) / (n + (x > 0 ? M(2) * e * e : M(2)));"
       " return M(4) * e * (M(1) + e) * (x > 0 ? e : M(1)) * (r * r);", written=False),
    Op("tanh_of_exp", _X, lambda x: sympy.tanh(sympy.exp(x)), _always(0, 1), written=False,
       body="return {m}tanh({m}exp(x));"),
    # above 10 it is 0 in every type, and exp(x) soon infinite; near 4 it errs by exp(x) units
    Op("tanh_of_exp_slope", _X, lambda x: sympy.exp(x) / sympy.cosh(sympy.exp(x)) ** 2, _always(0, 1),
       body="const M t = {m}exp(x > M(10) ? M(10) : x), e = {m}exp(M(-2) * t), r = M(1) / (M(1) + e); "
       "return t * (M(4) * e) * (r * r);", written=False),
    Op("gauss", _X, lambda x: sympy.exp(-(x**2)), _always(0, 1), written=False,
       body="const M s = x * x, rest = {m}fma(x, x, -s), y = {m}exp(-s);"
       " return y > 0 ? y - y * rest : y;"),
    Op("normal", _X, lambda x: sympy.exp(-(x**2) / 2) / sympy.sqrt(2 * sympy.pi), _always(0, 1),
       body=_BELL + "return M(0.39894228040143268) * bell;", written=False),
    # infinities, and what is as good as they, as numbers that times 0 are 0 and times 3 no infinity
    Op("finite_below", _X, lambda x: x, lambda a: interval.maximum(a, between(-_INF, -(2**126))),
       body="if constexpr (sizeof(M) == 8) return x < M(-0x1p1022) ? M(-0x1p1022) : x; "
       "return x < M(-0x1p126) ? M(-0x1p126) : x;", written=False),
    Op("finite_above", _X, lambda x: x, lambda a: interval.minimum(a, between(2**126, _INF)),
       body="if constexpr (sizeof(M) == 8) return x > M(0x1p1022) ? M(0x1p1022) : x; "
       "return x > M(0x1p126) ? M(0x1p126) : x;", written=False),
    # what PyTorch's own kernels compute with: one rounding for two operations, and a true division
    Op("fma", ("a", "b", "c"), lambda a, b, c: a * b + c,
       lambda a, b, c: interval.add(interval.multiply(a, b), c), libm="fma", written=False),
    Op("quotient", ("a", "b"), lambda a, b: a / b, interval.divide, written=False, notation="{0} / {1}",
       body="const M c = M(1) / b, q = a * c, y = {m}fma({m}fma(-b, q, a), c, q); return y == y ? y : q;"),
    # the first for elements of 16 bits on CUDA, else the second
    Op("by_width", ("narrow", "wide"), lambda narrow, wide: wide, interval.union, written=False),
    # eager's rounding to the storage type between two operations
    Op("rounded", _X, lambda x: x, interval.rounded16, written=False),
)
# fmt: on

OPS = {row.name: row for row in _ROWS}
_APPROXIMATED = {row.name for row in _ROWS if row.libm not in ("", "fabs", "sqrt", "fma")}
TRANSCENDENTAL = frozenset(
    _APPROXIMATED | {r.name for r in _ROWS if re.search("{m}[et]", r.body)}
)  # exp, erfc, tanh
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
