"""Linearity in the incoming gradient, and its layouts."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from fusegen.evidence.certify.relations.trial import (
    COUNT,
    SEED,
    SIDE,
    Case,
    Compared,
    Trial,
    compared,
    mismatches,
)
from fusegen.evidence.certify.slopes import differentiated

# Intermediates of a gradient underflow before it does, by up to this factor. Those of float16 are floats,
# and only its own results round to the least normal number from below.
ROOM = {torch.float32: 2.0**7, torch.float64: 2.0**7, torch.bfloat16: 2.0**7, torch.float16: 2.0}
NEAR, FAR = 6, 14  # exponents
LIMITS = (0.0, float("inf"))


def _powers(trial: Trial, most: int) -> Tensor:
    """Draw powers of two of either sign, one for each point."""
    generator = torch.Generator().manual_seed(SEED)
    exponents = torch.randint(-most, most + 1, (COUNT,), generator=generator)
    signs = 1 - 2 * torch.randint(0, 2, (COUNT,), generator=generator)
    return torch.ldexp(signs.double(), exponents).to(trial.device, trial.dtype)


def _everywhere(value: float) -> Callable[[Trial], Tensor]:
    return lambda trial: torch.full((COUNT,), value, device=trial.device, dtype=trial.dtype)


SCALES: dict[str, Callable[[Trial], Tensor]] = {
    "powers of two up to 64": lambda trial: _powers(trial, NEAR),
    "powers of two up to 16384": lambda trial: _powers(trial, FAR),
    "4": _everywhere(4.0),
    "-1": _everywhere(-1.0),
    "-2 expanded": lambda trial: torch.full((), -2.0, device=trial.device, dtype=trial.dtype).expand(COUNT),
}
# Of a square of powers of two: the same values elsewhere in memory.
PLACES: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda grad: grad.t().contiguous().t(),
    "stride 2": lambda grad: torch.stack((grad, 3 * grad), -1)[..., 0],
    "stride 3 from an offset": lambda grad: torch.stack((-grad, grad, 5 * grad), -1)[..., 1],
    "rows with gaps": lambda grad: torch.cat((grad, -grad), 1)[:, :SIDE],
    "an offset": lambda grad: torch.cat((-grad.flatten()[:1], grad.flatten()))[1:].view(SIDE, SIDE),
    "a lazy negation": lambda grad: torch._neg_view(-grad),
    "flipped": lambda grad: grad.flip(0, 1).flip(0, 1),
}


def linear(trial: Trial) -> Iterator[Case]:
    """Scale the incoming gradient: by a power of two every gradient is scaled exactly."""
    for name, scale in SCALES.items():
        yield name, partial(_scaled, scale)
    for value in LIMITS:
        yield f"{value:g}", partial(_at_limit, value)


def incoming_layouts(trial: Trial) -> Iterator[Case]:
    """Lay the incoming gradient out in other ways than the value."""
    for name, place in PLACES.items():
        yield name, partial(_placed, place)


def _scaled(scale: Callable[[Trial], Tensor], trial: Trial) -> Iterator[Compared]:
    grad, index = scale(trial), torch.arange(COUNT, device=trial.device)
    found = differentiated(trial.function, trial.points, grad)
    least = torch.finfo(trial.dtype).tiny * ROOM[trial.dtype]
    yield from trial.same(found[:1], index)
    for name, got, one in zip(trial.outputs[1:], found[1:], trial.expected[1:], strict=True):
        want = grad * one
        exempt = ~one.isfinite() | (one.abs() < least)
        exempt |= ~want.isfinite() | (want.abs() < least)
        yield Compared(name, mismatches(got, want) & ~exempt, index)


def _at_limit(value: float, trial: Trial) -> Iterator[Compared]:
    """Compare at an incoming 0 or inf: zeros of either sign are equal, NaN may be where eager is wrong."""
    grad, index = _everywhere(value)(trial), torch.arange(COUNT, device=trial.device)
    found = differentiated(trial.function, trial.points, grad)
    # Eager in 16 bits may round an argument to one of the other sign, and be right by chance.
    wide = torch.promote_types(trial.dtype, torch.float32)
    points = tuple(t.to(wide) for t in trial.points)
    eager = differentiated(trial.eager, points, grad.to(wide)) if trial.eager else found
    least = torch.finfo(trial.dtype).tiny * ROOM[trial.dtype]
    for k, name in enumerate(trial.outputs[1:], 1):
        one, got = trial.expected[k], found[k]
        want = grad * one
        exempt = ~one.isfinite() | (one.abs() < least) | (got.isnan() & (eager[k] != want))
        yield Compared(name, (got != want) & ~exempt, index)


def _placed(place: Callable[[Tensor], Tensor], trial: Trial) -> list[Compared]:
    index = torch.arange(COUNT, device=trial.device).view(SIDE, SIDE)
    square = tuple(t.view(SIDE, SIDE) for t in trial.points)
    grad = _powers(trial, NEAR).view(SIDE, SIDE)
    wanted = differentiated(trial.function, square, grad)
    return compared(trial, differentiated(trial.function, square, place(grad)), wanted, index)
