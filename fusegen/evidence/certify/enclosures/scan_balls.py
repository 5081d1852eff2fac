"""Scans in balls, what they pass back, and the places of elements; nothing of it is shared with kernels."""

import math
import operator
from functools import reduce

from flint import arb

from fusegen.core.scans import CUMPROD, SCANS

ZERO, NAN = arb(0), arb(math.nan)


def scanned(name: str, column: list[arb]) -> list[arb]:
    """Return a scan, by its definition."""
    scan, found = SCANS[name], list[arb]()
    join, value = (operator.mul, arb(1)) if scan.kind == CUMPROD else (operator.add, ZERO)
    for ball in reversed(column) if scan.reverse else column:
        before, value = value, join(value, ball)
        found.append(before if scan.exclusive else value)
    return found[::-1] if scan.reverse else found


def scan_slope(name: str, g: list[arb], column: list[arb], y: list[arb]) -> list[arb]:
    """Return what a scan passes back: to an element, of each result that has it as a factor or a term.

    Those of a product have the elements before one in common, and what is left of each is a polynomial of
    those behind, found from the last one on (Horner's rule).
    """
    scan = SCANS[name]
    if scan.reverse:
        g, column = g[::-1], column[::-1]
    own, before = not scan.exclusive, arb(1)
    found, behind = [ZERO] * len(g), ZERO
    for k in reversed(range(len(g))):
        found[k] = behind + g[k] if own else behind
        factor = column[k] if scan.kind == CUMPROD else arb(1)
        behind = factor * found[k] if own else g[k] + factor * behind
    for k, ball in enumerate(column if scan.kind == CUMPROD else ()):
        found[k], before = before * found[k], before * ball
    return found[::-1] if scan.reverse else found


def first_place(column: list[arb]) -> arb:
    """Return the place of the first of the largest elements; NaN where balls leave it open."""
    y = reduce(arb.max, column)
    found = [k for k, ball in enumerate(column) if not ball < y]
    known = all(column[k].is_exact() or k == found[0] for k in found)
    return arb(found[0]) if len(found) == 1 or known else NAN
