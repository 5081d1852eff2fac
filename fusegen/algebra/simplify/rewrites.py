"""Forms: other ways to compute the same real function, more accurately and with fewer special functions.

Unlike the rules of `rules.RULES` a form changes bits, so only an accurate spec takes it. It comes before
the gradient is derived, whose own forms follow from it.
"""

from fractions import Fraction
from functools import lru_cache

from fusegen.algebra.nan_propagation import keeps_nan
from fusegen.algebra.simplify.choices import factor_of_choices
from fusegen.algebra.simplify.kinks import at_the_kink
from fusegen.algebra.simplify.rules import FIXED, Fact, Rule, matched, proved
from fusegen.algebra.simplify.squares import with_double_zero
from fusegen.algebra.simplify.term_ranges import Ranges
from fusegen.core.interval import REALS
from fusegen.core.ops import TRANSCENDENTAL
from fusegen.core.term import (
    KEPT,
    Let,
    Name,
    Program,
    Rewrite,
    Term,
    applied,
    call,
    infinite,
    needed,
    rebuild,
    substitute,
    walk,
)

_A, _B, _C, _D, _G = (Name(name) for name in "abcdg")
_K = Name("k_")  # a number

FORMS = (
    # one exponential instead of three functions; nothing cancels where tanh is near 1
    Rule("tanh of softplus", call("tanh", call("softplus", _A)), call("tanh_softplus", _A)),
    # one whole, whose slope is no difference, and never 0 times infinity
    Rule("tanh of exp", call("tanh", call("exp", _A)), call("tanh_of_exp", _A)),
    Rule("softsign", _A / (call("abs", _A) + 1), call("soft_sign", _A)),
    Rule("softsign", _A / (1 + call("abs", _A)), call("soft_sign", _A)),
    Rule("tanhshrink", _A - call("tanh", _A), call("tanh_shrink", _A)),
    Rule("one minus tanh's slope", _G - _G * call("tanh_slope", _A), _G * call("square", call("tanh", _A))),
    # products that keep a tail's digits, and their slope
    Rule("x times tanh of softplus", _A * call("tanh_softplus", _A), call("times_tanh_softplus", _A)),
    Rule("x times Phi", _A * call("ndtr", _A), call("times_ndtr", _A)),
    # a small factor first, so that the product does not overflow before it
    Rule("bell before the product", _A * (_K * call("gauss", _B)) * _C, _A * (_K * call("gauss", _B) * _C)),
    Rule("divided and multiplied", _G / _B * _A * _B, _G * _A),
)
# Fewer products, in what approximates: arithmetic rounds as PyTorch's does.
FEWER = (
    Rule("common factor", _G * _A + _G * _B * _C, _G * (_A + _B * _C)),
    Rule("common factor", _G * _A + _G * _B * _C * _D, _G * (_A + _B * _C * _D)),
    Rule("common factor", _G + _G * _B * _C, _G * (1 + _B * _C)),
    Rule("common factor", _A + _G + _G * _B * _C, _A + _G * (1 + _B * _C)),
    Rule("number into the sum", _A * _K * (1 + _B), _A * (_K + _K * _B)),
    # saturate, whose slope is 0 at its bounds as relu6's is; at -3 the sum rounds to what is no 0
    Rule(
        "sixth into the sum",
        _A * call("relu6", _B + 3) / 6,
        _A * call("saturate", _B * Fraction(1, 6) + Fraction(1, 2), 0, 1),
        (Fact("b", ">", "minus_three_"),),
    ),
)


EVERY = (*FORMS, *FEWER)


@lru_cache(maxsize=KEPT)
def _matching(term: Term, count: int) -> tuple[tuple[Rule, dict[str, Term], Term], ...]:
    """Return those of the first forms that a term as a whole has, with the parts that they match."""
    found = [(form, matched(form.left, term, {})) for form in EVERY[:count]]
    each = [(form, parts, substitute(form.right, parts)) for form, parts in found if parts is not None]
    return tuple(row for row in each if row[2] != term and proved(row[0]))


def formed(program: Program) -> tuple[Program, tuple[Rewrite, ...]]:
    """The program with every form taken that matches, every kink found at the input; and what was done."""
    if any(map(infinite, (part for term in program.terms for part in walk(term)))):
        return program, ()  # which no sum of products is
    taken: list[Rewrite] = []
    forms = len(FORMS if applied(program.terms).isdisjoint(TRANSCENDENTAL) else EVERY)
    declared = {let.name: let.term for let in program.lets}

    def in_form(term: Term) -> Term:
        term = rebuild(term, in_form)
        for form, parts, after in _matching(term, forms):
            if _granted(form, parts, program) and keeps_nan(term, after, declared):
                taken.append(Rewrite(form.name, term, after))
                return after
        square = with_double_zero(term, declared)
        if square is not None and keeps_nan(term, square, declared):
            taken.append(Rewrite("square of a difference", term, square))
            return square
        common = factor_of_choices(term) if forms > len(FORMS) else None
        if common is not None and keeps_nan(term, common, declared):
            taken.append(Rewrite("common factor", term, common))
            return common
        return term

    lets = tuple(Let(let.name, in_form(let.term)) for let in program.lets)
    steps = {let.name: let.term for let in lets}

    def at_kinks(term: Term) -> Term:
        before = rebuild(term, at_kinks)
        found = at_the_kink(before, steps)
        if found != before:
            taken.append(Rewrite("kink at the input", before, found))
        return found

    results = tuple(at_kinks(in_form(result)) for result in program.results)
    lets = tuple(Let(let.name, at_kinks(let.term)) for let in lets)
    return Program(program.inputs, program.params, needed(lets, results), results), tuple(taken)


def _granted(form: Rule, parts: dict[str, Term], program: Program) -> bool:
    """Return True if the facts of a form hold, whatever the inputs are."""
    if not form.facts:
        return True
    ranges = Ranges(dict.fromkeys((*program.inputs, *program.params), REALS))
    for let in program.lets:
        ranges.name(let.name, let.term)
    found = {name: ranges.range(part) for name, part in (FIXED | parts).items()}
    return all(fact.holds(found) for fact in form.facts)
