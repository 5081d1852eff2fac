"""Formulas as Python's syntax trees, with values in the place of names."""

import ast
import copy
import math
from collections.abc import Mapping

from fusegen.core.signatures import EXTENDED


class Unfit(Exception):
    """A call or a value that no formula holds, in a clause."""


def number(value: float) -> ast.expr:
    """Return a number as a formula writes it.

    Raises:
        Unfit: it is NaN.
    """
    if math.isnan(value):
        raise Unfit("NaN is no number of a formula")
    size: ast.expr = ast.Name("inf") if math.isinf(value) else ast.Constant(abs(value))
    return ast.UnaryOp(ast.USub(), size) if math.copysign(1, value) < 0 else size


def substituted(
    body: ast.expr, values: Mapping[str, ast.expr], usual: frozenset[str] = frozenset()
) -> ast.expr:
    """Return a formula with values in the place of names, without usual keywords, which have defaults."""
    found: ast.expr = _Substitution(values, usual).visit(copy.deepcopy(body))
    return ast.fix_missing_locations(found)


class _Substitution(ast.NodeTransformer):
    """Substitutes values for names, which those of functions are not."""

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
