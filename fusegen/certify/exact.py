"""Results held against real numbers known to a hundred digits' worth of bits, on the host.

A real number comes as hi + lo, two doubles. All differences below are exact or err by 2**-50 of a unit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fusegen.certify.findings import Accuracy, Worst
from fusegen.certify.inputs import FRACTION_BITS, INTEGERS

MOST_WORST, NEAR_ZERO = 4, 0.25
EXPONENTS = {torch.float32: 8, torch.float16: 5, torch.bfloat16: 8, torch.float64: 11}


@dataclass(frozen=True)
class Reals:
    """Real numbers and what their errors are counted in.

    Attributes:
        hi, lo: float64; their sum is the number. hi is NaN where the function is not defined.
        unit: float64; the last place of the dtype at the number or, where terms cancel away from zero, at
            the largest of them.
        rounded: the dtype's value nearest to the number, ties to even.
    """

    hi: Tensor
    lo: Tensor
    unit: Tensor
    rounded: Tensor


def reals(hi: Tensor, lo: Tensor, size: Tensor, inputs: tuple[Tensor, ...], dtype: torch.dtype) -> Reals:
    """Real numbers with their units and roundings.

    Args:
        hi: float64 of n elements.
        lo: likewise, to be added.
        size: float64; the size of the largest term of the sum that each number is.
        inputs: the points, of any dtype.
        dtype: of the results to be held against them.
    """
    away = torch.stack([x.double().abs() for x in inputs]).amax(0) >= NEAR_ZERO
    counted = torch.where(away, torch.fmax(hi.abs(), size.nan_to_num(0.0, 0.0, 0.0)), hi.abs())
    return Reals(hi, lo, unit(counted, dtype), _rounded(hi, lo, dtype))


def unit(size: Tensor, dtype: torch.dtype) -> Tensor:
    """The last place of a dtype at some magnitudes, as float64; at infinity that of the largest value."""
    info = torch.finfo(dtype)
    held = size.nan_to_num(0.0).clamp(info.tiny, info.max)
    _, exponent = torch.frexp(held)
    return torch.ldexp(torch.ones_like(held), exponent - 1 - FRACTION_BITS[dtype])


def errors(got: Tensor, real: Reals) -> Tensor:
    """How far results are from the real numbers, in units; infinite where they are NaN wrongly."""
    place = _on_scale(got.double(), got.dtype)
    hi = _on_scale(real.hi, got.dtype)
    error = ((place - hi) - torch.where(hi == real.hi, real.lo, 0.0)).abs() / real.unit
    error = torch.where(got.isnan(), torch.inf, error)
    undefined = real.hi.isnan()
    return torch.where(undefined, torch.where(got.isfinite(), torch.inf, 0.0), error)


def overflowing(got: Tensor, real: Reals) -> Tensor:
    """Where a result is infinite though the rounded number is not."""
    return got.isinf() & real.rounded.isfinite()


def accuracy(inputs: tuple[Tensor, ...], got: Tensor, real: Reals) -> Accuracy:
    """How near results are to real numbers; those that overflow early are counted apart."""
    early = overflowing(got, real)
    error = torch.where(early, 0.0, errors(got, real))
    nearest = (got == real.rounded) | (got.isnan() & real.rounded.isnan()) | real.hi.isnan()
    return Accuracy(
        worst=worst(inputs, got, real, error),
        misrounded=int((~nearest & ~early).sum()),
        far=int(((error > 1) & ~nearest).sum()),
        overflows=int(early.sum()),
    )


def worst(inputs: tuple[Tensor, ...], got: Tensor, real: Reals, error: Tensor) -> tuple[Worst, ...]:
    """The largest errors, one of each magnitude of the first input."""
    order = torch.argsort(error, descending=True, stable=True)[: 64 * MOST_WORST]
    found: dict[tuple[bool, int], Worst] = {}
    for k in order.tolist():
        x = float(inputs[0][k])
        _, exponent = torch.frexp(torch.tensor(abs(x), dtype=torch.float64))
        key = (x < 0, int(exponent))
        if error[k] > 0 and key not in found and len(found) < MOST_WORST:
            points = tuple(float(column[k]).hex() for column in inputs)
            found[key] = Worst(points, float(error[k]), float(got[k]).hex(), float(real.hi[k]).hex())
    return tuple(found.values())


def differing(a: Tensor, b: Tensor) -> Tensor:
    """Where two tensors have other bits; a NaN equals every other."""
    integer = INTEGERS[a.dtype]
    return (a.contiguous().view(integer) != b.contiguous().view(integer)) & ~(a.isnan() & b.isnan())


def _on_scale(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Infinities where the value after the largest would be; in float64 that is infinity itself."""
    beyond = 2.0 ** (2 ** (EXPONENTS[dtype] - 1)) if dtype != torch.float64 else torch.finfo(dtype).max
    return values.clamp(-beyond, beyond)


def _rounded(hi: Tensor, lo: Tensor, dtype: torch.dtype) -> Tensor:
    """The value of a dtype nearest to hi + lo, ties to even, subnormals and infinities included."""
    if dtype == torch.float64:
        return hi
    step = unit(hi.abs(), dtype)
    scaled, rest = hi.abs() / step, hi.sign() * lo / step  # exact: step is a power of two
    whole = torch.floor(scaled)
    part = scaled - whole
    up = (part > 0.5) | ((part == 0.5) & ((rest > 0) | ((rest == 0) & (whole % 2 == 1))))
    nearest = torch.where(up, whole + 1, whole) * step
    nearest = torch.where(nearest > torch.finfo(dtype).max, torch.inf, nearest)
    return torch.copysign(nearest, hi).to(torch.float32).to(dtype)  # exact
