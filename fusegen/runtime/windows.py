"""The kernels of a module with a pooling: what they have otherwise than those of rows."""

import dataclasses
import functools
from typing import Any, Callable, Dict, List, Sequence, Tuple

import torch

from .activation import Activation
from .calls import is_symbolic
from .channels_last import as_they_are, unless_recorded
from .checks import check
from .rows import Rows
from .shared import called_once, listed
from .window_numbers import Adaptive, of_numbers, plain, window_of

EMPTY = "a dimension of the windows has no elements"
FEW = "a tensor has too few dimensions for its windows and the channels before them"
SHAPES = "the tensors in a pooling have one shape, and those behind it the shape of the result"


class Windows(Rows):
    """The kernels of a module with a pooling.

    Operators and kernels take tensors of two shapes: those that are read in the pooling have that of the
    first of them, and those behind it that of the result.

    Where numbers of the windows are the constructor's, each choice of them has compiled code of its own.

    Attributes:
        window: the numbers of the windows, or the function that gives PyTorch's arguments for those of a
            constructor.
        numbers: these by default.
        front: the tensors that are read in the pooling, as bits.
    """

    views, once_a_row, reduction, features, finds = None, False, "none", (), False
    lays = staticmethod(unless_recorded)  # gradients of windows are faster in NCHW

    def __init__(
        self,
        name: str,
        *,
        window: Any,
        front: int,
        eager: "Callable[..., Any]",
        sources: Any,
        numbers: "Tuple[Any, ...]" = (),
        **own: Any,
    ) -> None:
        self.front = front
        setattr(self, f"of {numbers}", self)
        given = dict(window=window, front=front, eager=eager, sources=sources, **own)
        self._other = functools.partial(Windows, name, **given)
        self.window = of_numbers(name, **window(*numbers)) if numbers else window_of(window)
        if numbers:
            defines = self.window.defines()
            sources = dataclasses.replace(sources, cuda=defines + sources.cuda, cpu=defines + sources.cpu)
        self.rank = len(self.window[0])
        if isinstance(self.window, Adaptive):
            self.lays = as_they_are
        folding = functools.partial(_in_one_batch, self.rank + 2, plain(numbers), eager)
        Activation.__init__(self, name, autocasts=False, eager=folding, sources=sources, **own)
        self.of_tensors = self.run = self.of_rows = self._expanded(self.run)
        if numbers:
            self.run = self._choosing(len(numbers))

    def of(self, *numbers: Any) -> Any:
        """Return the kernels for some numbers of the constructor.

        Raises:
            TypeError, RuntimeError: PyTorch's pooling takes no such numbers.
        """
        return getattr(self, self._made(numbers))

    @called_once  # so that torch.compile finds the attribute, by which it knows the numbers again
    def _made(self, numbers: "Tuple[Any, ...]") -> str:
        """Return the attribute that has the kernels for some numbers, which are made if they are new."""
        name = f"of {numbers}"
        if name not in vars(self):
            made = self._other(numbers=numbers)
            vars(made)["call"] = made.of_tensors  # the function takes numbers
            setattr(self, name, made)
        return name

    def _choosing(self, count: int) -> "Callable[..., Any]":
        """Return a call of tensors and scalars with so many numbers behind them."""

        def call(*arguments: Any) -> Any:
            return self.of(*arguments[-count:]).of_tensors(*arguments[:-count])

        return call

    def is_front(self, tensor: int) -> bool:
        """Return True if a tensor is read in the pooling."""
        return bool(self.front >> tensor & 1)

    def sizes(self, shape: "Sequence[int]") -> "Tuple[int, ...]":
        """Return the shape of the result for that of a tensor in the pooling."""
        rank = self.rank
        check(len(shape) > rank, self.name, FEW)
        check(all(size > 0 for size in shape[-rank:]), self.name, EMPTY)
        made = (self.window.size(self.name, d, size) for d, size in enumerate(shape[-rank:]))
        return (*shape[:-rank], *made)

    def includes(self) -> "List[str]":
        """Return the lines of C++ that include what binds kernels to PyTorch."""
        own = [f"#define FUSEGEN_WINDOW {self.window.dims}"]
        own += [f"#define FUSEGEN_IN_FRONT {self.front}u", '#include "stable_abi_windows.h"']
        return [*own, *Activation.includes(self)]

    def registration(self, kernel: str, counts: str) -> str:
        """Return the line of C++ that registers a kernel."""
        line = Activation.registration(self, kernel, counts).replace("_WITH_SUMS(", "(", 1)
        line = line.replace("FUSEGEN_REGISTER", "FUSEGEN_REGISTER_WINDOWS", 1)
        return f"{line[:-1]}, {str(kernel == 'backward').lower()})"

    @property
    def rules(self) -> "Dict[str, Callable[..., Any]]":
        """Return how each kernel is called on a batch: windows are of the last dimensions."""
        return {
            "forward": functools.partial(_in_batch, self.inputs),
            "backward": functools.partial(_in_batch, 1 + self.inputs),
        }

    def shapes(self, of: "Tuple[str, int, int, int]") -> "Callable[..., Any]":
        """Return a function that gives a kernel's results without the elements."""
        return functools.partial(_shaped, self, of)

    def _expanded(self, run: "Callable[..., Any]") -> "Callable[..., Any]":
        """Return a call of tensors in the two shapes that kernels take."""
        count = self.inputs
        if count == 1:
            return run
        in_front = [k for k in range(count) if self.is_front(k)]

        def call(*arguments: Any) -> Any:
            tensors = list(arguments[:count])
            if is_symbolic(*tensors):
                return self.eager(*arguments)
            if all(isinstance(t, torch.Tensor) for t in tensors):
                whole = torch.broadcast_shapes(*(tensors[k].shape for k in in_front))
                made = self.sizes(whole)
                tensors = [t.expand(whole if k in in_front else made) for k, t in enumerate(tensors)]
            return run(*tensors, *arguments[count:])

        return call


