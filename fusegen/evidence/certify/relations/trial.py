"""A function at 4,096 points: its results in one contiguous call, which every other call has to repeat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fusegen.evidence.certify import exact, tried_inputs
from fusegen.evidence.certify.findings import Function, Subject
from fusegen.evidence.certify.slopes import Points, differentiated, value_and_slopes

Results = Sequence["Tensor | None"]  # the value, then the gradients; None for one that a call lacks
COUNT, SIDE, SEED = 2**12, 2**6, 20261


@dataclass(frozen=True)
class Trial:
    """A function, its points and its results there."""

    function: Function  # the function, of tensors
    names: tuple[str, ...]  # the names of its inputs
    points: Points  # a contiguous column for each input, on the device
    # the value and the gradients of the contiguous call, at an incoming gradient of 1
    expected: Points = field(repr=False)
    eager: Function | None = None  # PyTorch's function, if there is one
    # the keywords that the function takes, of ``out`` and ``inplace``
    keywords: frozenset[str] = frozenset()
    assumed: tuple[tuple[float, float], ...] = ()  # the range of each input

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the points."""
        return self.points[0].dtype

    @property
    def device(self) -> torch.device:
        """The device of the points."""
        return self.points[0].device

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return ["value", *(f"gradient of {name}" for name in self.names)]

    def same(self, results: Results, index: Tensor) -> list[Compared]:
        """Compare another call's value and gradients bit by bit with the contiguous call's at `index`."""
        return compared(self, results, [whole[index] for whole in self.expected], index)


@dataclass(frozen=True)
class Compared:
    """One output of one call, compared with what it should be."""

    output: str  # its name
    differ: Tensor  # a mask of the results that are not as they should be
    # the place of each result among the points; None where a result is of several points
    index: Tensor | None
    points: Points | None = None  # the points, where they are not the trial's


Case = tuple[str, Callable[[Trial], Iterable[Compared]]]  # what is special about a call, and the call


def compared(
    trial: Trial, results: Results, wanted: Sequence[Tensor], index: Tensor | None
) -> list[Compared]:
    """Compare results bit by bit; a NaN equals every other."""
    return [
        Compared(name, mismatches(got, want), index)
        for name, got, want in zip(trial.outputs, results, wanted, strict=False)
        if got is not None
    ]


def mismatches(got: Tensor, want: Tensor) -> Tensor:
    """Return a mask of results with other bits, or of all of them where shape or dtype is another."""
    if (got.shape, got.dtype, got.device) != (want.shape, want.dtype, want.device):
        return torch.ones_like(want, dtype=torch.bool)
    return exact.bits_differ(got.detach(), want)


def trial(subject: Subject, device: str, dtype: torch.dtype) -> Trial | None:
    """Return a subject's trial in one dtype; None where no number of the type is judged.

    Raises:
        ValueError: the function overwrites its input, returns no such tensor, or gives other results the
            second time.
    """
    judged = tried_inputs.judged(subject, dtype)
    size = len(judged[0])
    if size == 0:
        return None
    order = torch.randperm(size, generator=torch.Generator().manual_seed(SEED))
    order = order.repeat(-(-COUNT // size))[:COUNT]  # some more than once where there are fewer
    points = tuple(column[order] for column in judged)
    there = tuple(t.to(device) for t in points)
    kept = tuple(t.clone() for t in there)
    first = value_and_slopes(subject.given, there)  # which refuses what is no function of tensors
    second = differentiated(subject.given, there)
    if any(bool(exact.bits_differ(a, b).any()) for a, b in zip(there, kept, strict=True)):
        raise ValueError("it changes its input")
    if any(bool(mismatches(a, b).any()) for a, b in zip(second, first, strict=True)):
        raise ValueError("it gives other results the second time")
    assumed = tuple(subject.assume.get(name, tried_inputs.ANYWHERE) for name in subject.program.inputs)
    return Trial(
        subject.given, subject.program.inputs, there, first, subject.eager, subject.keywords, assumed
    )
