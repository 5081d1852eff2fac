"""Fewer operations, the same function: a table of rules, run to a fixed point.

A rule is a row: what it matches, what it becomes, and the fact that has to hold. Facts are read off
intervals that start from `assume` and from what each operation can give, never from the data a spec
happens to be tested on. Before a rule is used, sympy proves over the real numbers that both sides are
the same function wherever the fact holds; a rule it cannot prove is not used.

Every rule here is exact in floating point as well: both sides give the same bits, NaN and signed zero
included, because a fact bounds the rounded values too (see `interval`). So the rules serve both numerics.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import sympy

from fusegen.errors import NumberOutOfRange, Span, Undefined
from fusegen.interval import REALS, Interval, point
from fusegen.ops import OPS
from fusegen.term import (
    Apply,
    Let,
    Name,
    Number,
    Program,
    Rewrite,
    Term,
    children,
    names,
    needed,
    rebuild,
    substitute,
)

MAX_STEPS = 1000
DIGITS = 60
ORDERS: dict[str, Callable[..., bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "neg": operator.neg,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fact:
    """An order between two pattern variables: ``left >= right``, and likewise ``>``, ``<=`` and ``<``."""

    left: str
    relation: str
    right: str

    def holds(self, ranges: dict[str, Interval]) -> bool:
        """Whether the order follows from the intervals of the variables."""
        left, right = ranges[self.left], ranges[self.right]
        if self.relation in (">", ">="):
            return ORDERS[self.relation](left.low, right.high)
        return ORDERS[self.relation](left.high, right.low)

    def granted(self, symbols: dict[str, Any]) -> dict[str, Any]:
        """The symbols, with the left one written so that the order always holds."""
        sign = 1 if self.relation in (">", ">=") else -1
        if self.relation in (">", "<"):
            distance = sympy.Symbol(f"from_{self.left}", positive=True)
        else:
            distance = sympy.Symbol(f"from_{self.left}", nonnegative=True)
        return {**symbols, self.left: symbols[self.right] + sign * distance}


@dataclass(frozen=True, slots=True)
class Rule:
    """``left`` may become ``right`` where the facts hold; names are variables, `_` marks constants."""

    name: str
    left: Term
    right: Term
    fact: Fact | None = None
    besides: Fact | None = None

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What has to hold."""
        return tuple(fact for fact in (self.fact, self.besides) if fact)


def _of(op: str, *args: Term | int | Fraction) -> Apply:
    terms = (Number(Fraction(arg)) if isinstance(arg, int | Fraction) else arg for arg in args)
    return Apply(op, tuple(terms))


_A, _LOW, _HIGH = Name("a"), Name("low"), Name("high")
_C = Name("c_")  # matches a number only: a dropped operand must not be NaN
_HALF = Fraction(1, 2)

