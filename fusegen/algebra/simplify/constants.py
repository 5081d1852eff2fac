"""Parts of a formula that hold no name, as one number each."""

import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import sympy

from fusegen.algebra.simplify.infinities import check_infinities, of_infinities
from fusegen.core.ops import OPS
from fusegen.core.spec import Param
from fusegen.core.term import INFINITY, Apply, Let, Number, Program, Term, infinite, rebuild, walk
from fusegen.errors import BeyondFloat32, NumberOutOfRange, Span, Undefined

DIGITS = 60
NEAR, SHORT = Fraction(1, 10**45), 10**12  # a constant so near to a short fraction is that fraction
TINY, HUGE = Fraction(1, 2**150), Fraction(2**128 - 2**103)  # what float32 rounds to 0, and to infinity
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "neg": operator.neg,
}  # fmt: skip
COMPARED: dict[str, Callable[[Fraction, Fraction], bool]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}


def folded(term: Term) -> Term:
    """Return a term without names as one number, and of a selection that numbers decide the chosen one.

    Any other term stays as it is.

    Raises:
        Undefined: it has no real value, or divides by zero.
        NumberOutOfRange: its value does not fit in float64.
    """
    if not isinstance(term, Apply):
        return term
    match term:
        case Apply("where", (Apply(op, (Number(a), Number(b))), chosen, other)) if op in COMPARED:
            return chosen if COMPARED[op](a, b) else other
    values = [arg.value for arg in term.args if isinstance(arg, Number)]
    if term.op == "div" and term.args[1] == Number(Fraction(0)):
        raise Undefined(term.span, what="a division by zero", remedy="change the divisor")
    if len(values) == len(term.args) and any(map(infinite, term.args)) and not OPS[term.op].boolean:
        found = of_infinities(term, values)
        if found is None:
            what = f"{term.op}({', '.join(map(_shown, values))})"
            raise Undefined(term.span, what=what, remedy="change its argument")
        return found
    if len(values) < len(term.args) or OPS[term.op].boolean or term.op == "fma":  # the kernel rounds that
        return term
    if term.op in ARITHMETIC:
        return Number(_fitting(ARITHMETIC[term.op](*values), term.span), term.span)
    shown = f"{term.op}({', '.join(_shown(value) for value in values)})"
    return Number(_evaluated(term, values, shown), term.span)


def constants_folded(program: Program) -> Program:
    """Return a program in which every part without names is one number."""

    def fold(term: Term) -> Term:
        return folded(rebuild(term, fold))

    lets = tuple(Let(let.name, fold(let.term)) for let in program.lets)
    return Program(program.inputs, program.params, lets, tuple(map(fold, program.results)))


def check_constants(
    program: Program,  # as declared
    dtypes: Sequence[str],  # of the tensors
    params: Sequence[Param],  # whose defaults are such numbers, too
) -> None:
    """Refuse numbers that kernels of some dtypes do not hold, and powers of 0 or less by what is no number.

    Raises:
        BeyondFloat32: float32 holds an infinity or a zero in its place.
        InfinityInArithmetic: arithmetic reads an infinity.
        Undefined, NumberOutOfRange: a part without names has no value in float64, or a power has none.
    """
    found = constants_folded(program)
    check_infinities(found)
    narrow = ", ".join(dtype for dtype in dtypes if dtype != "float64")
    for param in params:
        if narrow and not in_float32(param.default):
            raise BeyondFloat32(param.span, what=_what(param.default), dtypes=narrow)
    for term in (*(let.term for let in found.lets), *found.results):
        for part in walk(term):
            match part:
                case Number(value) if narrow and not (in_float32(value) or infinite(part)):
                    raise BeyondFloat32(part.span, what=_what(value), dtypes=narrow)
                case Apply("pow", (Number(base), exponent)) if base <= 0 and not isinstance(
                    exponent, Number
                ):
                    what = f"a power of {_shown(base)} whose exponent is no number"
                    raise Undefined(part.span, what=what, remedy="take a positive base")


def in_float32(value: Fraction | float) -> bool:
    """Return True if float32 holds neither an infinity nor, but for zero, a zero in its place."""
    return value == 0 or TINY < abs(Fraction(value)) < HUGE


def _what(value: Fraction | float) -> str:
    return f"the number {float(value):.6g}"


def _evaluated(term: Apply, values: list[Fraction], shown: str) -> Fraction:
    """Return the value of a function at numbers, to 60 digits."""
    floats = [sympy.Float(sympy.Rational(v.numerator, v.denominator), DIGITS) for v in values]
    try:
        value = sympy.sympify(OPS[term.op].real(*floats)).evalf(DIGITS)
    except (OverflowError, ValueError):  # mpmath gives up on a size that no float has
        raise NumberOutOfRange(term.span, what=shown) from None
    if not (value.is_real and value.is_finite):
        raise Undefined(term.span, what=shown, remedy="change its argument")
    if not value.is_zero and not -400 < sympy.log(abs(value), 10) < 400:
        raise NumberOutOfRange(term.span, what=shown)
    return _fitting(Fraction(str(value)), term.span, shown)


def _fitting(value: Fraction, span: Span, shown: str = "") -> Fraction:
    """Return the value, unless float64 would hold an infinity or a zero in its place."""
    size = abs(value)
    if size >= 2**1024 - 2**970 or 0 < size <= Fraction(1, 2**1075):
        sign = "-" if value < 0 else ""
        power = len(str(size.numerator)) - len(str(size.denominator))
        raise NumberOutOfRange(span, what=shown or f"a value of about {sign}10^{power}")
    return value


def _shown(value: Fraction) -> str:
    if abs(value) == INFINITY:
        return "-inf" if value < 0 else "inf"
    return f"{float(value):g}"


def snapped(value: Fraction) -> Fraction:
    """A constant; the short fraction that it is but for the sixtieth digit of a root, if it is one."""
    if value.denominator < SHORT:
        return value
    short = value.limit_denominator(SHORT)
    return short if abs(value - short) <= NEAR * abs(value) else value
