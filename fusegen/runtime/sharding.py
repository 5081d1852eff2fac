"""The sharding rules of a module's operators, for DTensor.

A dimension of the result may be sharded: operands that have it are sharded along it, and those that are
broadcast along it are replicated, so that each process adds up its part of their gradients (Partial).
Everything may be replicated. PyTorch redistributes what is laid out otherwise, and chooses the rule that
moves the fewest bytes. The rules are told when a module first meets a DTensor.
"""

import contextlib
from typing import Any, Callable, List, Sequence, Tuple

Rule = Tuple[List[Any], List[Any]]  # the placements of outputs and of arguments, along one mesh dimension


def is_sharded(*tensors: Any) -> bool:
    """Return True if tensors are DTensors, which is asked by name: few programs import their class."""
    return all(t.__class__.__name__ == "DTensor" for t in tensors)


def register(kernels: Any) -> None:
    """Tell DTensor of a module's operators, once; an older PyTorch cannot be told."""
    operators, signature = kernels.operators, kernels.signature
    if hasattr(operators, "_sharding"):
        return
    operators._sharding = True
    with contextlib.suppress(ImportError):
        from torch.distributed.tensor.experimental import register_sharding

        for kernel, _, inputs, outputs in signature.kernels:
            operator = getattr(operators, f"{signature.name}_{kernel}").default
            register_sharding(operator)(_rules(signature, kernel, inputs, outputs))


def _rules(signature: Any, kernel: str, inputs: int, outputs: int) -> "Callable[..., List[Rule]]":
    """Return the rules of the operator of a kernel, by the shapes of its tensors."""

    def rules(*arguments: Any) -> "List[Rule]":
        from torch.distributed.tensor import Partial, Replicate, Shard

        shapes = [tuple(spec.shape) for spec in arguments[:inputs]]
        scalars = [None] * (len(arguments) - inputs)
        rank = max(map(len, shapes))
        found: "List[Rule]" = [([Replicate()] * outputs, [Replicate()] * inputs + scalars)]
        for dim in range(-rank, 0):
            places = [place_of(shape, dim) for shape in shapes]
            if all(place is None for place in places):
                continue
            given = [Replicate() if place is None else Shard(place) for place in places]
            own = [places[k] for k in signature.owners(kernel, shapes)] or [dim + rank]
            made = [Partial() if place is None else Shard(place) for place in own]
            found.append((made, given + scalars))
        return found

    return rules


def place_of(shape: "Sequence[Any]", dim: int) -> "Any":
    """The index of a dimension, counted from the last, or None where a shape is broadcast along it."""
    return len(shape) + dim if len(shape) >= -dim and shape[dim] != 1 else None
