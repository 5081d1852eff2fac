"""Results of a module on many inputs, and where two versions differ."""

from __future__ import annotations

import hashlib
import inspect
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.same_kernels.versions import module
from fusegen.core import scalar_values
from fusegen.evidence.certify import tried_inputs
from fusegen.evidence.certify.tried_inputs import INTEGERS

TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
SAMPLE, ORDINARY, WIDTH, THIN = 2**20, 2**16, 64, 2**12
SPECIALS = (*tried_inputs.SPECIALS, 1.0, -1.0)
NUMBER = Fraction(3, 2)  # for a number without a default
Label = tuple[str, ...]  # the type, the layout, the values of scalars, the output
Computed = tuple[Label, Tensor, tuple[Tensor, ...]]  # what it is, and of which inputs


@dataclass(frozen=True)
class Results:
    """A digest of each output, and the number of inputs in all types, at the default scalars."""

    inputs: int
    digests: dict[Label, str]


def results(path: Path, device: str) -> Results:
    """Return the results of a module on a device: value and gradients, by type, layout and scalars."""
    own = module(path)
    digests = {label: digest(found) for label, found, _ in _computed(own, device)}
    return Results(sum(points(dtype, own.KERNELS.inputs).shape[1] for dtype in TYPES), digests)


def result(path: Path, device: str, *label: str) -> bytes:
    """Return an output and the inputs that it is of, as torch.save writes them."""
    file = io.BytesIO()
    torch.save(next(rest for found, *rest in _computed(module(path), device) if found == label), file)
    return file.getvalue()


def counted(old: bytes, now: bytes) -> str:
    """Return the number of results that differ in two that `result` gives, and where the first does."""
    (before, tried), (after, _) = [torch.load(io.BytesIO(one)) for one in (old, now)]
    if (before.dtype, before.shape) != (after.dtype, after.shape):
        return f"{after.dtype} of {tuple(after.shape)} instead of {before.dtype} of {tuple(before.shape)}"
    wrong = (_bits(before) != _bits(after)).flatten()
    at = ", ".join(float(t.flatten()[wrong][0]).hex() for t in tried)
    return f"{int(wrong.sum()):,} of {len(wrong):,} differ, first at {at}"


def patterns(dtype: torch.dtype) -> Tensor:
    """Return all values of a 16-bit type, else `SAMPLE` bit patterns as far apart as an odd step allows."""
    if dtype.itemsize == 2:
        found: Tensor = tried_inputs.every(dtype)
    else:
        step = 2 ** (8 * dtype.itemsize) // SAMPLE - 1
        found = (torch.arange(SAMPLE) * step).to(INTEGERS[dtype]).view(dtype)  # wraps around
    return found


@cache
def points(dtype: torch.dtype, count: int) -> Tensor:
    """Return the inputs, of shape (count, n) with an n that `WIDTH` divides."""
    generator = torch.Generator().manual_seed(22)
    every = patterns(dtype)
    shuffled = [every[torch.randperm(len(every), generator=generator)] for _ in range(count - 1)]
    special = torch.cartesian_prod(*[torch.tensor(SPECIALS, dtype=dtype)] * count).view(-1, count).T
    ordinary = (torch.randn(count, ORDINARY, generator=generator, dtype=torch.float64) * 4).to(dtype)
    points = torch.cat([special, torch.stack([every, *shuffled]), ordinary], 1)
    return points[:, : points.shape[1] // WIDTH * WIDTH]


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "dense": lambda t: t.view(-1, WIDTH),
    "every other column": lambda t: t.view(-1, WIDTH).repeat_interleave(2, 1)[:, ::2],
    "from the fourth on": lambda t: t[3:],
}


def _computed(own: Any, device: str) -> Iterator[Computed]:
    """Yield each output with its label and the inputs; scalars that eager refuses are left out."""
    defaults = _scalars(own)
    for dtype in TYPES:
        whole = points(dtype, own.KERNELS.inputs)
        thin = whole[:, :: whole.shape[1] // THIN][:, :THIN].contiguous()
        others = [
            values for values in scalar_values.combinations(defaults) if eager_takes(own, values, thin)
        ]
        cases = [(layout, defaults, whole) for layout in LAYOUTS]
        cases += [("dense", values, thin) for values in others]
        for layout, values, chosen in cases:
            laid = tuple(LAYOUTS[layout](t.to(device)) for t in chosen)
            numbers = {name: float(value) for name, value in values.items()}
            label = (str(dtype).removeprefix("torch."), layout, *(f"{n}={v!r}" for n, v in numbers.items()))
            for name, found in _outputs(own, laid, numbers):
                yield (*label, name), found, laid


def eager_takes(own: Any, values: dict[str, Fraction], points: Tensor) -> bool:
    """Return True if PyTorch accepts these scalars; what it refuses, no certificate tells of."""
    try:
        own.eager(*points[:, :1], *map(float, values.values()))
    except (RuntimeError, ValueError, ZeroDivisionError):
        return False
    return True


def _outputs(
    own: Any, points: tuple[Tensor, ...], numbers: dict[str, float]
) -> Iterator[tuple[str, Tensor]]:
    """Yield the value, with a gradient and without, and the gradients of ones and of random numbers.

    The function is that of the kernels, which takes views and masks after they are made.
    """
    leaves = tuple(t.detach().requires_grad_() for t in points)
    function = own.KERNELS.call
    yield "value alone", function(*points, **numbers)
    y = function(*leaves, **numbers)
    yield "value", y.detach()
    generator = torch.Generator().manual_seed(23)
    random = torch.randn(math.prod(y.shape), generator=generator, dtype=torch.float64).to(y.dtype)
    spread = random.to(y.device).repeat_interleave(2)[::2].view(y.shape)
    for kind, incoming in (("ones", torch.ones_like(y)), ("numbers", spread)):
        slopes = torch.autograd.grad(y, leaves, incoming, retain_graph=True)
        yield from ((f"gradient {k} of {kind}", slope) for k, slope in enumerate(slopes))


def _scalars(own: Any) -> dict[str, Fraction]:
    """Return the parameters of a module's function that are numbers, with their defaults, or `NUMBER`."""
    arguments = getattr(own.KERNELS.operators, own.KERNELS.name).default._schema.arguments
    name = own.KERNELS.name
    given = inspect.signature(getattr(own, name)).parameters
    defaults = {one.name: given[one.name].default for one in arguments[own.KERNELS.inputs :]}
    return {
        name: NUMBER if at is inspect.Parameter.empty else Fraction(at) for name, at in defaults.items()
    }


def digest(found: Tensor) -> str:
    """Return a digest of a result, with its type and shape."""
    form = f"{found.dtype} {tuple(found.shape)} "
    return hashlib.sha256(form.encode() + _bits(found).numpy().tobytes()).hexdigest()


def _bits(t: Tensor) -> Tensor:
    """Return the bit patterns of a tensor on the CPU; every NaN is one."""
    plain = torch.where(t.isnan(), torch.full_like(t, math.nan), t).cpu().contiguous()
    return plain.view(INTEGERS[t.dtype])
