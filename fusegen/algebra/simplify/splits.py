"""Stable forms that are functions of a term, since no pattern expresses them; one row each."""

from collections.abc import Callable
from dataclasses import dataclass

from fusegen.algebra.simplify.branches import within_choices
from fusegen.algebra.simplify.choices import (
    choices_by_one_condition,
    difference_of_relus,
    sign_in_front,
    slope_of_times_relu6,
)
from fusegen.algebra.simplify.exponentials import density
from fusegen.algebra.simplify.logarithms import (
    difference_of_logs,
    log_cosh_in_parts,
    log_of_expm1,
    log_of_quotient,
    log_of_quotient_next_to_1,
    log_of_root_plus_argument,
    log_of_sum,
)
from fusegen.algebra.simplify.powers import even_power_of_abs, power_less_one
from fusegen.algebra.simplify.quotients import quotient_by_growth, quotient_of_sums, tanh_of_softplus
from fusegen.algebra.simplify.roots import (
    difference_of_roots,
    far_root,
    root_less_argument,
    square_less_number,
)
from fusegen.algebra.simplify.sines_of_turns import of_turns
from fusegen.core.term import Term


@dataclass(frozen=True, slots=True)
class Split:
    """A form as a function."""

    name: str  # what `explain` calls it
    apply: Callable[[Term], Term | None]  # from a term to its form, or None where it has none
    always: bool  # whether it is never worse than the term
    ops: frozenset[str]  # operations, of which a term that it rewrites has one at least


def _split(name: str, apply: Callable[[Term], Term | None], *ops: str, always: bool) -> Split:
    return Split(name, apply, always, frozenset(ops))


SPLITS = (
    _split("sine of turns", of_turns, "sin", "cos", always=True),
    _split("sign in front", sign_in_front, "tanh", "erf", "sin", "sinpi", always=True),
    _split("tanh of softplus by exponentials", tanh_of_softplus, "exp", always=True),
    _split("log of a sum of exponentials", log_of_sum, "exp", always=True),
    _split("log of a quotient of one plus exp", log_of_quotient, "log", always=True),
    _split("log of a root plus its argument", log_of_root_plus_argument, "log", always=True),
    _split("density of the normal distribution", density, "exp", always=True),
    _split("quotient by a sum of exponentials", quotient_of_sums, "exp", always=True),
    _split("difference of relus", difference_of_relus, "relu", always=True),
    _split("even power of abs", even_power_of_abs, "abs", always=True),
    _split("root plus its argument", root_less_argument, "sqrt", always=True),
    _split("root of a large square", far_root, "sqrt", always=False),
    _split("difference of roots", difference_of_roots, "sqrt", "rsqrt", always=False),
    _split("square less a number", square_less_number, "square", "mul", "pow", always=False),
    _split("power minus one", power_less_one, "pow", always=False),
    _split("log of a quotient next to one", log_of_quotient_next_to_1, "log", always=False),
    _split("difference of logarithms", difference_of_logs, "log", "log1p", always=False),
    _split("log of cosh", log_cosh_in_parts, "softplus", always=False),
    _split("log of exp minus one", log_of_expm1, "log", always=False),
    _split("quotient by a growing exponential", quotient_by_growth, "exp", always=False),
    _split("choice within a choice", within_choices, "where", always=True),
    _split("choices by one condition", choices_by_one_condition, "where", always=False),
    _split("slope of a product with relu6", slope_of_times_relu6, "relu6", always=False),
)
