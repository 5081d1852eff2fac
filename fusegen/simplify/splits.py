"""Stable forms that are functions of a term, since no pattern expresses them; one row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fusegen.simplify.choices import (
    choices_by_one_condition,
    difference_of_relus,
    sign_in_front,
    slope_of_times_relu6,
)
from fusegen.simplify.logarithms import (
    log_cosh_in_parts,
    log_of_expm1,
    log_of_quotient,
    log_of_sum,
)
from fusegen.simplify.quotients import quotient_by_growth, quotient_of_sums, tanh_of_softplus
from fusegen.simplify.roots import far_root, root_less_argument, slope_of_root
from fusegen.term import Term


@dataclass(frozen=True, slots=True)
class Split:
    """A form as a function.

    Attributes:
        name: what `explain` calls it.
        apply: from a term to its form, or None where it has none.
        always: whether it is never worse than the term.
    """

    name: str
    apply: Callable[[Term], Term | None]
    always: bool


SPLITS = (
    Split("sign in front", sign_in_front, always=True),
    Split("tanh of softplus by exponentials", tanh_of_softplus, always=True),
    Split("log of a sum of exponentials", log_of_sum, always=True),
    Split("log of a quotient of one plus exp", log_of_quotient, always=True),
    Split("quotient by a sum of exponentials", quotient_of_sums, always=True),
    Split("slope of a root", slope_of_root, always=True),
    Split("difference of relus", difference_of_relus, always=True),
    Split("root plus its argument", root_less_argument, always=True),
    Split("root of a large square", far_root, always=False),
    Split("log of cosh", log_cosh_in_parts, always=False),
    Split("log of exp minus one", log_of_expm1, always=False),
    Split("quotient by a growing exponential", quotient_by_growth, always=False),
    Split("choices by one condition", choices_by_one_condition, always=False),
    Split("slope of a product with relu6", slope_of_times_relu6, always=False),
)
