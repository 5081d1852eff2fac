"""Rows under vmap, and their derivatives along tangents."""

from typing import Any, Callable, List, Sequence

import torch

from .calls import batched, pullback
from .shared import listed


def in_batch(kernels: Any, function: "Callable[..., Any]", in_dims: Any, arguments: Any) -> Any:
    """Return the function of each of a batch; by PyTorch's operations where a batch moves the rows."""
    if kernels.over < 0:
        return batched(function, in_dims, arguments)
    made = torch.func.vmap(kernels.eager, in_dims)(*arguments)
    return made, (0,) * len(made) if isinstance(made, tuple) else 0


def gradients_in_batch(kernels: Any, function: "Callable[..., Any]", in_dims: Any, arguments: Any) -> Any:
    """Return the gradients of each of a batch: of tensors of the whole shape, which are no sums."""
    results = kernels.results
    count = results + kernels.inputs
    tensors, dims, params = arguments[:count], in_dims[:count], arguments[count:]
    if kernels.over >= 0:
        made = torch.func.vmap(kernels.slopes, in_dims)(*arguments)
        return made, (0,) * len(made) if isinstance(made, tuple) else 0
    count = next(t.shape[d] for t, d in zip(tensors, dims) if d is not None)
    every = [t[None] if d is None else t.movedim(d, 0) for t, d in zip(tensors, dims)]
    grads, moved = every[:results], every[results:]
    rank = max(t.dim() for t in moved)
    padded = [t[(slice(None), *(None,) * (rank - t.dim()))] for t in moved]
    shape = torch.broadcast_shapes(*(t.shape[1:] for t in padded))
    whole = [t.expand(count, *shape) for t in padded]
    incoming = [grad.expand(count, *grad.shape[1:]) for grad in grads]
    made = listed(function(*incoming, *whole, *params))
    result = tuple(
        g.sum_to_size(count, *p.shape[1:]).reshape(count, *t.shape[1:])
        for g, p, t in zip(made, padded, moved)
    )
    return (result, (0,) * len(result)) if len(result) > 1 else (result[0], 0)


def along(function: "Callable[..., Any]", tensors: "Sequence[Any]", tangents: "Sequence[Any]") -> Any:
    """Return the derivative of a function along some tangents: that of its gradient, which is linear."""
    value, pull = pullback(function, *tensors)
    zeros = [torch.zeros_like(v) for v in listed(value)]
    floats = [k for k, t in enumerate(tensors) if t.is_floating_point()]
    given: "List[Any]" = [
        torch.zeros_like(tensors[k]) if tangents[k] is None else tangents[k] for k in floats
    ]

    def gradients(*of: Any) -> Any:
        found = pull(of if isinstance(value, tuple) else of[0])
        return tuple(found[k] for k in floats)

    made: Any = torch.func.vjp(gradients, *zeros)[1](tuple(given))
    return tuple(made) if isinstance(value, tuple) else made[0]
