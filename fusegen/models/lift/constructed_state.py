"""The state that a model's constructor makes, as the lines of `layers` that make the same."""

import ast
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.errors import FusegenError, Span
from fusegen.language.parse.names import check_attribute
from fusegen.models.lift.constructor_decisions import kept
from fusegen.models.lift.constructor_numbers import named_number
from fusegen.models.lift.fx_graph import HOOKS
from fusegen.models.lift.load import Problem, telling
from fusegen.models.lift.record import Built, Record, recording, storage_of, written


@dataclass(frozen=True)
class Constructed:
    """A model that was made on the device `meta`, of arguments that know their names."""

    model: nn.Module  # it
    arguments: dict[str, Any]  # of the constructor, by name
    layers: dict[str, str]  # its layers that a spec has, by attribute, as ``Class(arguments)``
    state: dict[str, str]  # its own parameters and buffers by attribute, as ``Parameter(initialiser)``
    order: tuple[str, ...]  # the attributes of both, as they were made


def constructed(problem: Problem) -> Constructed:
    """Return the model with what makes each of its parts.

    Raises:
        NotAModel: the constructor raises, or makes what no spec can.
    """
    arguments = problem.arguments()
    model, record = _recorded(problem, arguments)
    _refuse_hooks(problem, model)
    names = {id(module): name for name, module in model.named_modules()}
    flags = _flags(problem, arguments, record)
    built = {
        names[id(one.layer)]: _call(one, flags.get(place, {}))
        for place, one in enumerate(record.built)
        if "." not in names.get(id(one.layer), ".")
    }
    _refuse_changed(problem, model, record)
    state = dict(_state(problem, model, record))
    places = {key: place for place, key in enumerate(record.order)}
    keys = {name: id(module) for name, module in model.named_children() if name in built}
    keys |= {name: storage_of(tensor) for name, tensor in _own(model)}
    order = sorted((*built, *state), key=lambda name: places.get(keys[name], len(places)))
    for name in order:
        _refuse_terms(problem, name, built.get(name) or state[name])
        try:
            check_attribute(name, Span(str(problem.path)))
        except FusegenError as error:
            problem.refuse(f"the attribute {name!r} cannot be kept: {error.message}", "rename it")
    return Constructed(model, arguments, built, state, tuple(order))


def parts(problem: Problem, named: Mapping[str, Any]) -> Any:
    """Return the text of each part that a constructor makes of arguments, and what else the model keeps."""
    with recording() as record, torch.device("meta"):
        model = problem.model(**named)
    names = {id(module): name for name, module in model.named_modules()}
    layers = [(names.get(id(one.layer)), _call(one, {})) for one in record.built]
    types = [(name, type(module)) for name, module in model.named_modules(remove_duplicate=False)]
    own = kept(model, bool, str, int, float, type(None))
    return types, layers, dict(_state(problem, model, record)), own


def _refuse_terms(problem: Problem, name: str, text: str) -> None:
    """Refuse arithmetic and items in what makes a part of the model: their values are right once only."""
    for call in (node for node in ast.walk(ast.parse(text)) if _is_call(node)):
        assert isinstance(call, ast.Call)
        for part in (*call.args, *(each.value for each in call.keywords)):
            if any(map(_is_term, _values(part))):
                problem.refuse(
                    f"{name} is made with {ast.unparse(part)}, where a spec has arguments and literals",
                    "lift with --partial, which keeps the constructor",
                )


def _is_call(node: ast.AST) -> bool:
    """Return True for the call of a layer, of Parameter and Buffer, or of an initialiser."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) != "abs"


def _is_term(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp | ast.Subscript | ast.Attribute | ast.Call)


def _values(part: ast.expr) -> Iterator[ast.AST]:
    """The nodes of an argument, without initialisers and their multiples, which are calls of their own."""
    if isinstance(part, ast.BinOp) and any(map(_is_call, (part.left, part.right))):
        yield from (*_values(part.left), *_values(part.right))
    elif not _is_call(part):
        yield from ast.walk(part)


def _recorded(problem: Problem, arguments: Mapping[str, Any]) -> tuple[nn.Module, Record]:
    named = {name: named_number(name, value) for name, value in arguments.items()}
    with recording() as record, torch.device("meta"), telling(problem.path, "the constructor raises"):
        model = problem.model(**named)
    return model, record


def _flags(problem: Problem, arguments: Mapping[str, Any], record: Record) -> dict[int, dict[Any, str]]:
    """Return the names of the truths that layers were given, by the layer and the argument.

    True and None carry no label. One that changes with an argument of the constructor is this argument.
    """
    found: dict[int, dict[Any, str]] = {}
    for name, value in arguments.items():
        if not isinstance(value, bool):
            continue
        with suppress(FusegenError):
            _, other = _recorded(problem, {**arguments, name: not value})
            for place, (one, two) in enumerate(zip(record.built, other.built, strict=False)):
                before, after = dict(_given(one)), dict(_given(two))
                changed = [key for key in before if before[key] is value and after.get(key) is (not value)]
                found.setdefault(place, {}).update(dict.fromkeys(changed, name))
    return found


def _given(one: Built) -> Iterator[tuple[int | str, Any]]:
    yield from enumerate(one.args)
    yield from one.keywords.items()


def _call(one: Built, flags: Mapping[Any, str]) -> str:
    """Return the call that makes a layer."""
    words = [
        f"{key}={flags.get(key, written(value))}"
        if isinstance(key, str)
        else flags.get(key, written(value))
        for key, value in _given(one)
    ]
    return f"{type(one.layer).__name__}({', '.join(words)})"


def _own(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters and buffers that are attributes of the model itself."""
    yield from model.named_parameters(recurse=False)
    yield from model.named_buffers(recurse=False)


def _state(problem: Problem, model: nn.Module, record: Record) -> Iterator[tuple[str, str]]:
    """Yield the parameters and buffers with what makes them."""
    seen: dict[int, str] = {}
    for path, tensor in (*model.named_parameters(remove_duplicate=False), *_own(model)):
        first = seen.setdefault(storage_of(tensor), path)
        if first != path:
            problem.refuse(f"{first} and {path} share their memory", "give each a tensor of its own")
    for name, tensor in _own(model):
        is_trained = isinstance(tensor, nn.Parameter)
        kind = "Parameter" if is_trained else "Buffer"
        made = record.made.get(storage_of(tensor))
        if is_trained and not tensor.requires_grad:
            problem.refuse(f"the parameter {name} is not trained", "make it a buffer")
        if name in model._non_persistent_buffers_set:
            problem.refuse(f"the buffer {name} is not in the state_dict", "register it as persistent")
        if made is None or not made.call or made.alive.shape != tensor.shape:
            by = f"by {made.function}" if made and made.function else "in a way that was not seen"
            remedy = "make it by randn, rand, zeros, ones, full or tensor, perhaps times a number"
            problem.refuse(f"the {kind.lower()} {name} is made {by}, which a spec has no words for", remedy)
        yield name, f"{kind}({made.call})"


def _refuse_changed(problem: Problem, model: nn.Module, record: Record) -> None:
    for name, tensor in model.named_parameters():
        by = record.changed.get(storage_of(tensor))
        if by:
            problem.refuse(
                f"{name} is written to by {by} after its layer made it", "leave it as the layer makes it"
            )


def _refuse_hooks(problem: Problem, model: nn.Module) -> None:
    for name, module in model.named_modules():
        if any(getattr(module, hooks) for hooks in HOOKS):
            problem.refuse(
                f"{name or problem.attribute} has hooks, which a spec cannot keep", "remove them"
            )
