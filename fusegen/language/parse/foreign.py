"""The parts of Python's expressions that formulas lack, and what to write instead."""

import ast

from fusegen.errors import NotAFormula, Span, absent

SYMBOLS: dict[type[ast.AST], str] = {
    ast.Mod: "%", ast.FloorDiv: "//", ast.MatMult: "@", ast.BitXor: "^", ast.BitAnd: "&", ast.BitOr: "|",
    ast.LShift: "<<", ast.RShift: ">>", ast.Invert: "~", ast.Not: "not", ast.Is: "is", ast.IsNot: "is not",
    ast.In: "in", ast.NotIn: "not in", ast.And: "and", ast.Or: "or",
}  # fmt: skip
FOREIGN: dict[type[ast.AST], str] = {
    ast.Attribute: "an attribute",
    ast.Subscript: "an index",
    ast.Lambda: "a lambda",
    ast.JoinedStr: "an f-string",
    ast.NamedExpr: "an assignment",
    ast.IfExp: "an if-else",
    ast.Starred: "a starred argument",
    ast.Tuple: "a tuple",
    ast.List: "a list",
    ast.Set: "a set",
    ast.Dict: "a dictionary",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.Await: "an await",
    ast.Yield: "a yield",
    ast.YieldFrom: "a yield",
    ast.Call: "a call of anything but a named function",
    ast.Compare: "a chain of comparisons",
}
REMEDY = "use numbers, names, + - * / **, comparisons inside where(...), and functions"
REMEDIES = {
    "^": "a power is written x**2",
    "and": "put one where(...) inside another",
    "or": "put one where(...) inside another",
    "not": "turn the comparison round",
    "~": "turn the comparison round, or exchange a and b in  where(mask, a, b)",
    "an if-else": "write where(condition, a, b)",
    "a chain of comparisons": "put one where(...) inside another",
    "%": f"fusegen formulas {absent.LACKS['remainder']}",
    "//": f"fusegen formulas {absent.LACKS['floor']}",
    "@": f"fusegen formulas {absent.LACKS['matmul']}",
    "an attribute": "of a norm under `layers` they read  norm.weight, norm.bias and norm.eps",
    "an index": f"fusegen formulas {absent.LACKS['select']}",
}


def foreign(node: ast.expr, span: Span) -> NotAFormula:
    """Return the mistake of a node that the language has no place for."""
    operators = [getattr(node, "op", None), *getattr(node, "ops", ())]
    found = [SYMBOLS[type(op)] for op in operators if type(op) in SYMBOLS]
    what = FOREIGN.get(type(node), "this")
    if found:
        what = f"the operator {found[0]!r}"
    elif isinstance(node, ast.Constant):
        what = "a text" if isinstance(node.value, str | bytes) else f"the value {node.value!r}"
        what = "an ellipsis" if node.value is ... else what
    remedy = REMEDIES.get(found[0] if found else what, REMEDY)
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name() | ast.Attribute(), attr=attr)):
            lack = absent.LACKS.get(attr)
            remedy = f"fusegen formulas {lack}" if lack else f"call it by its name:  {attr}(...)"
    return NotAFormula(span, problem=f"{what} is not part of the language", remedy=remedy)
