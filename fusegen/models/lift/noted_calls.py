"""Notes on what calls of PyTorch are given, which the operators that they run do not keep.

Operators have numbers without their labels, and no argument that has its default. A number in front of a
tensor stands behind it there. Some functions run several operators, and are one call of a graph.
"""

import functools
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import SymFloat, SymInt, Tensor, fx
from torch._ops import OpOverload
from torch.fx.experimental import proxy_tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from fusegen.models.lift.decisions import require
from fusegen.models.lift.known_sizes import Sizes, is_of_sizes
from fusegen.models.lift.labels import CARRIERS, label_of, plain
from fusegen.models.lift.noted_labels import give_labels
from fusegen.models.lift.noted_reads import (
    DIM_READ,
    KIND_CALLS,
    KINDS,
    LOST,
    NOT_KEPT,
    NotedDevice,
    NotedShape,
    NotedType,
    Reads,
)
from fusegen.models.lift.places import is_own
from fusegen.models.lift.untraced import BY_VALUES, CONDITION, COUNTS, Lost
from fusegen.models.reader.recorded_calls import called, note_sizes

PLACED = "placed"  # that of tensors for which the model names a device
METHOD = "method"  # that of operators that the model calls as methods of tensors
# functions that run several operators, or none where they have nothing to do; what a graph calls, and the
# order of the arguments
WHOLE: dict[Any, tuple[Callable[..., Any], int]] = {
    F.softsign: (F.softsign, 1), F.tanhshrink: (F.tanhshrink, 1), Tensor.__rdiv__: (operator.truediv, -1),
    Tensor.contiguous: (torch.ops.aten.contiguous.default, 1),
}  # fmt: skip
# modules whose functions in Python call others for the user
PYTHON = (torch.overrides, torch._tensor, torch.functional, F, torch._jit_internal)
OF_METHODS = tuple(str(each.__file__) for each in PYTHON)
SIZED = frozenset("size shape numel nelement".split())  # which give the sizes of a tensor
STEPS = (torch.linspace, torch.logspace)  # functions whose operators hold the third argument as a number
BY_SIZES = {"__len__": COUNTS, "is_same_size": CONDITION}  # methods whose results are values of sizes


