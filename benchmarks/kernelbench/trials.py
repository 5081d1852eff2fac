"""The trials of the benchmark: equal seeds give equal weights, and equal inputs nearly equal results.

Both models are constructed after the same seed, and no weights are copied. A trial seeds, draws inputs,
casts floats to the dtype, and gives the same tensors to the reference and then to the candidate. The
benchmark draws inputs on the CPU and moves them; they are drawn on the device here, which is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.kernelbench.problem import Pair

SEED = 42
TRIALS, GRADIENT, EVALUATION, PARAMETERS = "trials", "gradient mode", "evaluation mode", "parameters"
MODES = (TRIALS, GRADIENT, EVALUATION)
TOLERANCE = {  # absolute, and of the value
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 1e-2,
}


@dataclass(frozen=True)
class Place:
    """Where models run."""

    device: str  # ``cpu`` or ``cuda``
    dtype: torch.dtype  # of floating-point tensors

    @property
    def tolerance(self) -> float:
        """The distance that results may have, absolutely and of their value."""
        return TOLERANCE[self.dtype]


@dataclass(frozen=True)
class Models:
    """A reference and a candidate with equal weights."""

    # reference, candidate: on the device, of the dtype, in training mode
    reference: nn.Module
    candidate: nn.Module
    # gives the inputs of a seed, on the device and of the dtype; numbers as they are
    draw: Callable[[int], list[Any]]


@dataclass(frozen=True)
class Finding:
    """A failed check."""

    check: str  # its name
    said: str  # the failure, in a sentence


def models(pair: Pair, place: Place) -> Models:
    """Return both models, made as the benchmark makes them."""

    def draw(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        with torch.device(place.device):
            return [_placed(value, place) for value in pair.get_inputs()]

    torch.manual_seed(SEED)
    arguments = pair.get_init_inputs()
    both = []
    for of in (pair.model, pair.candidate):
        torch.manual_seed(SEED)
        both.append(of(*arguments))
    return Models(both[0], both[1], draw)


def placed(of: Models, place: Place) -> Models:
    """Return the models on their device and of their dtype."""
    reference, candidate = (
        model.to(device=place.device, dtype=place.dtype) for model in (of.reference, of.candidate)
    )
    return Models(reference, candidate, of.draw)


def state_differs(reference: nn.Module, candidate: nn.Module) -> str:
    """The difference of the candidate's state in names, order, shapes or bits; empty if it is the same."""
    theirs, ours = reference.state_dict(), candidate.state_dict()
    if list(theirs) != list(ours):
        return f"its state_dict has {_listed(ours)}, the problem's {_listed(theirs)}"
    for name, tensor in theirs.items():
        if ours[name].shape != tensor.shape or ours[name].dtype != tensor.dtype:
            return f"{name} is {_kind(ours[name])} in its state_dict, {_kind(tensor)} in the problem's"
        if not same_bits(ours[name], tensor):
            return f"{name} has other values after the same seed"
    names = [sorted(name for name, _ in model.named_parameters()) for model in (reference, candidate)]
    if names[0] != names[1]:
        return f"its parameters are {_listed(names[1])}, the problem's {_listed(names[0])}"
    return ""


def findings(of: Models, place: Place, count: int) -> Iterator[Finding]:
    """Yield the failed trials, by mode; a count of them in the mode of the benchmark, one in each other."""
    before = {name: tensor.detach().clone() for name, tensor in of.candidate.named_parameters()}
    for mode in MODES:
        with _in_mode(of, mode):
            drawn = seeds(count if mode == TRIALS else 1)
            told = (trial(of, of.draw(seed), place) for seed in drawn)
            said = next(filter(None, told), "")
        if said:
            yield Finding(mode, said)
    for name, tensor in of.candidate.named_parameters():
        if not same_bits(tensor, before[name]):
            yield Finding(PARAMETERS, f"it writes to its parameter {name}")


def trial(of: Models, inputs: list[Any], place: Place) -> str:
    """Return the failure of the candidate's result for the given inputs; empty if it is right."""
    expected = of.reference(*inputs)
    kept = [value.clone() if isinstance(value, Tensor) else value for value in inputs]
    given = of.candidate(*inputs)
    for number, (before, after) in enumerate(zip(kept, inputs, strict=True)):
        if isinstance(before, Tensor) and not same_bits(before, after):
            return f"it writes to input {number}"
    return wrong(given, expected, place.tolerance)


def wrong(given: Any, expected: Tensor, tolerance: float) -> str:
    """Return the failure of a result: its type, its requires_grad, or its values."""
    if not isinstance(given, Tensor):
        return f"it gives a {type(given).__name__}, not a tensor"
    if _kind(given) != _kind(expected):
        return f"it gives {_kind(given)} for {_kind(expected)}"
    if given.requires_grad != expected.requires_grad:
        ours, theirs = given.requires_grad, expected.requires_grad
        return f"requires_grad of its result is {ours}, of the problem's {theirs}"
    off = _off(given.detach(), expected.detach(), tolerance)
    if off is None:
        return ""
    found, real = (float(t.detach().reshape(-1)[off]) for t in (given, expected))
    return f"it gives {found:.6g} for {real:.6g} at element {off}"


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Return True if two tensors have the same bits."""
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    word = words.get(left.dtype.itemsize)
    if word is None or left.dtype == torch.bool:
        return torch.equal(left, right)
    return torch.equal(left.detach().contiguous().view(word), right.detach().contiguous().view(word))


def seeds(count: int) -> list[int]:
    """Return the seeds of the trials, drawn from one seed."""
    generator = torch.Generator().manual_seed(SEED)
    return [int(torch.randint(0, 2**31, (), generator=generator)) for _ in range(count)]


def _off(given: Tensor, expected: Tensor, tolerance: float) -> int | None:
    """The first element that is further off than `torch.allclose` allows; NaN is not close to anything.

    Of integers, as the places of elements, the first other one: a share of a large place is many elements.
    """
    tolerance = tolerance if expected.is_floating_point() else 0.0
    right = torch.isclose(given, expected, rtol=tolerance, atol=tolerance)
    return None if bool(right.all()) else int((~right).reshape(-1).byte().argmax())


def _placed(value: Any, place: Place) -> Any:
    """Return a tensor on the device, of the dtype unless it has integers; Python numbers as they are."""
    if not isinstance(value, Tensor):
        return value
    return value.to(place.device, place.dtype if value.is_floating_point() else value.dtype)


@contextmanager
def _in_mode(of: Models, mode: str) -> Iterator[None]:
    """Both models in a mode inside, and in training mode after it."""
    both = (of.reference, of.candidate)
    for model in both:
        model.train(mode != EVALUATION)
    with nullcontext() if mode == GRADIENT else torch.no_grad():
        yield
    for model in both:
        model.train()


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _listed(names: Any) -> str:
    return ", ".join(names) or "nothing"
