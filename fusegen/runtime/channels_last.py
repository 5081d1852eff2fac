"""Operands of a convolution laid channels last, where cuDNN is faster, if it rounds as it does in NCHW.

In TF32 a float keeps 10 bits behind its first. Some kernels of cuDNN round a tie to an even number, others
away from 0, and those of the two layouts may differ in that: by it alone results were 3e-4 apart. So the
first call of a shape tries both layouts with ties, and takes channels_last if it rounds as NCHW does, or
would if operands were rounded before: one copy does both. Where gradients are recorded, those are tried,
too, as some kernels of cuDNN cut floats that others round.
"""

import contextlib
from typing import Any, Callable, Dict, Hashable, NamedTuple, Tuple

import torch

from .calls import PLAIN, differentiable, traced, transformed
from .holders import is_under_mode
from .layout_copy import LAYOUTS, Laid, has_kernel, laid

LEAST_IN_TF32 = 32  # channels of a group, from which cuDNN computes NCHW in TF32, too
LEAST_TRIED = 2**20  # elements of an input of float32, below which nothing is tried
ALIKE = 2.0**-15  # of results: the difference of two orders of sums is below it, that of roundings above
FACTOR = -1640531527  # of Knuth's multiplicative hash
Operands = Tuple[torch.Tensor, torch.Tensor]
Convolution = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Bits(NamedTuple):
    """Floats from 1 to 2, and from -1 to -2: the bits that are drawn, and those that all have."""

    drawn: int
    given: int


TIES = Bits(0x807FE000 - 2**32, 0x3F801000)  # halfway between two numbers of TF32
OTHERS = Bits(0x807FF000 - 2**32, 0x3F800800)  # a quarter of the way, or three


def operands(layer: Any, x: torch.Tensor, run: Convolution) -> Operands:
    """Return the input and the weight of a convolution as cuDNN takes them faster, and no less exactly.

    Args:
        layer: the convolution.
        x: its input, on a GPU.
        run: the convolution of an input and a weight.
    """
    weight = layer._parameters["weight"]
    chosen = choice(layer, x, run)
    if chosen is Laid.AS_IT_IS:
        return x, weight
    return laid(x, chosen), laid(weight, chosen) if chosen is Laid.ROUNDED else weight


def as_they_are(layer: Any, x: torch.Tensor, run: Convolution) -> Operands:
    """Return the input and the weight of a convolution; see `operands`."""
    return x, layer._parameters["weight"]


def unless_recorded(layer: Any, x: torch.Tensor, run: Convolution) -> Operands:
    """Return the same as `operands`; where gradients are recorded, the input and the weight as they are."""
    own = layer._parameters  # which may have others, that the convolution does not read
    recorded = differentiable(x, own["weight"], own["bias"])
    return as_they_are(layer, x, run) if recorded else operands(layer, x, run)


def choice(layer: Any, x: torch.Tensor, run: Convolution) -> Laid:
    """Return how a convolution takes its operands; a compiler that traces the model decides for itself."""
    if traced() or transformed() or x.dim() not in LAYOUTS or x.dim() != len(layer.kernel_size) + 2:
        return Laid.AS_IT_IS  # under vmap a tensor does not say how it is laid
    if x.is_contiguous(memory_format=LAYOUTS[x.dim()]):
        return Laid.AS_IT_IS
    if x.element_size() == 2:
        return Laid.CHANNELS_LAST
    governed = is_under_mode() or torch.is_autocast_enabled()
    if governed or x.numel() < LEAST_TRIED or not is_in_tf32(layer):
        return Laid.AS_IT_IS
    if not all(map(_is_nchw, (x, layer._parameters["weight"]))) or not has_kernel():
        return Laid.AS_IT_IS
    return _tried(layer, x, run)


def _is_nchw(t: torch.Tensor) -> bool:
    """Return True for floats in NCHW; PyTorch itself lays an input as a weight that is channels last."""
    return t.__class__ in PLAIN and t.dtype == torch.float32 and t.is_contiguous() and not t.is_neg()


def is_in_tf32(layer: Any) -> bool:
    """Return True if cuDNN computes a convolution of float32 in TF32, and not as a product of matrices."""
    channels, single = layer.in_channels // layer.groups, all(size == 1 for size in layer.kernel_size)
    known = torch.backends.cudnn.enabled and layer.padding_mode == "zeros"
    return known and uses_tf32() and channels >= LEAST_IN_TF32 and not single


