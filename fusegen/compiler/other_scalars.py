"""Sums that cancel at other scalars than the defaults.

The estimate that a search minimises is one at the defaults. With scalars of the other sign what was added
is subtracted: the gradient of exp(-k x) / x is -(k + 1 / x) exp(-k x) / x, which has a zero for a k below 0
only. Over the common factor of its products a sum has fewer roundings there. As an exponential grows then
where it fell, it is taken as a square, so that it overflows only where the product does.
"""

from dataclasses import replace

from fusegen.algebra.nan_propagation import keeps_nan
from fusegen.algebra.simplify.differences import factored
from fusegen.algebra.simplify.monomials import Product, sum_term, term_of
from fusegen.algebra.simplify.search import SMALL, Found
from fusegen.compiler.estimates import Formula
from fusegen.core.term import Apply, Let, Name, Program, Rewrite, Term, call, needed, unused

RULE = "common factor"


def over_common_factors(
    formula: Formula,  # whose gradient it is, at the defaults of its scalars
    program: Program,  # the gradient
    incoming: str,  # the name of the incoming gradient
) -> Found:
    """Return a gradient whose results are over their common factors, and these rewrites, where better.

    With every scalar negated the largest estimated error has to halve; at the defaults nothing may be lost.
    """
    negated = replace(formula, params={name: -value for name, value in formula.params.items()})
    found, taken = _factored(program)
    if not taken or negated.params == formula.params:
        return program, ()
    before, after = (negated.score(each, incoming) for each in (program, found))
    usual, new = (formula.score(each, incoming) for each in (program, found))
    halves = before[2] > SMALL and after[2] <= before[2] / 2 and after[:2] <= before[:2]
    harmless = new[:2] <= usual[:2] and new[3] <= usual[3] and new[2] <= max(usual[2], SMALL)
    return (found, taken) if halves and harmless else (program, ())


def _factored(program: Program) -> Found:
    steps = {let.name: let.term for let in program.lets}
    halves: dict[Term, Let] = {}
    results = tuple(_over_common_factor(term, steps, halves) for term in program.results)
    changed = zip(program.results, results, strict=True)
    lets = needed((*program.lets, *halves.values()), results)
    return replace(program, lets=lets, results=results), tuple(
        Rewrite(RULE, a, b) for a, b in changed if a != b
    )


def _over_common_factor(term: Term, steps: dict[str, Term], halves: dict[Term, Let]) -> Term:
    """Return a sum over the common factor of its products; the term itself where it has none."""
    found = factored(term)
    if found is None or not found[0].factors:
        return term
    common, rest = found
    whole = term_of(common) * sum_term(rest)
    if not keeps_nan(term, whole):
        return term
    root: Term | None = None
    for factor in common.factors:
        match steps.get(factor.base.name) if isinstance(factor.base, Name) else factor.base:
            case Apply("exp", (x,)) if factor.power == 1 and root is None:
                name = unused("root", {*steps, *(let.name for let in halves.values())})
                root = Name(halves.setdefault(x, Let(name, call("exp", x / 2))).name)
                left = tuple(each for each in common.factors if each != factor)
                common = Product(common.coefficient, left)
    if root is None:
        return whole
    return term_of(common) * root * sum_term(rest) * root
