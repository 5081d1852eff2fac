"""The shapes of what kernels of rows return, without the elements."""

import functools
from typing import Any, Tuple

import torch

from . import operators
from .checks import check


def shaped(kernels: Any, of: "Tuple[str, int, int, int]", *arguments: Any) -> Any:
    """Return a kernel's results without the elements, laid in memory as the kernel would lay them."""
    kernel, inputs, outputs, _ = of
    tensors = list(arguments[: inputs - kernels.signature.indices])
    graded = {*kernels.row_results} if kernel == "backward" and kernels.row_dtype else set()
    dtype = next(t.dtype for k, t in enumerate(tensors) if k not in graded)
    expected = [kernels.values_in(dtype) if k in graded else dtype for k, _ in enumerate(tensors)]
    alike = [t.dtype for t in tensors] == expected and len({t.device for t in tensors}) == 1
    check(alike, kernels.name, "expected tensors of one dtype and device")
    tensors = [t.to(dtype) for t in tensors]
    if kernel == "backward":
        rank = max(t.dim() for t in tensors[kernels.results :])
        for k in kernels.row_results:
            tensors[k] = tensors[k][(..., *(None,) * (rank - tensors[k].dim()))]
    whole = functools.reduce(torch.add, tensors) if len(tensors) > 1 else torch.neg(*tensors)
    first = kernels.first_of_row(whole.dim())
    of_rows = kernels.row_results if kernel == "forward" else ()
    made = [whole.new_empty(whole.shape[:first], dtype=kernels.values_in(whole.dtype)) for _ in of_rows]
    if len(of_rows) < outputs:
        owners = kernels.signature.owners(kernel, [t.shape for t in arguments[:inputs]])
        own = [tensors[k] for k in owners] or [whole] * outputs
        apart = kernels.views is not None and all(t.shape == whole.shape for t in own)
        if not _is_one_run(whole, first, apart):
            whole = whole.new_empty(whole.shape)
        others = [k for k in range(outputs) if k not in of_rows]
        laid = {k: operators.result_like(whole, own[k].shape) for k in others} | dict(zip(of_rows, made))
        made = [laid[k] for k in range(outputs)]
    return tuple(made) if outputs > 1 else made[0] if made else None


def _is_one_run(t: torch.Tensor, first: int, apart: bool) -> bool:
    """Return True if the dimensions of a row are one run of memory, or steps where they lie apart."""
    run = 0 if apart else 1
    for size, step in reversed([*zip(t.shape[first:], t.stride()[first:])]):
        if size != 1:
            run = run or step
            if step != run:
                return False
        run *= size
    return True
