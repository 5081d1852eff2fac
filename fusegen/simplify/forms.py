"""Forms: other ways to compute the same real function, more accurately and with fewer special functions.

Unlike the rules of `rules.RULES` a form changes bits, so only an accurate spec takes it. It comes before
the gradient is derived, whose own forms follow from it.
"""

from __future__ import annotations

from fusegen.simplify.rules import Rule, matched, proved
from fusegen.term import Let, Name, Program, Term, call, rebuild, substitute

_A, _B, _C, _G = (Name(name) for name in "abcg")
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
    # fewer products
    Rule("common factor", _G * _A + _G * _B * _C, _G * (_A + _B * _C)),
    # a small factor first, so that the product does not overflow before it
    Rule("bell before the product", _A * (_K * call("gauss", _B)) * _C, _A * (_K * call("gauss", _B) * _C)),
    Rule("divided and multiplied", _G / _B * _A * _B, _G * _A),
)


def formed(program: Program) -> Program:
    """The program with every form taken that matches."""
    lets = tuple(Let(let.name, _formed(let.term)) for let in program.lets)
    return Program(program.inputs, program.params, lets, tuple(map(_formed, program.results)))


def _formed(term: Term) -> Term:
    term = rebuild(term, _formed)
    for form in FORMS:
        found = matched(form.left, term, {})
        if found is not None and proved(form):
            return substitute(form.right, found)
    return term
