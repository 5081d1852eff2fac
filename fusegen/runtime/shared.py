"""The gradients of tensors, from the outputs of a kernel: tensors with equal gradients have one output."""

from typing import Any, Callable, List, Optional, Sequence, Tuple

from .signature import Signature


def gradients(
    signature: Signature, kernel: "Callable[..., Any]", of: "Tuple[Any, ...]", wanted: "Sequence[bool]"
) -> "Tuple[Any, ...]":
    """Return the gradient of each tensor; those of one shape whose gradients are equal share a tensor.

    An output has the shape of the smallest tensor whose gradient it is. Where these tensors have several
    shapes, the kernel runs once for each shape, with the others expanded. In a call without elements an
    output may be as empty as the result; autograd sums it to the tensor's shape.

    Args:
        signature: of the module.
        kernel: of the gradient; the operator, or the autograd.Function of it.
        of: its arguments: the gradient of the result, the other tensors, the scalars.
        wanted: for each tensor, whether its gradient is asked for; a gradient that is not may be None.
    """
    outputs = signature.gradients
    if not outputs:
        return listed(kernel(*of))
    grad, saved, params = of[0], of[1 : 1 + len(outputs)], of[1 + len(outputs) :]
    if all(saved[k].shape == saved[outputs.index(place)].shape for k, place in enumerate(outputs)):
        made = listed(kernel(*of))
        return tuple(made[place] for place in outputs)
    found: "List[Any]" = [None] * len(outputs)
    calls: "List[Tuple[Any, Any]]" = []  # the shapes of a call, and what it gave
    for k, place in enumerate(outputs):
        if not wanted[k]:
            continue
        shape = saved[k].shape
        tensors = [
            t if at != place or t.shape in (shape, grad.shape) else t.expand(grad.shape)
            for t, at in zip(saved, outputs)
        ]
        shapes = [t.shape for t in tensors]
        known = [made for before, made in calls if before == shapes]
        made = known[0] if known else listed(kernel(grad, *tensors, *params))
        calls.append((shapes, made))
        found[k] = made[place]
    return tuple(found)


def listed(made: Any) -> "Tuple[Any, ...]":
    """Return the outputs of a kernel, which returns one as it is."""
    return tuple(made) if isinstance(made, (tuple, list)) else (made,)


def mapped(
    function: "Callable[[Any], Any]", made: Any, count: int, at: "Optional[Sequence[int]]" = None
) -> Any:
    """Return what a function makes of a kernel's only output, of each of several, or of those at `at`."""
    changed = range(count) if at is None else at
    if count == 1:
        return function(made) if changed else made
    return tuple(function(made[k]) if k in changed else made[k] for k in range(count))


def of_outputs(signature: Signature, gradient: "Callable[..., Any]") -> "Callable[..., Any]":
    """Return a function of the gradients of all tensors, as one of the outputs of the kernel."""
    if not signature.gradients:
        return gradient

    def outputs(grad: Any, *arguments: Any) -> "Tuple[Any, ...]":
        found = gradient(grad, *arguments)
        shapes = [t.shape for t in (grad, *arguments[: len(signature.tensors)])]
        return tuple(found[k - 1] for k in signature.owners("backward", shapes))

    return outputs


def called_once(function: "Callable[..., Any]") -> "Callable[..., Any]":
    """Mark a function that a compiler calls while it traces, and whose result it keeps.

    As torch.compiler.assume_constant_result does, which imports all of dynamo.
    """
    vars(function)["_dynamo_marked_constant"] = True
    return function


def result_types(count: int) -> str:
    """The results of an operator, some tensors, in its schema."""
    return "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
