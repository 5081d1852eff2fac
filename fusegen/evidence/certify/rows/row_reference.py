"""PyTorch's function that a spec with rows names as its reference."""

import inspect
from typing import Any

import torch
from torch import Tensor

from fusegen.core.spec import Spec
from fusegen.evidence.certify import allowed
from fusegen.evidence.certify.findings import Function


def reference(spec: Spec, over: int, numbers: dict[str, float]) -> Function:
    """Return PyTorch's function of the first tensor, with the others and the numbers by their names."""
    found = allowed.resolved(spec)
    tensors = [each.name for each in spec.tensors]

    def called(first: Tensor, *others: Tensor) -> Tensor:
        dims = -1 if over == -1 else tuple(range(over % first.dim(), first.dim()))
        known: dict[str, Any] = {"dim": dims, "normalized_shape": first.shape[over:], **numbers}
        known |= dict(zip(tensors[1:], others, strict=True))
        if spec.over and spec.over.groups:
            known[spec.over.groups] = 1
        known |= {each.name: known[each.name].flatten() for each in spec.tensors if each.along is not None}
        known |= {each.name: _integers(known[each.name]) for each in spec.indices}
        known |= {"reduction": "none"} if spec.reduction != "none" else {}
        try:
            names = set(inspect.signature(found).parameters)
        except ValueError:  # of what is no Python
            names = {"dim", *tensors[1:]}
        result: Tensor = found(first, **{name: known[name] for name in names & known.keys()})
        return result.mean(-1) if spec.over and spec.over.is_part else result  # as kernels do of each part

    return called


def _integers(index: Tensor) -> Tensor:
    """Return an index as PyTorch's functions take it, which ignore -100."""
    return torch.where(index < 0, -100, index.long()).flatten()
