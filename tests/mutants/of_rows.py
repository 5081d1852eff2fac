"""Faults of functions of rows, written in PyTorch's operations on double, which without one round once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

GROUPS = r"{}: \d+ of \d+ groups break C7: "
VALUE, GRADIENT = GROUPS.format("value"), GROUPS.format(r"gradient of \w+")


@dataclass(frozen=True)
class RowFault:
    """A function of rows with a fault."""

    # spec, dtype: whose module it takes the place of, and in which it is judged
    spec: str
    dtype: str
    function: Callable[..., Tensor]  # of the module's tensors and parameters
    rule: str = VALUE  # an expression that the sentence has to match that tells of it


def mean(u: Tensor) -> Tensor:
    return u.mean(-1, keepdim=True)


def layer_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    mean: Callable[[Tensor], Tensor] = mean,
    variance: Callable[[Tensor, Tensor], Tensor] = lambda u, d: mean(d * d),
    root: Callable[[Tensor], Tensor] = torch.rsqrt,
) -> Tensor:
    """Return a layer norm of which parts may be others; `variance` is of elements and their differences."""
    wide = x.double()
    centred = wide - mean(wide)
    return (centred * root(variance(wide, centred) + eps) * weight.double() + bias.double()).to(x.dtype)


def softmax(x: Tensor, total: Callable[[Tensor], Tensor] = lambda w: w.sum(-1, keepdim=True)) -> Tensor:
    wide = x.double()
    powers = torch.exp(wide - wide.amax(-1, keepdim=True).detach())
    return (powers / total(powers)).to(x.dtype)


def without_last(u: Tensor) -> Tensor:
    """Return the elements of a row but for the last one, where their number is odd."""
    length = u.shape[-1]
    return u[..., : length - length % 2 * (length > 1)]


def _padded(u: Tensor) -> Tensor:
    """Return the mean over one element more, where their number is odd."""
    return u.sum(-1, keepdim=True) / (u.shape[-1] + u.shape[-1] % 2)


def _rounded_between(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return an RMS norm whose rows are rounded before their weight."""
    wide = x.double()
    return (wide * torch.rsqrt(mean(wide * wide) + eps)).to(x.dtype) * weight


def _of_batches(x: Tensor) -> Tensor:
    """Return softmax, of one row alone with other bits."""
    return softmax(x) if x.shape[0] > 1 else softmax(x) * (1 + torch.finfo(x.dtype).eps)


def _squared(x: Tensor) -> Tensor:
    """Return softmax, whose incoming gradient is squared."""
    y: Any = softmax(x)
    y.register_hook(lambda grad: grad * grad)
    return torch.as_tensor(y)


def _of_float(u: Tensor) -> Tensor:
    return mean(u.float()).double()


NORM = partial(RowFault, "layer_norm", "float32")
CONTROLS = {
    "layer norm": NORM(layer_norm),
    "layer norm in bfloat16": RowFault("layer_norm", "bfloat16", layer_norm),
    "softmax": RowFault("softmax", "float32", softmax),
}
ROW_FAULTS = {
    "sums in float": NORM(partial(layer_norm, mean=_of_float, variance=lambda u, d: _of_float(d * d))),
    "E[x²] - E[x]²": NORM(partial(layer_norm, variance=lambda u, d: mean(u * u) - mean(u) ** 2)),
    "padding counted as elements": NORM(partial(layer_norm, mean=_padded)),
    "no eps": NORM(lambda x, weight, bias, eps: layer_norm(x, weight, bias, 0.0)),
    "an approximate rsqrt": NORM(partial(layer_norm, root=lambda v: torch.rsqrt(v.float()).double())),
    "a gradient without the sum of the mean": NORM(
        partial(layer_norm, mean=lambda u: mean(u).detach()), GRADIENT
    ),
    "a gradient without the sum of the variance": NORM(
        partial(layer_norm, variance=lambda u, d: mean(d * d).detach()), GRADIENT
    ),
    "the last element of odd rows ignored": NORM(
        partial(layer_norm, variance=lambda u, d: mean(without_last(d) ** 2))
    ),
    "rounded between": RowFault("rms_norm", "bfloat16", _rounded_between, GRADIENT),
    "powers added in float": RowFault(
        "softmax", "float32", partial(softmax, total=lambda w: w.float().sum(-1, keepdim=True))
    ),
    "the last power of odd rows lost": RowFault(
        "softmax", "bfloat16", partial(softmax, total=lambda w: without_last(w).sum(-1, keepdim=True))
    ),
    "no maximum taken off": RowFault(
        "softmax", "float32", lambda x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)
    ),
    "other bits of a row alone": RowFault(
        "softmax", "float32", _of_batches, "one result of rows of 7, each alone"
    ),
    "the incoming gradient squared": RowFault(
        "softmax", "float32", _squared, r"one result of rows of 7, at 2\^-3 times"
    ),
    "NaN lost": RowFault(
        "softmax", "float32", lambda x: softmax(x).nan_to_num(0.0), "rows with a NaN first, of 7"
    ),
}  # fmt: skip
