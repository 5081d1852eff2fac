"""The law that a rewrite keeps every input that decides whether its result is NaN.

`exp(x) * exp(-x)` is 1 over the real numbers, and NaN where x is NaN: the reals that prove a rule have no
NaN. A rewrite is refused where some name makes the term before it NaN, whatever the other names are, and
not the term after it. So each input that a formula reads arithmetically is read by its result, and by each
of its selections. What only a comparison reads, or a branch that is not selected, makes nothing NaN; a
gradient reads what its own terms read, as eager's does: that of x + y reads neither.
"""

from collections.abc import Mapping, Set
from functools import lru_cache
from types import MappingProxyType

from fusegen.core.term import KEPT, Apply, Name, Term, names

Steps = Mapping[str, Term]
NO_STEPS: Steps = MappingProxyType({})
FAIL = ("lt", "le", "gt", "ge", "eq")  # of NaN
HIDE = (*FAIL, "ne", "sign")  # give a number for NaN


def keeps_nan(before: Term, after: Term, steps: Steps = NO_STEPS) -> bool:
    """Return True if each name, and all names together, that make one term NaN make the other NaN."""
    return _keeps_nan(before, after) if not steps else _kept(before, after, steps)


@lru_cache(maxsize=KEPT)
def _keeps_nan(before: Term, after: Term) -> bool:
    return _kept(before, after, NO_STEPS)


def _kept(before: Term, after: Term, steps: Steps) -> bool:
    read = names(before)
    groups = [frozenset({name}) for name in read] + ([frozenset(read)] if len(read) > 1 else [])
    return all(becomes_nan(after, group, steps) for group in groups if becomes_nan(before, group))


def becomes_nan(
    term: Term,  # whose names may stand for steps
    undefined: Set[str],  # the names that are NaN
    steps: Steps = NO_STEPS,  # the terms of the names that are to be looked through
) -> bool:
    """Return True if a term is NaN where some names are, whatever the values of the other names."""
    match term:
        case Name(name):
            return name in undefined or (name in steps and becomes_nan(steps[name], undefined, steps))
        case Apply("where", (Apply(op, compared), chosen, other)) if any(
            becomes_nan(part, undefined, steps) for part in compared
        ):
            if op in (*FAIL, "ne"):
                return becomes_nan(other if op in FAIL else chosen, undefined, steps)
            return False
        case Apply("where", (_, chosen, other)):
            return becomes_nan(chosen, undefined, steps) and becomes_nan(other, undefined, steps)
        case Apply(op, args) if op not in HIDE:
            return any(becomes_nan(arg, undefined, steps) for arg in args)
    return False