RULES = (
    # a bound that is never reached
    Rule("dead lower bound", _of("clamp", _A, _LOW, _HIGH), _of("clamp_max", _A, _HIGH),
         Fact("a", ">=", "low")),
    Rule("dead upper bound", _of("clamp", _A, _LOW, _HIGH), _of("clamp_min", _A, _LOW),
         Fact("a", "<=", "high"), Fact("low", "<=", "high")),
    Rule("dead lower bound", _of("clamp_min", _A, _LOW), _A, Fact("a", ">=", "low")),
    Rule("dead upper bound", _of("clamp_max", _A, _HIGH), _A, Fact("a", "<=", "high")),
    # at a tie these two give c, whose zero has another sign than a's may have
    Rule("dead lower bound", _of("maximum", _A, _C), _A, Fact("a", ">", "c_")),
    Rule("dead upper bound", _of("minimum", _A, _C), _A, Fact("a", "<", "c_")),
    Rule("dead lower bound", _of("maximum", _C, _A), _A, Fact("a", ">=", "c_")),
    Rule("dead upper bound", _of("minimum", _C, _A), _A, Fact("a", "<=", "c_")),
    Rule("dead lower bound", _of("relu6", _A), _of("clamp_max", _A, 6), Fact("a", ">=", "zero_")),
    Rule("dead upper bound", _of("relu6", _A), _of("relu", _A), Fact("a", "<=", "six_")),
    Rule("dead relu", _of("relu", _A), _A, Fact("a", ">=", "zero_")),
    Rule("dead abs", _of("abs", _A), _A, Fact("a", ">", "zero_")),  # |-0.0| is +0.0
    # neutral elements; a + 0 is not one of them, since -0.0 + 0 is +0.0
    Rule("times one", _of("mul", _A, 1), _A),
    Rule("times one", _of("mul", 1, _A), _A),
    Rule("over one", _of("div", _A, 1), _A),
    Rule("minus zero", _of("sub", _A, 0), _A),
    Rule("double negation", _of("neg", _of("neg", _A)), _A),
    # powers that have a cheaper form, as PyTorch takes them
    Rule("power 1", _of("pow", _A, 1), _A),
    Rule("power 2", _of("pow", _A, 2), _of("square", _A)),
    Rule("power 3", _of("pow", _A, 3), _of("cube", _A)),
    Rule("power 1/2", _of("pow", _A, _HALF), _of("sqrt", _A)),
    Rule("power -1/2", _of("pow", _A, -_HALF), _of("rsqrt", _A)),
    Rule("power -1", _of("pow", _A, -1), _of("reciprocal", _A)),
    Rule("power -2", _of("pow", _A, -2), _of("reciprocal", _of("square", _A))),
)  # fmt: skip

_FIXED = {"zero_": Number(Fraction(0)), "six_": Number(Fraction(6))}


def simplify(program: Program, assume: dict[str, Interval]) -> tuple[Program, tuple[Rewrite, ...]]:
    """The program in fewer operations, and every rewrite that led there, in order.

    Args:
        program: what to simplify.
        assume: intervals that inputs are promised to lie in.

    Raises:
        Undefined, NumberOutOfRange: a constant part has no finite value.
    """
    run = _Run({name: assume.get(name, REALS) for name in (*program.inputs, *program.params)})
    lets: list[Let] = []
    plain: dict[str, Term] = {}
    for let in program.lets:
        term = run.simplest(substitute(let.term, plain))
        if isinstance(term, Name | Number):
            plain[let.name] = term
        else:
            lets.append(Let(let.name, term))
            run.ranges[let.name] = run.range(term)
    result = run.simplest(substitute(program.result, plain))
    kept = needed(lets, result)
    return Program(program.inputs, program.params, kept, result), tuple(run.rewrites)


class _Run:
    """The ranges of the names so far, and the rewrites done."""

    def __init__(self, ranges: dict[str, Interval]) -> None:
        self.ranges = ranges
        self.rewrites: list[Rewrite] = []

    def range(self, term: Term) -> Interval:
        """An interval that holds every value of a term."""
        match term:
            case Number(value):
                return point(value)
            case Name(name):
                return self.ranges[name]
            case _:
                return OPS[_op(term)].range(*(self.range(part) for part in children(term)))

    def simplest(self, term: Term) -> Term:
        """The term after all rules, innermost parts first."""
        term = folded(rebuild(term, self.simplest))
        for rule in RULES:
            if len(self.rewrites) >= MAX_STEPS:
                break
            found = matched(rule.left, term, {})
            if found is None or not self.granted(rule, found) or not proved(rule):
                continue
            after = substitute(rule.right, found)
            self.rewrites.append(Rewrite(rule.name, term, after, *self.reason(rule, found)))
            return self.simplest(after)
        return term

    def granted(self, rule: Rule, found: dict[str, Term]) -> bool:
        ranges = {k: self.range(v) for k, v in (_FIXED | found).items()} if rule.facts else {}
        return all(fact.holds(ranges) for fact in rule.facts)

    def reason(self, rule: Rule, found: dict[str, Term]) -> tuple[()] | tuple[Term, Interval]:
        if rule.fact is None:
            return ()
        subject = (_FIXED | found)[rule.fact.left]
        return subject, self.range(subject)


