"""The functions that the graphs of a network are: of its mode, and those that compilers record."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx, nn
from torch.compiler import is_compiling

MIXED = "a {} and the network are in different modes: call train() or eval() on the network"


def function_of(graph: fx.Graph) -> Callable[..., Any]:
    """Return the function that a graph is."""
    code = graph.python_code("self")
    names = dict(code.globals)
    exec(compile(code.src, "<the forward of a Network>", "exec"), names)
    found: Callable[..., Any] = names["forward"]
    return found


def in_mode(
    functions: Sequence[Callable[..., Any]], read: Sequence[Sequence[tuple[nn.Module, bool]]]
) -> Callable[..., Any]:
    """Return the function that runs that of training or that of evaluation.

    Args:
        functions: these, or one for both.
        read: of each of two the modules that read their mode, with the mode that it was traced in.
    """
    if len(functions) == 1:
        return functions[0]
    training, evaluation = functions

    @functools.wraps(training)
    def forward(self: Any, *given: Any, **named: Any) -> Any:
        for module, mode in read[0 if self.training else 1]:
            if module.training is not mode:
                raise RuntimeError(MIXED.format(type(module).__name__))
        return (training if self.training else evaluation)(self, *given, **named)

    return forward


def for_compilers(
    lifted: Callable[..., Any], operations: Callable[..., Any], kernels: Sequence[Any]
) -> Callable[..., Any]:
    """Return the function that runs kernels, and of which compilers record the model's own operations.

    A kernel in a compiled graph costs the call of an operator, and Inductor cannot fuse it.

    Args:
        lifted: calls the kernels of regions.
        operations: calls PyTorch.
        kernels: of the regions; if the policy of one is ``kernel``, compilers record `lifted`.
    """

    @functools.wraps(lifted)
    def forward(self: Any, *given: Any, **named: Any) -> Any:
        if is_compiling():
            for each in kernels:
                if each.stays_kernel:
                    return lifted(self, *given, **named)
            return operations(self, *given, **named)
        return lifted(self, *given, **named)

    return forward
