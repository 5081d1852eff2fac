"""The operators of linear layers in float32 on tensor cores: their library, their choice, their gradient.

``linear`` is a layer, with a gradient, of matrices: by kernels where these are faster, else by PyTorch.
``linear_together`` and ``linear_apart`` are the kernels, for a weight whose terms lie side by side and for
the transposed one of a gradient. They tell whether they ran: not where their memory could not be had.
"""

import functools
from typing import Any, Optional, Tuple

import torch
from torch.nn import functional

from . import build
from .calls import one_by_one
from .flavour import define, register_fake, register_vmap
from .linear_call import by_kernel
from .shared import called_once
from .shared_kernels import SharedKernels, can_load, space_of, texts
from .sources import Texts

NAME = "linear"
SPACE = space_of(NAME)  # of the operators
KERNELS = ("together", "apart")
# What multiplies on chips whose tensor cores have sixteen times the rate of float32 in 16 bits. By mma.sync
# kernels run on all from sm_80 on; with two to four times, as 8.6, 8.9 and 12.0 have, they are not faster.
CHIPS = {(8, 0): "mma.sync", (9, 0): "wgmma"}
# from which the kernels were faster, their longer call included; at 2^30 products some were not
LEAST_COLUMNS, LEAST_PRODUCTS = 16, 2**31
LEAST_WEIGHTS = ((512, 768), (1024, 512))  # rows and terms of a weight
MOST = 2**24  # of each size
PRECISION: Any = getattr(torch._C, "_get_fp32_precision_getter", None)  # which older PyTorch lacks
BINDING = """
#define FUSEGEN_SYMBOL "linear"
#include "names.h"
#define FUSEGEN_EXPECTED "expected float32 tensors"
#define FUSEGEN_DTYPES Dtypes<fusegen::FLOAT32>
#include "stable_abi_product.h"
#include "stable_abi_names.h"
#ifndef WITHOUT_TOGETHER
FUSEGEN_REGISTER_PRODUCT(fusegen::names().space, "KEY", linear_together)
#endif
#ifndef WITHOUT_APART
FUSEGEN_REGISTER_PRODUCT(fusegen::names().space, "KEY", linear_apart)
#endif
"""
CUDA = """
#include "cuda/product_launch.cuh"
#ifndef WITHOUT_TOGETHER
FUSEGEN_PRODUCT(linear_together, TOGETHER)
#endif
#ifndef WITHOUT_APART
FUSEGEN_PRODUCT(linear_apart, APART)
#endif
"""


class Linear(SharedKernels):
    """The kernels of linear layers.

    Attributes:
        layer: a layer, with its gradient.
        together, apart: the kernels.
        call, graded: the layer where it `fits`, without an operator between; `graded` has a gradient.
    """

    def __init__(self) -> None:
        super().__init__(NAME, texts_of_kernels, _define)
        self.layer = self.operators.linear.default
        self.together = self.operators.linear_together.default._op
        self.apart = self.operators.linear_apart.default._op
        self.call = functools.partial(_computed, self)
        self.graded = _function(self.call, self.layer).apply


def texts_of_kernels() -> Texts:
    """Return the sources of the kernels with their headers in their places."""
    return texts(NAME, BINDING, CUDA)


@functools.lru_cache(None)
def kernels() -> Linear:
    """Return the kernels of linear layers; the operators are defined with the first call."""
    return Linear()


@called_once
def namespace() -> str:
    """Return the name of the namespace of the operators."""
    return str(kernels().operators.name)


def fits(x: torch.Tensor, weight: torch.Tensor, bias: "Optional[torch.Tensor]") -> bool:
    """Return True if kernels compute a layer of matrices, since PyTorch would in float32, and slower."""
    device, float32, strided = x.device, torch.float32, torch.strided
    if device.type != "cuda" or x.dim() != 2 or weight.dim() != 2 or x.shape[1] != weight.shape[1]:
        return False
    for t in (x, weight) if bias is None else (x, weight, bias):
        if t.dtype is not float32 or t.layout is not strided or t.device != device:
            return False
        if t.is_nested or t.is_neg():
            return False
    if bias is not None and (bias.shape != weight.shape[:1] or not bias.is_contiguous()):
        return False
    if not is_worth(x.shape[0], weight) or not is_aligned(weight):
        return False
    return has_chip(device) and not allows_less()


