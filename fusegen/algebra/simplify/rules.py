"""The rules of the simplifier, one row each, and their proofs over the real numbers.

A row says what is matched, what it becomes, and the facts that have to hold. sympy proves that both sides
are one function wherever they do. Every rule is exact in floating point as well: both sides give the same
bits, NaN and signed zero included, because a fact bounds the rounded values too (see `interval`).
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import product
from types import MappingProxyType
from typing import Any

import sympy

from fusegen.core.interval import Interval
from fusegen.core.ops import OPS
from fusegen.core.term import Apply, Name, Number, Term, names

ORDERS: dict[str, Callable[..., bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fact:
    """An order between two pattern variables: ``left >= right``, and likewise ``>``, ``<=`` and ``<``."""

    left: str
    relation: str
    right: str

    def holds(self, ranges: dict[str, Interval]) -> bool:
        """Return True if the order follows from the intervals of the variables."""
        left, right = ranges[self.left], ranges[self.right]
        if self.relation in (">", ">="):
            return ORDERS[self.relation](left.low, right.high)
        return ORDERS[self.relation](left.high, right.low)

    def granted(self, symbols: dict[str, Any]) -> dict[str, Any]:
        """Return the symbols, with the left one written so that the order always holds."""
        if self.relation == "=":
            return {**symbols, self.left: symbols[self.right]}
        sign = 1 if self.relation in (">", ">=") else -1
        if self.relation in (">", "<"):
            distance = sympy.Symbol(f"from_{self.left}", positive=True)
        else:
            distance = sympy.Symbol(f"from_{self.left}", nonnegative=True)
        return {**symbols, self.left: symbols[self.right] + sign * distance}


@dataclass(frozen=True, slots=True)
class Rule:
    """``left`` may become ``right`` where the facts hold; names are variables, `_` marks constants."""

    name: str  # as a derivation prints it
    # left, right: equal terms
    left: Term
    right: Term
    facts: tuple[Fact, ...] = ()  # its preconditions
    looks_through: bool = False  # whether `left` may match steps that are used once


def _of(op: str, *args: Term | int | Fraction) -> Apply:
    terms = (Number(Fraction(arg)) if isinstance(arg, int | Fraction) else arg for arg in args)
    return Apply(op, tuple(terms))


def _where(*orders: str) -> tuple[Fact, ...]:
    return tuple(Fact(*order.split()) for order in orders)


_A, _B, _LOW, _HIGH, _P, _Q = (Name(name) for name in ("a", "b", "low", "high", "p", "q"))
_C = Name("c_")  # matches a number only: a dropped operand must not be NaN
_D = Name("d_")
_HALF = Fraction(1, 2)

RULES = (
    # a bound that is never reached
    Rule("dead lower bound", _of("clamp", _A, _LOW, _HIGH), _of("clamp_max", _A, _HIGH),
         _where("a >= low")),
    Rule("dead upper bound", _of("clamp", _A, _LOW, _HIGH), _of("clamp_min", _A, _LOW),
         _where("a <= high", "low <= high")),
    Rule("dead lower bound", _of("saturate", _A, _LOW, _HIGH), _of("clamp_max", _A, _HIGH),
         _where("a >= low")),
    Rule("dead upper bound", _of("saturate", _A, _LOW, _HIGH), _of("clamp_min", _A, _LOW),
         _where("a <= high", "low <= high")),
    Rule("dead lower bound", _of("clamp_min", _A, _LOW), _A, _where("a >= low")),
    Rule("dead upper bound", _of("clamp_max", _A, _HIGH), _A, _where("a <= high")),
    # at a tie these two give c, whose zero has another sign than a's may have
    Rule("dead lower bound", _of("maximum", _A, _C), _A, _where("a > c_")),
    Rule("dead upper bound", _of("minimum", _A, _C), _A, _where("a < c_")),
    Rule("dead lower bound", _of("maximum", _C, _A), _A, _where("a >= c_")),
    Rule("dead upper bound", _of("minimum", _C, _A), _A, _where("a <= c_")),
    Rule("dead lower bound", _of("relu6", _A), _of("clamp_max", _A, 6), _where("a >= zero_")),
    Rule("dead upper bound", _of("relu6", _A), _of("relu", _A), _where("a <= six_")),
    Rule("dead relu", _of("relu", _A), _A, _where("a >= zero_")),
    Rule("dead abs", _of("abs", _A), _A, _where("a > zero_")),  # |-0.0| is +0.0
    Rule("dead abs", _of("abs", _A), _of("neg", _A), _where("a < zero_")),
    # of two bounds the tighter one, and a bound before a scale that rounds nothing
    Rule("two upper bounds", _of("clamp_max", _of("clamp_max", _A, _C), _D), _of("clamp_max", _A, _D),
         _where("d_ <= c_"), looks_through=True),
    Rule("two upper bounds", _of("clamp_max", _of("clamp", _A, _LOW, _C), _D), _of("clamp", _A, _LOW, _D),
         _where("d_ <= c_"), looks_through=True),
    Rule("two lower bounds", _of("clamp_min", _of("clamp_min", _A, _C), _D), _of("clamp_min", _A, _D),
         _where("d_ >= c_"), looks_through=True),
    Rule("bound before the scale", _of("div", _of("clamp_max", _of("mul", _A, 2), _C), 2),
         _of("clamp_max", _A, _of("div", _C, 2)), _where("a >= zero_", "c_ >= tiny_"), looks_through=True),
    # a slope of what is never below 0, which keeps the sign of a zero
    Rule("dead slope", _of("where", _of("gt", _A, 0), _A, _of("mul", _A, _C)), _A,
         _where("a >= zero_", "c_ >= zero_")),
    Rule("dead slope", _of("where", _of("gt", _A, 0), _A, _of("mul", _C, _A)), _A,
         _where("a >= zero_", "c_ >= zero_")),
    Rule("dead slope", _of("where", _of("ge", _A, 0), _A, _of("mul", _A, _C)), _A, _where("a >= zero_")),
    Rule("dead slope", _of("where", _of("ge", _A, 0), _A, _of("mul", _C, _A)), _A, _where("a >= zero_")),
    # a condition that never holds; NaN makes it fail too
    Rule("condition never holds", _of("where", _of("lt", _A, _B), _P, _Q), _Q, _where("a >= b")),
    Rule("condition never holds", _of("where", _of("le", _A, _B), _P, _Q), _Q, _where("a > b")),
    Rule("condition never holds", _of("where", _of("gt", _A, _B), _P, _Q), _Q, _where("a <= b")),
    Rule("condition never holds", _of("where", _of("ge", _A, _B), _P, _Q), _Q, _where("a < b")),
    # neutral elements; a + 0 is not one of them, since -0.0 + 0 is +0.0
    Rule("times one", _of("mul", _A, 1), _A),
    Rule("times one", _of("mul", 1, _A), _A),
    Rule("over one", _of("div", _A, 1), _A),
    Rule("minus zero", _of("sub", _A, 0), _A),
    Rule("double negation", _of("neg", _of("neg", _A)), _A),
    Rule("sign in front", _of("mul", _of("neg", _A), _B), _of("neg", _of("mul", _A, _B))),
    Rule("sign in front", _of("mul", _A, _of("neg", _B)), _of("neg", _of("mul", _A, _B))),
    Rule("sign in front", _of("div", _of("neg", _A), _B), _of("neg", _of("div", _A, _B))),
    Rule("minus a negation", _of("sub", _A, _of("neg", _B)), _of("add", _A, _B)),
    Rule("plus a negation", _of("add", _A, _of("neg", _B)), _of("sub", _A, _B)),
    # powers that have a cheaper form, as PyTorch takes them
    Rule("power 1", _of("pow", _A, 1), _A),
    Rule("power 2", _of("pow", _A, 2), _of("square", _A)),
    Rule("power 3", _of("pow", _A, 3), _of("cube", _A)),
    Rule("power 1/2", _of("pow", _A, _HALF), _of("sqrt", _A)),
    Rule("power -1/2", _of("pow", _A, -_HALF), _of("rsqrt", _A)),
    Rule("power -1", _of("pow", _A, -1), _of("reciprocal", _A)),
    Rule("power -2", _of("pow", _A, -2), _of("reciprocal", _of("square", _A))),
)  # fmt: skip

EMPTY: Mapping[str, Term] = MappingProxyType({})
FIXED = {
    "zero_": Number(Fraction(0)),
    "six_": Number(Fraction(6)),
    "minus_three_": Number(Fraction(-3)),
    "tiny_": Number(Fraction(1, 2**100)),
}


def matched(
    pattern: Term,  # whose names are variables
    term: Term,  # which may match
    found: dict[str, Term],  # the variables known so far
    steps: Mapping[str, Term] = EMPTY,  # the names in the term that stand for what a pattern may look into
) -> dict[str, Term] | None:
    """Return the terms that the pattern's variables stand for, or nothing where it does not match."""
    match pattern:
        case Name(name):
            if name.endswith("_") and not isinstance(term, Number):
                return None
            return {**found, name: term} if found.get(name, term) == term else None
        case Apply(op, args):
            term = steps.get(term.name, term) if isinstance(term, Name) else term
            if not isinstance(term, Apply) or term.op != op:
                return None
            for part, value in zip(args, term.args, strict=True):
                deeper = matched(part, value, found, steps)
                if deeper is None:
                    return None
                found = deeper
            return found
        case _:
            return found if pattern == term else None


