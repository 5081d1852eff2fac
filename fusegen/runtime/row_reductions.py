"""The reduction of the values of rows that a call asks for: their mean, their sum, or none.

Of plain tensors with an index one operator computes the values and their reduction, whose order the
number of rows decides, and the gradient is the kernel's; else PyTorch's operations reduce the values.
"""

import functools
from typing import Any, Callable, List, Sequence, Tuple

import torch

from . import saved_rows
from .calls import PLAIN, differentiable, is_batch, is_symbolic, recorded_gradients, traced, transformed
from .checks import check
from .common import widened
from .compiled_call import in_front_of_index
from .indices import IGNORED
from .row_operands import taken
from .shared import listed

COUNTED = -1.0  # in place of a divisor that the index decides


def check_reduction(module: str, reduction: Any) -> None:
    """Refuse a word that is no reduction, as PyTorch's losses do."""
    known = reduction in ("none", "mean", "sum", "batchmean")
    check(known, module, f"{reduction} is not a valid value for reduction", ValueError)


def of_all_rows(kernels: Any, function: "Callable[..., Any]", *given: Any) -> Any:
    """Return a reduction, the last argument, of the values that a function gives of rows.

    They are added in float64, in an order that they decide.
    """
    *arguments, reduction = given
    check_reduction(kernels.name, reduction)
    values = function(*arguments)
    if reduction == "none":
        return values
    divisor: Any = 1
    if reduction == "batchmean":
        is_tensor = isinstance(values, torch.Tensor) and values.dim()  # whose size may be symbolic
        divisor = values.shape[0] if is_tensor else values.shape[:1].numel()
    if reduction == "mean":
        divisor = _counted(kernels, arguments) if kernels.signature.indices else values.numel()
    return _quotient(values, divisor, reduction)


def _quotient(values: Any, divisor: Any, reduction: str) -> Any:
    """Return the sum of values over a divisor, by which a sum alone is not divided."""
    total = values.sum(dtype=torch.float64)
    result = total if reduction == "sum" else total / divisor
    is_float = is_symbolic(values) or values.dtype.is_floating_point
    return result.to(values.dtype if is_float else torch.get_default_dtype())  # a mean of integers is none


def _counted(kernels: Any, arguments: "Sequence[Any]") -> Any:
    """Return the number of rows whose index picks an element, or the sum of the weights that it picks."""
    x, index = arguments[0], arguments[kernels.inputs - 1]
    if not kernels.divisor:
        return (index != IGNORED).sum()
    first, count = kernels.rows_given
    last = first + count - 1 if count else -1
    weights, picked = (
        t.flatten(first, last) for t in (arguments[kernels.divisor].detach().expand(x.shape), index)
    )
    found = weights.gather(last if first < 0 else first, picked.clamp(min=0)).to(torch.float64)
    return torch.where(picked != IGNORED, found, 0.0).sum()


def with_index(kernels: Any) -> "Callable[..., Any]":
    """Return the call of a loss of classes: of tensors, scalars, a reduction, and the index to ignore."""
    return in_front_of_index(kernels, in_python(kernels), functools.partial(recorded, kernels))


def in_python(kernels: Any) -> "Callable[..., Any]":
    """Return the same without a call in C++ in front."""
    function = _graded(kernels)
    count, defaults = kernels.inputs + kernels.signature.params, (kernels.reduction, IGNORED)

    def run(*arguments: Any) -> Any:
        given, words = arguments[:count], arguments[count:]
        reduction, ignored = words + defaults[len(words) :]
        (*tensors, index), scalars = given[: kernels.inputs], given[kernels.inputs :]
        index = kernels.index(kernels.signature.tensors[-1], index, tensors[0], ignored)
        check_reduction(kernels.name, reduction)
        if reduction == "none" or not _are_plain(kernels, (*tensors, index)):
            return of_all_rows(kernels, kernels.of_rows, *tensors, index, *scalars, reduction)
        whole = taken(kernels, (*tensors, index))
        if not differentiable(*tensors):
            return kernels.forward_reduced(*whole, *scalars, known_divisor(reduction, whole[-1]))[0]
        kernels.graded(*whole)  # which has both passes built
        return function.apply(reduction, *whole, *scalars)

    return run


