"""Errors of the candidate and of eager against the problem in float64: values and training gradients.

The benchmark's inputs lie in [0, 1) and its parameters are often all ones. Here inputs are normal numbers
of both signs at several scales, NaN and infinities stand in them, and parameters are random.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.kernelbench.errors import NOTHING, Errors, Limits, Size, errors, turned
from benchmarks.kernelbench.trials import Finding, Models, Place

SCALES = {"signed": 1.0, "signed, times 1e-3": 1e-3, "signed, times 30": 30.0, "signed, times 1e4": 1e4}
RANDOMISED, GRADIENTS = "randomised parameters", "gradient of"
NANS, INFINITIES = "NaN in the input", "infinities in the input"
SPECIAL = {NANS: ((1 / 3, float("nan")),), INFINITIES: ((1 / 5, float("inf")), (2 / 3, -float("inf")))}
ROUGHLY = 10  # tolerances, where numbers stand beside NaN: how accurate they are is measured elsewhere
MOST = 2**25  # elements of a tensor that is computed in float64; longer batches are cut

VALUES = Limits(off=1.0, spare=0.0, largest=1.25, typical=1.1, ulp=4.0)
# A rounding error moves a few elements over a kink, which changes gradients there: in eager's results, too.
SLOPES = Limits(off=2.0, spare=0.005, largest=None, typical=1.25, ulp=4.0)


@dataclass(frozen=True)
class Measured:
    """The errors of one result."""

    check: str  # what the result is of
    # eager, ours: their errors
    eager: Errors
    ours: Errors


@dataclass(frozen=True)
class Accuracy:
    """The measured accuracy of a candidate."""

    measured: tuple[Measured, ...]  # errors, check by check
    findings: tuple[Finding, ...]  # the failed checks
    limits: int  # elements that are NaN in eager's results and numbers in ours, where inputs are infinite


class Meter:
    """Measures the errors of a pair of models, and collects the failed checks."""

    def __init__(self, of: Models, place: Place) -> None:
        """Take models on their device."""
        self.of, self.place = of, place
        self.exact = copy.deepcopy(of.reference).double()
        self.drawn = _cut(of, of.draw(0))
        self.measured: list[Measured] = []
        self.findings: list[Finding] = []
        self.limits = 0

    def inputs(self, seed: int, scale: float) -> list[Any]:
        """Return normal numbers in the shapes of the problem's inputs; integers and numbers as drawn."""
        generator = torch.Generator().manual_seed(seed)
        return [
            (torch.randn(value.shape, generator=generator) * scale).to(value) if _is_real(value) else value
            for value in self.drawn
        ]

    def values(self, check: str, seed: int, scale: float) -> None:
        """Measure results."""
        inputs = self.inputs(seed, scale)
        with torch.no_grad():
            exact = self.exact(*_double(inputs))
            self.compare(check, self.of.candidate(*inputs), self.of.reference(*inputs), exact)

    def compare(self, check: str, ours: Tensor, eager: Tensor, exact: Tensor) -> None:
        """Measure one result; its errors are relative to its size, plus the root mean square or 1.

        Of integers, as the places of elements, those that differ count.
        """
        if not exact.is_floating_point():
            if self.is_alike(check, ours, eager):
                differs = ours.ne(exact).float(), eager.ne(exact).float()
                self.judge(check, (*differs, torch.zeros_like(differs[0])), Size(1.0, 0.0), VALUES)
            return
        finite = exact[exact.isfinite()]
        around = min(1.0, float(finite.square().mean().sqrt()) if finite.numel() else 0.0) or 1.0
        self.judge(check, (ours, eager, exact), Size(around, 1.0), VALUES)

    def judge(self, check: str, of: tuple[Tensor, Tensor, Tensor], size: Size, limits: Limits) -> None:
        """Keep the errors of a result: of ours and of eager's against the exact one."""
        ours, eager, exact = of
        if not self.is_alike(check, ours, eager):
            return
        found = Measured(check, *errors(eager, ours, exact, size, self.place.tolerance))
        self.measured.append(found)
        chance = turned(ours, eager, exact, size, self.place.tolerance) if found.eager.off else NOTHING
        said = limits.broken(found.eager, found.ours, torch.finfo(self.place.dtype).eps, chance)
        if said:
            self.findings.append(Finding(check, said))

    def is_alike(self, check: str, ours: Tensor, eager: Tensor) -> bool:
        """Return True if two results have one shape and one dtype; else keep a finding."""
        alike = (ours.shape, ours.dtype) == (eager.shape, eager.dtype)
        if not alike:
            self.findings.append(Finding(check, f"it gives {ours.dtype} {tuple(ours.shape)}"))
        return alike

    def special(self, check: str) -> None:
        """Compare results where NaN or infinities stand in every tensor."""
        inputs = self.inputs(3, 1.0)
        for tensor in inputs:
            if _is_real(tensor) and tensor.numel():
                for part, value in SPECIAL[check]:
                    tensor.view(-1)[int(tensor.numel() * part)] = value
        with torch.no_grad():
            ours, eager = self.of.candidate(*inputs), self.of.reference(*inputs)
        if not self.is_alike(check, ours, eager):
            return
        tolerance = ROUGHLY * self.place.tolerance if eager.is_floating_point() else 0.0
        close = torch.isclose(ours, eager, rtol=tolerance, atol=tolerance, equal_nan=True)
        limit = eager.isnan() & ~ours.isnan() if check == INFINITIES else torch.zeros_like(close)
        self.limits += int(limit.sum())
        off = ~(close | limit)
        if bool(off.any()):
            at = int(off.reshape(-1).byte().argmax())
            gave, should = (float(t.reshape(-1)[at]) for t in (ours, eager))
            self.findings.append(Finding(check, f"it gives {gave:.6g} for {should:.6g} at element {at}"))

    def randomise(self) -> bool:
        """Give all three models the same random parameters and buffers; whether there are any."""
        generator = torch.Generator(self.place.device).manual_seed(7)
        state = {name: _random(value, generator) for name, value in self.of.reference.state_dict().items()}
        for model in (self.of.reference, self.of.candidate, self.exact):
            model.load_state_dict(state)
        return bool(state)

    def gradients(self) -> None:
        """Measure the gradients of inputs and of all parameters in training mode."""
        inputs = self.inputs(5, 1.0)
        names = [f"input {k}" for k, value in enumerate(inputs) if _is_real(value)]
        names += [name for name, _ in self.of.reference.named_parameters()]
        exact = _gradients(self.exact, _double(inputs), self.place)
        eager = _gradients(self.of.reference, inputs, self.place)
        ours = _gradients(self.of.candidate, inputs, self.place)
        if len(ours) != len(names):
            return  # the trials report a different state_dict
        for name, *found in zip(names, ours, eager, exact, strict=True):
            self.gradient(f"{GRADIENTS} {name}", *found)

    def gradient(self, check: str, ours: Tensor | None, eager: Tensor | None, exact: Tensor | None) -> None:
        """Measure one gradient, whose errors are relative to its largest element."""
        if ours is None or eager is None or exact is None:
            if (ours is None) != (eager is None):
                said = "it gives none where the problem does" if ours is None else "the problem gives none"
                self.findings.append(Finding(check, said))
            return
        largest = float(exact.abs().amax()) if exact.numel() else 0.0
        self.judge(check, (ours, eager, exact), Size(largest or 1.0, 0.0), SLOPES)


