"""Facts of a weight, by which the kernels of linear layers choose how a row of the input is multiplied."""

from typing import Any, Tuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

KNOWN: Any = WeakTensorKeyDictionary()  # by tensor, and by what else they depend on, its version and facts


def facts(weight: torch.Tensor) -> "Tuple[torch.Tensor, torch.Tensor]":
    """Return the largest magnitude of each term of a weight, and the largest 2-norm of a row.

    They are kept with a tensor until it changes. A change that its version does not tell of makes them
    wrong; they decide by which of two kernels a row is computed, and so its accuracy where numbers of it
    range more widely than in float16, and nothing else.
    """
    if weight.is_inference() or torch.cuda.is_current_stream_capturing():
        return facts_of(weight)
    whole = weight if weight._base is None else weight._base
    stream = torch._C._cuda_getCurrentRawStream(weight.device.index)
    place = (weight.data_ptr(), weight.shape, weight.stride(), stream)
    known = KNOWN.setdefault(whole, {})
    version, found = known.get(place, (None, None))
    if version != weight._version:
        found = facts_of(weight)
        known[place] = weight._version, found
    return found


def facts_of(weight: torch.Tensor) -> "Tuple[torch.Tensor, torch.Tensor]":
    """Return the same, computed now."""
    norm = torch.linalg.vector_norm
    largest, rows = norm(weight, float("inf"), dim=0), norm(weight, 2, dim=1)
    return largest.contiguous(), rows.max()
