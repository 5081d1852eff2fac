"""Errors of results in ulp of the exact values, which are known to a hundred bits, on the host.

An exact value is hi + lo, two doubles. All differences below are wrong by at most 2**-50 ulp.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from fusegen.evidence.certify.findings import Accuracy, Worst
from fusegen.evidence.certify.tried_inputs import FRACTION_BITS, INTEGERS

MOST_WORST = 4
EXPONENTS = {torch.float32: 8, torch.float16: 5, torch.bfloat16: 8, torch.float64: 11}


@dataclass(frozen=True)
class Reals:
    """Exact values and what errors are counted in."""

    # hi, lo: float64; their sum is the number. hi is NaN where the function is not defined
    hi: Tensor
    lo: Tensor
    ulp: Tensor  # float64; the unit in the last place of the dtype at the number
    rounded: Tensor  # the dtype's value nearest to the number, ties to even


def reals(
    hi: Tensor,  # float64 of n elements
    lo: Tensor,  # likewise, to be added
    dtype: torch.dtype,  # of the results that are compared with them
) -> Reals:
    """Exact values with their ulps and roundings."""
    return Reals(hi, lo, ulp(hi.abs(), dtype), _rounded(hi, lo, dtype))


def ulp(size: Tensor, dtype: torch.dtype) -> Tensor:
    """The unit in the last place of a dtype at some magnitudes; at infinity that of the largest value."""
    info = torch.finfo(dtype)
    held = size.nan_to_num(0.0).clamp(info.tiny, info.max)
    _, exponent = torch.frexp(held)
    return torch.ldexp(torch.ones_like(held), exponent - 1 - FRACTION_BITS[dtype])


def errors(got: Tensor, real: Reals) -> Tensor:
    """Return errors of results in ulp; infinite where a result is NaN and the exact value is not."""
    place = _on_scale(got.double(), got.dtype)
    hi = _on_scale(real.hi, got.dtype)
    error = ((place - hi) - torch.where(hi == real.hi, real.lo, 0.0)).abs() / real.ulp
    error = torch.where(got.isnan(), torch.inf, error)
    undefined = real.hi.isnan()
    return torch.where(undefined, torch.where(got.isfinite(), torch.inf, 0.0), error)


def overflowing(got: Tensor, real: Reals) -> Tensor:
    """Return a mask of results that are infinite though the rounded number is not."""
    return got.isinf() & real.rounded.isfinite()


def counted_errors(got: Tensor, real: Reals) -> Tensor:
    """Errors of results in ulp; 0 where a result is infinite but should not be, which counts apart."""
    return torch.where(overflowing(got, real), 0.0, errors(got, real))


def misrounded(got: Tensor, real: Reals) -> Tensor:
    """A mask of results that are not correctly rounded; those that overflow too early count apart."""
    nearest = (got == real.rounded) | (got.isnan() & real.rounded.isnan()) | real.hi.isnan()
    return ~nearest & ~overflowing(got, real)


def accuracy(inputs: tuple[Tensor, ...], got: Tensor, real: Reals) -> Accuracy:
    """Return the accuracy of results; those that are infinite but should not be are counted apart."""
    return counted(worst(inputs, got, real, counted_errors(got, real)), got, real)


def counted(worst: tuple[Worst, ...], got: Tensor, real: Reals) -> Accuracy:
    """Return the accuracy of results whose largest errors are known."""
    wrong = misrounded(got, real)
    return Accuracy(
        worst=worst,
        misrounded=int(wrong.sum()),
        beyond_neighbour=int((wrong & ~neighbours(got, real.rounded)).sum()),
        overflows=int(overflowing(got, real).sum()),
    )


def neighbours(a: Tensor, b: Tensor) -> Tensor:
    """Return a mask of values that are equal or neighbours in two tensors of one dtype; never of a NaN."""
    p, q = (in_order(t) for t in (a, b))
    return ((p == q) | (p == q + 1) | (p + 1 == q)) & ~a.isnan() & ~b.isnan()


def in_order(values: Tensor) -> Tensor:
    """Integers in the order of the floats, one apart where those are neighbours; both zeros give 0."""
    bits = values.contiguous().view(INTEGERS[values.dtype])
    size = (bits & torch.iinfo(bits.dtype).max).long()
    return torch.where(bits < 0, -size, size)


def worst(inputs: tuple[Tensor, ...], got: Tensor, real: Reals, error: Tensor) -> tuple[Worst, ...]:
    """Return the largest errors, one of each magnitude of the first input."""
    order = torch.argsort(error, descending=True, stable=True)[: 64 * MOST_WORST]
    rows = (
        Worst(
            tuple(float(column[k]).hex() for column in inputs),
            float(error[k]),
            float(got[k]).hex(),
            float(real.hi[k]).hex(),
        )
        for k in order.tolist()
        if error[k] > 0
    )
    return distinct(rows)


def distinct(rows: Iterable[Worst]) -> tuple[Worst, ...]:
    """Return the first few, one of each sign and magnitude of the first input, or of each group of rows."""
    found: dict[object, Worst] = {}
    for row in rows:
        x = 0.0 if row.rows else float.fromhex(row.inputs[0])
        found.setdefault(row.rows or (x < 0, math.frexp(x)[1]), row)
        if len(found) == MOST_WORST:
            break
    return tuple(found.values())


def joined(a: Accuracy, b: Accuracy) -> Accuracy:
    """Return the accuracy at the points of two."""
    rows = sorted((*a.worst, *b.worst), key=lambda row: -row.ulp)
    counts = ("misrounded", "beyond_neighbour", "overflows", "monotonicity_breaks")
    return Accuracy(distinct(rows), **{key: getattr(a, key) + getattr(b, key) for key in counts})


def bits_differ(a: Tensor, b: Tensor) -> Tensor:
    """Return a mask of elements whose bits differ; a NaN equals every other."""
    integer = INTEGERS[a.dtype]
    return (a.contiguous().view(integer) != b.contiguous().view(integer)) & ~(a.isnan() & b.isnan())


def _on_scale(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return values with infinities as the number after the largest; in float64 as the largest."""
    beyond = 2.0 ** (2 ** (EXPONENTS[dtype] - 1)) if dtype != torch.float64 else torch.finfo(dtype).max
    return values.clamp(-beyond, beyond)


def _rounded(hi: Tensor, lo: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the value of a dtype nearest to hi + lo, ties to even, subnormals and infinities included."""
    if dtype == torch.float64:
        return hi
    step = ulp(hi.abs(), dtype)
    scaled, rest = hi.abs() / step, hi.sign() * lo / step  # exact: step is a power of two
    whole = torch.floor(scaled)
    part = scaled - whole
    up = (part > 0.5) | ((part == 0.5) & ((rest > 0) | ((rest == 0) & (whole % 2 == 1))))
    nearest = torch.where(up, whole + 1, whole) * step
    nearest = torch.where(nearest > torch.finfo(dtype).max, torch.inf, nearest)
    return torch.copysign(nearest, hi).to(torch.float32).to(dtype)  # exact