PROOFS: tuple[Callable[[Any], Any], ...] = (  # what may show that a difference is 0
    sympy.expand,  # takes no time, and simplify's first call a second
    sympy.simplify,
    lambda difference: sympy.simplify(difference.rewrite(sympy.exp)),
    lambda difference: sympy.simplify(difference.rewrite(sympy.erf)),
    lambda difference: sympy.simplify(difference.rewrite(sympy.Abs)),
)


@cache
def proved(rule: Rule) -> bool:
    """Return True if sympy finds both sides equal over the reals, wherever the rule's facts hold."""
    return _equal(rule, rule.facts) or all(_equal(rule, facts) for facts in _cases(rule.facts))


def _cases(facts: tuple[Fact, ...]) -> Iterator[tuple[Fact, ...]]:
    """Return facts in which >= is > or =, and <= is < or =."""
    return product(*([replace(f, relation=r) for r in (f.relation[0], "=")] for f in facts))


def _equal(rule: Rule, facts: tuple[Fact, ...]) -> bool:
    variables = dict.fromkeys((*names(rule.left), *names(rule.right)))
    symbols: dict[str, Any] = {name: sympy.Symbol(name, real=True) for name in variables}
    symbols |= {name: to_sympy(number, {}) for name, number in FIXED.items()}
    for fact in facts:
        symbols = fact.granted(symbols)
    left, right = (_distributed(to_sympy(side, symbols)) for side in (rule.left, rule.right))
    return left == right or any(step(left - right) == 0 for step in PROOFS)


def _distributed(expression: Any) -> Any:
    """Return the expression with min(max(p, q), r) written as max(min(p, r), min(q, r))."""

    def spread(*args: Any) -> Any:
        chosen = next((arg for arg in args if isinstance(arg, sympy.Max)), None)
        if chosen is None:
            return sympy.Min(*args)
        others = [arg for arg in args if arg is not chosen]
        return sympy.Max(*(sympy.Min(part, *others) for part in chosen.args))

    return expression.replace(sympy.Min, spread)


def to_sympy(term: Term, symbols: dict[str, Any]) -> Any:
    """Return the sympy expression of a term, for algebra on a copy; nothing of it reaches a kernel."""
    match term:
        case Number(value):
            return sympy.Rational(value.numerator, value.denominator)
        case Name(name):
            return symbols[name]
        case Apply(op, args):
            return OPS[op].real(*(to_sympy(part, symbols) for part in args))
        case _:
            raise AssertionError("compose has replaced every call of a spec")