class Noting(TorchFunctionMode):
    """Notes on the operators that a call runs what it was given, while a forward is captured.

    Attributes:
        reads_kinds: the forward reads dtypes, devices or layouts, by which it may decide.
        sizes: takes the sizes that it reads, which have labels; without it, known sizes are numbers.
        reads: takes what it reads of tensors, where it is to be written as text.
    """

    def __init__(self, sizes: Sizes | None = None, reads: Reads | None = None) -> None:
        super().__init__()
        self.sizes, self.reads = sizes, reads
        mode: Any = proxy_tensor.get_proxy_mode()
        self.tracer = mode.tracer
        self.reads_kinds = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run a call, and note what it was given."""
        given, name = kwargs or {}, getattr(func, "__name__", "")
        of: Any = getattr(func, "__self__", None)  # of a property, it
        is_call, read = name != "__get__", of.__name__ if name == "__get__" else name
        is_noted = _is_of_user()
        if is_noted:
            if name == "__set__":
                raise Lost(f"it sets the attribute {of.__name__} of a tensor")
            self._note_read(read, (*args, *given.values()), is_call=is_call)
        args, given = self._without_notes((args, given))
        if func in WHOLE or (func is torch.tensor and self._is_sized((args, given))):
            target, order = WHOLE.get(func, (func, 1))
            run = functools.partial(func, *_plain(args), **_plain(given))
            return called(self.tracer, ("call_function", target), (tuple(args[::order]), given), run)
        if func in STEPS and self._is_sized((args[2:3], given.get("steps"))):
            raise Lost(COUNTS)
        last = self.tracer.graph._root.prev
        makes = not any(isinstance(each, Tensor) for each in tree_leaves((args, given)))
        found = self._run(func, args, given) if makes else self._run(func, _plain(args), _plain(given))
        if read == "data" and self.reads is not None:
            self.reads.share(args[0], found)
        if read in SIZED:
            state = self.reads.state_of(args[0]) if is_noted and self.reads else ""
            found = self._sized(found, args[0], tuple(args[1:]) or tuple(given.values()), state)
        if is_noted and self.reads is not None and read in ("size", "shape", "device"):
            found = self.reads.kept(read, args[0], found)
        nodes = [*_behind(last, self.tracer.graph)]
        left = give_labels(nodes, func, args, given)
        for each in left.values() if is_noted else ():
            require(each)
        _mark(nodes, func, given)
        return found

    def _run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return the result of a call.

        Raises:
            Lost: the forward reads a value, which none of its tensors has.
        """
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if type(error).__name__ in BY_VALUES and is_own(sys._getframe(2).f_code.co_filename):
                raise Lost(CONDITION) from error
            raise

    def _note_read(self, name: str, given: tuple[Any, ...], *, is_call: bool) -> None:
        """Note an attribute or a method of a tensor that the forward reads.

        Raises:
            Lost: no graph keeps it.
        """
        if name in NOT_KEPT:
            raise Lost(LOST.format(name))
        if name in BY_SIZES and self.reads is not None:
            raise Lost(BY_SIZES[name])
        self.reads_kinds |= name in (KIND_CALLS if is_call else KINDS)
        if self.reads is not None:
            self.reads.note_call(name, given)

    def _without_notes(self, given: Any) -> Any:
        """Return the arguments of a call, which depends on each of the sizes that it is given together."""
        for each in tree_leaves(given):
            if type(each) is NotedShape:
                each.note()
        if self.reads is not None and any(map(_is_sum, tree_leaves(given, _is_size))):
            self.reads.note(DIM_READ, None)
        return tree_map_only((NotedShape, NotedDevice, NotedType), lambda each: each.plain(), given)

    def _is_sized(self, given: Any) -> bool:
        """Return True if sizes are given to a call that would hold them, where it is to be text."""
        held = (isinstance(each, SymInt | SymFloat) or is_of_sizes(each) for each in tree_leaves(given))
        return self.reads is not None and any(held)

    def _sized(self, found: Any, tensor: Tensor, dims: tuple[int, ...], state: str) -> Any:
        """Return the sizes of a tensor, one, or their product, as what knows from which it is read."""
        of = note_sizes(self.tracer, tensor) or state
        if self.sizes is None or not of:
            return found
        if dims:
            return self.sizes.labelled(found, of, plain(dims[0]))
        every = torch.Size([self.sizes.labelled(each, of, dim) for dim, each in enumerate(tensor.shape)])
        if isinstance(found, torch.Size):
            return every
        return functools.reduce(operator.mul, every) if type(found) is int and every else found


def _is_size(value: object) -> bool:
    return type(value) is torch.Size


def _is_sum(value: object) -> bool:
    """Return True for sizes that the model made of others: ``torch.Size([1]) + x.shape``."""
    items = value if type(value) is torch.Size else ()
    return any(isinstance(each, SymInt) or is_of_sizes(each) for each in items)


def _is_of_user() -> bool:
    """Return True if the user's code made the call that a mode takes, perhaps by a method in Python."""
    frame: Any = sys._getframe(2)
    while frame.f_code.co_filename in OF_METHODS:
        frame = frame.f_back
    return is_own(frame.f_code.co_filename)


def _behind(last: fx.Node, graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield the operators behind a node of a graph."""
    node = last.next
    while node is not graph._root:
        if isinstance(node.target, OpOverload):
            yield node
        node = node.next


def _mark(nodes: Sequence[fx.Node], function: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Note of operators that the model names a device, and that it calls a method."""
    for node in nodes:
        if kwargs.get("device") is not None:
            node.meta[PLACED] = True
        if getattr(function, "__qualname__", "").startswith(("Tensor.", "TensorBase.")):
            node.meta[METHOD] = True


def _plain(value: Any) -> Any:
    """Return arguments without labels, on which PyTorch would compute texts."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, slice):
        return slice(*_plain([value.start, value.stop, value.step]))
    if isinstance(value, list) or type(value) in (tuple, CARRIERS[tuple]):
        return (list if isinstance(value, list) else tuple)(map(_plain, value))
    return plain(value) if label_of(value) is not None else value
