"""Modes made of a function, for tests that look at the operators of ATen or at PyTorch's functions."""

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode
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


class Called(TorchFunctionMode):
    """A mode that gives a function each of PyTorch's functions and its result."""

    def __init__(self, keep: Callable[[Any, Any], object]) -> None:
        """Keep by a function."""
        super().__init__()
        self.keep = keep

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function."""
        y = func(*args, **(kwargs or {}))
        self.keep(func, y)
        return y
