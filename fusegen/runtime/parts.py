"""Losses of whole tensors: the means of parts, each of which is a row to the kernels, in float64.

The number of elements alone decides how a tensor is cut, so that neither the device nor its layout nor the
run changes the order in which elements are added.
"""

import functools
import math
from typing import Any, Callable, List, Sequence, cast

import torch

from .activation import Activation
from .calls import dtype_of, is_symbolic
from .checks import check_tensors
from .compiled_call import in_front_of_parts
from .row_operands import same
from .row_reductions import check_reduction
from .rows import Rows

WIDE = 256  # elements of a row of the last dimension that is a part where tensors are of several shapes
SHORTEST, MOST = 4096, 16384  # elements of a part, and parts; PyTorch adds so many numbers in one thread
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
NARROW = (torch.float32, torch.float16, torch.bfloat16, *INTEGERS)
REAL = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


class Parts(Rows):
    """The kernels of a module that reduces whole tensors.

    The forward operator gives the means of rows in float64, and PyTorch's operations in its place do.

    Attributes:
        means: the common call, of rows whose means it gives.
        of_rows: the same, rounded to the dtype of the tensors.
    """

    widens = True

    def __init__(self, name: str, *, eager: "Callable[..., Any]", **own: Any) -> None:
        super().__init__(name, eager=functools.partial(_in_double, eager), **own)
        self.where_they_are, self.means = eager, self.of_rows
        self.of_rows = functools.partial(_rounded, self.means)
        self.run = in_front_of_parts(self, functools.partial(of_whole, self), (SHORTEST, MOST))

    def kernel(self, name: str) -> Any:
        """Return a kernel; that of the gradient takes the incoming one in float64, too."""
        kernel = super().kernel(name)
        return functools.partial(_of_narrow, kernel, self.inputs) if name == "backward" else kernel

    def values_in(self, dtype: "torch.dtype") -> "torch.dtype":
        """Return the dtype of the means of parts."""
        return torch.float64

    def includes(self) -> "List[str]":
        """Return the lines of C++ that include what binds kernels to PyTorch."""
        return [*super().includes(), '#include "stable_abi_parts.h"']

    def registration(self, kernel: str, counts: str) -> str:
        """Return the line of C++ that registers a kernel."""
        if kernel == "backward":
            return super().registration(kernel, counts)
        line = Activation.registration(self, kernel, counts)
        return line.replace("FUSEGEN_REGISTER", "FUSEGEN_REGISTER_PARTS", 1)

    def by_operations(self, *arguments: Any) -> Any:
        """Return the function, with the module's reduction, by PyTorch's operations alone."""
        return in_one_part(self, self.where_they_are, *arguments, self.reduction)


def length_of(size: int) -> int:
    """Return the elements of a part of a tensor of so many: a power of 2."""
    length = SHORTEST
    while length * MOST < size:
        length *= 2
    return length


def of_whole(kernels: Parts, *arguments: Any) -> Any:
    """Return a reduction, the last argument, of all elements of some tensors."""
    *given, reduction = arguments
    check_reduction(kernels.name, reduction)
    tensors, scalars = given[: kernels.inputs], given[kernels.inputs :]
    if is_symbolic(*tensors):
        return in_one_part(kernels, kernels.means, *arguments)
    check_tensors(kernels.name, kernels.signature.tensors, tensors)
    is_alike = all(same(t.shape, tensors[0].shape) for t in tensors)
    whole: Any = tensors if is_alike else torch.broadcast_tensors(*tensors)
    shape, size = whole[0].shape, whole[0].numel()
    if isinstance(size, torch.SymInt):  # of torch.export, which would keep how this size is cut
        return in_one_part(kernels, kernels.means, *arguments)
    if reduction == "none":
        values = kernels.means(*(t.reshape(-1, 1) for t in whole), *scalars).reshape(shape)
        return _as_result(values, tensors)
    as_rows = not is_alike and _as_rows(tensors, shape)
    count = {"mean": size, "batchmean": shape[:1].numel()}.get(reduction, 1)
    total = None
    for rows in [[t.flatten(0, -2) for t in whole]] if as_rows else _cut(whole, size):
        share = rows[0].shape[1] / count if count else math.nan  # an empty tensor has no mean
        part = kernels.means(*rows, *scalars).sum() * share
        total = part if total is None else total + part
    return _as_result(cast(Any, total), tensors)


