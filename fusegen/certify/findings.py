"""What a certification finds, as values; `certificate` writes them, `contract` judges them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from fusegen.term import Program

if TYPE_CHECKING:
    from torch import Tensor

Function = Callable[..., "Tensor"]


@dataclass(frozen=True)
class Subject:
    """A function to be held against a formula.

    Attributes:
        name: of the spec, or of the callable.
        program: the formula over the real numbers; it has one result.
        params: the values of its parameters.
        given: the function, of tensors only; differentiable by autograd.
        eager: PyTorch's own, or None where `given` is what is looked at alone.
        promise: what it promises: ``accurate``, ``arithmetic`` or ``eager``; see `contract`.
        reference: PyTorch's function that the spec names, if it names one.
    """

    name: str
    program: Program
    params: dict[str, Fraction]
    given: Function
    eager: Function | None = None
    promise: str = "accurate"
    reference: str = ""


@dataclass(frozen=True)
class Worst:
    """An input with a large error.

    Attributes:
        inputs: as hexadecimal floats.
        ulp: the error in units of the last place.
        got: what the function gave, as a hexadecimal float.
        real: the real value, rounded to a double, as a hexadecimal float.
    """

    inputs: tuple[str, ...]
    ulp: float
    got: str
    real: str


@dataclass(frozen=True)
class Accuracy:
    """How near one function's results are to the real ones.

    Attributes:
        worst: its largest errors, of different magnitudes of inputs, the largest first.
        misrounded: how many results are not correctly rounded.
        far: how many err by more than a unit, so that they are neither correctly rounded nor next to it.
        overflows: how many are infinite where the real value is within the type's range.
        falls: how many steps from one input to the next go down where the function goes up, or up for down.
    """

    worst: tuple[Worst, ...] = ()
    misrounded: int = 0
    far: int = 0
    overflows: int = 0
    falls: int = 0

    @property
    def ulp(self) -> float:
        """The largest error in units of the last place."""
        return self.worst[0].ulp if self.worst else 0.0


@dataclass(frozen=True)
class Special:
    """What comes of a special input, as Python writes floats: ours, eager's, what the formula tends to."""

    input: str
    given: str
    eager: str
    real: str


@dataclass(frozen=True)
class Output:
    """What was found of the value, or of the gradient of one input.

    Attributes:
        name: ``value`` or ``gradient of NAME``.
        given, eager: how accurate either is.
        differing: how many results have other bits than eager's; NaN equals NaN.
        further: how many of those are further from the real value than eager's.
        range: the least and the largest result, then those of the real function, rounded outwards.
        specials: results at infinities, zeros and NaN; only of functions of one input.
    """

    name: str
    given: Accuracy
    eager: Accuracy | None = None
    differing: int = 0
    further: int = 0
    range: tuple[float, float, float, float] | None = None
    specials: tuple[Special, ...] = ()


@dataclass(frozen=True)
class Alien:
    """How a reference differs from the formula: too much for any rounding.

    Attributes:
        count: at how many inputs.
        first, worst: inputs, as hexadecimal floats, with the formula's value and the reference's.
    """

    count: int
    first: tuple[str, str, str]
    worst: tuple[str, str, str]


@dataclass(frozen=True)
class Evidence:
    """What was found in one dtype.

    Attributes:
        dtype: its name in torch.
        inputs: how many were tried.
        every: whether those are all there are.
        undecided: how many neither the screen nor an enclosure decided.
        layouts: how many results changed with the length or the place of the tensor.
        outputs: the value first, then the gradients.
        alien: where the reference is not the formula.
    """

    dtype: str
    inputs: int
    every: bool
    undecided: int
    layouts: int
    outputs: tuple[Output, ...]
    alien: Alien | None = None
    broken: tuple[str, ...] = field(default=())
