"""The operators of a layer with parameters of any dtype."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.models.reader.aten_calls import calls_in
from fusegen.models.reader.operator_call import Calls


def twin(layer: nn.Module) -> Any:
    """Return another layer of the same attributes; a parametrized one refuses copy.copy."""
    other = object.__new__(type(layer))
    vars(other).update(vars(layer))
    return other


def attributes(layer: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a layer that decide its function."""
    return (each for each in vars(layer).items() if not each[0].startswith("_") and each[0] != "training")


def operators_of(layer: nn.Module, x: Tensor) -> Calls | None:
    """Return the operators of a layer, a copy that takes the dtype of `x`; None if forward does more."""
    before = [*attributes(layer)]
    every = ((name, each) for name, each in layer._parameters.items() if each is not None)
    weights = {name: torch.empty(each.shape, dtype=x.dtype, device="cpu") for name, each in every}

    def run(x: Tensor, *given: Tensor) -> Any:
        vars(layer)["_parameters"] = dict(zip(weights, given, strict=True))
        return type(layer).forward(layer, x)

    found = calls_in(run, [x, *weights.values()])
    return found if [*attributes(layer)] == before else None
