"""The forward of a network: its graphs, or the model itself where these do not hold."""

from __future__ import annotations

import functools
import inspect
import pickle
import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

from torch import fx, nn
from torch.compiler import is_compiling

from fusegen.models.reader.call_structure import Unlike

Forward = Callable[..., Any]
BOUND = ("forward", "_compiled_call_impl")  # attributes that are functions of one model
MIXED = "a {} and the network are in different modes"
ITSELF = "{}: {}; the model itself runs"


class Kind:
    """The class of a model; none in a pickle that could not name it."""

    of: Any  # it

    def __init__(self, of: type[nn.Module] | None) -> None:
        """Keep the class, or one with the forward of a GraphModule, whose objects have graphs."""
        is_graph = of is not None and issubclass(of, fx.GraphModule)
        self.of = type(of.__name__, (nn.Module,), {"forward": of.forward}) if of and is_graph else of

    def __deepcopy__(self, memo: Any) -> Kind:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            pickle.dumps(self.of)
        except Exception:  # of a class without a name, as that of a GraphModule
            return Kind, (None,)
        return Kind, (self.of,)


def own_of(network: nn.Module) -> nn.Module:
    """Return the model of a network, with its parameters, buffers and layers."""
    kind: Kind = vars(network)["_own_kind"]
    made: nn.Module = object.__new__(kind.of or nn.Module)
    vars(made).update({key: value for key, value in vars(network).items() if key not in BOUND})
    return made


def function_of(graph: fx.Graph) -> Forward:
    """Return the function that a graph is."""
    code = graph.python_code("self")
    names = dict(code.globals)
    exec(compile(code.src, "<the forward of a Network>", "exec"), names)
    found: Forward = names["forward"]
    return found


def in_mode(
    functions: Sequence[Forward],  # these, or one for both
    # of each of two the modules that read their mode, with the mode that it was traced in
    read: Sequence[Sequence[tuple[nn.Module, bool]]],
) -> Forward:
    """Return the function that runs that of training or that of evaluation."""
    if len(functions) == 1:
        return functions[0]
    training, evaluation = functions

    @functools.wraps(training)
    def forward(self: Any, *given: Any, **named: Any) -> Any:
        for module, mode in read[0 if self.training else 1]:
            if module.training is not mode:
                raise Unlike(MIXED.format(type(module).__name__))
        return (training if self.training else evaluation)(self, *given, **named)

    return forward


def or_itself(
    lifted: Forward,  # calls the kernels of regions
    network: nn.Module,  # it runs them
    kernels: Sequence[Any],  # of the regions; if the policy of one is ``kernel``, compilers record `lifted`
) -> Forward:
    """Return the function that runs kernels, or the model itself where its graphs do not hold.

    Compilers record the model itself: Inductor cannot fuse a kernel, and has to call an operator for it.
    """
    compiled = own_of(network)
    itself: Any = type(compiled).forward
    has_class = type(compiled) is not nn.Module
    warned = False

    @functools.wraps(lifted)
    def forward(self: Any, *given: Any, **named: Any) -> Any:
        nonlocal warned
        if is_compiling():
            for each in kernels:
                if each.stays_kernel or not has_class:
                    return lifted(self, *given, **named)
            compiled.training = self.training
            return itself(compiled, *given, **named)
        try:
            return lifted(self, *given, **named)
        except Unlike as error:
            if not has_class:
                raise
            if not warned:
                warned = True
                warnings.warn(ITSELF.format(type(compiled).__name__, error), stacklevel=2)
        return itself(own_of(self), *given, **named)

    made: Any = forward
    if has_class:
        made.__signature__ = inspect.signature(itself)
    return cast("Forward", made)
