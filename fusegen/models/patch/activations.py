"""Activations: layers that compute a function of the library, found by what their forwards do.

A forward is read as operators of ATen, in training and in evaluation. Where these are a pointwise formula
of one tensor, a function of the library is the same if its values and its gradients are equal at points of
each size, and on both sides of each number of the formula.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fusegen.models.patch.library import module, names, numbers_of
from fusegen.models.reader.aten_table import ROWS, Rows, fitted, form
from fusegen.models.reader.formula import Unfit, number
from fusegen.models.reader.layer_calls import attributes, operators_of, twin
from fusegen.models.reader.operator_call import Calls, Place, Result

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
METHODS = {"forward", "extra_repr", "reset_parameters"}  # that a generated module may stand in for
# what the library has modules for, and formulas have no functions for
MODULES: Rows = {**ROWS, "glu": (form("glu(self, dim=dim)"),), "prelu": (form("prelu(self, weight)"),)}
POINTS = tuple(sign * 10 ** (k / 8 + 0.01) for k in range(-24, 20) for sign in (1, -1))
CLOSE: Any = {"rtol": 1e-7, "atol": 1e-7, "equal_nan": True}  # of 1 / 6 as a float, in hardsigmoid
MOST = 1024  # layers that are remembered
ARGUMENTS = "its forward takes other arguments than a tensor"
PARTS, UNREAD = "it has parameters, buffers or layers of its own", "its forward cannot be read"
POINTWISE, OTHER = "it is no pointwise function", "the library has no function of its formula"

_known: dict[tuple[Any, ...], Function | str] = {}  # by what decides a layer's function


@dataclass(frozen=True)
class Function:
    """A function of the library."""

    name: str  # of its module
    numbers: tuple[tuple[str, float], ...] = ()  # its arguments that are numbers
    is_in_place: bool = False  # it writes over its input


def is_named(layer: nn.Module) -> bool:
    """Return True for a layer whose class or a base is from a file of activations, for reports."""
    return any("activation" in base.__module__.rpartition(".")[2] for base in type(layer).__mro__)


def reasons(layer: nn.Module) -> Iterator[str]:
    """Yield why an activation cannot be replaced, each a clause; none where it can."""
    if any(getattr(layer, hooks) for hooks in HOOKS):
        yield "it has hooks"
    every = [*layer._parameters.values()]
    if layer._buffers or layer._modules or len(every) > 1 or not all(map(is_slope, every)):
        yield PARTS
    yield from own_reasons(layer)
    for base in type(layer).__mro__[: type(layer).__mro__.index(nn.Module)]:
        own = {name for name, each in vars(base).items() if isinstance(each, FunctionType | property)}
        if any(not name.startswith("_") for name in own - METHODS):
            yield "it has methods of its own"


def own_reasons(layer: nn.Module) -> Iterator[str]:
    """Yield why the forward of a layer cannot be read, each a clause."""
    if isinstance(layer, torch.jit.ScriptModule):
        yield "TorchScript has compiled it"
        return
    if "forward" in vars(layer):
        yield "it has a forward of its own"
    if len(inspect.signature(type(layer).forward).parameters) != 2:
        yield ARGUMENTS
    for name, value in attributes(layer):
        if isinstance(value, Tensor) or not isinstance(value, Hashable):
            yield f"its {name} is no number"


def function_of(layer: nn.Module) -> Function | str:
    """Return the function of the library that a layer computes; else why there is none, a clause."""
    why = next(reasons(layer), "")
    if why:
        return why
    key = (type(layer), type(layer).forward, tuple(attributes(layer)), _channels(layer))
    found: Function | str = remembered(_known, key, lambda: _read(layer))
    return found


def remembered(known: dict[Any, Any], key: Any, read: Callable[[], Any]) -> Any:
    """Return the value of a key, which is read once; of many keys the values are forgotten."""
    if key not in known:
        if len(known) > MOST:
            known.clear()
        known[key] = read()
    return known[key]


def replacement(layer: nn.Module, function: Function) -> nn.Module:
    """Return the generated module for an activation, with its parameters."""
    arguments: dict[str, Any] = {**dict(function.numbers)}
    if function.is_in_place:
        arguments["inplace"] = True
    if layer._parameters:
        arguments["num_parameters"] = _channels(layer)
    new: nn.Module = module(function.name).ModelNew(**arguments)
    if layer._parameters:
        vars(new)["_parameters"] = layer._parameters
    return new.train(layer.training)


def is_slope(parameter: nn.Parameter | None) -> bool:
    """Tell if a parameter has one dimension, and memory."""
    return parameter is not None and not is_lazy(parameter) and parameter.dim() == 1


def _channels(layer: nn.Module) -> int:
    return sum(each.numel() for each in layer.parameters(recurse=False))


def _read(layer: nn.Module) -> Function | str:
    """Read the forward of a layer."""
    ours, other = twin(layer), twin(layer)
    ours.training, other.training = True, False
    calls = _calls(ours)
    if calls is None or None in (_calls(other), calls.result):
        return UNREAD
    if any(torch.Tag.nondeterministic_seeded in call.overload.tags for call in calls.made):
        return "it is random in training"
    if calls.result == Place(0):
        return "it returns its input"
    if calls != _calls(other) or any(call.name not in MODULES for call in calls.made):
        return POINTWISE
    try:
        body, is_in_place = _formula(calls), _written(calls, calls.result) == Place(0)
    except Unfit:
        return OTHER
    for name, numbers in _candidates(body):
        if name in MODULES.keys() - ROWS.keys() or _is_same(layer, calls, module(name), numbers):
            return Function(name, tuple(numbers.items()), is_in_place)
    return OTHER


def _calls(layer: nn.Module) -> Calls | None:
    """Return the operators of a layer for a tensor of four dimensions."""
    # sizes that are even, for gates; channels for each slope, and its dtype
    dtype = next((each.dtype for each in layer._parameters.values() if each is not None), None)
    return operators_of(layer, torch.empty(2, _channels(layer) or 4, 6, 8, dtype=dtype, device="cpu"))


def _formula(calls: Calls) -> ast.expr:
    """Return the formula of some operators.

    Raises:
        Unfit: they have none, or what one writes over is read again.
    """

    def value(given: Any) -> ast.expr:
        match given:
            case Place(number=place):
                return ast.Name("weight" if place else "x")
            case Result(number=place):
                return fitted(calls.made[place], value, MODULES)
        if type(given) not in (int, float):
            raise Unfit("it is neither a tensor nor a number")
        return number(given)

    for k, call in enumerate(calls.made):
        read = [each for later in calls.made[k + 1 :] for each in later.arguments.values()]
        written = _written(calls, Result(k))
        is_input = isinstance(written, Place) and written != _written(calls, calls.result)
        if written != Result(k) and (is_input or call.args[0] in read):
            raise Unfit("it writes over what is not its result")
    return value(calls.result)


def _written(calls: Calls, value: Any) -> Any:
    """Return what a value lies in: the tensor that operators wrote over."""
    while isinstance(value, Result) and calls.made[value.number].overload._schema.is_mutable:
        value = calls.made[value.number].args[0]
    return value


def _candidates(body: ast.expr) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield modules that may compute a formula, with their arguments that are numbers."""
    match body:
        case ast.Call(func=ast.Name(id=name), args=[ast.Name(id="x"), *rest], keywords=keywords):
            is_alone = all(isinstance(each, ast.Name) for each in rest)
            if name in names() and is_alone:
                given = {str(each.arg): _evaluated(each.value) for each in keywords}
                yield name, numbers_of(name) | given
                return
    others = {"weight", *MODULES.keys() - ROWS.keys()}  # which have more tensors
    if not any(isinstance(node, ast.Name) and node.id in others for node in ast.walk(body)):
        yield from ((name, numbers_of(name)) for name in names() if name not in others)


