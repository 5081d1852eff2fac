"""The accuracy contract at single inputs: errors in ulp of the exact result, and what is wrong, in a line.

In float32 and float64 a result is wrong by at most 4 ulp; in 16 bits it is correctly rounded, or next to
that. It is NaN only where the exact function has no value, and infinite only where that overflows.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from itertools import cycle

import torch
from elements import Elements

from fusegen.core.term import Program
from fusegen.evidence.certify.enclosures import Enclosure
from fusegen.evidence.certify.enclosures.doubles import Real

ULP = 4.0
FAR = ((2.0**1000, 2.0**700), (2.0**700, 2.0**1000))  # in place of infinities, one larger than another
Exact = Fraction | float | None


class Bound(Enum):
    """The allowed error: a fixed number of ulp, or the error of PyTorch's operations."""

    ULP = "4 ulp"
    EAGER = "4 ulp or eager's error"


@dataclass(frozen=True)
class Result:
    """One number that a kernel computed."""

    name: str  # ``value`` or ``gradient of NAME``
    inputs: tuple[float, ...]  # as the dtype holds them
    # got, eager: the kernel's and eager's
    got: float
    eager: float
    exact: Exact  # the real one; None where there is none, or it is not known
    dtype: torch.dtype  # of all of them

    @property
    def ulp(self) -> float:
        """The error of the kernel."""
        return ulps(self.got, self.exact, self.dtype)

    @property
    def eager_ulp(self) -> float:
        """The error of eager."""
        return ulps(self.eager, self.exact, self.dtype)

    @property
    def limit(self) -> float:
        """The allowed error in ulp; 16-bit neighbours of the correctly rounded value are within 1.5."""
        return ULP if self.dtype.itemsize > 2 else 1.5

    def __str__(self) -> str:
        """The input, the numbers and the errors."""
        where = ", ".join(f"{x:.9g}" for x in self.inputs)
        errors = f"{self.ulp:.3g} ulp, eager {self.eager!r} {self.eager_ulp:.3g} ulp"
        kind = str(self.dtype).removeprefix("torch.")
        return f"{kind} {self.name} at {where}: {self.got!r}, exact {_shown(self.exact)}, {errors}"


def _shown(exact: Exact) -> str:
    try:
        return "none" if exact is None else f"{float(exact)!r}"
    except OverflowError:
        return "overflow"


def exactly(
    program: Program, params: Mapping[str, float]
) -> Callable[[tuple[float, ...]], tuple[Exact, ...]]:
    """Return the function from a point to the exact value and slopes of a formula as declared.

    Each is None where none exists or is found; at an infinity it is the limit, whichever input is larger.
    """
    enclosure = Enclosure(program, {name: Fraction(number) for name, number in params.items()})

    def at(inputs: tuple[float, ...]) -> tuple[Exact, ...]:
        if all(map(math.isfinite, inputs)):
            return tuple(map(_number, enclosure(*inputs)))
        found = []
        for sizes in FAR:
            large = cycle(sizes)
            near = (math.copysign(next(large), x) if math.isinf(x) else x for x in inputs)
            found.append(map(_number, enclosure(*near)))
        return tuple(map(_limit, *found))

    return at


def _number(real: Real) -> Exact:
    if math.isnan(real.hi):
        return None
    return real.hi if math.isinf(real.hi) else Fraction(real.hi) + Fraction(real.lo)


def _limit(a: Exact, b: Exact) -> Exact:
    """Return what two values far out tend to, None where they do not agree on it."""
    if a is None or b is None:
        return None
    least, most = sorted((abs(float(a)), abs(float(b))))
    if (a > 0) == (b > 0) and (least > 2.0**200 or most > 1.2 * least > 60):  # or as a logarithm grows
        return math.copysign(math.inf, a)
    if most < 2.0**-200:
        return Fraction(0)
    return a if most < 2.0**200 and abs(float(a - b)) < 2.0**-60 * least else None


def ulps(got: float, exact: Exact, dtype: torch.dtype) -> float:
    """The error of a result in ulp of the exact one; 0 where there is none, infinite for a NaN."""
    if exact is None:
        return 0.0
    info = torch.finfo(dtype)
    eps, largest, least = Fraction(info.eps), Fraction(info.max), Fraction(info.tiny)
    last = eps * Fraction(2) ** _exponent(largest)  # an ulp of the largest number
    if math.isnan(got):
        return math.inf
    if math.isinf(got) or isinstance(exact, float) or abs(exact) >= largest + last / 2:
        near = [abs(x) == math.inf or abs(Fraction(x)) > largest - 4 * last for x in (got, exact)]
        return 0.0 if all(near) and (got > 0) == (exact > 0) else math.inf
    unit = eps * max(Fraction(2) ** _exponent(exact), least)
    return float(min(abs(Fraction(got) - exact) / unit, Fraction(sys.float_info.max)))


def _exponent(number: Fraction) -> int:
    """The exponent of a number's first binary digit; of 0, less than any."""
    size = abs(number)
    if not size:
        return -2000
    guess = size.numerator.bit_length() - size.denominator.bit_length()
    return guess if Fraction(2) ** guess <= size else guess - 1


def results(
    elements: Elements, device: str, points: tuple[tuple[float, ...], ...], dtype: torch.dtype
) -> Iterator[Result]:
    """The results of a device's kernels at some points, as far as the dtype holds these."""
    program, params = elements.compilation.declared.program, elements.formula.params
    columns = [torch.tensor(x, dtype=torch.float64).to(dtype) for x in zip(*points, strict=True)]
    held = torch.stack([c.isinf() == torch.tensor([math.isinf(p[k]) for p in points])
                        for k, c in enumerate(columns)]).all(0)  # fmt: skip
    columns = [column[held] for column in columns]
    if not columns[0].numel():
        return
    names = ["value", *(f"gradient of {name}" for name in elements.formula.inputs)]
    ours, eager = elements(device, *columns), elements.eager(*columns)
    reals = exactly(program, params)
    for i, inputs in enumerate(zip(*(c.double().tolist() for c in columns), strict=True)):
        exact = reals(inputs) if not any(map(math.isnan, inputs)) else [None] * len(names)
        for name, a, b, real in zip(names, ours, eager, exact, strict=True):
            yield Result(name, inputs, float(a[i]), float(b[i]), real, dtype)


def wrong(result: Result, bound: Bound = Bound.ULP) -> bool:
    """Tells whether a result breaks the contract."""
    allowed = {Bound.ULP: result.limit, Bound.EAGER: max(result.limit, result.eager_ulp)}[bound]
    return result.ulp > allowed