def is_worth(columns: int, weight: torch.Tensor) -> bool:
    """Return True from the sizes on where the kernels were faster."""
    rows, terms = weight.shape[:2]
    if columns < LEAST_COLUMNS or not any(rows >= m and terms >= k for m, k in LEAST_WEIGHTS):
        return False
    return columns * rows * terms >= LEAST_PRODUCTS and max(columns, rows, terms) <= MOST


def is_aligned(weight: torch.Tensor) -> bool:
    """Return True if the terms of a weight, or its rows, lie side by side from multiples of 16 bytes on."""
    steps = weight.stride()
    along = 1 if steps[1] == 1 else 0
    pitch = steps[1 - along]
    apart = pitch % 4 == 0 and pitch >= weight.shape[along]
    return steps[along] == 1 and apart and weight.data_ptr() % 16 == 0


@functools.lru_cache(None)
def has_chip(device: torch.device) -> bool:
    """Return True if a GPU has the instructions of the kernels, and these can be built or loaded."""
    return torch.cuda.get_device_capability(device) in CHIPS and can_load(kernels, KERNELS)


def allows_less() -> bool:
    """Return True if the user allows products of matrices in less than float32, which are faster."""
    return bool(PRECISION("cuda", "matmul") == "tf32" if PRECISION else torch._C._get_cublas_allow_tf32())


def _define(of: Linear, space: Any) -> None:
    """Tell PyTorch of the operators."""
    library = space._library
    define(library, "linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor")
    taken = "Tensor left, Tensor right, Tensor bias, Tensor largest, Tensor norm, Tensor(a!) OUT0"
    for kernel in KERNELS:
        define(library, f"linear_{kernel}({taken}) -> bool")
        loading = functools.partial(_first_use, of, space, kernel)
        library.impl(f"linear_{kernel}", loading, "CompositeExplicitAutograd")
        register_fake(getattr(space, f"linear_{kernel}").default, lambda *arguments: True, library)
    layer = space.linear.default
    library.impl("linear", functools.partial(_chosen, of), "CompositeExplicitAutograd")
    register_fake(layer, lambda x, weight, bias: x.new_empty(x.shape[0], weight.shape[0]), library)
    register_vmap(layer, functools.partial(one_by_one, layer), lib=library)
    torch.library.register_autograd(
        layer, functools.partial(_gradients, layer), setup_context=_save, lib=library
    )


def _first_use(of: Linear, space: Any, kernel: str, *arguments: Any) -> bool:
    """Load a kernel, and start again."""
    build.load(of, space, kernel, "cuda")
    return bool(getattr(space, f"linear_{kernel}").default(*arguments))


def _function(call: Any, layer: Any) -> Any:
    """Return a layer of matrices that fits, with its gradient."""

    class Layer(torch.autograd.Function):
        """A layer of matrices."""

        forward = staticmethod(call)
        setup_context = staticmethod(_save)

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return _gradients(layer, ctx, grad)

    return Layer


def _chosen(
    of: Linear, x: torch.Tensor, weight: torch.Tensor, bias: "Optional[torch.Tensor]"
) -> torch.Tensor:
    """Return a layer of matrices, by a kernel if it fits."""
    return (of.call if fits(x, weight, bias) else functional.linear)(x, weight, bias)


def _computed(
    of: Linear, x: torch.Tensor, weight: torch.Tensor, bias: "Optional[torch.Tensor]"
) -> torch.Tensor:
    """Return a layer of matrices that fits: by PyTorch where a kernel's memory could not be had."""
    made = by_kernel(of.together if weight.stride(1) == 1 else of.apart, x, weight, bias)
    return functional.linear(x, weight, bias) if made is None else made


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, _ = inputs
    wanted = ctx.needs_input_grad
    ctx.save_for_backward(x if wanted[1] else None, weight if wanted[0] else None)


def _gradients(layer: Any, ctx: Any, grad: torch.Tensor) -> "Tuple[Any, ...]":
    """Return the gradients of the input, the weight and the bias, which are layers themselves."""
    (x, weight), wanted = ctx.saved_tensors, ctx.needs_input_grad
    of_x = layer(grad, weight.t(), None) if wanted[0] else None
    of_weight = layer(grad.t(), x.t(), None) if wanted[1] else None
    return of_x, of_weight, grad.sum(0) if wanted[2] else None
