"""The field `layers`: what the constructor makes, of torch.nn or as a parameter or buffer of its own."""

import ast
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from fusegen.core.constructor import Item, Layer, StateTensor, literal
from fusegen.core.held_layers import is_held, parts
from fusegen.core.layer_arguments import refused
from fusegen.core.layers import PRODUCERS, Signature
from fusegen.errors import (
    MissingArgument,
    NotAFormula,
    RepeatedArgument,
    Span,
    UnknownArgument,
    WrongArgument,
    WrongArity,
    WrongType,
    WrongValue,
    counted,
    nearest,
)
from fusegen.language.parse import document as yaml
from fusegen.language.parse.formula import parse_tree
from fusegen.language.parse.init import SIMPLE_ARGUMENT, Scope
from fusegen.language.parse.names import check_attribute, check_variable
from fusegen.language.parse.shapes import as_mapping, as_scalar, as_sequence
from fusegen.language.parse.state import KINDS, Initialisers, Made

UNREAD = "unread"
_EXAMPLE = "layers: [conv: 'Conv2d(in_channels, 64, 3)']"
_UNREAD_EXAMPLE = "- bias: {unread: 'Parameter(zeros(64, 1, 1))'}"


def read_layers(node: yaml.Node, scope: Scope) -> tuple[Item, ...]:
    """Return the items that the constructor makes, in order."""
    found = []
    for item in as_sequence(node, "layers", "a list of attribute: Class(arguments)", _EXAMPLE).items:
        entries = as_mapping(item, "a layer", "attribute: Class(arguments)", _EXAMPLE).entries
        if len(entries) != 1:
            what = "attribute: Class(arguments)"
            raise WrongType(item.span, key="a layer", expected=what, example=_EXAMPLE)
        [(attribute, span, value)] = entries
        check_attribute(attribute, span)
        found.append(_item(attribute, span, value, scope))
    return tuple(found)


def _item(attribute: str, span: Span, node: yaml.Node, scope: Scope) -> Item:
    found = _made(attribute, span, _unread(node) if isinstance(node, yaml.Mapping) else node, scope)
    if isinstance(node, yaml.Mapping):
        if isinstance(found, Layer):
            what = "a Parameter or a Buffer"
            raise WrongType(span, key=UNREAD, expected=what, example=_UNREAD_EXAMPLE)
        return replace(found, is_read=False)
    if isinstance(found, StateTensor):
        check_variable(attribute, span)
    return found


def _made(attribute: str, span: Span, node: yaml.Node, scope: Scope) -> Item:
    """Return the layer or the tensor that a call makes."""
    text = as_scalar(node, attribute, "a call", _EXAMPLE)
    tree, place = parse_tree(text.text, text.at)
    if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name)):
        problem = "a layer is Class(arguments)"
        raise NotAFormula(text.span, problem=problem, remedy="for example Conv2d(8, 64, 3)")
    if tree.func.id not in KINDS:
        return _layer(attribute, span, (tree, place), scope)
    made = Made("", ())
    with suppress(KeyError):  # the error of the argument is reported
        made = Initialisers(tree.func.id, place, scope).of(tree)
    initialiser = ast.unparse(tree.args[0]) if made.text else ""
    return StateTensor(
        attribute, KINDS[tree.func.id], initialiser, made.text, made.shape, is_read=True, span=span
    )


def _unread(node: yaml.Mapping) -> yaml.Node:
    """Return the initialiser that a map under an attribute declares as unread."""
    for key, place, _ in node.entries:
        if key != UNREAD:
            remedy = nearest(key, (UNREAD,), f"it has {UNREAD}, as in  {_UNREAD_EXAMPLE}")
            raise WrongValue(place, value=key, key="part of a parameter or buffer", remedy=remedy)
    if not node.entries:
        raise WrongType(node.span, key="a layer", expected="attribute: Class(arguments)", example=_EXAMPLE)
    return node.entries[0][2]


def state_names(node: yaml.Node) -> dict[str, str]:
    """The kinds of the parameters and buffers by their attributes, also where something else is wrong."""
    return {attribute: kind for attribute, kind in _written(node) if kind in KINDS}


def part_names(node: yaml.Node) -> list[str]:
    """Return what formulas may write of layers, as norm.weight, also where something else is wrong."""
    return [name for attribute, kind in _written(node) if is_held(kind) for name in parts(attribute)]


def _written(node: yaml.Node) -> Iterator[tuple[str, str]]:
    """Yield the attributes, and what each is made by."""
    items = node.items if isinstance(node, yaml.Sequence) else ()
    entries = [entry for item in items if isinstance(item, yaml.Mapping) for entry in item.entries]
    for attribute, _, value in entries:
        written = value.entries[0][2] if isinstance(value, yaml.Mapping) and value.entries else value
        if isinstance(written, yaml.Scalar):
            yield attribute, written.text.partition("(")[0].strip()


def _layer(
    attribute: str, span: Span, call: tuple[ast.Call, Callable[[ast.AST], Span]], scope: Scope
) -> Layer:
    tree, place = call
    assert isinstance(tree.func, ast.Name)
    kind = tree.func.id
    if kind not in PRODUCERS:
        remedy = nearest(kind, (*PRODUCERS, *KINDS), "the layers are " + ", ".join((*PRODUCERS, *KINDS)))
        raise WrongValue(place(tree), value=kind, key="layer of torch.nn", remedy=remedy)
    if any(keyword.arg is None for keyword in tree.keywords):
        problem = "a starred argument has no place in it"
        raise NotAFormula(place(tree), problem=problem, remedy=SIMPLE_ARGUMENT)
    for value in (*tree.args, *(keyword.value for keyword in tree.keywords)):
        scope.check(value, place(value))
    signature = PRODUCERS[kind] or _taking(tree)
    _check_signature(kind, signature, tree, place)
    arguments = dict(zip(signature.positional, tree.args, strict=False))
    arguments |= {str(keyword.arg): keyword.value for keyword in tree.keywords}
    given = scope.known(arguments) if PRODUCERS[kind] else ()
    for wrong in refused(kind, dict(given)):
        node = arguments.get(wrong.argument, tree)
        found = literal(dict(given)[wrong.argument]) if wrong.argument in arguments else "its default"
        shown = f"{found} of {ast.unparse(node)!r}" if isinstance(node, ast.Name) else found
        raise WrongArgument(
            place(node), argument=wrong.argument, layer=kind, expected=wrong.expected, value=shown,
            example=wrong.example,
        )  # fmt: skip
    written = [ast.unparse(arg) for arg in tree.args]
    written += [f"{keyword.arg}={ast.unparse(keyword.value)}" for keyword in tree.keywords]
    return Layer(attribute, kind, tuple(written), given, span)


def _taking(call: ast.Call) -> Signature:
    """Return the signature of a layer that takes any arguments, for one call of it."""
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
