"""Facts of a weight, by which the kernels of linear layers choose how a row of the input is multiplied."""

from typing import Any, Tuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

KNOWN: Any = WeakTensorKeyDictionary()  # by tensor, and by what else they depend on, its version and facts


def facts(weight: torch.Tensor) -> "Tuple[torch.Tensor, torch.Tensor]":
    """Return the largest magnitude of each term of a weight, and the largest 2-norm of a row.

    They are kept with a parameter until it changes. A change that its version does not tell of makes them
    wrong; they decide by which of two kernels a row is computed, and so its accuracy where numbers of it
    range more widely than in float16, and nothing else.
    """
    whole = weight if weight._base is None else weight._base
    if (
        not isinstance(whole, torch.nn.Parameter)
        or whole.is_inference()
        or not _on_usual_stream(weight.device)
    ):
        return facts_of(weight)
    place = (weight.data_ptr(), weight.shape, weight.stride())
    known = KNOWN.setdefault(whole, {})
    version, found = known.get(place, (None, None))
    if version != weight._version:
        found = facts_of(weight)
        known[place] = weight._version, found
    return found


def _on_usual_stream(device: torch.device) -> bool:
    """Return True where what is made may be kept: a graph of CUDA's has a stream and memory of its own."""
    stream = torch._C._cuda_getCurrentRawStream(device.index)
    return stream == 0 and not torch.cuda.is_current_stream_capturing()


def facts_of(weight: torch.Tensor) -> "Tuple[torch.Tensor, torch.Tensor]":
    """Return the same, computed now."""
    norm = torch.linalg.vector_norm
    largest, rows = norm(weight, float("inf"), dim=0), norm(weight, 2, dim=1)
    return largest.contiguous(), rows.max()
