"""The findings of a certification, as values; `certificate` writes them, `contract` judges them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from fusegen.core.term import Program

if TYPE_CHECKING:
    from torch import Tensor

Function = Callable[..., "Tensor"]
Ranges = Mapping[str, tuple[float, float]]
InputsDone = Callable[[int], None]  # called with the number of inputs done since the last call


@dataclass(frozen=True)
class Subject:
    """A function, and the formula that it is compared with."""

    name: str  # of the spec, or of the callable
    program: Program  # the formula over the real numbers, as declared; it has one result
    stable: Program  # a program equal to it over the real numbers, in which little cancels
    params: dict[str, Fraction]  # the values of its parameters
    given: Function  # the function, of tensors and its keywords only; differentiable by autograd
    # PyTorch's function; None where `given` is compared with the formula only
    eager: Function | None = None
    promise: str = "accurate"  # what it promises: ``accurate``, ``arithmetic`` or ``eager``; see `contract`
    reference: str = ""  # PyTorch's function that the spec names, if it names one
    # the reference where `eager` does not call it; it is compared with the formula, too
    compared: Function | None = None
    assume: Ranges = field(default_factory=dict)  # the range of each input that has one
    masks: frozenset[str] = frozenset()  # the inputs that are masks
    keywords: frozenset[str] = frozenset()  # the keywords that `given` takes, of ``out`` and ``inplace``
    # the same subject at other values of its parameters; None where it has none
    with_params: Callable[[dict[str, Fraction]], Subject] | None = None

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return ["value", *(f"gradient of {name}" for name in self.program.inputs)]


@dataclass(frozen=True)
class Worst:
    """An input with a large error."""

    inputs: tuple[str, ...]  # as hexadecimal floats
    ulp: float  # the error in ulp of the exact value
    got: str  # the function's result, as a hexadecimal float
    real: str  # the exact value, rounded to a double, as a hexadecimal float
    rows: str = ""  # the kind and the length of rows, which are no inputs that can be named


@dataclass(frozen=True)
class Accuracy:
    """The distances of one function's results from the exact ones."""

    # its largest errors, of different magnitudes of inputs, the largest first
    worst: tuple[Worst, ...] = ()
    misrounded: int = 0  # how many results are not correctly rounded
    beyond_neighbour: int = 0  # how many are neither correctly rounded nor next to it
    overflows: int = 0  # how many are infinite where the exact value is within the type's range
    # how many steps from one input to the next go down where the function goes up, or up where it goes down
    monotonicity_breaks: int = 0

    @property
    def ulp(self) -> float:
        """The largest error in ulp, to the four digits that are written down."""
        return four_digits(self.worst[0].ulp) if self.worst else 0.0


def four_digits(number: float) -> float:
    """Return a number as a certificate has it."""
    return float(f"{number:.4g}")


@dataclass(frozen=True)
class Special:
    """The results at a special input, as Python writes floats."""

    input: str  # the special value; the other inputs, if there are any, are 1
    # given, eager: ours and eager's
    given: str
    eager: str
    real: str  # the limit of the formula
    of: str = ""  # the input that has the value, where the function has several

    @property
    def place(self) -> str:
        """The special input by name: ``nan``, or ``gate=nan``."""
        return f"{self.of}={self.input}" if self.of else self.input


@dataclass(frozen=True)
class Breach:
    """A rule of the local bound that an output breaks; docs/certificates.md has the rules."""

    rule: str  # ``C1`` to ``C6``
    # count, of: how many cells, boxes or binades break it, and of how many
    count: int
    of: int
    unit: str  # ``cells``, ``boxes`` or ``binades``
    # ulp, eager: the largest errors of ours and of eager's in the worst of them
    ulp: float
    eager: float
    inputs: tuple[str, ...]  # of our largest error there, as hexadecimal floats


@dataclass(frozen=True)
class Run:
    """Neighbouring cells with errors above 4 ulp."""

    # low, high: the least and the largest input, as hexadecimal floats
    low: str
    high: str
    # ulp, eager: the largest errors of ours and of eager's
    ulp: float
    eager: float


@dataclass(frozen=True)
class Local:
    """The errors of an output by cell of a float32 sweep, or by point of a sample."""

    over: tuple[int, int] = (0, 0)  # how many cells or points have an error above 4 ulp, ours and eager's
    blind: int = 0  # in how many cells eager is no yardstick: half of its errors exceed 128 ulp
    kept: int = 0  # in how many of those ours is within 4 ulp
    # the cells in which ours is above 4 ulp, as at most `MOST_RUNS` intervals that cover them
    runs: tuple[Run, ...] = ()
    breaches: tuple[Breach, ...] = ()  # the rules that are broken
    # the same cells as intervals without a gap, as many as there are; not written down
    clusters: tuple[Run, ...] = ()


@dataclass(frozen=True)
class Output:
    """The findings on the value, or on the gradient of one input."""

    name: str  # ``value`` or ``gradient of NAME``
    # given, eager: the accuracy of ours and of eager's
    given: Accuracy
    eager: Accuracy | None = None
    bits_differ: int = 0  # how many results have other bits than eager's; NaN equals NaN
    worse_than_eager: int = 0  # how many of those are further from the exact value than eager's
    # the least and the largest result, then those of the real function, rounded outwards
    range: tuple[float, float, float, float] | None = None
    specials: tuple[Special, ...] = ()  # results at infinities, zeros and NaN
    local: Local = field(default_factory=Local)  # the errors by cell, box or binade
    results: int = 0  # how many were judged, where these are not as many as the inputs, which are rows


@dataclass(frozen=True)
class ReferenceMismatch:
    """A difference of a reference from the formula, too large for any rounding."""

    count: int  # at how many inputs
    # first, worst: inputs, as hexadecimal floats, with the formula's value and the reference's
    first: tuple[str, ...]
    worst: tuple[str, ...]


@dataclass(frozen=True)
class Sample:
    """The findings on a sample beside the judged inputs."""

    inputs: int  # how many were tried
    outputs: tuple[Output, ...]  # the value first, then the gradients
    # the values of the parameters, where they are not the defaults
    scalars: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Tried:
    """Counts of what was tried beside the judged inputs: relations, values of parameters, specials."""

    relations: int = 0
    parameters: int = 0
    specials: int = 0


@dataclass(frozen=True)
class Relations:
    """The findings on other calls of a function: see `fusegen.evidence.certify.relations`."""

    kept: int = 0  # how many cases kept their relation
    broken: tuple[str, ...] = ()  # a sentence for each relation that is broken
    specials: int = 0  # how many special inputs were among the cases


@dataclass(frozen=True)
class Evidence:
    """The findings in one dtype."""

    dtype: str  # its name in torch
    inputs: int  # how many were judged
    every: bool  # whether those are all there are
    undecided: int  # how many inputs were open after the filter and not looked at
    outputs: tuple[Output, ...]  # the value first, then the gradients
    mismatch: ReferenceMismatch | None = None  # where the reference is not the formula
    # the range of each input that was judged, where it is not the whole type
    ranges: Ranges = field(default_factory=dict)
    beyond: Sample | None = None  # the findings beyond those ranges, which are reported and not judged
    scalars: tuple[Sample, ...] = ()  # the findings at other values of the parameters
    promise: str = "accurate"  # what the kernels promise; see `contract`
    broken: tuple[str, ...] = ()  # a sentence for each promise that is broken
    tried: Tried = Tried()  # what was tried beside the judged inputs
    relations: Relations = Relations()  # the findings on other calls
