"""Methods, as values: the ways in which a result is obtained.

    Method = Formula | Table | Piecewise | Segmented | Verified | AtDefaults

The plan (`plan.py`) maps each pass, device and dtype to a method. The module's C++, its comments,
`explain`, the launch class and the tests match on the method; none of them decides again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from fusegen.core.ir import Math

T = TypeVar("T")
U = TypeVar("U")


class Pass(Enum):
    """A direction of the computation: the function, or its gradient."""

    FORWARD = "forward"
    BACKWARD = "backward"

    @property
    def arity(self) -> int:
        """The number of tensors that the kernel of a unary function reads."""
        return 1 if self is Pass.FORWARD else 2


@dataclass(frozen=True, slots=True)
class Both(Generic[T]):
    """A value for each pass."""

    forward: T
    backward: T

    @classmethod
    def of(cls, make: Callable[[Pass], T]) -> Both[T]:
        """Return the values that a function gives for the passes."""
        return cls(make(Pass.FORWARD), make(Pass.BACKWARD))

    def __getitem__(self, which: Pass) -> T:
        """Return the value of a pass."""
        return self.forward if which is Pass.FORWARD else self.backward

    def __iter__(self) -> Iterator[T]:
        """Return the values, forward first."""
        return iter((self.forward, self.backward))

    def map(self, change: Callable[[T], U]) -> Both[U]:
        """Return the results of a function of each value."""
        return Both(change(self.forward), change(self.backward))


class Variant(Enum):
    """A form in which a program is lowered."""

    FLOAT = Math.FLOAT
    SINGLE_WORD = "single-word float"  # for results whose rounding is verified
    SINGLE_RESULT = "single-result float"  # double-word arguments, single-word results; on the CPU
    DOUBLE = Math.DOUBLE
    SERIES = "double with series"  # for 16-bit results that double alone would lose

    @property
    def math(self) -> Math:
        """The type of its values."""
        return Math.DOUBLE if self in (Variant.DOUBLE, Variant.SERIES) else Math.FLOAT


class Arithmetic(Enum):
    """The arithmetic that evaluates the formula of one element."""

    FLOAT = "float"  # double-word where the formula needs it
    FAST_FLOAT = "fast float"  # the special-function unit's exp2 and reciprocal, for 16-bit results
    SINGLE_WORD = "single-word float"  # for 16-bit results whose rounding is verified
    SINGLE_RESULT = "single-result float"  # double-word arguments; for float32 results on the CPU
    DOUBLE = "double"  # double-word where the formula needs it
    PLAIN_DOUBLE = "single-word double"  # for results of fewer bits than a double's
    SERIES = "double with series"  # for 16-bit results that double alone would lose

    @property
    def variant(self) -> Variant:
        """The form of the program that is evaluated."""
        return VARIANTS[self]


VARIANTS = {
    Arithmetic.FLOAT: Variant.FLOAT,
    Arithmetic.FAST_FLOAT: Variant.FLOAT,
    Arithmetic.SINGLE_WORD: Variant.SINGLE_WORD,
    Arithmetic.SINGLE_RESULT: Variant.SINGLE_RESULT,
    Arithmetic.DOUBLE: Variant.DOUBLE,
    Arithmetic.PLAIN_DOUBLE: Variant.DOUBLE,
    Arithmetic.SERIES: Variant.SERIES,
}


class Grid(Enum):
    """The placement of the pieces of a piecewise cubic."""

    UNIFORM = "uniform"  # equal steps of |x|, for speed
    OCTAVES = "octaves"  # as many pieces in each octave as accuracy takes


@dataclass(frozen=True, slots=True)
class Formula:
    """The formula, evaluated in some arithmetic and rounded once."""

    arithmetic: Arithmetic


@dataclass(frozen=True, slots=True)
class Table:
    """One of all 65,536 results, which are computed in double on first use."""

    arithmetic: Arithmetic = Arithmetic.DOUBLE


@dataclass(frozen=True, slots=True)
class Piecewise:
    """A piecewise cubic, fitted in double on first use; `otherwise` where no piece fits."""

    grid: Grid
    otherwise: Formula


@dataclass(frozen=True, slots=True)
class Segmented:
    """Piecewise cubics, fitted in double on first use, for the functions of one value; between them float.

    `otherwise` where no piece fits, or a result is NaN.
    """

    otherwise: Formula


@dataclass(frozen=True, slots=True)
class Verified:
    """`fast`, and `exact` where the error bound of `fast` leaves the rounding undecided (Ziv's test)."""

    fast: Formula | Piecewise
    exact: Formula


@dataclass(frozen=True, slots=True)
class AtDefaults:
    """`then` where the parameters have the spec's defaults, else `otherwise`."""

    then: Table | Piecewise
    otherwise: Formula | Verified


Method = Formula | Table | Piecewise | Segmented | Verified | AtDefaults
FLOAT, FAST, SINGLE_WORD, SINGLE_RESULT, DOUBLE, PLAIN, SERIES = map(Formula, Arithmetic)


def parts(method: Method) -> Iterator[Method]:
    """Yield every method within a method, itself first."""
    yield method
    match method:
        case Piecewise(_, otherwise) | Segmented(otherwise):
            yield from parts(otherwise)
        case Verified(first, second) | AtDefaults(first, second):
            yield from parts(first)
            yield from parts(second)


def arithmetics(method: Method) -> frozenset[Arithmetic]:
    """The arithmetics that a method evaluates formulas in; what is fitted or tabulated takes double."""
    found = set()
    for part in parts(method):
        match part:
            case Formula(arithmetic) | Table(arithmetic):
                found.add(arithmetic)
            case Piecewise():
                found.add(Arithmetic.DOUBLE)
    return frozenset(found)