def accuracy(of: Models, place: Place) -> Accuracy:
    """Return all measurements of a pair; the parameters of the models are others afterwards."""
    meter = Meter(of, place)
    for seed, (check, scale) in enumerate(SCALES.items()):
        meter.values(check, seed, scale)
    for check in SPECIAL:
        meter.special(check)
    if meter.randomise():
        meter.values(RANDOMISED, 4, 1.0)
    meter.gradients()
    return Accuracy(tuple(meter.measured), tuple(meter.findings), meter.limits)


def _cut(of: Models, inputs: list[Any]) -> list[Any]:
    """Return inputs with as much of the batch as `MOST` allows: of all tensors, else of the first alone."""
    with torch.no_grad():
        result = of.reference(*inputs)
    tensors = [value for value in inputs if isinstance(value, Tensor)]
    largest = max(tensor.numel() for tensor in (*tensors, result))
    cut = [_rows(value, largest) if isinstance(value, Tensor) else value for value in inputs]
    return cut if _runs(of, cut) else [cut[0], *inputs[1:]]


def _rows(tensor: Tensor, largest: int) -> Tensor:
    if largest <= MOST or not tensor.dim():
        return tensor
    return tensor[: max(1, tensor.shape[0] * MOST // largest)].clone()


def _runs(of: Models, inputs: list[Any]) -> bool:
    """Return True if the problem takes inputs: a first dimension that is no batch may not be cut."""
    try:
        with torch.no_grad():
            of.reference(*inputs)
    except RuntimeError:
        return False
    return True


def _is_real(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _double(inputs: list[Any]) -> list[Any]:
    return [value.double() if _is_real(value) else value for value in inputs]


def _random(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Return normal numbers of the root mean square that a tensor has, or of 1."""
    if not tensor.is_floating_point():
        return tensor
    size = float(tensor.double().square().mean().sqrt()) if tensor.numel() else 1.0
    drawn = torch.randn(tensor.shape, generator=generator, device=tensor.device)
    return (drawn * (size or 1.0)).to(tensor.dtype)


def _gradients(model: nn.Module, inputs: list[Any], place: Place) -> list[Tensor | None]:
    """Return the gradients of tensors and parameters for a random gradient of the result."""
    given = [value.detach().requires_grad_() if _is_real(value) else value for value in inputs]
    leaves = [value for value in given if _is_real(value)] + list(model.parameters())
    result = model(*given)
    if not result.requires_grad:  # of integers
        return [None] * len(leaves)
    generator = torch.Generator().manual_seed(6)
    incoming = torch.randn(result.shape, generator=generator).to(place.device, place.dtype).to(result.dtype)
    return list(torch.autograd.grad(result, leaves, incoming, allow_unused=True))
