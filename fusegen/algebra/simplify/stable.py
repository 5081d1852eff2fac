"""Stable forms of formulas as authors write them: rows of equal functions that keep more digits.

``1 + erf(u)`` is 0 in float long before erfc(-u) is; ``log(1 + exp(u))`` overflows where softplus(u) does
not. A row of `ALWAYS` is never less accurate than what it replaces, and is taken wherever it matches. A row
of `OPTIONAL` costs something or helps in one range only; `search` takes it where the error estimate asks
for it. sympy proves every row over the reals (`proved`); gradients are derived from the forms.

Source: Higham 2002, Accuracy and Stability of Numerical Algorithms, chapters 1 and 2; Beebe 2017, The
Mathematical-Function Computation Handbook, chapters 10 and 19.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from fusegen.algebra.nan_propagation import keeps_nan
from fusegen.algebra.simplify.choices import in_branches
from fusegen.algebra.simplify.monomials import HALF, POWERS, product_of, sum_of, term_of
from fusegen.algebra.simplify.patterns import rewritten
from fusegen.algebra.simplify.rules import Rule, proved
from fusegen.algebra.simplify.splits import SPLITS, Split
from fusegen.core.term import (
    KEPT,
    Apply,
    Let,
    Name,
    Program,
    Rewrite,
    Term,
    applied,
    call,
    infinite,
    rebuild,
    walk,
)

_A, _B, _C = (Name(name) for name in "abc")
_K = Name("k_")  # a number


def _of(op: str) -> Callable[..., Apply]:
    return lambda *args: call(op, *args)


_EXP, _EXPM1, _LOG, _LOG1P = _of("exp"), _of("expm1"), _of("log"), _of("log1p")
_SIGMOID, _SOFTPLUS, _TANH, _NDTR = _of("sigmoid"), _of("softplus"), _of("tanh"), _of("ndtr")
_SQUARE = _of("square")
_ROOT_TWO = call("sqrt", 2)

ALWAYS = (
    # one minus or plus what tends to one
    Rule("one plus erf", 1 + call("erf", _A), 2 * _NDTR(_ROOT_TWO * _A)),
    Rule("one minus erf", 1 - call("erf", _A), 2 * _NDTR(-_ROOT_TWO * _A)),
    Rule("two minus erfc", 2 - call("erfc", _A), 2 * _NDTR(_ROOT_TWO * _A)),
    Rule("one minus erfc", 1 - call("erfc", _A), call("erf", _A)),
    Rule("one minus Phi", 1 - _NDTR(_A), _NDTR(-_A)),
    Rule("one plus tanh", 1 + _TANH(_A), 2 * _SIGMOID(2 * _A)),
    Rule("one minus tanh", 1 - _TANH(_A), 2 * _SIGMOID(-2 * _A)),
    Rule("one minus tanh squared", 1 - _SQUARE(_TANH(_A)), call("tanh_slope", _A)),
    Rule("one minus sigmoid", 1 - _SIGMOID(_A), _SIGMOID(-_A)),
    Rule("sigmoid minus its square", _SIGMOID(_A) - _SQUARE(_SIGMOID(_A)), call("sigmoid_slope", _A)),
    Rule("twice sigmoid minus one", 2 * _SIGMOID(_A) - 1, _TANH(HALF * _A)),
    # exponentials and logarithms next to 1
    Rule("exp minus one", _EXP(_A) - 1, _EXPM1(_A)),
    Rule("exp2 minus one", call("exp2", _A) - 1, _EXPM1(_LOG(2) * _A)),
    Rule("exp of expm1", 1 + _EXPM1(_A), _EXP(_A)),
    Rule("log of exp", _LOG(_EXP(_A)), _A),
    Rule("log1p of expm1", _LOG1P(_EXPM1(_A)), _A),
    Rule("log of sigmoid", _LOG(_SIGMOID(_A)), -_SOFTPLUS(-_A)),
    Rule("log of a power of one plus exp", _LOG(call("pow", 1 + _EXP(_A), _B)), _B * _SOFTPLUS(_A)),
    Rule("difference of softplus", _SOFTPLUS(_A) - _SOFTPLUS(-_A), _A),
    Rule("softplus minus its argument", _SOFTPLUS(_A) - _A, _SOFTPLUS(-_A)),
    # quotients of exponentials
    Rule("logistic quotient", 1 / (1 + _EXP(_A)), _SIGMOID(-_A)),
    Rule("exp over one plus exp", _EXP(_A) * _SIGMOID(-_A), _SIGMOID(_A)),
    Rule("expm1 over one plus exp", _EXPM1(_A) * _SIGMOID(-_A), _TANH(HALF * _A)),
    Rule("exp over expm1", _EXP(_A) / _EXPM1(_A), -1 / _EXPM1(-_A)),
    Rule("sigmoid times its complement", _SIGMOID(_A) * _SIGMOID(-_A), call("sigmoid_slope", _A)),
    Rule("product of exponentials", _EXP(_A) * _EXP(_B), _EXP(_A + _B)),
    Rule("exp times Gaussian", _EXP(_A) * call("gauss", _B), _EXP(_A - _SQUARE(_B))),
    # products that keep a tail's digits
    Rule("x times Phi of a multiple", _A * _NDTR(_K * _A), call("times_ndtr", _K * _A) / _K),
)  # fmt: skip
# A sum in a logarithm is first rewritten itself: log(1 - sigmoid(a)) is a softplus, no log1p.
AFTER_PARTS = (
    Rule("log of one plus", _LOG(1 + _A), _LOG1P(_A)),
    Rule("log1p of exp", _LOG1P(_EXP(_A)), _SOFTPLUS(_A)),
)

OPTIONAL = (
    Rule("difference of exponentials", _EXP(_A) - _EXP(-_A), _EXPM1(_A) - _EXPM1(-_A)),
    Rule("difference of exponentials", _EXP(_A) - _EXP(_B), _EXP(_B) * _EXPM1(_A - _B)),
    Rule("difference of squares", _SQUARE(_A) - _SQUARE(_B), (_A - _B) * (_A + _B)),
    Rule("power of one plus exp", call("pow", 1 + _EXP(_A), _B), _EXP(_B * _SOFTPLUS(_A))),
    Rule("power of sigmoid", call("pow", _SIGMOID(_A), _B), _EXP(-_B * _SOFTPLUS(-_A))),
    Rule("one minus cosine", 1 - call("cos", _A), 2 * _SQUARE(call("sin", HALF * _A))),
    Rule("one plus cosine", 1 + call("cos", _A), 2 * _SQUARE(call("cos", HALF * _A))),
    Rule("one minus cosine", 1 - call("cospi", _A), 2 * _SQUARE(call("sinpi", HALF * _A))),
    Rule("one plus cosine", 1 + call("cospi", _A), 2 * _SQUARE(call("cospi", HALF * _A))),
    Rule("log of one minus exp", _LOG(-_EXPM1(_A)),
         call("where", _A < -1, _LOG1P(-_EXP(_A)), _LOG(-_EXPM1(_A)))),
)  # fmt: skip


ALWAYS_SPLIT = tuple(split for split in SPLITS if split.always)
SOMETIMES_SPLIT = tuple(split for split in SPLITS if not split.always)
MAX_STEPS = 200
# a pattern's products, powers and roots match terms that are written otherwise
SEEN_THROUGH = frozenset(("add", "sub", "mul", "div", "neg", "sqrt", *POWERS))


@dataclass(frozen=True, slots=True)
class Place:
    """One use of a row: its name, the term before and the term after."""

    name: str
    before: Term
    after: Term


def stable(program: Program) -> tuple[Program, tuple[Rewrite, ...]]:
    """Return the program with all rows of `ALWAYS` and `ALWAYS_SPLIT` applied, and the rewrites."""
    if any(map(infinite, (part for term in program.terms for part in walk(term)))):
        return program, ()  # which no sum of products is
    run = _Run()
    lets = tuple(Let(let.name, run.rewritten(let.term)) for let in program.lets)
    results = tuple(map(run.rewritten, program.results))
    return replace(program, lets=lets, results=results), tuple(run.taken)


# What terms became, and the rewrites: the programs of a search share most of their terms.
_KNOWN: dict[Term, tuple[Term, tuple[Rewrite, ...]]] = {}


class _Run:
    """The rewrites so far."""

    def __init__(self) -> None:
        self.taken: list[Rewrite] = []

    def rewritten(self, term: Term) -> Term:
        """A term after all rows: applied to it, then to its parts, then to the term that they leave."""
        if len(self.taken) >= MAX_STEPS or not isinstance(term, Apply):
            return term
        if term in _KNOWN and len(self.taken) + len(_KNOWN[term][1]) < MAX_STEPS:
            known, way = _KNOWN[term]
            self.taken += way
            return known
        before = len(self.taken)
        result = self.found(term)
        if len(self.taken) < MAX_STEPS:
            if len(_KNOWN) >= KEPT:
                _KNOWN.clear()
            _KNOWN[term] = result, tuple(self.taken[before:])
        return result

    def found(self, term: Apply) -> Term:
        """Return a term in its first form that applies, and so on; the caller keeps it."""
        found = next(uses(term, ALWAYS, ALWAYS_SPLIT), None)
        if found is not None:
            self.taken.append(Rewrite(found.name, found.before, found.after))
            return self.rewritten(found.after)
        inner = rebuild(term, self.rewritten)
        if inner != term:
            return self.rewritten(_merged(inner))
        found = next(uses(term, AFTER_PARTS, ()), None) or _distributed(term)
        if found is None:
            return term
        self.taken.append(Rewrite(found.name, found.before, found.after))
        return self.rewritten(found.after)


def _distributed(term: Term) -> Place | None:
    """Move a sum or function into the branches of a selection, where that removes a cancellation."""
    found = in_branches(term)
    if found is None:
        return None
    common, condition, *branches = found
    if not any(_gains(branch, term) for branch in branches):
        return None
    chosen = product_of(call("where", condition, *branches))
    return Place("into the branches", term, term_of(common.times(chosen)))


def _gains(branch: Term, whole: Term) -> bool:
    """Tell whether a row rewrites the sum or function of a branch, or terms of the sum cancel."""
    if next(uses(branch, (*ALWAYS, *AFTER_PARTS), ()), None) is not None:
        return True
    shorter = len(sum_of(branch)) < len(sum_of(whole))
    return shorter and isinstance(whole, Apply) and whole.op in ("add", "sub")


def _merged(term: Term) -> Term:
    """A product with its numbers as one, and equal factors as powers, after a part of it has changed."""
    match term:
        case Apply("mul" | "div"):
            merged = term_of(product_of(term))
            return merged if keeps_nan(term, merged) else term
    return term


def uses(term: Term, rows: tuple[Rule, ...], splits: tuple[Split, ...]) -> Iterator[Place]:
    """Yield every use of a row on a term as a whole, not on its parts, that loses no input."""
    operations = applied((term,))
    for row in rows:
        if functions(row.left) <= operations:
            after = rewritten(row, term)
            if after is not None and after != term and proved(row) and keeps_nan(term, after):
                yield Place(row.name, term, after)
    for split in splits:
        after = None if split.ops.isdisjoint(operations) else split.apply(term)
        if after is not None and keeps_nan(term, after):
            yield Place(split.name, term, after)


@cache
def functions(pattern: Term) -> frozenset[str]:
    """Return the operations that every term has that a pattern matches."""
    return applied((pattern,)) - SEEN_THROUGH
