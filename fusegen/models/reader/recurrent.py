"""The shapes of what recurrent layers give, whose steps PyTorch would take one by one.

PyTorch's own rules cut the sequence in as many parts as the example has steps: the sizes of their result
are right for that many, and a GRU fails where the number is a symbol.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


def recurrent(layer: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what a recurrent layer gives, without values; None for others and for packed sequences."""
    of = args[0] if args else kwargs.get("input")
    if (
        not isinstance(layer, nn.LSTM | nn.GRU | nn.RNN)
        or not isinstance(of, Tensor)
        or of.dim() not in (2, 3)
    ):
        return None
    directions = 2 if layer.bidirectional else 1
    width = layer.proj_size or layer.hidden_size
    is_first = layer.batch_first and of.dim() == 3
    steps, *batch = (of.transpose(0, 1) if is_first else of).shape[:-1]
    output = _empty(layer, of, (steps, *batch, directions * width))
    output = output.transpose(0, 1) if is_first else output
    states = (directions * layer.num_layers, *batch)
    hidden = _empty(layer, of, (*states, width))
    if isinstance(layer, nn.LSTM):
        return output, (hidden, _empty(layer, of, (*states, layer.hidden_size)))
    return output, hidden


def _empty(layer: nn.Module, of: Tensor, shape: tuple[Any, ...]) -> Tensor:
    """Return a tensor of a shape that may be written to, as a result of operations."""
    has_gradient = of.requires_grad or any(each.requires_grad for each in layer.parameters())
    made = torch.empty(shape, dtype=of.dtype, device=of.device, requires_grad=has_gradient)
    return made.clone()
