"""The gradient of rows whose forward kernel saves numbers of each on CUDA: sums or largest elements.

Where these are saved the gradient does not find them again. It has the same bits without: a gradient that
is called by itself has the forward kernel find the same numbers.
"""

import re
from typing import Any, Callable, Tuple

import torch

from .autograd import keep, needed, stand_ins
from .calls import transformed
from .checks import check
from .flavour import define, register_fake
from .shared import gradients, listed, result_types


def numbers_in(cuda: str) -> int:
    """Return how many numbers of a row the forward kernel of a text saves."""
    found = re.search(r"\bFUSEGEN_SAVED\((\d+),", cuda)
    return int(found[1]) if found else 0


def define_operators(kernels: Any, operators: Any, loading: "Callable[..., Any]") -> None:
    """Tell PyTorch of the operators that save numbers of rows, find them alone, and read them.

    Args:
        kernels: of the module.
        operators: their namespace.
        loading: returns what an operator does before its kernel is loaded, of its name and kernel.
    """
    signature, library = kernels.signature, operators._library
    inputs, results = len(signature.tensors), signature.results
    graded, gradients = len(signature.saved) + results, len({*signature.outputs})
    given = signature.backward.split(", ")
    reading = ", ".join([*given[:graded], "Tensor numbers", *given[graded:]])

    def forward(*arguments: Any) -> "Tuple[Any, ...]":
        made = listed(kernels.shapes(("forward", inputs, results, 0))(*arguments))
        rows = made[0].shape[: kernels.first_of_row(max(t.dim() for t in arguments[:inputs]))]
        return (*made, made[0].new_empty((rows.numel(), kernels.saves), dtype=torch.float64))

    def backward(*arguments: Any) -> Any:
        return kernels.shapes(("backward", graded, gradients, 0))(*arguments[:graded])

    def reduced(*arguments: Any) -> "Tuple[Any, ...]":
        value, numbers = forward(*arguments[:-1])
        return value.new_empty(()), value.new_empty((), dtype=torch.float64), numbers

    of_loss = "forward", "reduced_saving", f"{signature.forward}, float divisor", 3, reduced
    for kernel, end, schema, made, fake in (
        ("forward", "saving", signature.forward, results + 1, forward),
        ("forward", "numbers", signature.forward, 1, lambda *arguments: forward(*arguments)[-1]),
        ("backward", "reading", reading, gradients, backward),
        *((of_loss,) if kernels.reduces_index else ()),
    ):
        name = f"{signature.name}_{kernel}_{end}"
        define(library, f"{name}({schema}) -> {result_types(made)}", "flexible_layout")
        library.impl(name, _on_cuda(kernels, loading(name, kernel, made)), "CompositeExplicitAutograd")
        register_fake(getattr(operators, name).default, fake, library)


def _on_cuda(kernels: Any, loading: "Callable[..., Any]") -> "Callable[..., Any]":
    """Return what an operator does before its kernel is loaded; tensors elsewhere have none."""

    def load(*arguments: Any) -> Any:
        check(arguments[0].is_cuda, kernels.name, "numbers of rows are saved for tensors on CUDA alone")
        return loading(*arguments)

    return load


def graded(kernels: Any, otherwise: "Callable[..., Any]") -> "Callable[..., Any]":
    """Return a choice of the call whose gradient autograd records: of tensors on CUDA the one that saves.

    Args:
        kernels: of the module.
        otherwise: the choice for other tensors.
    """
    apply = function(kernels).apply

    def choose(*tensors: Any) -> Any:
        is_plain = tensors[0].is_cuda and not any(t.is_nested for t in tensors)
        return apply if is_plain else otherwise(*tensors)

    return choose


def function(kernels: Any) -> Any:
    """Return the forward kernel with its gradient, for which the inputs that it reads are saved, too."""
    signature = kernels.signature
    count, nones = len(signature.tensors), (None,) * (signature.indices + signature.params)
    unread = [k for k, name in enumerate(signature.saved) if name in signature.unread]
    saving, reading = kernels.kernel("forward_saving"), with_saved(kernels)

    class Saving(torch.autograd.Function):
        """The kernel with its gradient, of plain tensors on CUDA."""

        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            *results, found = saving(*arguments)
            ctx.save_for_backward(*keep(ctx, arguments[:count], unread), found)
            ctx.params = arguments[count:]
            return tuple(results) if results[1:] else results[0]

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            followed = torch.is_grad_enabled() or transformed()
            *saved, found = stand_ins(ctx, needed(ctx, signature), grads[0], grads[0])
            kernel = kernels.Backward.apply if followed else reading(found)
            arguments = (*grads, *saved, *ctx.params)
            return (*gradients(signature, kernel, arguments, ctx.needs_input_grad), *nones)

    return Saving


def with_saved(kernels: Any) -> "Callable[..., Any]":
    """Return a function that gives the gradient's kernel, of its arguments, to read some saved numbers."""
    reading = kernels.kernel("backward_reading")
    count = kernels.results + len(kernels.signature.saved)

    def of(found: Any) -> "Callable[..., Any]":
        return lambda *arguments: reading(*arguments[:count], found, *arguments[count:])

    return of
