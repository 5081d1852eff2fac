"""A result that is not as it should be, and the comparisons that find it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fusegen.compiler.kernel_values import Points
from fusegen.core.interval import Point
from fusegen.numerics.ieee import Column
from fusegen.numerics.roundoff.local import Mask

LEAST, DIGITS_LOST = 2.0**-119, 2.0**-18  # gradients that are judged, and what the scaled ones lose of them
MADE = "made"  # the kind of what is no fault, but weighs against a mend
LIMIT = 2.0**-21  # how near a result is to its limit


@dataclass(frozen=True)
class Fault:
    """A result that is not as it should be."""

    kind: str  # zero, nan, made, limit, linear or beyond, as `special_trial` says
    output: int  # 0 of the value, else the place of the input whose gradient it is, from 1 on
    at: Point  # the inputs
    own: float  # the result
    wanted: float  # what it should be
    incoming: float = 1.0  # the incoming gradient
    count: int = 1  # at how many of the tried points it is so


def unequal(own: Column, wanted: Column) -> Mask:
    """Return where a gradient in the judged range has lost digits of what it should be."""
    judged = np.isfinite(wanted) & (np.abs(wanted) >= LEAST)
    unequal: Mask = judged & ~(np.abs(own - wanted) <= DIGITS_LOST * np.abs(wanted))
    return unequal


def first(
    kind: str, output: int, points: Points, own_and_wanted: tuple[Column, Column], wrong: Mask
) -> Iterator[Fault]:
    """Yield the first point of a mask as a fault, with the number of all."""
    for n in np.flatnonzero(wrong)[:1]:
        at = {name: float(column[n]) for name, column in points.items()}
        own, wanted = (float(column[n]) for column in own_and_wanted)
        yield Fault(kind, output, at, own, wanted, count=int(wrong.sum()))


def same(a: Column, b: Column) -> Mask:
    """Return where numbers have the same sign, too; NaN is NaN."""
    same: Mask = ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
    return same


def reached(given: float, limit: float) -> bool:
    """Return True if a result is a limit, exactly if that is an integer."""
    if given == limit or math.isinf(limit) or limit.is_integer():
        return given == limit
    return abs(given - limit) <= LIMIT * abs(limit)
