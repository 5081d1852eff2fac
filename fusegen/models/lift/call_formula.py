"""A call of PyTorch as a formula, by the row of its target."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import fx

from fusegen.core.signatures import EXTENDED
from fusegen.models.lift.fx_graph import inplace_at
from fusegen.models.lift.labels import label_of
from fusegen.models.lift.operations import Form, Row

Value = Callable[[Any], ast.expr]
OTHER_NAMES = {"self": "input", "x": "input"}  # of the first argument
REDUCTION = "along a dimension it is a reduction"


class Unfit(Exception):
    """A call that no form of its row takes, in a clause."""


@dataclass(frozen=True)
class Call:
    """A call of a target."""

    target: Callable[..., Any]
    args: tuple[Any, ...]
    keywords: dict[str, Any]


def fitted(row: Row, call: Call, value: Value) -> ast.expr:
    """Return the formula of a call.

    Args:
        row: of its target.
        call: it.
        value: the formula of an argument.

    Raises:
        Unfit: no form takes these arguments.
    """
    problems = []
    for form in row.forms:
        try:
            given = _bound(form, call, row.tensors)
            values = {name: value(given[name]) for name in form.reads}
        except Unfit as error:
            problems.append(str(error))
            continue
        return substituted(values, form.body, _usual(form, given))
    raise Unfit(problems[0])


def _bound(form: Form, call: Call, tensors: frozenset[str]) -> dict[str, Any]:
    """Return the arguments by name, if the form takes them."""
    names = form.names
    args = call.args[: inplace_at(call.target)]  # dynamo gives it by its place; a formula writes nothing
    if len(args) > len(names):
        raise Unfit(f"it is called with {len(args)} arguments")
    given = dict(zip(names, args, strict=False))
    for name, value in call.keywords.items():
        if name == "inplace":
            continue
        name = OTHER_NAMES.get(name, name)
        if name == "dim" and name not in names:
            raise Unfit(REDUCTION)
        if name not in names or name in given:
            raise Unfit(f"the argument {name} is not known")
        given[name] = value
    for name in names:
        if name in given and name not in form.reads and not _is(given[name], form.defaults.get(name)):
            raise Unfit(f"the argument {name}={given[name]!r} is not known")
        if name not in given and name not in form.defaults:
            raise Unfit(f"the argument {name} is missing")
        if name in tensors and not isinstance(given.get(name), fx.Node):
            raise Unfit(REDUCTION)
    return {**form.defaults, **given}


def _is(value: Any, default: Any) -> bool:
    return not isinstance(value, fx.Node) and type(value) is type(default) and bool(value == default)


def _usual(form: Form, given: Mapping[str, Any]) -> frozenset[str]:
    """Return the arguments with defaults that have them, and no name."""
    return frozenset(
        name
        for name, default in form.defaults.items()
        if not isinstance(given[name], fx.Node) and label_of(given[name]) is None and given[name] == default
    )


def substituted(
    values: Mapping[str, ast.expr], body: ast.expr, usual: frozenset[str] = frozenset()
) -> ast.expr:
    """Return a formula with values in the place of arguments, without those keywords that are usual."""
    found: ast.expr = _Substitution(values, usual).visit(copy.deepcopy(body))
    return ast.fix_missing_locations(found)


class _Substitution(ast.NodeTransformer):
    """Substitutes values for arguments, and drops keywords that have their defaults."""

    def __init__(self, values: Mapping[str, ast.expr], usual: frozenset[str]) -> None:
        self.values, self.usual = values, usual

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.values.get(node.id, node))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        assert isinstance(node.func, ast.Name)
        keywords = [
            ast.keyword(each.arg, self.visit(each.value))
            for each in node.keywords
            if each.arg not in self.usual or node.func.id in EXTENDED
        ]
        return ast.Call(node.func, [self.visit(arg) for arg in node.args], keywords)
