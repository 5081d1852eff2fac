"""Reductions and scans along the rows of a tensor, and what formulas of PyTorch's names are in these.

In a program a fold is a call of `sum`, `amax`, `max` and others that `compose` leaves as it is: of a value
of each element it makes one of their row. `mean`, `var`, `std`, `norm`, `logsumexp` are formulas of these.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from functools import partial
from typing import TypeGuard

from fusegen.core.scans import WRITTEN, is_scan
from fusegen.core.term import Apply, Name, Number, SpecCall, Term, call

LENGTH = "row_length"  # the number of elements of a row, a scalar of the call
SHARE = "row_share"  # its inverse, by which kernels multiply
GATHER = "gather"  # as formulas have u[index]
ZERO = Number(Fraction(0))


class Level(IntEnum):
    """The owner of a value: there is one for a call, for each of its rows, or for each element."""

    CALL = 0
    ROW = 1
    ELEMENT = 2


@dataclass(frozen=True, slots=True)
class Fold:
    """A reduction that kernels do."""

    name: str  # PyTorch's
    cpp: str  # the C++ type that joins two values


SUM, AMAX, AMIN = Fold("sum", "Added"), Fold("amax", "Largest"), Fold("amin", "Smallest")
FIRST = {"max": Fold("max", "Largest"), "min": Fold("min", "Smallest")}  # whose gradient one element has
PLACE = "row_place"  # the number of an element in its row, which only gradients read
FINDS = {"argmax": Fold("argmax", "Largest"), "argmin": Fold("argmin", "Smallest")}  # an element's place
FOLDS = {fold.name: fold for fold in (SUM, AMAX, AMIN)} | FIRST | FINDS


def fold(of: Fold, term: Term) -> SpecCall:
    """Return the reduction of a term along its row."""
    return SpecCall(of.name, (term,))


def is_fold(term: Term) -> TypeGuard[SpecCall]:
    """Return True if a term is a reduction along a row."""
    return isinstance(term, SpecCall) and term.spec in FOLDS


def makes_a_loop(term: Term) -> TypeGuard[SpecCall]:
    """Return True if a term is a reduction or a scan along a row, which takes a loop over its elements."""
    return is_fold(term) or is_scan(term)


def _gathered(term: Term, index: Term) -> Term:
    """Return u at the element that an index picks: the sum of u there and of 0 elsewhere."""
    return fold(SUM, Apply("where", (index, term, ZERO)))


def _called(name: str, term: Term) -> Term:
    return SpecCall(name, (term,))


def _mean(term: Term) -> Term:
    return call("div", fold(SUM, term), Name(LENGTH))


def _var(term: Term, correction: Term) -> Term:
    squares = fold(SUM, call("square", call("sub", term, _mean(term))))
    return call("div", squares, call("sub", Name(LENGTH), correction))


def _logsumexp(term: Term) -> Term:
    """Return log(sum(exp(u))), of u less the largest, unless that is infinite.

    No gradient passes through the largest element: the sum does not depend on it.
    """
    largest = call("detach", fold(AMAX, term))
    shift = Apply("where", (call("lt", call("abs", largest), 2**1000), largest, ZERO))
    return call("add", call("log", fold(SUM, call("exp", call("sub", term, shift)))), shift)


def _less_largest(term: Term) -> Term:
    """Return u less the largest of its row, through which no gradient passes."""
    return call("sub", term, call("detach", fold(AMAX, term)))


def _softmax(term: Term) -> Term:
    exponential = call("exp", _less_largest(term))
    return call("div", exponential, fold(SUM, exponential))


def _log_softmax(term: Term) -> Term:
    less = _less_largest(term)
    return call("sub", less, call("log", fold(SUM, call("exp", less))))


@dataclass(frozen=True, slots=True)
class Reduction:
    """A function of formulas that reduces rows."""

    args: tuple[str, ...]  # the names of its arguments, the term first; all are required
    value: Callable[..., Term]  # of the terms given for them, the formula


REDUCTIONS = {
    "sum": Reduction(("input",), lambda u: fold(SUM, u)),
    "amax": Reduction(("input",), lambda u: fold(AMAX, u)),
    "amin": Reduction(("input",), lambda u: fold(AMIN, u)),
    "mean": Reduction(("input",), _mean),
    "var": Reduction(("input", "correction"), _var),
    "std": Reduction(("input", "correction"), lambda u, c: call("sqrt", _var(u, c))),
    "norm": Reduction(("input",), lambda u: call("sqrt", fold(SUM, call("square", u)))),
    "logsumexp": Reduction(("input",), _logsumexp),
    "softmax": Reduction(("input",), _softmax),
    "log_softmax": Reduction(("input",), _log_softmax),
    GATHER: Reduction(("input", "index"), _gathered),
    "length": Reduction((), lambda: Name(LENGTH)),
    **{name: Reduction(("input",), partial(_called, name)) for name in (*FIRST, *FINDS, *WRITTEN)},
}


def signature(name: str) -> str:
    """Return how a reduction is called: ``var(input, correction)``."""
    return f"{name}({', '.join(REDUCTIONS[name].args)})"