def _shaped(kernels: Windows, of: "Tuple[str, int, int, int]", *arguments: Any) -> Any:
    """Return a kernel's results without the elements, laid in memory as the kernel would lay them."""
    kernel, inputs, outputs, _ = of
    tensors, first = arguments[:inputs], int(kernel == "backward")
    own = tensors[first:]
    whole = next(t for k, t in enumerate(own) if kernels.is_front(k))
    made = kernels.sizes(whole.shape)
    alike = len({(t.dtype, t.device) for t in tensors}) == 1
    check(alike, kernels.name, "expected tensors of one dtype and device")
    shapes = [whole.shape if kernels.is_front(k) else torch.Size(made) for k in range(len(own))]
    wanted = [torch.Size(made)] * first + shapes
    check(all(t.shape == shape for t, shape in zip(tensors, wanted)), kernels.name, SHAPES)
    results = (shapes if first else [torch.Size(made)])[:outputs]
    layout = _layout(whole, kernels.rank)
    found = [torch.empty(shape, dtype=whole.dtype, device=whole.device, **layout) for shape in results]
    return tuple(found) if outputs > 1 else found[0] if found else None


def _layout(whole: torch.Tensor, rank: int) -> "Dict[str, Any]":
    """Return the memory format of results: channels_last if that of the tensor is."""
    formats = {2: torch.channels_last, 3: torch.channels_last_3d}
    if rank not in formats or whole.dim() != rank + 2:
        return {}
    is_last = whole.is_contiguous(memory_format=formats[rank]) and not whole.is_contiguous()
    return {"memory_format": formats[rank]} if is_last else {}


def _in_one_batch(most: int, numbers: "List[Any]", eager: "Callable[..., Any]", *arguments: Any) -> Any:
    """Return eager's function of tensors of any number of dimensions; its poolings take so many at most."""
    tensors = [t for t in arguments if isinstance(t, torch.Tensor)]
    rank = max([t.dim() for t in tensors], default=0)
    if rank <= most:
        return eager(*arguments, *numbers)
    several = rank - most + 1  # that become one
    whole = [t[(None,) * (rank - t.dim())] for t in tensors]
    batch = torch.broadcast_shapes(*(t.shape[:several] for t in whole))
    flat = [t.expand(*batch, *t.shape[several:]).flatten(0, several - 1) for t in whole]
    return eager(*flat, *arguments[len(flat) :], *numbers).unflatten(0, batch)


def _in_batch(count: int, function: "Callable[..., Any]", in_dims: Any, arguments: Any) -> Any:
    """Return the function of each of a batch, which is one more dimension in front."""
    tensors, dims = arguments[:count], in_dims[:count]
    size = next(t.shape[d] for t, d in zip(tensors, dims) if d is not None)
    moved = [t.expand(size, *t.shape) if d is None else t.movedim(d, 0) for t, d in zip(tensors, dims)]
    made = listed(function(*moved, *arguments[count:]))
    return (made, (0,) * len(made)) if len(made) > 1 else (made[0], 0)
