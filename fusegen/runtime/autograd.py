"""The gradients of a module's kernels: autograd.Functions for the call, in place, and on halves."""

import functools
import inspect
from typing import Any, Callable, List, Sequence, Tuple

import torch

from .calls import is_batch, pullback, transformed
from .shared import gradients, listed


def functions(kernels: Any) -> "Tuple[Any, Any]":
    """Return the kernel with its gradient, and the kernel of the gradient."""
    signature = kernels.signature
    count, nones = len(signature.tensors), (None,) * (signature.indices + signature.params)
    saves_output = signature.saved != signature.tensors
    unread = [k for k, name in enumerate(signature.saved) if name in signature.unread]
    spares = unread or kernels.masks

    class Forward(torch.autograd.Function):
        """The kernel with its gradient, for which the output is saved, or the inputs that it reads are."""

        forward = staticmethod(signed(kernels.forward))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            saved = (output,) if saves_output else inputs[:count]
            ctx.save_for_forward(*saved)
            ctx.save_for_backward(*(keep(ctx, saved, unread) if spares else saved))
            ctx.params = inputs[count:]

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            followed = torch.is_grad_enabled() or transformed()
            if spares:  # ctx.saved_tensors is read once: a checkpoint unpacks a tensor but once
                [grad] = grads
                saved = stand_ins(ctx, needed(ctx, signature), grad, grad if followed else _spared(grad))
            kernel = kernels.Backward.apply if followed else kernels.backward
            arguments = (*grads, *(saved if spares else ctx.saved_tensors), *ctx.params)
            return (*gradients(signature, kernel, arguments, ctx.needs_input_grad), *nones)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            return kernels.forward_along(ctx, tangents[:count])

        @staticmethod
        def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
            return kernels.rules["forward"](Forward.apply, in_dims, arguments)

    return Forward, _backward(kernels)


def keep(ctx: Any, tensors: "Sequence[torch.Tensor]", unread: "List[int]") -> "List[Any]":
    """Return the tensors to save; None for one that the gradient does not read, or that is drawn again."""
    ctx.shapes = {k: tensors[k].shape for k in unread}
    ctx.draws = {k: draw for k, t in enumerate(tensors) if (draw := getattr(t, "fusegen_draw", None))}
    return [None if k in ctx.shapes or k in ctx.draws else t for k, t in enumerate(tensors)]


def needed(ctx: Any, signature: Any) -> "List[bool]":
    """For each tensor, whether its gradient or an equal one is asked for."""
    wanted = {place for place, needed in zip(signature.outputs, ctx.needs_input_grad) if needed}
    return [place in wanted for place in signature.outputs]


def stand_ins(ctx: Any, needed: "Sequence[bool]", grad: Any, spared: Any) -> "List[Any]":
    """Return the saved tensors, masks that are drawn again, and another of its shape for one not read.

    Args:
        ctx: has the tensors, and the shapes or the draws of those that were not saved.
        needed: for each tensor, whether its gradient is asked for.
        grad: the gradient of the output, in place of a tensor of that shape.
        spared: in place of one of that shape whose gradient nobody asks for.
    """
    whole = list(ctx.saved_tensors)
    for k, shape in ctx.shapes.items():
        of_output = shape == grad.shape
        whole[k] = (grad if needed[k] else spared) if of_output else grad.new_empty(shape)
    for k, draw in ctx.draws.items():
        whole[k] = draw.mask()
    return whole


def _spared(grad: Any) -> Any:
    """Return a tensor whose gradient costs less than one of the output's shape, where there is one.

    The gradient of a value is a sum, for which no memory is written. In float32 and float64 on the CPU that
    is faster; in 16 bits it is not, and a GPU's kernels sum at 0.5 to 0.8 of copy bandwidth.
    """
    cheaper = grad.device.type == "cpu" and grad.element_size() >= 4
    return grad.new_zeros(()) if cheaper else grad


def forward_along(kernels: Any, ctx: Any, tangents: "Tuple[Any, ...]") -> Any:
    """Return the derivative of a function along some tangents, one of each tensor.

    An element of the result depends on the elements in its place only, so that it is a sum of gradients.
    """
    apply = kernels.Backward.apply
    if len(tangents) == 1:
        return apply(*tangents, *ctx.saved_tensors, *ctx.params)
    saved = torch.broadcast_tensors(*ctx.saved_tensors)  # so that no gradient is summed
    each = [t.expand_as(saved[0]) for t in tangents]
    return functools.reduce(
        torch.add,
        [listed(apply(t, *saved, *ctx.params))[k] for k, t in zip(kernels.signature.outputs, each)],
    )