def uses_tf32() -> bool:
    """Return True if convolutions of float32 may be computed in TF32."""
    newer: "Any" = getattr(torch.backends.cudnn, "conv", None)
    return bool(newer.fp32_precision == "tf32" if newer is not None else torch.backends.cudnn.allow_tf32)


FOUND: "Dict[Hashable, Any]" = {}  # by what decides how cuDNN computes a convolution


def _tried(layer: Any, x: torch.Tensor, run: Convolution) -> Laid:
    """Return how a convolution takes operands of these shapes, as its first call has found."""
    weight, cudnn = layer._parameters["weight"], torch.backends.cudnn
    # a text, as somebody may have set lists
    sizes = str((layer.stride, layer.padding, layer.dilation, layer.groups, layer.output_padding))
    repeats = cudnn.deterministic or torch.are_deterministic_algorithms_enabled()
    key = layer.__class__, x.shape, weight.shape, sizes, x.device, cudnn.benchmark, repeats
    chosen = _known(key, lambda: _trial(x, weight, run)) or Laid.AS_IT_IS
    if chosen is Laid.AS_IT_IS or not differentiable(x, weight):
        return chosen
    kept = _known((*key, "gradients"), lambda: _keeps_gradients(x, weight, run, chosen))
    return chosen if kept else Laid.AS_IT_IS


def _known(key: Hashable, trial: "Callable[[], Any]") -> Any:
    """Return what a trial has found, which waits for its results; None where it fails, or in a graph.

    It may need more memory than there is, or a kernel that cuDNN does not have.
    """
    if key not in FOUND:
        if torch.cuda.is_current_stream_capturing():
            return None
        found = None
        with contextlib.suppress(OSError, RuntimeError), torch.no_grad():
            found = trial()
        FOUND[key] = found
    return FOUND[key]


def _trial(x: torch.Tensor, weight: torch.Tensor, run: Convolution) -> Laid:
    """Return how operands of these shapes are laid, for cuDNN to round as it does in NCHW."""
    given = floats(x, 0, TIES), floats(weight, 1, TIES)
    expected = run(*given)
    for chosen in (Laid.CHANNELS_LAST, Laid.ROUNDED):
        if are_alike(run(*(laid(t, chosen) for t in given)), expected):
            return chosen
    return Laid.AS_IT_IS


def _keeps_gradients(x: torch.Tensor, weight: torch.Tensor, run: Convolution, chosen: Laid) -> bool:
    """Return True if the gradients of operands that are laid so are rounded, or exact, as those in NCHW.

    No float is a tie: which way those go makes a gradient no less exact.
    """
    given = floats(x, 0, OTHERS), floats(weight, 1, OTHERS)
    expected = _gradients(run, *given)
    made = _gradients(run, *(laid(t, chosen) for t in given))
    return all(map(are_alike, made, expected))


def _gradients(run: Convolution, *operands: torch.Tensor) -> "Tuple[torch.Tensor, ...]":
    """Return the gradients of a convolution's operands, for one incoming gradient."""
    with torch.enable_grad(), _without_hooks():
        leaves = [t.detach().requires_grad_() for t in operands]
        y = run(leaves[0], leaves[1])
        grad = torch.empty_like(y).copy_(floats(y, 2, OTHERS))
        return torch.autograd.grad(y, leaves, grad)


def _without_hooks() -> "contextlib.AbstractContextManager[None]":
    """Return a context in which no hook sees saved tensors: those of a checkpoint would count them."""
    autograd: Any = torch._C._autograd
    if not autograd._saved_tensors_hooks_is_enabled():
        return contextlib.nullcontext()  # there is none, and none may be added
    return torch.autograd.graph.saved_tensors_hooks(_as_it_is, _as_it_is)


def _as_it_is(t: torch.Tensor) -> torch.Tensor:
    return t


def floats(like: torch.Tensor, draw: int, bits: Bits) -> torch.Tensor:
    """Return floats of a shape, those of a batch all alike.

    Args:
        like: of the shape.
        draw: which numbers are drawn, from 0 to 3.
        bits: what they are.
    """
    first = like[:1]
    numbers = torch.arange(first.numel(), dtype=torch.int32, device=like.device)
    made = (numbers * 4 + draw).mul_(FACTOR).bitwise_and_(bits.drawn).bitwise_or_(bits.given)
    return made.view(torch.float32).view(first.shape).expand(like.shape).contiguous()


def are_alike(made: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return True if results, of the first and the last of a batch, differ by their order of sums only."""
    ends = [0, expected.shape[0] - 1]
    size, difference = expected[ends].norm(), (made[ends] - expected[ends]).norm()
    return bool(difference <= ALIKE * size)
