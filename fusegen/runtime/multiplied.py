"""Linear layers in float32 that are one kernel with what comes behind them, on CUDA: which ones are.

The function of the kernel behind computes each result from its sum, before that is stored. Where a gradient
is recorded the two stay two, since the gradient reads what is between them; and so they do for a compiler.
"""

from typing import Any, Callable, Optional

import torch

from . import build, linear, pixels
from .calls import PLAIN
from .flavour import is_compiling
from .linear_call import by_kernel
from .thin import is_number


def for_kernels(kernels: Any) -> "Callable[..., Optional[torch.Tensor]]":
    """Return a module's `multiplied`: a layer and the kernel behind it as one; None if they are not one.

    It takes the layer and the arguments of the kernel, with the layer's input in place of its output, and
    None in place of the bias of a convolution.
    """
    if kernels.sources.product:
        kernels.multiply = getattr(kernels.operators, f"{kernels.name}_multiplied").default._op

    def multiplied(layer: Any, x: Any, *others: Any) -> "Optional[torch.Tensor]":
        operands, params = others[: kernels.inputs - 1], others[kernels.inputs - 1 :]
        if is_compiling() or not kernels.sources.product or is_recorded(layer, x, *operands):
            return None
        given = linear.factors(layer, x)
        if given is None or given[1].stride(1) != 1 or not all(map(is_number, params)):
            return None
        matrices = [as_matrix(layer, t, x, given) for t in operands]
        if any(t is None for t in operands):  # the kernel adds the bias
            given = given[0], given[1], None
        if any(m is None for m in matrices) or not build.can_load(kernels, kernels.operators, "multiplied"):
            return None
        made = by_kernel(kernels.multiply, *given, *matrices, *params)
        return None if made is None else linear.shaped(layer, made, x)

    return multiplied


def is_recorded(layer: Any, x: Any, *operands: Any) -> bool:
    """Return True if autograd records a layer and the kernel behind it."""
    if not torch.is_grad_enabled() or x.__class__ not in PLAIN:
        return False
    return any(t is not None and t.requires_grad for t in (x, *layer._parameters.values(), *operands))


def as_matrix(layer: Any, operand: Any, x: torch.Tensor, given: linear.Factors) -> "Optional[torch.Tensor]":
    """Return an operand of a kernel as a matrix, of which a row is for a row of the layer's input.

    None where the kernel takes no such tensor, or where it enlarges the layer's output.

    Args:
        layer: in front of the kernel.
        operand: broadcasts to the output of the layer; None for the bias of that.
        x: the input of the layer.
        given: the factors of the layer.
    """
    rows, features = given[0].shape[0], given[1].shape[0]
    if operand is None:
        return None if given[2] is None else given[2].expand(rows, features)
    if operand.__class__ not in PLAIN or operand.dtype != x.dtype or operand.device != x.device:
        return None
    if operand.layout != torch.strided or operand.is_nested or operand.is_neg():
        return None
    if layer.__class__ is not torch.nn.Linear:
        matrix = pixels.operand_of_rows(operand, x, features)
        return None if matrix is None else matrix.expand(rows, features)
    if x.dim() != 2 and operand.dim() > 1:  # one number for each result, or PyTorch's rules of broadcasting
        whole = operand.is_contiguous() and operand.shape == (*x.shape[:-1], features)
        return operand.view(rows, features) if whole else None
    sizes = zip(reversed(operand.shape), (features, rows))
    fits = operand.dim() <= 2 and all(n in (1, m) for n, m in sizes)
    return operand.expand(rows, features) if fits else None
