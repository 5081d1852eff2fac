"""Polynomials: interpolation in the zeros of Chebyshev polynomials, minimax by Remez's exchange.

Sources: Remez 1934, Comptes Rendus 199; for coefficients that are rounded one after the other, with those
left fitted again, Brisebarre and Chevillard 2007, ARITH-18.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpmath import mp

Real = Any  # a number of mpmath
Function = Callable[[Real], Real]

DIGITS = 60
GRID = 400  # points at which a largest error is looked for
ROUNDS = 12  # exchanges, of which a few are enough


def points(low: Real, high: Real, count: int) -> list[Real]:
    """Return the zeros of a Chebyshev polynomial in an interval, but for its middle: there may be 0 / 0."""
    middle, half = (mp.mpf(low) + high) / 2, (mp.mpf(high) - low) / 2
    found = (middle + half * mp.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in reversed(range(count)))
    near = half * mp.mpf(10) ** -20
    return [x if abs(x - middle) > near else middle + near for x in found]


def value(coefficients: Sequence[Real], x: Real) -> Real:
    """Return a polynomial's value by Horner's scheme."""
    return mp.polyval([mp.mpf(c) for c in reversed(coefficients)], x)


def interpolated(target: Function, low: Real, high: Real, terms: int) -> list[Real]:
    """Return the coefficients that interpolate a function in the zeros of a Chebyshev polynomial."""
    nodes = points(low, high, terms)
    rows = mp.matrix([[x**k for k in range(terms)] for x in nodes])
    return list(mp.lu_solve(rows, mp.matrix([target(x) for x in nodes])))


class Minimax:
    """The polynomials of the least weighted error, of which the first coefficients may be given."""

    def __init__(self, target: Function, weight: Function, low: Real, high: Real) -> None:
        """Measure the function at the points of a grid, once."""
        self.grid = points(low, high, GRID)
        self.values = [target(x) for x in self.grid]
        self.weights = [abs(weight(x)) for x in self.grid]

    def errors(self, coefficients: Sequence[Real]) -> list[Real]:
        """Return the weighted errors at the points of the grid."""
        each = zip(self.grid, self.values, self.weights, strict=True)
        return [w * (value(coefficients, x) - y) for x, y, w in each]

    def largest(self, coefficients: Sequence[Real]) -> Real:
        """Return the largest weighted error."""
        return max(map(abs, self.errors(coefficients)))

    def fitted(self, given: Sequence[Real], terms: int) -> list[Real]:
        """Return so many coefficients, of which some are given."""
        first, free = len(given), terms - len(given)
        places = [round((GRID - 1) * (1 - np.cos(np.pi * k / free)) / 2) for k in range(free + 1)]
        best = [*given, *[mp.mpf(0)] * free]
        for _ in range(ROUNDS):
            rows = [
                [self.weights[p] * self.grid[p] ** (first + k) for k in range(free)] + [mp.mpf(-1) ** n]
                for n, p in enumerate(places)
            ]
            right = [self.weights[p] * (self.values[p] - value(given or [0], self.grid[p])) for p in places]
            found = list(mp.lu_solve(mp.matrix(rows), mp.matrix(right)))
            best = [*given, *found[:free]]
            new = _extremes(self.errors(best), free + 1)
            if new is None or new == places:
                break
            places = new
        return best


def _extremes(errors: Sequence[Real], count: int) -> list[int] | None:
    """Return the places of so many largest errors of alternating signs; None where there are fewer."""
    runs: list[int] = []
    for place, error in enumerate(errors):
        if runs and (errors[runs[-1]] < 0) == (error < 0):
            runs[-1] = max(runs[-1], place, key=lambda each: abs(errors[each]))
        else:
            runs.append(place)
    while len(runs) > count:
        runs = runs[1:] if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else runs[:-1]
    return runs if len(runs) == count else None


def rounded_to(kind: str, x: Real) -> Real:
    """Return the nearest number of a type, ``float`` or ``double``."""
    return mp.mpf(float(np.float32(float(x)))) if kind == "float" else mp.mpf(float(x))


def rounded(fit: Minimax, given: Sequence[Real], terms: int, kind: str) -> list[Real]:
    """Return coefficients of a type: each is rounded in turn, and those behind it are fitted again."""
    found = list(given)
    while len(found) < terms:
        found.append(rounded_to(kind, fit.fitted(found, terms)[len(found)]))
    return found
