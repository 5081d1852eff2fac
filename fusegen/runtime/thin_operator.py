"""The operators of a thin convolution with a kernel behind it: shapes, definitions, and the gradient.

``NAME_convolved`` is the kernel, which tells whether it ran: not where no tile fits the shared memory of a
block. ``NAME_convolution_forward`` runs it, or in its place PyTorch's convolution and the module's kernel;
``NAME_convolution`` has a gradient, too. Their arguments are those of the module's kernel, with the input
and the weight in place of the first tensor, and behind the scalars two strides and two paddings.
"""

import functools
from typing import Any, Optional, Sequence, Tuple

import torch
from torch.nn import functional

from . import build, sharding, thin_build
from .autograd import keep, signed, stand_ins
from .calls import have_kernel, one_by_one, transformed
from .flavour import define, register_fake, register_vmap
from .shared import gradients

MOST_ELEMENTS = 2**31 - 1
MOST_WORTH = 16, 200  # input channels, and terms of a sum, up to which it is faster
LEAST_WORTH = 32, 2**22  # columns and elements of an output, from which it is
MOST_NARROW = 12  # input channels in 16 bits
ENOUGH_TERMS = 64  # from which it is in float32 where pixels are written one by one
RUN, PIXELS = 4, 256  # pixels that are written at once, and those of a tile
SIZES = 4  # behind the scalars: the strides and the paddings of rows and columns
Shape = Tuple[int, int, int, int]
Tensors = Sequence[torch.Tensor]  # the input, the weight, and what the kernel takes besides


def on_gpu(x: Any) -> bool:
    """Return True for a tensor on a GPU of CUDA."""
    return isinstance(x, torch.Tensor) and x.is_cuda


def are_alike(tensors: Tensors, dtypes: "Tuple[torch.dtype, ...]") -> bool:
    """Return True for tensors on one GPU, of one dtype of the kernel."""
    x, weight, *_ = tensors
    dtype, device = x.dtype, x.device
    if not on_gpu(x) or dtype not in dtypes or dtype == torch.float64:
        return False
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor) or tensor.dtype != dtype or tensor.device != device:
            return False
    return x.dim() == 4 and x.shape[1] == weight.shape[1]


def shape_of(tensors: Tensors, sizes: "Sequence[int]") -> "Optional[Shape]":
    """Return the shape of the result of one kernel; None where PyTorch's convolution runs.

    Args:
        tensors: alike, as `are_alike` says.
        sizes: the strides and the paddings.
    """
    x, weight, *operands = tensors
    if not have_kernel(*tensors) or any(t.is_neg() for t in tensors):
        return None
    if not (is_dense(x) and is_dense(weight)) or min(sizes[:2]) < 1 or min(sizes[2:]) < 0:
        return None
    shape = result_shape(x, weight, sizes)
    elements = shape[0] * shape[1] * shape[2] * shape[3]
    if min(*shape, *weight.shape) <= 0 or max(elements, x.numel()) > MOST_ELEMENTS:
        return None
    return None if any(losses(x, weight, shape)) or not fit(shape, *operands) else shape


def is_dense(t: torch.Tensor) -> bool:
    """Return True if a tensor is NCHW without gaps.

    A single channel in channels_last is contiguous, too, and makes PyTorch's result channels_last.
    """
    return t.is_contiguous() and t.stride(1) >= t.stride(2)


