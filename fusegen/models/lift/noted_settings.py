"""Notes on settings, devices and types that a forward asks for, which no function of torch gives."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from fusegen.models.lift.noted_calls import Noting
from fusegen.models.lift.noted_reads import NotedType
from fusegen.models.lift.places import is_own
from fusegen.models.lift.refused_calls import replaced

KIND = type(torch.FloatTensor)  # of types such as this


@contextlib.contextmanager
def noting_autocast(noting: Noting) -> Iterator[None]:
    """Note that a forward asks for autocast, under which it may run other operations."""
    usual = torch.is_autocast_enabled

    def ask(*given: Any) -> bool:
        noting.reads_kinds |= is_own(sys._getframe(1).f_code.co_filename)
        return usual(*given)

    with replaced(torch, "is_autocast_enabled", ask):
        yield


@contextlib.contextmanager
def noting_kinds(noting: Noting, forward: Any) -> Iterator[None]:
    """Note that a forward reads devices of tensors without memory, or asks for their types."""
    with _noting_devices(noting), _noting_types(noting, forward):
        yield


@contextlib.contextmanager
def _noting_devices(noting: Noting) -> Iterator[None]:
    """Note that a forward reads the devices of tensors without memory."""
    usual: Any = FakeTensor.device

    def read(self: FakeTensor) -> Any:
        found = usual.fget(self)
        if not is_own(sys._getframe(1).f_code.co_filename):
            return found
        noting.reads_kinds = True
        return found if noting.reads is None else noting.reads.kept("device", self, found)

    with replaced(FakeTensor, "device", property(read, usual.fset)):
        yield


@contextlib.contextmanager
def _noting_types(noting: Noting, forward: Any) -> Iterator[None]:
    """Note that a forward asks if tensors are of types such as ``torch.FloatTensor``, in a file."""

    def note() -> None:
        noting.reads_kinds = True

    places = (vars(torch), vars(torch.cuda), getattr(forward, "__globals__", {}))
    before = [{name: kind for name, kind in place.items() if type(kind) is KIND} for place in places]
    for place, kinds in zip(places, before, strict=True):
        place.update({name: NotedType(kind, noting.reads, note) for name, kind in kinds.items()})
    try:
        yield
    finally:
        for place, kinds in zip(places, before, strict=True):
            place.update(kinds)
