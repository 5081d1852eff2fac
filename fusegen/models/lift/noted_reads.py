"""Reads of dtypes, numbers of dimensions and devices of tensors, by which a forward may decide."""

from __future__ import annotations

import functools
import operator
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.models.lift.places import is_own
from fusegen.models.lift.untraced import CONDITION, Lost

DTYPE_READ = "dtype read"  # the key of the inputs of a forward which reads dtypes
DIM_READ = (
    "dim read"  # and of one that reads how many dimensions tensors have; with the names of the tensors
)
KEYS = (DTYPE_READ, DIM_READ)
VALUE = ""  # the name of a tensor that is no input, parameter or buffer
DTYPES = frozenset("dtype itemsize is_floating_point is_complex element_size type".split())
DIMS = frozenset("dim ndim ndimension".split())
READS = {**dict.fromkeys(DTYPES, DTYPE_READ), **dict.fromkeys(DIMS, DIM_READ)}
DEVICES = frozenset(f"is_{kind}" for kind in "cuda cpu meta mps xpu xla hpu mtia maia ipu vulkan".split())
KINDS = frozenset("dtype device itemsize real imag H mH".split()) | DEVICES  # attributes, and calls:
KIND_CALLS = frozenset(
    "is_floating_point is_complex element_size type get_device is_contiguous stride conj resolve_conj "
    "resolve_neg adjoint result_type".split()
)
NOT_KEPT = frozenset(  # attributes and calls of autograd, by which no graph decides
    "requires_grad is_leaf grad grad_fn retains_grad retain_grad".split()
)
KIND_OF_ALL = "result_type"  # the function that reads the dtypes of all its arguments
ITEMS = ("__getitem__", "__setitem__")
PLACES = DEVICES | frozenset(  # that no file knows
    "get_device is_contiguous stride storage_offset layout is_sparse is_sparse_csr is_nested is_quantized "
    "is_mkldnn is_neg is_conj is_inference is_pinned is_shared is_set_to nbytes storage untyped_storage "
    "_typed_storage data_ptr _is_view _base _version".split()
)
LOST = "it reads {} of a tensor, which its graph does not keep"
ASKED = "it asks if a tensor is a {}, which its graph does not keep"


class Reads:
    """The tensors of which a forward reads dtypes and numbers of dimensions.

    Attributes:
        found: the names of the tensors by what is read of them, `DTYPE_READ` or `DIM_READ`.
    """

    def __init__(self, model: nn.Module) -> None:
        """Name the parameters and buffers of a model."""
        state = (*model.named_parameters(), *model.named_buffers())
        self.state = {id(tensor): name for name, tensor in state}
        self.inputs: dict[int, str] = {}
        self.others: list[Tensor] = []
        self.found: dict[str, set[str]] = {key: set() for key in KEYS}

    def begin(self, inputs: Mapping[str, Any]) -> None:
        """Forget what was noted, as another trace with these inputs begins."""
        self.inputs = {id(each): name for name, each in inputs.items()}
        for names in self.found.values():
            names.clear()

    def state_of(self, tensor: Any) -> str:
        """Return the path of a parameter or a buffer of the model; an empty one for another tensor."""
        return self.state.get(id(tensor), "")

    def share(self, tensor: Any, other: Tensor) -> None:
        """Let another tensor of a parameter or a buffer, as `data` is, have its path."""
        if (name := self.state_of(tensor)) and id(other) not in self.state:
            self.others.append(other)  # which stays alive, so that no tensor takes its id
            self.state[id(other)] = name

    def note(self, what: str, tensor: Any) -> None:
        """Note what is read of a tensor."""
        names = {**self.state, **self.inputs}
        self.found[what].add(names.get(id(tensor), VALUE))

    def note_call(self, name: str, given: tuple[Any, ...]) -> None:
        """Note an attribute or a method that is read of a tensor.

        Raises:
            Lost: no file knows it.
        """
        tensor, *others = given or (None,)
        if name in PLACES or (name == "type" and not others):  # which has the device in it
            raise Lost(LOST.format(name))
        if name in READS:
            self.note(READS[name], tensor)
        if name == "size" and others and not _is_place(others[0], tensor.dim()):
            self.note(DIM_READ, tensor)
        if name in ITEMS and _is_from_the_end(others[0]):
            self.note(DIM_READ, tensor)
        if name == KIND_OF_ALL:
            for each in given:
                if isinstance(each, Tensor):
                    self.note(DTYPE_READ, each)

    def kept(self, name: str, tensor: Tensor, value: Any) -> Any:
        """Return sizes and devices as values that note how they are read; another value as it is."""
        if isinstance(value, torch.Size):
            shape = NotedShape(value)
            shape.note = functools.partial(self.note, DIM_READ, tensor)
            return shape
        return NotedDevice(value) if name == "device" else value