def in_one_part(kernels: Parts, function: "Callable[..., Any]", *arguments: Any) -> Any:
    """Return the same of a function of rows, of tensors whose sizes may not be known."""
    tensors, scalars, reduction = arguments[: kernels.inputs], arguments[kernels.inputs : -1], arguments[-1]
    whole = torch.broadcast_tensors(*tensors)
    shape = (-1, 1) if reduction == "none" else (1, -1)
    values = function(*(whole[k].reshape(shape) for k in range(len(tensors))), *scalars)
    if reduction == "none":
        return _as_result(values.reshape(whole[0].shape), tensors)
    wide = torch.float64 if is_symbolic(*tensors) else torch.promote_types(values.dtype, torch.float64)
    total = values.reshape(()).to(wide)
    if reduction != "mean":
        total = total * whole[0].numel()
    if reduction == "batchmean":
        is_known = isinstance(whole[0], torch.Tensor) and whole[0].dim()
        total = total / (whole[0].shape[0] if is_known else whole[0].shape[:1].numel())
    return _as_result(total, tensors)


def _as_result(made: torch.Tensor, tensors: "Sequence[torch.Tensor]") -> torch.Tensor:
    """Return a result in the dtype of some tensors, or in a float of integers and complex numbers."""
    if is_symbolic(*tensors):
        return made.to(tensors[0].dtype)
    dtype = cast(torch.dtype, dtype_of(*tensors))
    if dtype.is_floating_point or made.is_complex():
        return made.to(dtype)
    return made.to(REAL.get(dtype) or torch.get_default_dtype())


def _as_rows(tensors: "Sequence[torch.Tensor]", shape: "torch.Size") -> bool:
    """Return True if rows of the last dimension are the parts, which takes no copies of smaller tensors."""
    return len(shape) > 1 and shape[-1] >= WIDE and any(t.shape != shape for t in tensors)


def _cut(tensors: "Sequence[torch.Tensor]", size: int) -> "List[List[torch.Tensor]]":
    """Return the parts of tensors as rows, and what is left as one row more."""
    length = length_of(size)
    whole = size - size % length
    if whole in (0, size):
        shape = (1, size) if size % length else (size // length, length)
        return [[t.reshape(shape) for t in tensors]]
    flat = [t.reshape(-1).split([whole, size - whole]) for t in tensors]
    return [[t.view(-1, length) for t, _ in flat], [t.view(1, -1) for _, t in flat]]


def _in_double(function: "Callable[..., Any]", *arguments: Any) -> Any:
    """Return a function of tensors in float64 in place of narrower ones and of integers."""
    return function(*map(_wide, arguments))


def _of_narrow(kernel: "Callable[..., Any]", inputs: int, grad: Any, *others: Any) -> Any:
    """Return the gradients of tensors, of an incoming one in float64.

    That of the mean of a part is the sum of those of its elements, which may exceed float16, so that the
    kernel runs in float32.
    """
    tensors, dtype = others[:inputs], others[0].dtype
    if dtype is not torch.float16 or tensors[0].shape[-1:].numel() == 1:
        return kernel(grad.to(dtype), *others)
    made = kernel(grad.to(torch.float32), *(t.to(torch.float32) for t in tensors), *others[inputs:])
    return tuple(t.to(dtype) for t in made) if isinstance(made, (tuple, list)) else made.to(dtype)


def _wide(given: Any) -> Any:
    is_narrow = is_symbolic(given) or (isinstance(given, torch.Tensor) and given.dtype in NARROW)
    return given.to(torch.float64) if is_narrow else given


def _rounded(function: "Callable[..., Any]", *arguments: Any) -> Any:
    """Return a function's values in the dtype of its first tensor."""
    return function(*arguments).to(arguments[0].dtype)