def folded(term: Term) -> Term:
    """A term without names as one number; any other term as it is.

    Raises:
        Undefined: it has no real value, or divides by zero.
        NumberOutOfRange: its value does not fit in float64.
    """
    if not isinstance(term, Apply):
        return term
    values = [arg.value for arg in term.args if isinstance(arg, Number)]
    if term.op == "div" and term.args[1] == Number(Fraction(0)):
        raise Undefined(term.span, what="a division by zero", remedy="change the divisor")
    if len(values) < len(term.args) or OPS[term.op].boolean:
        return term
    if term.op in ARITHMETIC:
        return Number(_fitting(ARITHMETIC[term.op](*values), term.span), term.span)
    shown = f"{term.op}({', '.join(_shown(value) for value in values)})"
    return Number(_evaluated(term, values, shown), term.span)


def _evaluated(term: Apply, values: list[Fraction], shown: str) -> Fraction:
    """The value of a function at numbers, to 60 digits."""
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
    """The value, unless float64 would hold an infinity or a zero in its place."""
    size = abs(value)
    if size >= 2**1024 - 2**970 or 0 < size <= Fraction(1, 2**1075):
        sign = "-" if value < 0 else ""
        power = len(str(size.numerator)) - len(str(size.denominator))
        raise NumberOutOfRange(span, what=shown or f"a value of about {sign}10^{power}")
    return value


def _shown(value: Fraction) -> str:
    return f"{float(value):g}"


def matched(pattern: Term, term: Term, found: dict[str, Term]) -> dict[str, Term] | None:
    """What the pattern's variables stand for in a term, or nothing where it does not match."""
    match pattern:
        case Name(name):
            if name.endswith("_") and not isinstance(term, Number):
                return None
            return {**found, name: term} if found.get(name, term) == term else None
        case Apply(op, args):
            if not isinstance(term, Apply) or term.op != op:
                return None
            for part, value in zip(args, term.args, strict=True):
                deeper = matched(part, value, found)
                if deeper is None:
                    return None
                found = deeper
            return found
        case _:
            return found if pattern == term else None


@cache
def proved(rule: Rule) -> bool:
    """Whether sympy finds both sides equal over the reals, wherever the rule's facts hold."""
    variables = dict.fromkeys((*names(rule.left), *names(rule.right)))
    symbols: dict[str, Any] = {name: sympy.Symbol(name, real=True) for name in variables}
    symbols |= {name: sympy.Rational(n.value.numerator) for name, n in _FIXED.items()}
    for fact in rule.facts:
        symbols = fact.granted(symbols)
    left, right = (_distributed(to_sympy(side, symbols)) for side in (rule.left, rule.right))
    return bool(left == right or sympy.simplify(left - right) == 0)


def _distributed(expression: Any) -> Any:
    """The expression with min(max(p, q), r) written as max(min(p, r), min(q, r))."""

    def spread(*args: Any) -> Any:
        chosen = next((arg for arg in args if isinstance(arg, sympy.Max)), None)
        if chosen is None:
            return sympy.Min(*args)
        others = [arg for arg in args if arg is not chosen]
        return sympy.Max(*(sympy.Min(part, *others) for part in chosen.args))

    return expression.replace(sympy.Min, spread)


def to_sympy(term: Term, symbols: dict[str, Any]) -> Any:
    """The sympy expression of a term, for algebra on a copy; nothing of it reaches a kernel."""
    match term:
        case Number(value):
            return sympy.Rational(value.numerator, value.denominator)
        case Name(name):
            return symbols[name]
        case _:
            return OPS[_op(term)].real(*(to_sympy(part, symbols) for part in children(term)))


def _op(term: Term) -> str:
    assert isinstance(term, Apply), "compose has replaced every call of a spec"
    return term.op