def backward_along(kernels: Any, ctx: Any, tangents: "Tuple[Any, ...]") -> Any:
    """Return the derivative of a gradient along some tangents, one of each of its tensors.

    Second derivatives are symmetric, so what comes along the inputs is what goes back to them.
    """
    (_, *inputs), (tangent, *others) = ctx.saved_tensors, tangents
    parts = kernels.Backward.apply(tangent, *inputs, *ctx.params)
    along = pulled(ctx, kernels.eager_gradient)(tuple(others[: len(kernels.signature.outputs)]))
    owners = kernels.signature.owners("backward", [t.shape for t in ctx.saved_tensors]) or [1]
    made = tuple(a + along[k] for a, k in zip(listed(parts), owners))
    return made[0] if isinstance(parts, torch.Tensor) else made


def pulled(ctx: Any, gradient: "Callable[..., Any]") -> Any:
    """Return what takes gradients of a function of the saved tensors back to these."""
    return pullback(functools.partial(_with_params, gradient, ctx.params), *ctx.saved_tensors)[1]


def gradient_of(kernels: Any, eager: "Callable[..., Any]") -> "Callable[..., Any]":
    """Return the gradient of a function of some tensors, and of scalars, in PyTorch's own operations.

    Args:
        kernels: of the function.
        eager: the function.
    """
    results, count = kernels.results, kernels.inputs
    graded = len(kernels.signature.outputs)

    def eager_gradient(*arguments: Any) -> Any:
        grads, tensors = arguments[:results], arguments[results : results + count]
        params = arguments[results + count :]
        pull = pullback(lambda *t: eager(*t, *params), *tensors)[1]
        return pull(grads if results > 1 else grads[0])[:graded]

    return eager_gradient


def _backward(kernels: Any) -> Any:
    """Return the kernel of the gradient; PyTorch's own operations compute its derivative."""
    signature = kernels.signature
    saved, nones = signature.results + len(signature.saved), (None,) * signature.params

    class Backward(torch.autograd.Function):
        forward = staticmethod(signed(kernels.backward))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs[:saved])
            ctx.save_for_forward(*inputs[:saved])
            ctx.params = inputs[saved:]

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return (*pulled(ctx, kernels.eager_outputs)(grads), *nones)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            return kernels.backward_along(ctx, tangents[:saved])

        @staticmethod
        def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
            return kernels.rules["backward"](Backward.apply, in_dims, arguments)

    return Backward


def signed(kernel: Any) -> Any:
    """Return a kernel with a signature, which PyTorch asks for and builtin functions lack."""
    signed: Any = functools.partial(kernel)
    arguments = inspect.Parameter("arguments", inspect.Parameter.VAR_POSITIONAL)
    signed.__signature__ = inspect.Signature([arguments])
    return signed


def _with_params(function: Any, params: Any, *tensors: Any) -> Any:
    return function(*tensors, *params)


def in_place(kernels: Any) -> Any:
    """Return the kernel that writes over its input, and saves a copy of that, or the output."""
    saves_output = kernels.signature.saved != kernels.signature.tensors

    class InPlace(torch.autograd.Function):
        """The kernel that writes over its input; a copy of that comes along, to be saved, or None."""

        @staticmethod
        def forward(ctx: Any, x: Any, copy: Any, *params: Any) -> Any:
            ctx.params = params
            kernels.forward_out(x, *params, x)
            ctx.mark_dirty(x)
            ctx.save_for_backward(x if saves_output else copy)
            ctx.shapes, ctx.draws = {} if copy is not None or saves_output else {0: x.shape}, {}
            return x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            gradient, *others = kernels.Forward.backward(ctx, grad)
            return (gradient, None, *others)

    return InPlace


def on_halves(kernels: Any) -> Any:
    """Return the kernel on the halves of one tensor."""

    class Split(torch.autograd.Function):
        """The kernel on the halves of one tensor, whose gradient is written whole."""

        @staticmethod
        def forward(ctx: Any, whole: Any, dim: Any, *params: Any) -> Any:
            ctx.save_for_backward(whole)
            ctx.dim, ctx.params = dim, params
            return kernels.forward(*whole.chunk(2, dim), *params)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            [whole] = ctx.saved_tensors
            if torch.is_grad_enabled() or transformed() or is_batch(grad):  # which take no out=
                parts = kernels.Backward.apply(grad, *whole.chunk(2, ctx.dim), *ctx.params)
                gradient = torch.cat(parts, ctx.dim)
            else:
                gradient = torch.empty_like(whole)
                halves = whole.resolve_neg().chunk(2, ctx.dim)
                written = gradient.chunk(2, ctx.dim)
                kernels.backward_out(grad.resolve_neg(), *halves, *ctx.params, *written)
            return (gradient, None, *(None for _ in ctx.params))

    return Split
