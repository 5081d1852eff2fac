"""Notes on arithmetic of a forward that is captured, which operators do not keep."""

import contextlib
import itertools
import operator
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torch import SymFloat, SymInt, Tensor
from torch.fx.experimental import proxy_tensor

from fusegen.models.lift.constructor_numbers import SIGNS
from fusegen.models.lift.decisions import require
from fusegen.models.lift.labels import label_of, plain
from fusegen.models.lift.refused_calls import replaced
from fusegen.models.reader.recorded_calls import note_arithmetic

REFLECTED = "reflected"  # the key of operators of a tensor that the model writes behind a number
REFLECTING = ("__radd__", "__rmul__")  # methods whose operators have the tensor in front


@contextlib.contextmanager
def noting_arithmetic() -> Iterator[None]:
    """Note which operators have a number in front in the model, and numbers beside sizes, in a capture."""
    thread = threading.get_ident()
    with contextlib.ExitStack() as stack:
        for name in REFLECTING:
            stack.enter_context(replaced(Tensor, name, _reflecting(getattr(Tensor, name), thread)))
        for kind, name, order in itertools.product((SymInt, SymFloat), SIGNS, (1, -1)):
            method = f"__{'r' if order < 0 else ''}{name}__"
            if hasattr(kind, method):
                stack.enter_context(replaced(kind, method, _of_size(getattr(kind, method), name, order)))
        yield


def _of_size(method: Callable[[Any, Any], Any], name: str, order: int) -> Callable[[Any, Any], Any]:
    """Return a method of a size that keeps the label of a number beside it, which comes first with -1."""
    function = getattr(operator, name)

    def compute(self: Any, other: Any) -> Any:
        if label_of(other) is None:
            return method(self, other)
        found = method(self, plain(other))
        if _is_computed(found, self):
            note_arithmetic(function, (self, other)[::order], found)
        elif found is not NotImplemented:
            require(other)
        return found

    return compute


def _reflecting(method: Callable[[Any, Any], Any], thread: int) -> Callable[[Any, Any], Any]:
    def compute(self: Any, other: Any) -> Any:
        found = method(self, other)
        if threading.get_ident() == thread and (mode := proxy_tensor.get_proxy_mode()) is not None:
            tracer: Any = mode.tracer
            tracer.graph._root.prev.meta[REFLECTED] = True
        return found

    return compute


def _is_computed(found: Any, size: SymInt | SymFloat) -> bool:
    """Return False where arithmetic gave the size itself, or a number, as it may with a 1 or a 0."""
    if not isinstance(found, SymInt | SymFloat):
        return False
    return bool(found.node.expr != size.node.expr and not found.node.expr.is_number)
