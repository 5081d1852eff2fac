"""Thin convolutions: those of few input channels are one kernel with what comes behind them, on CUDA.

The operator tells whether it ran: not where no tile fits the shared memory of a block. Then, and for every
other call that the kernel does not take, the convolution of PyTorch runs.
"""

from typing import Any, Callable, List, Optional, Tuple

import torch
from torch import nn
from torch.nn import functional

from .calls import PLAIN, differentiable, have_kernel, is_symbolic, traced, transformed
from .producers import leaves_bias

MOST_CHANNELS, MOST_KERNEL, STRIDES = 16, 7, (1, 2)
MOST_ELEMENTS = 2**31 - 1
MOST_WORTH = 8, 147  # input channels, and terms of a sum, up to which it is faster
LEAST_WORTH = 32, 2**20  # columns and elements of an output, from which it is
Shape = Tuple[int, int, int, int]


def for_kernels(kernels: Any) -> "Callable[..., Optional[torch.Tensor]]":
    """A module's `convolved`: what a layer and the kernel behind it give as one; None if they are not one.

    It takes the layer and the arguments of the kernel: the layer's input, and None in place of its bias.
    """
    known = bool(kernels.sources.convolution)
    operator = getattr(kernels.operators, f"{kernels.name}_convolved").default._op if known else None
    recorded = gradient(kernels)

    def convolved(layer: Any, *arguments: Any) -> "Optional[torch.Tensor]":
        if operator is None or is_symbolic(*arguments) or is_governed():
            return None
        given, params = arguments[: kernels.inputs], arguments[kernels.inputs :]
        if not is_thin(layer) or sum(t is None for t in given) != 1 or not all(map(is_number, params)):
            return None
        if not takes(layer, [layer.bias if t is None else t for t in given], kernels.dtypes):
            return None
        x, *operands = (layer.bias.view(-1, 1, 1) if t is None else t for t in given)
        shape, weight = shape_of(layer, x), layer.weight
        if shape is None or not is_worth(layer, x, shape) or not fit(shape, *operands):
            return None
        sizes = (*layer.stride, *layer.padding)
        with torch.no_grad():
            made = x.new_empty(shape)
            expanded = (t.expand(shape) for t in operands)
            if not operator(x, weight, *expanded, *map(float, params), *sizes, made):
                return None
        if differentiable(x, weight, *operands):
            made = recorded.apply(made, (sizes[:2], sizes[2:], params), x, weight, *operands)
        return made

    return convolved


