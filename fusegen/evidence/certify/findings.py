"""The findings of a certification, as values; `certificate` writes them, `contract` judges them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from fusegen.core.term import Program
from fusegen.evidence.certify.local_bound import Local

if TYPE_CHECKING:
    from torch import Tensor

Function = Callable[..., "Tensor"]
Ranges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Subject:
    """A function, and the formula that it is compared with.

    Attributes:
        name: of the spec, or of the callable.
        program: the formula over the real numbers, as declared; it has one result.
        stable: a program equal to it over the real numbers, in which little cancels.
        params: the values of its parameters.
        given: the function, of tensors and its keywords only; differentiable by autograd.
        eager: PyTorch's function; None where `given` is compared with the formula only.
        promise: what it promises: ``accurate``, ``arithmetic`` or ``eager``; see `contract`.
        reference: PyTorch's function that the spec names, if it names one.
        compared: the reference where `eager` does not call it; it is compared with the formula, too.
        assume: the range of each input that has one.
        masks: the inputs that are masks.
        keywords: the keywords that `given` takes, of ``out`` and ``inplace``.
        with_params: the same subject at other values of its parameters; None where it has none.
    """

    name: str
    program: Program
    stable: Program
    params: dict[str, Fraction]
    given: Function
    eager: Function | None = None
    promise: str = "accurate"
    reference: str = ""
    compared: Function | None = None
    assume: Ranges = field(default_factory=dict)
    masks: frozenset[str] = frozenset()
    keywords: frozenset[str] = frozenset()
    with_params: Callable[[dict[str, Fraction]], Subject] | None = None


@dataclass(frozen=True)
class Worst:
    """An input with a large error.

    Attributes:
        inputs: as hexadecimal floats.
        ulp: the error in ulp of the exact value.
        got: the function's result, as a hexadecimal float.
        real: the exact value, rounded to a double, as a hexadecimal float.
        rows: the kind and the length of rows, which are no inputs that can be named.
    """

    inputs: tuple[str, ...]
    ulp: float
    got: str
    real: str
    rows: str = ""


@dataclass(frozen=True)
class Accuracy:
    """The distances of one function's results from the exact ones.

    Attributes:
        worst: its largest errors, of different magnitudes of inputs, the largest first.
        misrounded: how many results are not correctly rounded.
        beyond_neighbour: how many are neither correctly rounded nor next to it.
        overflows: how many are infinite where the exact value is within the type's range.
        monotonicity_breaks: how many steps from one input to the next go down where the function goes up,
            or up where it goes down.
    """

    worst: tuple[Worst, ...] = ()
    misrounded: int = 0
    beyond_neighbour: int = 0
    overflows: int = 0
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
    """The results at a special input, as Python writes floats.

    Attributes:
        input: the special value; the other inputs, if there are any, are 1.
        given, eager: ours and eager's.
        real: the limit of the formula.
        of: the input that has the value, where the function has several.
    """

    input: str
    given: str
    eager: str
    real: str
    of: str = ""

    @property
    def place(self) -> str:
        """The special input by name: ``nan``, or ``gate=nan``."""
        return f"{self.of}={self.input}" if self.of else self.input


@dataclass(frozen=True)
class Output:
    """The findings on the value, or on the gradient of one input.

    Attributes:
        name: ``value`` or ``gradient of NAME``.
        given, eager: the accuracy of ours and of eager's.
        bits_differ: how many results have other bits than eager's; NaN equals NaN.
        worse_than_eager: how many of those are further from the exact value than eager's.
        range: the least and the largest result, then those of the real function, rounded outwards.
        specials: results at infinities, zeros and NaN.
        local: the errors by cell, box or binade.
        results: how many were judged, where these are not as many as the inputs, which are rows.
    """

    name: str
    given: Accuracy
    eager: Accuracy | None = None
    bits_differ: int = 0
    worse_than_eager: int = 0
    range: tuple[float, float, float, float] | None = None
    specials: tuple[Special, ...] = ()
    local: Local = field(default_factory=Local)
    results: int = 0


@dataclass(frozen=True)
class ReferenceMismatch:
    """A difference of a reference from the formula, too large for any rounding.

    Attributes:
        count: at how many inputs.
        first, worst: inputs, as hexadecimal floats, with the formula's value and the reference's.
    """

    count: int
    first: tuple[str, ...]
    worst: tuple[str, ...]


@dataclass(frozen=True)
class Sample:
    """The findings on a sample beside the judged inputs.

    Attributes:
        inputs: how many were tried.
        outputs: the value first, then the gradients.
        scalars: the values of the parameters, where they are not the defaults.
    """

    inputs: int
    outputs: tuple[Output, ...]
    scalars: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Tried:
    """Counts of what was tried beside the judged inputs: relations, values of parameters, specials."""

    relations: int = 0
    parameters: int = 0
    specials: int = 0


@dataclass(frozen=True)
class Relations:
    """The findings on other calls of a function: see `fusegen.evidence.certify.relations`.

    Attributes:
        kept: how many cases kept their relation.
        broken: a sentence for each relation that is broken.
        specials: how many special inputs were among the cases.
    """

    kept: int = 0
    broken: tuple[str, ...] = ()
    specials: int = 0


@dataclass(frozen=True)
class Evidence:
    """The findings in one dtype.

    Attributes:
        dtype: its name in torch.
        inputs: how many were judged.
        every: whether those are all there are.
        undecided: how many inputs were open after the filter and not looked at.
        outputs: the value first, then the gradients.
        mismatch: where the reference is not the formula.
        ranges: the range of each input that was judged, where it is not the whole type.
        beyond: the findings beyond those ranges, which are reported and not judged.
        scalars: the findings at other values of the parameters.
        promise: what the kernels promise; see `contract`.
        broken: a sentence for each promise that is broken.
        tried: what was tried beside the judged inputs.
        relations: the findings on other calls.
    """

    dtype: str
    inputs: int
    every: bool
    undecided: int
    outputs: tuple[Output, ...]
    mismatch: ReferenceMismatch | None = None
    ranges: Ranges = field(default_factory=dict)
    beyond: Sample | None = None
    scalars: tuple[Sample, ...] = ()
    promise: str = "accurate"
    broken: tuple[str, ...] = ()
    tried: Tried = Tried()
    relations: Relations = Relations()
