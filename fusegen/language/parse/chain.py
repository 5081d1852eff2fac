"""The steps of a chain, each perhaps with a name that later steps read."""

import ast
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from fusegen.core.spec import Label, Step
from fusegen.core.term import SpecCall
from fusegen.errors import Empty, WrongType
from fusegen.language.parse import document as yaml
from fusegen.language.parse.formula import parse_formula, parse_parameters, parse_tree
from fusegen.language.parse.names import check_variable
from fusegen.language.parse.shapes import as_scalar, as_sequence

A_STEP, EXAMPLE = "a spec's name, a call or an expression", "chain: [relu, x / 6]"
NAMED = "chain: [before: x, relu, x + before]"


def read_chain(
    node: yaml.Node, variables: Sequence[str], running: str,
    collecting: Callable[[], AbstractContextManager[None]],
) -> tuple[Step, ...]:  # fmt: skip
    """Return the steps; one that does not mention the running value names a spec to apply to it."""
    items = as_sequence(node, "chain", "a list of steps", "chain: [relu, hardswish]").items
    if not items:
        raise Empty(node.span, key="chain", remedy="name at least one step")
    found: list[Step] = []
    scope = list(variables)
    for item in items:
        with collecting():
            if isinstance(item, yaml.Mapping):
                found.append(_named(item, scope, running))
            else:
                found.append(_step(item, scope, running))
    return tuple(found)


def _named(node: yaml.Mapping, scope: list[str], running: str) -> Step:
    """Return a step with a name, which joins the names in scope."""
    before = tuple(scope)
    scope += [name for name, _, _ in node.entries]
    if len(node.entries) != 1:
        raise WrongType(node.span, key="a named step", expected="one name with its step", example=NAMED)
    [(name, span, value)] = node.entries
    check_variable(name, span)
    step = _step(value, before, running)
    return Step(step.call, step.term, step.span, Label(name, span))


def _step(node: yaml.Node, scope: Sequence[str], running: str) -> Step:
    scalar = as_scalar(node, "a step", A_STEP, EXAMPLE)
    bare = scalar.text.strip()
    if bare not in scope and bare.isidentifier():
        return Step(SpecCall(bare, (), (), scalar.span), None, scalar.span)
    tree, _ = parse_tree(scalar.text, scalar.at)
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args:
        mentioned = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n is not tree.func]
        if running not in mentioned:
            return Step(parse_parameters(scalar.text, scalar.at, scope), None, scalar.span)
    return Step(None, parse_formula(scalar.text, scalar.at, scope), scalar.span)
