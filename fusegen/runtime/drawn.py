"""Dropouts on CUDA whose masks the kernels draw themselves, so that none is in memory.

A call draws so if `can_draw` says so. The mask then is a `Draw`: its place among PyTorch's random numbers,
and the shape and strides that its tensor would have. The kernels take any tensor of these in its place.
"""

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch

from . import build, philox
from .activation import INTERFACE, Activation
from .autograd import keep, needed_outputs, stand_ins
from .calls import PLAIN, differentiable, is_batch, transformed
from .shared import gradients
from .sources import Sources

DTYPES = (torch.float32, torch.float16, torch.bfloat16)  # whose masks PyTorch's kernel draws four at a time
SCALARS = 7  # of a mask, as cuda/drawn.cuh reads them
WORD = (1 << 32) - 1


class Mask(NamedTuple):
    """Where the tensor of a mask lies, or would lie."""

    shape: torch.Size
    stride: "Tuple[int, ...]"
    dtype: torch.dtype
    device: torch.device


class Draw:
    """A mask that a kernel draws.

    Attributes:
        of: where its tensor would lie.
        place: among the random numbers.
        p: the probability of 0.
        scalars: from which a kernel draws the mask.
    """

    def __init__(self, of: "Mask", place: philox.Place, p: float) -> None:
        self.of, self.place, self.p = of, place, p
        seed, block, bits = place.seed, place.offset // 4, place.width.bit_length() - 1
        halves = (seed & WORD, seed >> 32, block & WORD, block >> 32)
        self.scalars = (*map(float, (*halves, philox.threshold(p), place.threads, bits)),)

    def empty(self) -> torch.Tensor:
        """Return a tensor of the mask's shape and strides, whose elements nobody has written."""
        return torch.empty_strided(
            self.of.shape, self.of.stride, dtype=self.of.dtype, device=self.of.device
        )

    def among(self, tensors: "Sequence[torch.Tensor]") -> torch.Tensor:
        """Return a tensor to take the mask's place, one of some tensors if it lies as the mask does."""
        for tensor in tensors:
            alike = tensor.shape == self.of.shape and tensor.stride() == self.of.stride
            if alike and tensor.data_ptr() % 16 == 0:
                return tensor
        return self.empty()

    def mask(self) -> torch.Tensor:
        """Return the mask as a tensor, which PyTorch draws again."""
        with torch._C._DisableFuncTorch():
            return philox.again(self.place, self.empty(), self.p).to(self.of.dtype)


class Drawing(Activation):
    """The kernels of a module that draw masks: those of its text with FUSEGEN_DRAWN defined."""

    launches = ()  # NVRTC compiles no such kernels

    def __init__(self, reading: Any) -> None:
        self.indices = reading.indices
        signature, sources = reading.signature, reading.sources
        names = (f"float draw{k}" for k in range(reading.indices * SCALARS))
        behind = ", ".join(names)
        self.has_masks = True
        super().__init__(
            reading.name,
            interface=INTERFACE,
            unread=reading.unread,
            gradients=reading.gradients,
            eager=reading.eager,
            forward=f"{signature.forward}, {behind}",
            backward=f"{signature.backward}, {behind}",
            sources=Sources(f"#define FUSEGEN_DRAWN\n{sources.cuda}", sources.cpu),
            dtypes=DTYPES,
        )

    def announce(self) -> None:
        """Leave it to Inductor to fuse what it draws itself."""


