"""Notes on settings and devices that a forward asks for, which no function of torch gives."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from fusegen.models.lift.noted_calls import Noting
from fusegen.models.lift.places import is_own
from fusegen.models.lift.refused_calls import replaced


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
def noting_devices(noting: Noting) -> Iterator[None]:
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