def _evaluated(body: ast.expr) -> float:
    given: Any = ast.fix_missing_locations(ast.Expression(body))
    found: float = eval(compile(given, "", "eval"), {"inf": math.inf})
    return found


def _is_same(layer: nn.Module, calls: Calls, of: ModuleType, numbers: Mapping[str, float]) -> bool:
    """Return True if a layer and a module have equal values and gradients."""
    if [*inspect.signature(of.eager).parameters][1:] != [*numbers]:
        return False
    constants = {
        float(each)
        for call in calls.made
        for each in call.arguments.values()
        if type(each) in (int, float) and math.isfinite(each)
    }
    points = [*POINTS, *(sign * c + d for c in constants for sign in (1, -1) for d in (-0.1, 0.1))]

    def results(function: Any) -> tuple[Tensor, Tensor]:
        with torch.inference_mode(mode=False), torch.enable_grad():
            x = torch.tensor(points, dtype=torch.float64, device="cpu", requires_grad=True)
            value = function(x * 1)
            return value.detach(), torch.autograd.grad(value.sum(), x)[0]

    with contextlib.suppress(Exception):  # of whatever a layer does with numbers
        pairs = zip(results(layer.forward), results(lambda x: of.eager(x, *numbers.values())), strict=True)
        return all(torch.allclose(a, b, **CLOSE) for a, b in pairs)
    return False
