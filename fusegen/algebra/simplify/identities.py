"""The forms that the search tries where digits are lost: each helps in one range, or costs something.

A row gives the same function in other forms. Those of `SERIES` differ from it by less than an ulp of
double, so that no proof may take one as the formula.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fusegen.algebra.simplify.branches import by_sign
from fusegen.algebra.simplify.differences import conjugate, over_common_factor
from fusegen.algebra.simplify.expansions import near_0, scaled_erfc
from fusegen.algebra.simplify.logs import acosh, log_of_large_square
from fusegen.algebra.simplify.patterns import rewritten
from fusegen.algebra.simplify.rules import Rule, proved
from fusegen.algebra.simplify.scaling import (
    POWERS,
    gate_far_out,
    powers_of_squares,
    quotient_by_square,
    reordered,
    root_of_squares,
)
from fusegen.core.term import Term

Forms = Callable[[Term], Iterable[Term]]


@dataclass(frozen=True, slots=True)
class Row:
    """Forms of a term that are tried."""

    name: str  # what `explain` calls them
    forms: Forms  # from a term to the same function in other forms


def _one(form: Callable[[Term], Term | None]) -> Forms:
    """Return the forms of a function that gives one or none."""
    return lambda term: (found for found in (form(term),) if found is not None)


def _of_rule(rule: Rule) -> Row:
    return Row(rule.name, _one(lambda term: rewritten(rule, term) if proved(rule) else None))


IDENTITIES = (
    Row("inverse hyperbolic cosine by log1p", _one(acosh)),
    Row("conjugate", _one(conjugate)),
    Row("common factor", _one(over_common_factor)),
    Row("apart by sign", by_sign),
)
SERIES = (Row("power series next to 0", near_0), Row("scaled erfc as a polynomial", scaled_erfc))
IN_RANGE = (
    Row("root of squares", root_of_squares),
    Row("powers of squares", powers_of_squares),
    Row("quotient by a square", quotient_by_square),
    Row("log of a large square", _one(log_of_large_square)),
    Row("gate far out", gate_far_out),
    *map(_of_rule, POWERS),
    Row("factors in another order", reordered),
)
