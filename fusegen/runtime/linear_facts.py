"""Facts of a weight, by which the kernels of linear layers choose how a row of the input is multiplied."""

import weakref
from typing import Any, Dict, Tuple

import torch

Facts = Tuple[torch.Tensor, torch.Tensor]
KNOWN: "Dict[int, Dict[Any, Any]]" = {}  # by the id of a parameter: versions and facts, by place in memory


def facts(weight: torch.Tensor) -> Facts:
    """Return the largest magnitude of each term of a weight, and the largest 2-norm of a row.

    They are kept with a parameter until it changes. A change that its version does not tell of makes them
    wrong; they decide by which of two kernels a row is computed, and so its accuracy where numbers of it
    range more widely than in float16, and nothing else.
    """
    whole = weight if weight._base is None else weight._base
    if whole.__class__ is not torch.nn.Parameter or whole.is_inference() or not _on_usual_stream(weight):
        return facts_of(weight)
    key = id(whole)
    known = KNOWN.get(key)
    if known is None:
        known = KNOWN[key] = {"owner": weakref.ref(whole, lambda _: KNOWN.pop(key, None))}
    place = (weight.data_ptr(), weight.shape, weight.stride())
    version, found = known.get(place, (None, None))
    if version != weight._version:
        found = facts_of(weight)
        known[place] = weight._version, found
    return found


def _on_usual_stream(weight: torch.Tensor) -> bool:
    """Return True where what is made may be kept: a graph of CUDA's has a stream and memory of its own."""
    return torch._C._cuda_getCurrentRawStream(weight.device.index) == 0


def facts_of(weight: torch.Tensor) -> Facts:
    """Return the same, computed now."""
    norm = torch.linalg.vector_norm
    largest, rows = norm(weight, float("inf"), dim=0), norm(weight, 2, dim=1)
    return largest.contiguous(), rows.max()
