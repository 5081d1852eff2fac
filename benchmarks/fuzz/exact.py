"""The contract at single inputs: errors in ulp of values and gradients that are computed in mpmath."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.fuzz.calls import Called
from fusegen.algebra.compose import expanded
from fusegen.algebra.derive import attached, derive, unrounded
from fusegen.compiler.pipeline import Compiled
from fusegen.compiler.stages import real
from fusegen.numerics.reals import BITS, Reals

POINTS = 40
SPECIAL = (0.0, -0.0, 1.0, -1.0, 3.0, 6.0, -3.0, math.inf, -math.inf, math.nan)
BITS_16 = 1.5  # ulp: the neighbours of the correctly rounded value are within
LIMIT = 4.0
OFF = 8  # times that eager runs with functions an ulp off
EXACT = frozenset(
    ("add", "sub", "rsub", "mul", "div", "neg", "abs", "sign", "where", "maximum", "minimum", "clamp")
)
BITS_64 = BITS[-2:]  # in which 1 + 2^-1074 is not 1


def points(chance: random.Random, dtype: torch.dtype, count: int) -> list[Tensor]:
    """Return a column for each tensor: special numbers, ordinary ones, and of any size."""
    info = torch.finfo(dtype)
    special = (*SPECIAL, info.max, -info.max, info.tiny, info.tiny / 4)

    def number() -> float:
        kind = chance.random()
        if kind < 0.2:
            return chance.choice(special)
        if kind < 0.65:
            return chance.gauss(0, 3)
        most = 12.0 if kind < 0.85 else math.log2(info.max)
        return chance.choice((1, -1)) * math.pow(2.0, chance.uniform(-most, most))

    return [torch.tensor([number() for _ in range(POINTS)]).to(dtype) for _ in range(count)]


def wrong(compiled: Compiled, called: Called, given: list[Tensor]) -> Iterator[str]:
    """Return the breaches of the contract at some points, of the value and of each gradient.

    The error of a result is at most twice eager's largest error at these points, or eager's at its own;
    of a spec with eager's numerics, twice that of eager whose functions are an ulp off. A result is NaN or
    a wrong infinity only where eager's is.
    """
    program = unrounded(attached(expanded(real(compiled.spec, compiled.library))))
    backward = derive(expanded(real(compiled.spec, compiled.library)))
    gradients = Reals(unrounded(attached(backward)), BITS_64) if len(backward.inputs) else None
    reals = Reals(program, BITS_64), gradients
    names, params = program.inputs, list(called.params.values())
    ours, eager = (_results(f, given) for f in (called.call, called.eager))
    off = [_ulp_off(called, given, seed) for seed in range(OFF if compiled.declared.is_eager else 0)]
    dtype = ours[0].dtype
    exact = [
        _exact(reals, backward.inputs, [t[k].item() for t in given], params, names) for k in range(POINTS)
    ]
    for place, label in enumerate(("value", *(f"gradient of {name}" for name in names))):
        if ours[place] is None or eager[place] is None:
            continue
        column = [row[place] for row in exact]
        others = [column_of[place] for column_of in off]
        yield from _judged(label, (ours[place], eager[place], others), column, given, dtype)


def _ulp_off(called: Called, given: list[Any], seed: int) -> list[Any]:
    """Return eager's results, of PyTorch's functions with results an ulp away, up or down, or as they are.

    PyTorch types neither the class of a mode nor its constructor, so that the class is made by `type`.
    """
    generator = torch.Generator().manual_seed(seed)

    def neighbour(_: Any, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = operator(*args, **(kwargs or {}))
        name = operator.overloadpacket.__name__.rstrip("_")
        if torch.Tag.pointwise not in operator.tags or name in EXACT or not found.is_floating_point():
            return found
        way = torch.randint(-1, 2, found.shape, generator=generator).to(found.dtype)
        return torch.where(way == 0, found, found * (1 + way * torch.finfo(found.dtype).eps))

    mode: Any = type("UlpOff", (TorchDispatchMode,), {"__torch_dispatch__": neighbour})
    with mode():
        return _results(called.eager, given)


def _results(function: Any, given: list[Any]) -> list[Any]:
    """Return the value and the gradients at some points, None where there is no gradient."""
    leaves = [t.clone().requires_grad_(t.is_floating_point()) for t in given]
    y = function(*leaves)
    wanted = [t for t in leaves if t.requires_grad]
    grads: Any = [None] * len(wanted)
    if y.requires_grad:
        grads = torch.autograd.grad(y, wanted, torch.ones_like(y), allow_unused=True)
    each = iter(grads)
    return [y.detach(), *(next(each) if t.requires_grad else None for t in leaves)]


def _exact(
    reals: Any, read: tuple[str, ...], at: list[Any], params: list[float], names: Any
) -> list[float]:
    """Return the value and the gradients at a point; NaN where one is not defined or not known."""
    forward, backward = reals
    scalars = dict(zip(forward.names[len(names) :], params, strict=True))
    point = dict(zip(names, map(float, at), strict=True)) | scalars
    if any(not math.isfinite(value) for value in point.values()):
        return [math.nan] * (1 + len(names))
    [value] = forward(point)
    if math.isnan(value):  # where a formula is not defined, no gradient is
        return [math.nan] * (1 + len(names))
    saved = {name: point.get(name, value) for name in read[1:]} | scalars
    found = backward({read[0]: 1.0, **saved})
    return [value, *found]


def _judged(
    label: str,
    results: tuple[Tensor, Tensor, list[Tensor]],
    exact: list[float],
    given: list[Tensor],
    dtype: torch.dtype,
) -> Iterator[str]:
    """Return the breaches of a result: results are ours, eager's, and eager's with functions an ulp off."""
    limit = LIMIT if dtype.itemsize > 2 else BITS_16
    ours, eager, others = results
    own, plain, *off = [
        [_ulp(x, right, dtype) for x, right in zip(each.tolist(), exact, strict=True)]
        for each in (ours, eager, *others)
    ]
    largest = max(filter(math.isfinite, plain), default=0.0)
    for k, (a, b, right) in enumerate(zip(ours.tolist(), eager.tolist(), exact, strict=True)):
        at = [t[k].item() for t in given]
        known = not math.isnan(right)
        lost = label == "value" and any(math.isnan(x) for x in at) and math.isnan(b) and not math.isnan(a)
        judged = known or (label == "value" and not any(math.isnan(x) for x in at))
        undefined = judged and math.isnan(a) and not math.isnan(b)
        beyond = known and own[k] > max(limit, 2 * largest, plain[k], *(2 * each[k] for each in off))
        if lost or undefined or beyond:
            yield f"{label} at {at}: {a!r}, eager {b!r}, exact {right!r}"


def _ulp(got: float, exact: float, dtype: torch.dtype) -> float:
    """Return an error in ulp; infinite for a NaN, and 0 where the exact result is not known."""
    info = torch.finfo(dtype)
    if math.isnan(exact):
        return 0.0
    if math.isnan(got):
        return math.inf
    if abs(exact) > info.max or math.isinf(got):
        near = abs(got) > info.max * (1 - 8 * info.eps) and abs(exact) > info.max * (1 - 8 * info.eps)
        return 0.0 if near and (got > 0) == (exact > 0) else math.inf
    unit = info.eps * max(2.0 ** (math.frexp(exact)[1] - 1) if exact else 0.0, info.tiny)
    return abs(got - exact) / unit if unit else (0.0 if got == exact else math.inf)
