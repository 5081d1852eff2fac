"""The choice among candidates: forms of a program, kernels of a pass, series.

A candidate has a cost, and an error that is or is not within its budget. Errors are measured from the
cheapest candidate on, until one is within: an estimate takes longer than a count.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Candidate(Generic[T]):
    """A candidate."""

    value: T  # what is taken if it is chosen
    cost: Any  # in any order, which is that of all candidates of a choice
    is_accurate: Callable[[], bool] = lambda: True  # whether its error is within the budget


def cheapest(candidates: Iterable[Candidate[T]]) -> T | None:
    """Return the cheapest candidate whose error is within its budget, of equals the first; None without."""
    ordered = sorted(candidates, key=lambda each: each.cost)
    return next((each.value for each in ordered if each.is_accurate()), None)
