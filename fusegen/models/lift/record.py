"""The record of a constructor: the layers it made, and the call that made each tensor, in order."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fusegen.core.layers import PRODUCERS
from fusegen.models.lift.labels import label_of
from fusegen.models.reader.aten_calls import TRACING

SIZED = ("randn", "rand", "zeros", "ones")  # take a shape
MAKERS = {getattr(torch, name): name for name in (*SIZED, "full", "tensor")}
EXACT = (torch.float32, torch.float64)  # dtypes of numbers that formulas have as they are
PRODUCTS = (torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)


@dataclass(frozen=True)
class Made:
    """The call that made a tensor."""

    call: str  # as a spec writes it; empty where a spec has no words for it
    function: str  # the name of the last function that wrote to the tensor
    value: Any  # the number, for a tensor of one number that stays as it was made
    alive: Tensor  # the tensor, whose storage no other may take


@dataclass(frozen=True)
class Built:
    """A layer of torch.nn with the arguments as the model wrote them."""

    layer: nn.Module
    args: tuple[Any, ...]
    keywords: dict[str, Any]


@dataclass
class Record(TorchFunctionMode):
    """Layers and tensors in the order in which they were made; a mode that sees every call of torch."""

    made: dict[int, Made] = field(default_factory=dict)
    built: list[Built] = field(default_factory=list)
    order: list[int] = field(default_factory=list)  # storages, and the ids of layers
    depth: int = 0  # of constructors of layers that are running
    of_layers: set[int] = field(default_factory=set)  # storages that these made
    changed: dict[int, str] = field(default_factory=dict)  # of those, what wrote to them later

    def __post_init__(self) -> None:
        super().__init__()

    def __hash__(self) -> int:
        return id(self)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Return records the storage that a call made."""
        found = func(*args, **(kwargs or {}))
        if func is Tensor.__setitem__:
            self.note(func, (), {}, args[0])
        elif isinstance(found, Tensor):
            self.note(func, args, kwargs or {}, found)
        return found

    def note(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any], found: Tensor) -> None:
        """Keep the call of a tensor whose storage is new, or written to."""
        storage = storage_of(found)
        name = getattr(func, "__name__", "")
        writes = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        if storage in self.made and not writes:
            return  # a view
        if storage not in self.made:
            self.order.append(storage)
        if self.depth:
            self.of_layers.add(storage)
        elif storage in self.of_layers:
            self.changed[storage] = name.strip("_")
        others = {key: value for key, value in kwargs.items() if key != "device"}
        call, value = "", None
        if storage not in self.made and (not others or (others.keys() == {"dtype"} and not found.dim())):
            call, value = self.words(func, args)
            call = "" if others else call
            value = None if others and found.dtype not in EXACT else value
        self.made[storage] = Made(call, name.strip("_"), value, found)

    def words(self, func: Callable[..., Any], args: Any) -> tuple[str, Any]:
        """Return a call as a spec writes it, and its number if it makes a tensor of one."""
        if func in MAKERS and args:
            value = args[0] if MAKERS[func] == "tensor" and isinstance(args[0], int | float) else None
            return f"{MAKERS[func]}({', '.join(map(written, args))})", value
        if func in PRODUCTS and len(args) == 2:
            first, second = args if isinstance(args[0], Tensor) else args[::-1]
            one = self.made.get(storage_of(first)) if isinstance(first, Tensor) else None
            if one and one.call and " * " not in one.call and isinstance(second, int | float):
                factor = written(second)
                return (
                    f"{factor} * {one.call}" if func is Tensor.__rmul__ else f"{one.call} * {factor}"
                ), None
        return "", None


def storage_of(tensor: Tensor) -> int:
    """Return the identity of a tensor's storage."""
    return int(tensor.untyped_storage()._cdata)


def written(value: Any) -> str:
    """Return an argument by its label, else as a literal."""
    label = label_of(value)
    if label is not None:
        return label
    if isinstance(value, tuple | list):
        return f"({', '.join(map(written, value))}{',' if len(value) == 1 else ''})"
    return repr(str(value)) if isinstance(value, str) else repr(value)


@contextlib.contextmanager
def recording() -> Iterator[Record]:
    """Records the layers and tensors made inside the block, on the current device."""
    with TRACING:
        yield from _recording()


def _recording() -> Iterator[Record]:
    record = Record()
    before = {kind: vars(kind).get("__init__") for kind in map(_class, PRODUCERS)}
    for kind in before:
        _watch(kind, record)
    try:
        with record:
            yield record
    finally:
        for kind, init in before.items():
            if init is None:
                del kind.__init__
            else:
                setattr(kind, "__init__", init)  # noqa: B010  # of a class


def _class(name: str) -> type[nn.Module]:
    found: type[nn.Module] = getattr(nn, name)
    return found


def _watch(kind: type[nn.Module], record: Record) -> None:
    """Note each layer of a class, not of the classes below it, when its constructor is called."""
    init = kind.__init__

    def watched(self: nn.Module, *args: Any, **keywords: Any) -> None:
        if type(self) is kind:
            record.built.append(Built(self, args, keywords))
            record.order.append(id(self))
        record.depth += 1
        try:
            init(self, *args, **keywords)
        finally:
            record.depth -= 1

    setattr(kind, "__init__", watched)  # noqa: B010  # of a class
