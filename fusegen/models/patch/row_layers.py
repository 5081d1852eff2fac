"""Layers of rows, norms and softmax, that run a kernel where it is faster than PyTorch.

The class of such a layer is derived from its own, with another forward; the layer keeps its parameters.
Each call decides: a layer that was changed, or a tensor of which the kernel is not faster, runs the layer's
own forward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from fusegen.models.patch.activations import is_slope, own_reasons, remembered
from fusegen.models.patch.derived import APART, is_like, of_tensor
from fusegen.models.patch.library import module
from fusegen.models.patch.row_functions import Reading, read
from fusegen.models.patch.slots import SLOT, Slot
from fusegen.models.reader.layer_calls import attributes
from fusegen.models.reader.row_gains import FUSED, WRITTEN_OUT, clause, gains, modes_of

_known: dict[tuple[Any, ...], Reading | str | None] = {}  # by what decides a layer's function


@dataclass(frozen=True)
class RowLayer:
    """A layer of rows with a kernel.

    Attributes:
        reading: the function of its rows.
        length: of a row; None where the layer has no parameters.
        decides: its attributes, which have to stay as they are.
    """

    reading: Reading
    length: int | None
    decides: tuple[tuple[str, Any], ...]

    @property
    def name(self) -> str:
        """The module of the library."""
        return f"rows.{self.reading.function.name}"

    @property
    def added(self) -> str:
        """The function of the library, if there is one, that has a sum in front, too."""
        return f"add_{self.reading.function.name}"

    @property
    def written(self) -> str:
        """The way in which the layer computes its function: fused or written out."""
        return FUSED if self.reading.is_fused else WRITTEN_OUT

    def modes(self, device: str, dtype: torch.dtype, function: str = "") -> set[bool]:
        """Return in which modes the kernel is faster: where gradients are recorded, and where not."""
        if dtype not in self.reading.dtypes:
            return set()
        return modes_of(function or self.reading.function.name, self.written, device, dtype, self.length)

    def forward(self, kind: Any) -> Callable[..., Tensor]:
        """Return the forward with one kernel of layers of a class."""
        own = self.reading.function
        function: Callable[..., Tensor] = getattr(module(self.name), own.name)
        along = dict(self.reading.along)

        def run(layer: nn.Module, x: Any) -> Any:
            if is_compiling():
                return APART
            ready = self.ready(layer, x)
            if ready is not None:
                return ready
            if not self.takes(layer, x, along):
                return APART
            dim = along[x.dim()]
            rows = x if dim == x.dim() - 1 else x.movedim(dim, -1)
            result = function(rows, *self.weights(layer), *own.numbers)
            return result if rows is x else result.movedim(-1, dim)

        return of_tensor(kind, run)

    def weights(self, layer: nn.Module) -> list[Tensor]:
        """Return the parameters of a layer, in the order of the function's arguments."""
        return [getattr(layer, name) for name in self.reading.function.parameters]

    def is_same(self, layer: nn.Module) -> bool:
        """Tell if a layer has the attributes that it had."""
        own = vars(layer)
        return all(own.get(name, ...) == value for name, value in self.decides)

    def ready(self, layer: nn.Module, x: Any) -> Tensor | None:
        """Return what a layer computes of a tensor, if that was computed with the tensor itself."""
        slot: Slot | None = vars(layer).get(SLOT)
        value = None if slot is None else slot.pop(x)
        if slot is None or value is None or torch.is_grad_enabled():
            return None
        if not self.is_same(layer) or torch.is_autocast_enabled(x.device.type):
            return None
        return slot.take(value, x, self.weights(layer))

    def takes(self, layer: nn.Module, x: Any, along: dict[int, int], residual: Any = None) -> bool:
        """Tell if the kernel computes what the layer does of a tensor, or of a sum, and is faster."""
        if x.__class__ is not Tensor or x.dtype not in self.reading.dtypes or x.dim() not in along:
            return False
        if not self.is_same(layer):
            return False
        dim = along[x.dim()]
        weights = self.weights(layer)
        if not all(_fits(each, x, x.shape[dim]) for each in weights) or x.numel() == 0:
            return False
        # The kernel with the sum takes rows of the last dimension alone.
        if residual is not None and (dim != x.dim() - 1 or not is_like(residual, x)):
            return False
        is_laid = x.is_contiguous() or (dim < x.dim() - 1 and x.movedim(dim, -1).is_contiguous())
        if not is_laid or x.is_meta or torch.is_autocast_enabled(x.device.type):
            return False
        name = self.reading.function.name if residual is None else self.added
        return gains(name, self.written, x.shape[dim], x, *weights, residual)


def _fits(weight: Any, x: Tensor, columns: int) -> bool:
    """Tell if a parameter has a number for each of a row's, of the dtype and device of a tensor."""
    is_plain = weight.__class__ is nn.Parameter or weight.__class__ is Tensor
    return is_plain and weight.shape == (columns,) and weight.dtype == x.dtype and weight.device == x.device


def row_layer_of(layer: nn.Module) -> RowLayer | str | None:
    """Return what a layer of rows computes; a clause where the library cannot, None for any other layer."""
    weights = [*layer._parameters.values()]
    if layer._buffers or layer._modules or len(weights) > 2:
        return None
    if not all(map(is_slope, weights)) or next(own_reasons(layer), ""):
        return None
    lengths = {each.numel() for each in weights if each is not None}
    if len(lengths) > 1:
        return None
    length = next(iter(lengths), None)
    decides = tuple(attributes(layer))
    key = (type(layer), type(layer).forward, decides, tuple(layer._parameters), length)
    found = remembered(_known, key, lambda: read(layer, length))
    return RowLayer(found, length, decides) if isinstance(found, Reading) else found


def condition(of: RowLayer, device: str, dtype: torch.dtype, function: str = "") -> str:
    """Return in which mode alone the kernel runs; empty where that is each."""
    return clause(of.modes(device, dtype, function))
