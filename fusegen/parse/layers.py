"""The fields `init` and `layers`: a constructor's arguments, and what of torch.nn runs in front."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Sequence

from fusegen.errors import (
    MissingArgument,
    NotAFormula,
    NotInInit,
    NumberOutOfRange,
    RepeatedArgument,
    Span,
    UnknownArgument,
    WrongArity,
    WrongType,
    WrongValue,
    counted,
    nearest,
)
from fusegen.parse import document as yaml
from fusegen.parse import scalars
from fusegen.parse.formula import parse_tree
from fusegen.parse.names import check_attribute, check_name
from fusegen.parse.shapes import as_mapping, as_scalar, as_sequence
from fusegen.producers import PRODUCERS, Signature
from fusegen.spec import Layer

_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SIMPLE_ARGUMENT = "arguments are numbers, True, False, None, words in quotes, tuples, or names from `init`"


def read_init(node: yaml.Node) -> tuple[tuple[str, str], ...]:
    """The constructor's arguments as Python literals, in the order written."""
    entries = as_mapping(node, "init", "a map", "init: {in_channels: 8, kernel_size: 3}").entries
    found = []
    for key, span, value in entries:
        check_name(key, span)
        found.append((key, _literal(value, key)))
    return tuple(found)


def read_layers(node: yaml.Node, arguments: Sequence[str]) -> tuple[Layer, ...]:
    """The layers in front of the chain; `arguments` are the names `init` declares."""
    example = "layers: [conv: 'Conv2d(in_channels, 64, 3)']"
    found = []
    for item in as_sequence(node, "layers", "a list of attribute: Class(arguments)", example).items:
        entries = as_mapping(item, "a layer", "attribute: Class(arguments)", example).entries
        if len(entries) != 1:
            what = "attribute: Class(arguments)"
            raise WrongType(item.span, key="a layer", expected=what, example=example)
        [(attribute, span, value)] = entries
        check_attribute(attribute, span)
        found.append(_layer(attribute, span, as_scalar(value, attribute, "a call", example), arguments))
    return tuple(found)


def _layer(attribute: str, span: Span, call: yaml.Scalar, arguments: Sequence[str]) -> Layer:
    tree, place = parse_tree(call.text, call.at)
    if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name)):
        problem = "a layer is Class(arguments)"
        raise NotAFormula(call.span, problem=problem, remedy="for example Conv2d(8, 64, 3)")
    if tree.func.id not in PRODUCERS:
        remedy = nearest(tree.func.id, PRODUCERS, "the layers are " + ", ".join(PRODUCERS))
        raise WrongValue(place(tree), value=tree.func.id, key="layer of torch.nn", remedy=remedy)
    if any(keyword.arg is None for keyword in tree.keywords):
        problem = "a starred argument has no place in it"
        raise NotAFormula(place(tree), problem=problem, remedy=_SIMPLE_ARGUMENT)
    for value in (*tree.args, *(keyword.value for keyword in tree.keywords)):
        _check_argument(value, place(value), arguments)
    _check_signature(tree.func.id, PRODUCERS[tree.func.id] or _taking(tree), tree, place)
    shown = [ast.unparse(arg) for arg in tree.args]
    shown += [f"{keyword.arg}={ast.unparse(keyword.value)}" for keyword in tree.keywords]
    return Layer(attribute, tree.func.id, tuple(shown), span)


def _taking(call: ast.Call) -> Signature:
    """The signature of a layer that takes any arguments, for one call of it."""
    by_place, by_name = ("",) * len(call.args), tuple(str(keyword.arg) for keyword in call.keywords)
    return Signature(by_place, by_name, frozenset(), "Identity(*args, **kwargs)")


def _check_signature(
    layer: str, signature: Signature, call: ast.Call, place: Callable[[ast.AST], Span]
) -> None:
    """Refuse arguments that are too many, repeated, unknown or missing."""
    if len(call.args) > len(signature.positional):
        most, number = len(signature.positional), len(call.args)
        first = place(call.args[most])
        expected, found = f"at most {counted(most, 'argument')} by place", f"{number} are"
        raise WrongArity(first, name=layer, expected=expected, found=found, signature=signature.text)
    given = set(signature.positional[: len(call.args)])
    for keyword in call.keywords:
        name = str(keyword.arg)
        if name in given or name not in (*signature.positional, *signature.named):
            mistake = RepeatedArgument if name in given else UnknownArgument
            raise mistake(place(keyword), name=layer, argument=name, signature=signature.text)
        given.add(name)
    for name in signature.positional:
        if name in signature.required and name not in given:
            raise MissingArgument(place(call), name=layer, argument=name, signature=signature.text)


def _check_argument(value: ast.expr, span: Span, arguments: Sequence[str]) -> None:
    """Admit numbers, booleans, None, plain words, tuples of them, and names that `init` declares."""
    match value:
        case ast.Constant(value=float(number)) if not math.isfinite(number):
            raise NumberOutOfRange(span, what="the number")
        case ast.Constant(value=bool() | int() | float() | None):
            return
        case ast.Constant(value=str(characters)) if _WORD.fullmatch(characters):
            return
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float()) as operand):
            _check_argument(operand, span, arguments)
        case ast.Tuple(elts=items):
            for item in items:
                _check_argument(item, span, arguments)
        case ast.Name(id=used):
            if used not in arguments:
                known = f"`init` declares {', '.join(arguments) or 'nothing'}"
                raise NotInInit(span, name=used, near=nearest(used, arguments, known))
        case _:
            problem = "this cannot be an argument of a layer"
            raise NotAFormula(span, problem=problem, remedy=_SIMPLE_ARGUMENT)


def _literal(node: yaml.Node, key: str) -> str:
    """A Python literal: a number, a boolean, a word or a tuple of them."""
    if isinstance(node, yaml.Sequence):
        return f"({''.join(_literal(item, key) + ', ' for item in node.items).rstrip(' ')})"
    scalar = as_scalar(node, key, "a number, a word or a list", f"init: {{{key}: 3}}")
    found = scalars.value(scalar, key)
    if not isinstance(found, str):
        return repr(found)
    if _WORD.fullmatch(found):
        return f'"{found}"'
    remedy = "write a number, true, false, null, a plain word or a list of them"
    raise WrongValue(scalar.span, value=found[:80], key=f"value of {key}", remedy=remedy)
