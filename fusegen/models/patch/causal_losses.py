"""The loss of causal language models, from logits of 16 bits without a copy of them in float32.

transformers asks a model's `loss_function` for it, which converts all logits. Here one kernel reads them
and gives losses in float32, and another one writes the gradient in the dtype of the logits.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.compiler import is_compiling

from fusegen.models.patch.derived import Found
from fusegen.models.patch.library import module
from fusegen.models.reader.row_gains import WRITTEN_OUT, clause, gains, modes_of, slower
from fusegen.runtime.calls import transformed

NAME, ATTRIBUTE, FUNCTION = "cross_entropy", "_loss_function", "loss_function"
ARGUMENTS = "logits labels vocab_size num_items_in_batch ignore_index shift_labels kwargs".split()
OWNER = "transformers."  # whose functions read none of the further arguments that its models hand on
DTYPES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class CausalLoss:
    """The loss of a model, as transformers calls it.

    Attributes:
        original: the function that it stands in for.
        is_attribute: the model had it as an attribute of its own.
    """

    original: Callable[..., Tensor]
    is_attribute: bool
    module = f"rows.{NAME}_in_float32"  # of the library

    def __call__(
        self,
        logits: Tensor,
        labels: Any,
        vocab_size: int,
        num_items_in_batch: Any = None,
        ignore_index: int = -100,
        shift_labels: Tensor | None = None,
        **others: Any,
    ) -> Tensor:
        """Return the mean of the rows' losses, or their sum over a number of items."""
        is_known = not others or self.original.__module__.startswith(OWNER)
        if not is_known or is_compiling() or transformed() or not _takes(logits, vocab_size):
            given = logits, labels, vocab_size, num_items_in_batch, ignore_index, shift_labels
            return self.original(*given, **others)
        if shift_labels is None:
            shift_labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:]
        target, rows = shift_labels.reshape(-1).to(logits.device), logits.view(-1, vocab_size)
        if num_items_in_batch is None:
            return _function()(rows, target, "mean", ignore_index)
        values: Tensor = _function()(rows, target, "none", ignore_index)
        items = num_items_in_batch
        items = items.to(logits.device) if isinstance(items, Tensor) else items
        loss: Tensor = values.sum(dtype=torch.float64) / items
        return loss.to(torch.float32)

    def found(self, layer: nn.Module) -> Found:
        """Describe a model with this loss."""
        first = next(layer.parameters())
        clauses = ["under autocast"] * (first.dtype == torch.float32) + [clause(_modes(first))]
        text = f"{type(layer).__name__}, {self.original.__name__}"

        def join(layer: nn.Module) -> None:
            vars(layer)[ATTRIBUTE] = self

        return Found([(text, self.module, " and ".join(filter(None, clauses)))], join)


def _takes(logits: Any, vocab_size: int) -> bool:
    """Tell if the kernel computes what the function does of logits, and is to run."""
    if logits.__class__ is not Tensor or logits.dtype not in DTYPES or not logits.is_contiguous():
        return False
    if logits.dim() < 2 or logits.shape[-1] != vocab_size:
        return False
    return gains(NAME, WRITTEN_OUT, vocab_size, logits)


@functools.cache
def _function() -> Callable[..., Tensor]:
    found: Callable[..., Tensor] = getattr(module(CausalLoss.module), f"{NAME}_in_float32")
    return found


def loss_of(layer: nn.Module) -> CausalLoss | str | None:
    """Return the loss of a model; a clause where no kernel computes it, None for any other layer."""
    forward: Any = inspect.unwrap(type(layer).forward)
    is_property = isinstance(inspect.getattr_static(layer, FUNCTION, None), property)
    if FUNCTION not in getattr(getattr(forward, "__code__", None), "co_names", ()) or not is_property:
        return None
    function: Any = getattr(layer, FUNCTION)
    if isinstance(function, CausalLoss):
        return None
    if not inspect.isfunction(function) or [*inspect.signature(function).parameters] != ARGUMENTS:
        return None
    first = next(layer.parameters(), torch.empty(0))
    if first.dtype not in (*DTYPES, torch.float32) or (first.dtype == torch.float32 and not _modes(first)):
        return None
    if not _modes(first):
        return slower(first.device.type, first.dtype)
    return CausalLoss(function, ATTRIBUTE in vars(layer)) if _is_same(function) else None


def _modes(first: Tensor) -> set[bool]:
    """Return the modes in which the kernel of logits is faster; under autocast these have 16 bits."""
    dtype = torch.bfloat16 if first.dtype == torch.float32 else first.dtype
    return modes_of(NAME, WRITTEN_OUT, first.device.type, dtype, None)


def _is_same(function: Callable[..., Tensor]) -> bool:
    """Tell if a function computes the loss of causal language models."""
    draw = torch.Generator("cpu").manual_seed(0)
    logits = torch.randn(2, 6, 7, generator=draw, device="cpu")
    labels = torch.tensor([[1, 2, 0, 3, 4, 5], [6, 5, 3, 3, 0, 2]], device="cpu")
    for items, ignored, shifted in ((None, 0, None), (5, 3, None), (torch.tensor(4), 2, labels)):
        target = F.pad(labels, (0, 1), value=ignored)[:, 1:] if shifted is None else shifted
        rows = logits.reshape(-1, 7), target.reshape(-1)
        total = F.cross_entropy(*rows, ignore_index=ignored, reduction="sum")
        right = total / ((target != ignored).sum() if items is None else items)
        try:
            found = function(logits, labels, 7, items, ignored, shifted)
        except (RuntimeError, TypeError, ValueError, IndexError):  # of other tensors than these
            return False
        if not isinstance(found, Tensor) or not torch.allclose(found, right, rtol=1e-6):
            return False
    return True


def is_patched(layer: nn.Module) -> bool:
    """Tell if a model has such a loss."""
    return isinstance(vars(layer).get(ATTRIBUTE), CausalLoss)


def undo(layer: nn.Module) -> bool:
    """Put the loss back that a model had; return whether it had one of ours."""
    if not is_patched(layer):
        return False
    found = vars(layer).pop(ATTRIBUTE)
    if found.is_attribute:
        vars(layer)[ATTRIBUTE] = found.original
    return True