def known_divisor(reduction: str, index: Any) -> float:
    """Return the number that the sum of the rows of an index is divided by."""
    return {"sum": 1.0, "batchmean": float(index.shape[:1].numel())}.get(reduction, COUNTED)


def _are_plain(kernels: Any, tensors: "Sequence[Any]") -> bool:
    """Return True for a call whose reduction the operator computes, and its gradient the kernel."""
    first = tensors[0]
    for tensor in tensors:
        if tensor.__class__ not in PLAIN or tensor.device != first.device or tensor.layout != torch.strided:
            return False
    if first.dtype not in kernels.dtypes or any(t.dtype != first.dtype for t in tensors[:-1]):
        return False
    if traced() or transformed() or first.device.type not in ("cpu", "cuda"):
        return False
    return not (kernels.autocasts and first.is_cuda and widened(first) is not first)


def _graded(kernels: Any) -> Any:
    """Return the operator of a reduction with its gradient."""
    inputs, alike = kernels.inputs, kernels.alike
    saving = kernels.kernel("forward_reduced_saving") if kernels.saves else None

    class Reduced(torch.autograd.Function):
        """The reduction of the values of rows, with its gradient."""

        @staticmethod
        def forward(ctx: Any, reduction: str, *given: Any) -> Any:
            tensors, scalars = given[:inputs], given[inputs:]
            call = saving if saving and given[0].is_cuda else kernels.forward_reduced
            result, *others = call(*given, known_divisor(reduction, tensors[-1]))
            ctx.save_for_backward(*tensors, *others)
            ctx.reduction, ctx.scalars = reduction, scalars
            return result

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            [grad], given = grads, ctx.saved_tensors  # read once: a checkpoint unpacks a tensor but once
            saved, found = [*given[: inputs + 1]], given[inputs + 1 :]  # and numbers of rows, if there are
            if torch.is_grad_enabled() or transformed() or is_batch(grad):
                made = recorded(kernels, grad, saved, ctx.scalars, ctx.reduction)
            else:
                *tensors, divisor = saved
                kernel = saved_rows.with_saved(kernels)(*found) if found else kernels.backward
                made = _by_kernel(kernels, (grad, divisor, ctx.reduction), tensors, (kernel, ctx.scalars))
            return (None, *made[:alike], *(None for _ in (*saved[alike:-1], *ctx.scalars)))

    return Reduced


def _by_kernel(
    kernels: Any, of: "Tuple[Any, Any, str]", tensors: "List[Any]", by: "Tuple[Any, Sequence[float]]"
) -> "List[Any]":
    """Return the gradients of tensors by the kernel.

    Args:
        kernels: of the module.
        of: the incoming gradient, the divisor, and the reduction.
        tensors: as the kernels take them.
        by: the kernel of the gradient, and its scalars.
    """
    (grad, divisor, reduction), (kernel, scalars) = of, by
    if reduction != "sum":
        grad = torch.div(grad, divisor).to(grad.dtype)  # the division is in double
    first = kernels.first_of_row(tensors[0].dim())
    return [*listed(kernel(grad.expand(tensors[0].shape[:first]), *tensors, *scalars))]


def recorded(
    kernels: Any, grad: Any, saved: "List[Any]", scalars: "Sequence[float]", reduction: str
) -> "List[Any]":
    """Return the gradients of tensors as autograd records them; an index and a divisor were saved, too."""
    *tensors, index, divisor = saved
    laid = index[(..., *(None,) * (tensors[0].dim() - index.dim()))]  # C++ saves that of rows alone

    def reduced(*views: Any) -> Any:
        return _quotient(kernels.of_taken(*views, laid, *scalars), divisor, reduction)

    return recorded_gradients(reduced, tensors, grad)