def _is_place(key: object, rank: int) -> bool:
    """Return True for a dimension that is the same whatever number of dimensions there is."""
    return isinstance(key, int) and 0 <= key < rank


def _is_from_the_end(key: object) -> bool:
    """Return True for an index whose operators have dimensions that are counted from the end."""
    return any(each is Ellipsis for each in (key if isinstance(key, tuple) else (key,)))


class NotedShape(tuple[Any, ...]):
    """The sizes of a tensor; each use that depends on how many there are is noted."""

    note: Callable[[], None] = staticmethod(lambda: None)
    __class__ = property(lambda self: torch.Size)  # what code asks for

    def __getitem__(self, key: Any) -> Any:
        if not _is_place(key, tuple.__len__(self)):
            self.note()
        return tuple.__getitem__(self, key)

    def __radd__(self, other: tuple[Any, ...]) -> tuple[Any, ...]:
        return other + tuple(self)

    def numel(self) -> Any:
        """Return the product of the sizes."""
        return functools.reduce(operator.mul, self, 1)

    def plain(self) -> torch.Size:
        """Return the sizes as PyTorch has them."""
        return torch.Size(tuple.__iter__(self))


def _noting(name: str) -> Callable[..., Any]:
    def read(self: NotedShape, *given: Any) -> Any:
        for each in (self, *given):
            if type(each) is NotedShape:
                each.note()
        return getattr(tuple, name)(self, *given)

    return read


def _deciding(name: str) -> Callable[..., Any]:
    def decide(self: NotedShape, *given: Any) -> Any:
        if is_own(sys._getframe(1).f_code.co_filename):
            raise Lost(CONDITION)
        return getattr(tuple, name)(self, *given)

    return decide


for _name in "len iter add mul rmul repr".split():
    setattr(NotedShape, f"__{_name}__", _noting(f"__{_name}__"))
for _name in (*(f"__{each}__" for each in "eq ne lt le gt ge hash contains".split()), "index", "count"):
    setattr(NotedShape, _name, _deciding(_name))


class NotedDevice(str):
    """The device of a tensor, which functions of torch take; the user's code may not decide by it."""

    __class__ = property(lambda self: torch.device)  # what code asks for

    def plain(self) -> torch.device:
        """Return the device as PyTorch has it."""
        return torch.device(str.__str__(self))


def _refusing(usual: Callable[..., Any]) -> Callable[..., Any]:
    def read(self: NotedDevice, *given: Any) -> Any:
        if is_own(sys._getframe(1).f_code.co_filename):
            raise Lost(LOST.format("the device"))
        return usual(torch.device(str.__str__(self)), *given)

    return read


for _name in "eq ne hash str repr format".split():
    setattr(NotedDevice, f"__{_name}__", _refusing(getattr(torch.device, f"__{_name}__")))
for _name in ("type", "index"):
    setattr(NotedDevice, _name, property(_refusing(operator.attrgetter(_name))))


class NotedType:
    """A type such as ``torch.FloatTensor``, of which no tensor without memory is."""

    def __init__(self, kind: Any, reads: Reads | None, note: Callable[[], None]) -> None:
        self.kind, self.reads, self.note = kind, reads, note
        self.thread = threading.get_ident()

    def __instancecheck__(self, value: object) -> bool:
        if threading.get_ident() != self.thread or not is_own(sys._getframe(1).f_code.co_filename):
            return isinstance(value, self.kind)
        if self.reads is not None:
            raise Lost(ASKED.format(self.kind.__name__))
        self.note()
        own = (value.dtype, value.is_cuda, value.layout) if isinstance(value, Tensor) else None
        return own == (self.kind.dtype, self.kind.is_cuda, self.kind.layout)

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Return a tensor of the type."""
        return self.kind(*given, **named)

    def plain(self) -> Any:
        """Return the type as PyTorch has it."""
        return self.kind
