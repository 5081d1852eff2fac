"""A dispatch mode made of a function, for tests that look at the operators of ATen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


def after_each(keep: Callable[[Any, tuple[Any, ...], Any], object]) -> Any:
    """Return a mode that gives a function each operator, its arguments and its result.

    PyTorch types neither the class nor its constructor, so that the class is made by `type`.
    """

    def dispatched(_: Any, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = operator(*args, **(kwargs or {}))
        keep(operator, (*args, *(kwargs or {}).values()), found)
        return found

    mode: Any = type("Dispatched", (TorchDispatchMode,), {"__torch_dispatch__": dispatched})
    return mode()
