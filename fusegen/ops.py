"""The primitives: one row per operation of the formula language.

A row says everything any stage needs to know of an operation: its arguments, the real function it is
(as sympy writes it), the interval of its values, and how C++ and mathematics spell it. The names, and
the meaning at NaN and at the ends, are PyTorch's.

C++ spelling is one of three: an infix symbol, a function of the math library (`exp`), or a function of the
headers in `runtime/include`, in which a NaN operand fails every comparison of a selection and stays.

Source: PyTorch documentation of torch and torch.nn.functional; ATen's BinaryOps, UnaryOps and Activation.
"""

from __future__ import annotations

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
        header: the family of headers that defines it, `cpu/HEADER.h` and `cuda/HEADER.cuh`.
        cpp: its name there, where that is another.
        notation: how mathematics writes it, `{0}` being the first argument.
        written: whether a formula may name it; the others come from symbols or from the compiler.
        boolean: whether its value is a condition.
        wide: whether it takes a single-word or a double-word argument and gives a double-word value.
        compensated: whether it computes in double-word arithmetic and gives a single-word value.
        transcendental: whether it is none of arithmetic, comparisons and square roots.
        fast: whether its fast form on CUDA, for 16-bit results, errs by more than the math library.
        single: whether floats on CUDA take a function of their own, whose value is a single word.
    """

    name: str
    args: tuple[str, ...]
    real: Callable[..., Any]
    range: Callable[..., Interval]
    infix: str = ""
    strength: int = ATOM
    libm: str = ""
    header: str = ""
    cpp: str = ""
    notation: str = ""
    written: bool = True
    boolean: bool = False
    wide: bool = False
    compensated: bool = False
    transcendental: bool = False
    fast: bool = False
    single: bool = False

    @property
    def function(self) -> str:
        """The name of its function in C++."""
        return self.libm or self.cpp or self.name

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


def _mish_slope(x: Any) -> Any:
    own = sympy.tanh(sympy.log(1 + sympy.exp(x)))
    return own + x * (1 - own**2) / (1 + sympy.exp(-x))


def _piecewise(condition: Any, a: Any, b: Any) -> Any:
    return sympy.Piecewise((a, condition), (b, True))


def _symbol(name: str, infix: str, strength: int, real: Any, range_: Any, *args: str, **more: Any) -> Op:
    return Op(name, args or ("a", "b"), real, range_, infix, strength, written=False, **more)


def _word(name: str, *args: str, range_: Any, **more: Any) -> Op:
    return Op(name, args, _no_function, range_, written=False, **more)


def _no_function(*_: Any) -> Any:
    raise AssertionError("no formula holds it")


_INF = interval.INFINITY
_X = ("x",)
_ZERO, _SIX = between(0, 0), between(6, 6)

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
       header="selections"),
    Op("relu6", _X, lambda x: sympy.Min(sympy.Max(x, 0), 6), lambda a: interval.clamp(a, _ZERO, _SIX),
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
    Op("abs", _X, sympy.Abs, interval.absolute, libm="fabs", notation="|{0}|"),
    Op("sign", _X, sympy.sign, _always(-1, 1), header="selections"),
    Op("detach", _X, lambda x: x, lambda a: a),  # the identity; no kernel has it, see derive.attached
    # arithmetic
    Op("square", _X, lambda x: x**2, interval.square, notation="{0}²", header="selections"),
    Op("cube", _X, lambda x: x**3, lambda a: interval.multiply(interval.square(a), a),
       notation="{0}³", header="selections"),
    Op("reciprocal", _X, lambda x: 1 / x, lambda a: interval.divide(between(1, 1), a),
       notation="1 / {0}", header="selections"),
    Op("sqrt", _X, sympy.sqrt, _sqrt, libm="sqrt", notation="√{0}"),
    Op("rsqrt", _X, lambda x: 1 / sympy.sqrt(x), _rsqrt, notation="1 / √{0}", header="selections"),
    Op("pow", ("x", "exponent"), sympy.Pow, lambda *_: REALS, libm="pow", transcendental=True),
    # the math library
    Op("exp", _X, sympy.exp, _always(0, _INF), libm="exp",
       header="exponential", transcendental=True, fast=True),
    Op("exp2", _X, lambda x: 2**x, _always(0, _INF), libm="exp2", transcendental=True),
    Op("expm1", _X, lambda x: sympy.exp(x) - 1, _always(-1, _INF), libm="expm1",
       header="exponential", transcendental=True, fast=True),
    Op("log", _X, sympy.log, _always(-_INF, _INF), libm="log", header="logarithm", transcendental=True),
    Op("log2", _X, lambda x: sympy.log(x, 2), _always(-_INF, _INF), libm="log2", transcendental=True),
    Op("log1p", _X, lambda x: sympy.log(1 + x), _always(-_INF, _INF), libm="log1p",
       header="logarithm", transcendental=True),
    Op("sin", _X, sympy.sin, _always(-2, 2), libm="sin", header="trigonometric", transcendental=True),
    Op("cos", _X, sympy.cos, _always(-2, 2), libm="cos", header="trigonometric", transcendental=True),
    Op("tanh", _X, sympy.tanh, _always(-1, 1), libm="tanh", header="hyperbolic", transcendental=True),
    Op("erf", _X, sympy.erf, _always(-1, 1), libm="erf", header="normal", transcendental=True),
    Op("erfc", _X, sympy.erfc, _always(0, 2), libm="erfc", header="normal", transcendental=True, fast=True),
    Op("ndtr", _X, lambda x: sympy.erfc(-x / sympy.sqrt(2)) / 2, _always(0, 1), notation="Φ({0})",
       wide=True, header="normal", transcendental=True, fast=True, single=True),
    Op("sigmoid", _X, lambda x: 1 / (1 + sympy.exp(-x)), _always(0, 1), wide=True,
       header="logistic", transcendental=True, fast=True, single=True),
    Op("softplus", _X, lambda x: sympy.log(1 + sympy.exp(x)), _always(0, _INF), wide=True,
       header="logistic", transcendental=True, fast=True, single=True),
    # forms and slopes of others in which nothing cancels
    Op("sigmoid_slope", _X, lambda x: sympy.exp(-x) / (1 + sympy.exp(-x)) ** 2, _always(0, 1),
       written=False, wide=True, header="logistic", transcendental=True, fast=True, single=True),
    Op("tanh_slope", _X, lambda x: 1 / sympy.cosh(x) ** 2, _always(0, 2),
       written=False, wide=True, header="hyperbolic", transcendental=True, fast=True, single=True),
    Op("soft_sign", _X, lambda x: x / (1 + sympy.Abs(x)), _always(-1, 1), written=False,
       header="selections"),
    # 0 in front, as a difference is no -0
    Op("tanh_shrink", _X, lambda x: x - sympy.tanh(x), lambda *_: REALS, written=False,
       header="hyperbolic", transcendental=True, fast=True),
    Op("tanh_softplus", _X, lambda x: sympy.tanh(sympy.log(1 + sympy.exp(x))), _always(0, 1), written=False,
       wide=True, header="mish", transcendental=True, fast=True, single=True),
    Op("tanh_softplus_slope", _X, lambda x: 4 * sympy.exp(x) * (1 + sympy.exp(x))
       / ((1 + sympy.exp(x)) ** 2 + 1) ** 2, _always(0, 1),
       written=False, wide=True, header="mish", transcendental=True, fast=True, single=True),
    Op("tanh_of_exp", _X, lambda x: sympy.tanh(sympy.exp(x)), _always(0, 1), written=False,
       wide=True, header="hyperbolic", transcendental=True, fast=True, single=True),
    # above 10 it is 0 in every type, and exp(x) soon infinite
    Op("tanh_of_exp_slope", _X, lambda x: sympy.exp(x) / sympy.cosh(sympy.exp(x)) ** 2, _always(0, 1),
       written=False, wide=True, header="hyperbolic", transcendental=True, fast=True, single=True),
    Op("gauss", _X, lambda x: sympy.exp(-(x**2)), _always(0, 1), written=False, wide=True,
       header="exponential", transcendental=True, fast=True, single=True),
    Op("normal", _X, lambda x: sympy.exp(-(x**2) / 2) / sympy.sqrt(2 * sympy.pi), _always(0, 1),
       written=False, wide=True, header="normal", transcendental=True, fast=True, single=True),
    # products with a tail that may be too small for a float
    Op("times_tanh_softplus", _X, lambda x: x * sympy.tanh(sympy.log(1 + sympy.exp(x))),
       lambda a: interval.multiply(a, between(0, 1)), written=False, notation="{0} tanh(softplus({0}))",
       header="mish", transcendental=True, fast=True, single=True, compensated=True),
    Op("times_tanh_softplus_slope", _X, _mish_slope, _always(-1, 2), written=False,
       header="mish", transcendental=True, fast=True, single=True, compensated=True),
    Op("times_ndtr", _X, lambda x: x * sympy.erfc(-x / sympy.sqrt(2)) / 2,
       lambda a: interval.multiply(a, between(0, 1)), notation="{0} Φ({0})", written=False,
       header="normal", transcendental=True, fast=True, single=True, compensated=True),
    Op("times_ndtr_slope", _X, lambda x: sympy.erfc(-x / sympy.sqrt(2)) / 2
       + x * sympy.exp(-(x**2) / 2) / sympy.sqrt(2 * sympy.pi), _always(-1, 2), written=False, wide=True,
       header="normal", transcendental=True, fast=True, single=True),
    # infinities, and what is as good as they, as numbers that times 0 are 0 and times 3 no infinity
    Op("finite_below", _X, lambda x: x, lambda a: interval.maximum(a, between(-_INF, -(2**126))),
       written=False, header="selections"),
    Op("finite_above", _X, lambda x: x, lambda a: interval.minimum(a, between(2**126, _INF)),
       written=False, header="selections"),
    # what PyTorch's own kernels compute with: one rounding for two operations, and a true division
    Op("fma", ("a", "b", "c"), lambda a, b, c: a * b + c,
       lambda a, b, c: interval.add(interval.multiply(a, b), c), libm="fma", written=False),
    Op("quotient", ("a", "b"), lambda a, b: a / b, interval.divide, written=False,
       notation="{0} / {1}", header="selections", fast=True),
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
    _word("words", "hi", "lo", range_=interval.add, header="double_word", cpp="double_word"),
    _word("product", "a", "b", range_=interval.multiply, header="double_word", cpp="two_prod"),
    _word("sum", "a", "b", range_=interval.add, header="double_word", cpp="two_sum"),
    _word("narrow", "x", range_=lambda a: a),
    _word("scaled", "x", "hi", "lo", range_=lambda x, hi, lo: interval.multiply(x, interval.add(hi, lo)),
          header="double_word"),
    _word("product_plus", "a", "b", "c", "d",
          range_=lambda a, b, c, d: interval.add(interval.multiply(interval.multiply(a, b), c), d),
          header="double_word"),
    _word("lifted", "x", range_=lambda a: a, header="exponential", cpp="prescaled"),
    _word("lift_back", "x", range_=_always(0, 1), header="exponential", cpp="unscale"),
    _word("gate", "x", "t", range_=lambda x, t: interval.multiply(x, between(0, 1)),
          header="logistic", cpp="x_sigmoid", transcendental=True, fast=True, single=True),
    # in singles only
    _word("gate_slope", "a", "b", "t", range_=lambda a, b, t: REALS,
          header="logistic", cpp="x_sigmoid_slope", fast=True, single=True),
    _word("square_of_two", "x", range_=interval.square, wide=True, header="double_word"),
    _word("cube_of_two", "x", range_=lambda a: interval.multiply(interval.square(a), a),
          wide=True, header="double_word"),
    # a + b x of an a and a b of one sign and an x from 0; half the bits of a word are enough for a. The
    # second word may be larger than a rounding in float, whose exponential takes it as it is.
    _word("line_of_two", "b", "b_lo", "a", "a_lo", "x", range_=lambda b, b_lo, a, a_lo, x: interval.add(
        interval.add(a, a_lo), interval.multiply(interval.add(b, b_lo), x)),
          wide=True, header="double_word"),
    # 2^n in two factors: it may be subnormal, or more than half of the largest float
    _word("exp_of_two", "x", range_=_always(0, _INF), wide=True,
          header="exponential", transcendental=True, fast=True, single=True),
    _word("expm1_of_two", "x", range_=_always(-1, _INF), wide=True,
          header="exponential", transcendental=True),
    _word("ndtr_tail", "x", range_=_always(0, _INF), wide=True, header="normal", transcendental=True),
    _word("erf_of_two", "x", range_=_always(-1, 1),
          wide=True, header="normal", transcendental=True),
    _word("tanh_of_two", "x", range_=_always(-1, 1),
          wide=True, header="hyperbolic", transcendental=True),
    # of an argument that an earlier function has rounded; what comes of an infinity has one word
    _word("gate_of_two", "x", "t", range_=lambda x, t: interval.multiply(x, between(0, 1)),
          wide=True, header="logistic", cpp="x_sigmoid_of_two", transcendental=True, fast=True),
    _word("times_tanh_softplus_of_two", "x", range_=lambda a: interval.multiply(a, between(0, 1)),
          wide=True, header="mish", transcendental=True, fast=True),
    _word("times_tanh_softplus_slope_of_two", "x", range_=_always(-1, 2),
          wide=True, header="mish", transcendental=True, fast=True),
    _word("times_ndtr_of_two", "x", range_=lambda a: interval.multiply(a, between(0, 1)),
          wide=True, header="normal", transcendental=True, fast=True),
    # the same in one word of two, in singles only
    _word("gate_at_two", "x", "t", range_=lambda x, t: interval.multiply(x, between(0, 1)),
          header="logistic", cpp="x_sigmoid_at_two", transcendental=True, fast=True, single=True),
    _word("times_tanh_softplus_at_two", "x", range_=lambda a: interval.multiply(a, between(0, 1)),
          header="mish", transcendental=True, fast=True, single=True),
    _word("times_tanh_softplus_slope_at_two", "x", range_=_always(-1, 2),
          header="mish", transcendental=True, fast=True, single=True),
    _word("times_ndtr_at_two", "x", range_=lambda a: interval.multiply(a, between(0, 1)),
          header="normal", transcendental=True, fast=True, single=True),
)}  # fmt: skip
# The same of one word and in one, in links only.
LINKED = {row.name: row for row in (
    _word("capped", "x", "most", range_=interval.minimum,
          header="exponential", cpp="clamp_max_or_bound", transcendental=True),
    _word("gate_short", "x", range_=lambda a: interval.multiply(a, between(0, 1)),
          header="logistic", cpp="x_sigmoid_short", transcendental=True),
    _word("gate_near", "x", range_=lambda a: interval.multiply(a, between(0, 1)),
          header="logistic", cpp="x_sigmoid_near", transcendental=True),
    _word("sigmoid_near", "x", range_=_always(0, 1), header="logistic", transcendental=True),
    _word("times_tanh_softplus_near", "x", range_=lambda a: interval.multiply(a, between(0, 1)),
          header="mish", transcendental=True),
    _word("times_ndtr_short", "x", range_=lambda a: interval.multiply(a, between(0, 1)),
          header="normal", transcendental=True),
    _word("times_ndtr_near", "x", range_=lambda a: interval.multiply(a, between(0, 1)),
          header="normal", transcendental=True),
)}  # fmt: skip
WORDS |= LINKED
# Functions of what an earlier one has rounded, by what they are functions of. The first take two words as
# they are, and single ones give one; of the others there are rows for two words in, and two or one out.
DOUBLED = ("sigmoid", "sigmoid_slope", "tanh_slope")
PRODUCTS = ("gate", "times_tanh_softplus", "times_tanh_softplus_slope", "times_ndtr")
NESTED = {f"{name}_of_two": name for name in (*DOUBLED, *PRODUCTS)}
NESTED |= {f"{name}_at_two": name for name in PRODUCTS}
WORDS |= {
    f"{name}_of_two": replace(OPS[name], name=f"{name}_of_two", written=False, single=False)
    for name in DOUBLED
}
ROWS = OPS | WORDS
TRANSCENDENTAL = frozenset(row.name for row in ROWS.values() if row.transcendental)
SINGLES = frozenset(row.name for row in ROWS.values() if row.single)
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