def gradient(kernels: Any) -> Any:
    """The autograd.Function of a result that is there: it saves what the convolution was given.

    For the gradient the output of the convolution, which was never in memory, is computed again; the kernel
    of the gradient reads it, and PyTorch's own gradient of a convolution comes behind.
    """

    class Convolved(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, made: torch.Tensor, of: Any, *given: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(*given)
            ctx.mark_dirty(made)  # else what comes out is a view, which nothing may write over
            ctx.of = of
            return made

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            wanted = ctx.needs_input_grad[2:]
            own = differentiable_gradients if torch.is_grad_enabled() else gradients
            with torch.autocast(grad.device.type, enabled=False):  # as there was none at the call
                return (None, None, *own(kernels, grad, ctx.saved_tensors, ctx.of, wanted))

    return Convolved


def gradients(kernels: Any, grad: torch.Tensor, saved: Any, of: Any, wanted: Any) -> "Tuple[Any, ...]":
    """The gradients of what a convolution was given, None for those of its tensors that are not wanted.

    Args:
        kernels: of the module.
        grad: the gradient of the result.
        saved: the input, the weight and the operands.
        of: the stride, the padding and the scalars.
        wanted: for each tensor whether its gradient is asked for.
    """
    (stride, padding, params), (x, weight, *operands) = of, saved
    y = functional.conv2d(x, weight, None, stride, padding)
    behind, *others = kernels.backward(grad, y, *operands, *params)
    sizes = (None, stride, padding, (1, 1), False, (0, 0), 1, (*wanted[:2], False))
    of_x, of_weight, _ = torch.ops.aten.convolution_backward(behind, x, weight, *sizes)
    return (of_x, of_weight, *others)


def differentiable_gradients(
    kernels: Any, grad: torch.Tensor, saved: Any, of: Any, wanted: Any
) -> "Tuple[Any, ...]":
    """The same as steps that autograd records, so that there are second derivatives."""
    stride, padding, params = of
    given = [t.view_as(t) for t in saved]  # none of which is computed from another
    x, weight, *operands = given
    result = kernels.run(functional.conv2d(x, weight, None, stride, padding), *operands, *params)
    asked = [t for t, is_wanted in zip(given, wanted) if is_wanted]
    found = iter(torch.autograd.grad(result, asked, grad, create_graph=True))
    return tuple(next(found) if is_wanted else None for is_wanted in wanted)


def is_governed() -> bool:
    """True if something else decides how a convolution is computed: a compiler, a transform, a mode."""
    if traced() or transformed() or torch.are_deterministic_algorithms_enabled():
        return True
    return bool(torch.is_autocast_enabled()) or torch._C._len_torch_dispatch_stack() > 0


def is_thin(layer: Any) -> bool:
    """True if a layer is a Conv2d of few input channels, with a bias, that the kernel knows."""
    if layer.__class__ is not nn.Conv2d or not leaves_bias(layer) or isinstance(layer.padding, str):
        return False
    _, channels, *kernel = layer.weight.shape
    small = channels <= MOST_CHANNELS and max(kernel) <= MOST_KERNEL
    plain = layer.groups == 1 and tuple(layer.dilation) == (1, 1) and layer.padding_mode == "zeros"
    return bool(small and plain and all(step in STRIDES for step in layer.stride))


def on_gpu(x: torch.Tensor) -> bool:
    """True if a tensor lies on a GPU of CUDA."""
    return x.is_cuda


def takes(layer: Any, tensors: "List[Any]", dtypes: "Tuple[torch.dtype, ...]") -> bool:
    """True if the kernel takes tensors: dense ones, NCHW, of one dtype and device with the weight.

    A single channel in channels_last is contiguous, too, and makes PyTorch's result channels_last.
    """
    x, dtype, device = tensors[0], layer.weight.dtype, layer.weight.device
    for tensor in (*tensors, layer.weight):
        if tensor.__class__ not in PLAIN or tensor.dtype != dtype or tensor.device != device:
            return False
    if not on_gpu(x) or not have_kernel(*tensors) or dtype not in dtypes or dtype == torch.float64:
        return False
    if x.dim() != 4 or x.shape[1] != layer.weight.shape[1] or any(t.is_neg() for t in tensors):
        return False
    return all(t.is_contiguous() and t.stride(1) >= t.stride(2) for t in (x, layer.weight))


def is_number(param: Any) -> bool:
    """True if a scalar is a number, and not NaN, of which a clamp makes NaN."""
    return isinstance(param, (int, float)) and param == param


def shape_of(layer: Any, x: torch.Tensor) -> "Optional[Shape]":
    """The shape of a convolution's output; None where it is empty or has too many elements."""
    size, (channels, _, *kernels) = x.shape[2:], layer.weight.shape
    around = zip(size, layer.padding, kernels, layer.stride)
    height, width = ((n + 2 * pad - kernel) // step + 1 for n, pad, kernel, step in around)
    batch, empty = x.shape[0], min(x.shape[0], height, width) <= 0
    most = max(batch * channels * height * width, x.numel())
    return None if empty or most > MOST_ELEMENTS else (batch, channels, height, width)


def is_worth(layer: Any, x: torch.Tensor, shape: Shape) -> bool:
    """True if one kernel is faster than PyTorch's convolution and a kernel behind it, as measured."""
    (channels, terms), (columns, elements) = MOST_WORTH, LEAST_WORTH
    height, width = layer.weight.shape[2:]
    few = x.shape[1] <= channels and x.shape[1] * height * width <= terms
    large = shape[3] >= columns and shape[0] * shape[1] * shape[2] * shape[3] >= elements
    return few and large and (x.element_size() > 2 or x.shape[3] % 8 == 0)  # 16 bits come in vectors


def fit(shape: Shape, *operands: torch.Tensor) -> bool:
    """True if operands broadcast to a shape, and do not enlarge it."""
    sizes = (zip(t.shape[::-1], shape[::-1]) for t in operands)
    return all(t.dim() <= 4 for t in operands) and all(n in (1, m) for each in sizes for n, m in each)
