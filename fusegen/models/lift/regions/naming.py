"""Names of regions, and of their inputs and parameters."""

import ast
import itertools
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from torch import fx

from fusegen.errors import FusegenError, Span
from fusegen.language.parse.names import check_module, check_variable
from fusegen.models.lift.regions.region import Region

WISHED = "wished"  # the key of a name for a node, in its meta
TITLE = "title"  # the key of the word for a node of several operations
RUNNING = "x"  # the first input of a region
PREFIX = re.compile(r"^l_.*_(?:parameters|buffers)_")  # of a parameter in a graph of TorchDynamo
LETTERS = ("y", "z", "w", "v", "u")
MOST_WORDS, MOST_LETTERS = 5, 48  # of a name
OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow", ast.USub: "neg",
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip


def title(region: Region) -> str:
    """Return the name of a region by its operations: ``tanh_hardswish_add``.

    Of a long one, the first and the last words.
    """
    words = operations(region)
    if len(words) > MOST_WORDS:
        words = [*words[: MOST_WORDS - 2], "to", words[-1]]
    name = "_".join(words)[:MOST_LETTERS].strip("_") or "region"
    with suppress(FusegenError):
        check_module(name, Span(""))
        check_variable(name, Span(""))
        return name
    return f"{name}_region"


def operations(region: Region) -> list[str]:
    """Return the operations of a region in words, in order."""
    given = ((part.node.meta.get(TITLE), part.body) for part in region.parts)
    return [word for title, body in given for word in ([title] if title else _words(body))]


def _words(body: ast.AST) -> Iterator[str]:
    """Yield the operations of a formula in the order in which they run."""
    for child in ast.iter_child_nodes(body):
        yield from _words(child)
    match body:
        case ast.Call(func=ast.Name(id=name)):
            yield name
        case ast.BinOp(op=op) | ast.Compare(ops=[op]):
            yield OPERATORS[type(op)]
        case ast.UnaryOp(op=op, operand=operand) if not isinstance(operand, ast.Constant | ast.Name):
            yield OPERATORS[type(op)]


def input_names(region: Region) -> dict[fx.Node, str]:
    """Return a name for each input of a region: that of its attribute in the model, or a letter."""
    taken = {RUNNING}
    found = {region.inputs[0]: RUNNING}
    for node in region.inputs[1:]:
        wished = node.meta.get(WISHED) or (
            str(node.target) if node.op in ("get_attr", "placeholder") else ""
        )
        found[node] = _free(wished, LETTERS, taken)
    return found


def label_names(labels: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """Return a name for each number with a label: the last word of it."""
    used = set(taken)
    return {label: _free(label, ("scale", "factor", "number"), used) for label in labels}


def _free(wished: str, others: Iterable[str], taken: set[str]) -> str:
    """Return a name that is not taken, which it then is."""
    last = re.sub(r"\W+", "_", wished.rsplit(".", 1)[-1]).strip("_").lower()
    last = re.sub(r"_\d+$", "", PREFIX.sub("", last))
    numbered = (f"{next(iter(others))}_{number}" for number in itertools.count(2))
    for name in (last, *others, *itertools.islice(numbered, 64)):
        with suppress(FusegenError):
            check_variable(name, Span(""))
            if name not in taken and name != RUNNING:
                taken.add(name)
                return name
    raise AssertionError("a region has at most 8 tensors")