def result_shape(x: torch.Tensor, weight: torch.Tensor, sizes: "Sequence[int]") -> Shape:
    """The shape of a convolution's output; rows or columns are negative where the kernel is too large."""
    around = zip(x.shape[2:], weight.shape[2:], sizes[:2], sizes[2:])
    height, width = ((size + 2 * pad - kernel) // step + 1 for size, kernel, step, pad in around)
    return x.shape[0], weight.shape[0], height, width


def losses(x: torch.Tensor, weight: torch.Tensor, shape: Shape) -> "Tuple[Any, ...]":
    """Conditions each of which makes PyTorch's convolution and a kernel behind it faster, as measured."""
    (channels, terms), (columns, elements) = MOST_WORTH, LEAST_WORTH
    own, narrow = weight.shape[1] * weight.shape[2] * weight.shape[3], x.element_size() == 2
    return (
        weight.shape[1] > (MOST_NARROW if narrow else channels),
        own > terms,
        shape[3] < columns,
        shape[0] * shape[1] * shape[2] * shape[3] < elements,
        narrow and x.shape[3] % 8 != 0,  # 16 bits come in vectors
        (narrow or own < ENOUGH_TERMS) and is_written_by_pixels(shape),
    )


def is_written_by_pixels(shape: Shape) -> bool:
    """Return True where runs of pixels begin at no multiple of their size, in an image or in a tile.

    Of symbolic sizes it is not known.
    """
    height, width = shape[2:]
    if not (isinstance(height, int) and isinstance(width, int)):
        return False
    line = PIXELS // width * width if width <= PIXELS else width  # of a tile of whole rows
    return height * width % RUN != 0 or (width % RUN != 0 and line % RUN != 0)


def fit(shape: Shape, *operands: torch.Tensor) -> bool:
    """Return True if operands broadcast to a shape, and do not enlarge it."""
    sizes = (zip(t.shape[::-1], shape[::-1]) for t in operands)
    return all(t.dim() <= 4 for t in operands) and all(n in (1, m) for each in sizes for n, m in each)


def define_operators(kernels: Any, operators: Any) -> None:
    """Tell PyTorch of the operators of a module."""
    signature, library, name = kernels.signature, operators._library, kernels.name
    _, *others = signature.forward.split(", ")
    sizes = [f"int {what}_{side}" for what in ("stride", "padding") for side in ("y", "x")]
    taken = ", ".join(["Tensor x", "Tensor weight", *(f"{of}_" for of in others), *sizes])
    define(library, f"{name}_convolved({taken}, Tensor(a!) OUT0) -> bool")
    define(library, f"{name}_convolution_forward({taken}) -> Tensor")
    define(library, f"{name}_convolution({taken}) -> Tensor")
    kernel = getattr(operators, f"{name}_convolved").default
    forward = getattr(operators, f"{name}_convolution_forward").default

    def loading(*arguments: Any) -> bool:
        if arguments[0].device.type != "cuda" or not thin_build.is_ready(kernels):
            return False
        build.load(kernels, operators, "convolved", "cuda")
        return bool(kernel(*arguments))

    def computed(*arguments: Any) -> torch.Tensor:
        made = _by_one_kernel(kernels, kernel._op, arguments)
        return by_steps(kernels, kernels.forward, *arguments) if made is None else made

    def steps(*arguments: Any) -> torch.Tensor:
        return by_steps(kernels, kernels.forward, *arguments)

    library.impl(f"{name}_convolved", loading, "CompositeExplicitAutograd")
    register_fake(kernel, lambda *arguments: True, library)
    library.impl(f"{name}_convolution_forward", computed, "CompositeExplicitAutograd")
    register_fake(forward, steps, library)
    register_vmap(forward, functools.partial(one_by_one, forward), lib=library)
    library.impl(f"{name}_convolution", _composed(kernels), "CompositeImplicitAutograd")


def by_steps(kernels: Any, call: Any, *arguments: Any) -> Any:
    """PyTorch's convolution, and a call of the module's kernel behind it."""
    (x, weight, *operands), params, sizes = _parts(kernels, arguments)
    return call(functional.conv2d(x, weight, None, sizes[:2], sizes[2:]), *operands, *params)


def function(kernels: Any) -> Any:
    """Return the autograd.Function of both as one, which saves what the convolution was given.

    For the gradient the output of the convolution, which was never in memory, is computed again if the
    kernel of the gradient reads it; PyTorch's own gradient of a convolution comes behind.
    """
    signature = kernels.signature
    saves_output = signature.saved != signature.tensors

    class Convolved(torch.autograd.Function):
        """A convolution and the kernel behind it."""

        forward = staticmethod(signed(kernels.convolution_forward))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            (x, weight, *operands), ctx.params, ctx.sizes = _parts(kernels, inputs)
            unread = [k for k, name in enumerate(signature.saved[1:], 2) if name in signature.unread]
            tensors = (x, weight, *([output] if saves_output else operands))
            ctx.save_for_backward(*keep(ctx, tensors, [] if saves_output else unread))

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            with torch.autocast(grad.device.type, enabled=False):  # as there was none at the call
                return _gradients(kernels, ctx, grad)

    return Convolved


def _composed(kernels: Any) -> Any:
    """Return the call that the operator with a gradient makes, of whatever tensors a program is given."""

    def composed(*arguments: Any) -> torch.Tensor:
        tensors, _, _ = _parts(kernels, arguments)
        [dtype, *others] = {t.dtype for t in tensors}
        usual = not others and dtype in kernels.dtypes and have_kernel(*tensors)
        if transformed():  # of which some take no autograd.Function inside of an operator
            return by_steps(kernels, kernels.eager, *arguments)
        if torch.is_autocast_enabled() or sharding.is_sharded(*tensors) or not usual:
            return by_steps(kernels, kernels.run, *arguments)
        return kernels.Convolved.apply(*arguments)

    return composed


def _by_one_kernel(kernels: Any, kernel: Any, arguments: "Tuple[Any, ...]") -> "Optional[torch.Tensor]":
    """Return the result of one kernel, or None where it does not run."""
    tensors, params, sizes = _parts(kernels, arguments)
    shape = shape_of(tensors, sizes) if are_alike(tensors, kernels.dtypes) else None
    if shape is None:
        return None
    x, weight, *operands = tensors
    made = x.new_empty(shape)
    return made if kernel(x, weight, *(t.expand(shape) for t in operands), *params, *sizes, made) else None


def _gradients(kernels: Any, ctx: Any, grad: torch.Tensor) -> "Tuple[Any, ...]":
    """The gradients of the arguments, by steps that autograd may record; None for what is not wanted."""
    signature, wanted, sizes = kernels.signature, ctx.needs_input_grad, (ctx.sizes[:2], ctx.sizes[2:])
    x, weight, *read = stand_ins(ctx, (True, *wanted), grad, grad)
    if signature.saved == signature.tensors:
        unread = signature.saved[0] in signature.unread
        y = grad if unread else functional.conv2d(x, weight, None, *sizes)
        read = [y, *read]
    call = kernels.Backward.apply if torch.is_grad_enabled() else kernels.backward
    each = wanted[0] or wanted[1], *wanted[2:]
    behind, *others = gradients(signature, call, (grad, *read, *ctx.params), each)
    of_x = of_weight = None
    if wanted[0] or wanted[1]:
        fixed = (None, *sizes, (1, 1), False, (0, 0), 1)
        mask = (wanted[0], wanted[1], False)
        of_x, of_weight, _ = torch.ops.aten.convolution_backward(behind, x, weight, *fixed, mask)
    return (of_x, of_weight, *others, *(None for _ in (*ctx.params, *ctx.sizes)))


def _parts(kernels: Any, arguments: "Tuple[Any, ...]") -> "Tuple[Any, Any, Any]":
    """Return the tensors, the scalars and the sizes among the arguments."""
    count = kernels.inputs + 1
    return arguments[:count], arguments[count:-SIZES], arguments[-SIZES:]