class Drawer:
    """The calls of a module whose kernels draw masks.

    Attributes:
        reading: the kernels that read masks.
        drawing: those that draw them; None until a call asks for them.
    """

    def __init__(self, reading: Any) -> None:
        self.reading = reading
        self.drawing: "Optional[Drawing]" = None
        self.own = reading.inputs - reading.indices  # the tensors that are no masks
        self.Drawn = _function(self)

    def draw(self, of: Mask, p: float) -> "Optional[Draw]":
        """Return a mask that the kernels draw, or None where PyTorch has to."""
        if not can_draw(self.reading, of):
            return None
        if self.drawing is None:
            self.drawing = Drawing(self.reading)
        place = philox.take(of.device.index, of.dtype, of.shape.numel())
        return place and Draw(of, place, p)

    def run(self, *arguments: Any) -> Any:
        """Return the function of tensors, masks and scalars, at least one of the masks a `Draw`."""
        own, masks = arguments[: self.own], arguments[self.own : self.reading.inputs]
        params = arguments[self.reading.inputs :]
        first = own[0]
        usual = all(t.__class__ in PLAIN and not t.is_nested and not t.is_neg() for t in own)
        usual = usual and all(t.dtype == first.dtype and t.device == first.device for t in own)
        usual = usual and all(m.__class__ is Draw and m.of.dtype == first.dtype for m in masks)
        usual = usual and not (transformed() or torch._C._len_torch_dispatch_stack())
        usual = usual and not (self.reading.autocasts and torch.is_autocast_enabled())  # which widens them
        if not usual:
            return self.reading.run(*own, *map(read, masks), *params)
        if differentiable(*own):
            return self.Drawn.apply(*own, masks, *params)
        return self.forward(own, masks, params)

    def forward(self, own: "Any", draws: "Sequence[Draw]", params: "Sequence[float]") -> torch.Tensor:
        """Return the kernel of the function."""
        return self._call("forward", own, draws, params)

    def backward(self, tensors: "Any", draws: "Sequence[Draw]", params: "Sequence[float]") -> Any:
        """Return the kernel of the gradients, of the incoming one and those tensors that it reads."""
        return self._call("backward", tensors, draws, params)

    def _call(self, kernel: str, tensors: "Any", draws: "Sequence[Draw]", params: "Sequence[float]") -> Any:
        scalars = [scalar for draw in draws for scalar in draw.scalars]
        places = [draw.among(tensors) for draw in draws]
        return getattr(self.drawing, kernel)(*tensors, *places, *params, *scalars)


def can_draw(reading: Any, of: Mask) -> bool:
    """Return True if the kernels of a module draw a mask, rather than PyTorch.

    PyTorch does for other dtypes and sizes than those of which its kernel is known to draw four numbers for
    four neighbours, in a version that is known by comparison (`philox.widest`); while a CUDA graph is
    captured, each replay of which draws another mask; where the gradient reads the result; without nvcc.
    """
    numel = of.shape.numel()
    if of.device.type != "cuda" or of.dtype not in DTYPES or numel % 4 or not 0 < numel < 1 << 31:
        return False
    if reading.signature.saved != reading.signature.tensors or torch.cuda.is_current_stream_capturing():
        return False
    if not philox.widest(of.device.index, of.dtype):
        return False
    return build.has_nvcc(reading.name)


def read(mask: Any) -> Any:
    """Return a mask as a tensor."""
    return mask.mask() if mask.__class__ is Draw else mask


def _function(drawer: Drawer) -> Any:
    """Return the call with its gradient, which draws the masks again."""
    reading = drawer.reading
    signature, own = reading.signature, drawer.own
    unread = [k for k, name in enumerate(signature.saved) if name in signature.unread]
    passed = [signature.saved.index(name) for name in reading.passed]

    class Drawn(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            tensors, (ctx.draws, *ctx.params) = arguments[:own], arguments[own:]
            ctx.save_for_backward(*keep(ctx, tensors, unread))
            return drawer.forward(tensors, ctx.draws, ctx.params)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            wanted, nones = ctx.needs_input_grad, (None,) * (1 + len(ctx.params))
            saved: "List[Any]" = stand_ins(ctx, needed_outputs(ctx, signature), grad, grad)
            if torch.is_grad_enabled() or transformed() or is_batch(grad) or grad.is_neg():
                arguments = (grad, *saved, *map(read, ctx.draws), *ctx.params)
                return (*gradients(signature, reading.Backward.apply, arguments, wanted), *nones)

            def kernel(*tensors: Any) -> Any:
                return drawer.backward(tensors, ctx.draws, ctx.params)

            made = [*gradients(signature, kernel, (grad, *saved), wanted)]
            for k in passed:  # which the kernel leaves out
                if saved[k].numel() == grad.numel():
                    made[k] = grad.reshape(saved[k].shape)
            return (*made, *nones)

    return Drawn
