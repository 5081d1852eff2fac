"""Values and calls of a graph as Python text."""

import builtins
import inspect
import itertools
import json
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from fusegen.models.lift.constructor_numbers import operand
from fusegen.models.lift.fx_graph import name_of
from fusegen.models.lift.labels import label_of
from fusegen.models.reader.aten_calls import value_of
from fusegen.models.reader.formula import Unfit

INFIX: dict[Callable[..., Any], str] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.pow: "**",
    operator.matmul: "@", operator.floordiv: "//", operator.mod: "%", operator.lt: "<", operator.le: "<=",
    operator.gt: ">", operator.ge: ">=", operator.eq: "==", operator.ne: "!=", operator.and_: "&",
    operator.or_: "|",
}  # fmt: skip
PREFIX: dict[Callable[..., Any], str] = {operator.neg: "-", operator.invert: "~", operator.pos: "+"}
NAMESPACES = {
    "torch": torch, "F": torch.nn.functional, "nn.functional": torch.nn.functional,
    "torch.nn.functional": torch.nn.functional, "torch.special": torch.special,
    "torch.linalg": torch.linalg, "torch.fft": torch.fft,
}  # fmt: skip
COUNTED = frozenset("unbind chunk unsafe_chunk split unsafe_split".split())  # give any number of tensors
WIDTH = 96  # of a line of forward
PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.memory_format, torch.layout)

Texts = Mapping[fx.Node, str]
Text = Callable[[Any], str]


def value_text(value: Any, texts: Texts) -> str:
    """Return an argument as Python text, from the texts of the nodes that it may read.

    Raises:
        Unfit: it has none.
    """
    label = label_of(value)
    if label is not None:
        return label
    if isinstance(value, fx.Node):
        return texts[value]
    for kind, write in SEQUENCES.items():
        if isinstance(value, kind):
            return write(value, lambda each: value_text(each, texts))
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, PLAIN):
        return repr(value)
    raise Unfit(f"an argument is a {type(value).__name__}, which the file cannot name")


def _slice(value: slice, text: Text) -> str:
    first, last = ("" if each is None else text(each) for each in (value.start, value.stop))
    return f"{first}:{last}" if value.step is None else f"{first}:{last}:{text(value.step)}"


def _tuple(value: tuple[Any, ...], text: Text) -> str:
    return f"({', '.join(map(text, value))}{',' if len(value) == 1 else ''})"


SEQUENCES: dict[type, Callable[[Any, Text], str]] = {
    slice: _slice,
    tuple: _tuple,
    list: lambda value, text: f"[{', '.join(map(text, value))}]",
    dict: lambda value, text: f"{{{', '.join(f'{key!r}: {text(each)}' for key, each in value.items())}}}",
    torch.device: lambda value, text: f'torch.device("{value}")',
    type(Ellipsis): lambda value, text: "...",
}


def call_text(
    node: fx.Node,  # a function, a method or a layer; of a layer its text is among `texts`
    texts: Texts,  # of the nodes that it reads
    names: Mapping[str, Any],  # of the file that the text is in, with their values
) -> str:
    """Return a call as Python text.

    Raises:
        Unfit: it has none.
    """
    args = [value_text(each, texts) for each in node.args]
    if node.op == "call_method":
        return f"{operand(args[0])}.{node.target}({_listed(node, args[1:], texts)})"
    target: Any = node.target
    if target in INFIX and len(args) == 2:
        return f"{operand(args[0])} {INFIX[target]} {operand(args[1])}"
    if target in PREFIX:
        return f"{PREFIX[target]}{operand(args[0])}"
    if target is getattr:
        return f"{operand(args[0])}.{node.args[1]}"
    if target is operator.getitem:
        index = args[1][1:-1] if isinstance(node.args[1], tuple) and len(node.args[1]) > 1 else args[1]
        return f"{operand(args[0])}[{index}]"
    return f"{function_name(target, names)}({_listed(node, args, texts)})"


def function_name(target: Callable[..., Any], names: Mapping[str, Any]) -> str:
    """Return the name of a function in a file.

    Raises:
        Unfit: the file has none.
    """
    name = getattr(target, "__name__", "")
    if isinstance(target, OpOverload):
        return str(target).replace("aten.", "torch.ops.aten.", 1)
    if getattr(builtins, name, None) is target:
        return name
    for prefix, space in NAMESPACES.items():
        known, own_name = (
            names.get(prefix.partition(".")[0]),
            name.removeprefix(f"{prefix.rpartition('.')[2]}_"),
        )
        if getattr(space, own_name, None) is target and (known in (torch, space, torch.nn)):
            return f"{prefix}.{own_name}"
    own = next((key for key, value in names.items() if value is target and key.isidentifier()), None)
    modules = (key for key, value in names.items() if inspect.ismodule(value) and key.isidentifier())
    of_module = (f"{key}.{name}" for key in modules if getattr(names[key], name, None) is target)
    own = own or next(of_module, None)
    if own is None:
        raise Unfit(f"the file has no name for the function {name or target!r}")
    return own


def _listed(node: fx.Node, args: list[str], texts: Texts) -> str:
    """Return the arguments of a call, without keywords that have their defaults."""
    usual = _defaults(node.target)
    given = (
        f"{key}={value_text(value, texts)}"
        for key, value in node.kwargs.items()
        if not (key in usual and _is(value, usual[key]))
    )
    return ", ".join([*args, *given])


def _is(value: Any, usual: Any) -> bool:
    if isinstance(value, fx.Node) or label_of(value) is not None:
        return False
    return type(value) is type(usual) and bool(value == usual)


def _defaults(target: Any) -> dict[str, Any]:
    """Return the defaults of a function; none where Python does not know them."""
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return {}
    return {key: each.default for key, each in parameters.items() if each.default is not each.empty}


def required_value(default: Any, name: Any) -> list[str]:
    """Return the lines that refuse another value of an argument than its default."""
    shown = value_text(default, {})
    differs = f"{name} is not None" if default is None else f"{name} != {shown}"
    return refusing(differs, f"{name}={default!r}")


def refusing(differs: str, what: str) -> list[str]:
    """Return the lines that raise ValueError under a condition, and say what a forward was traced with."""
    why = json.dumps(f"forward was traced with {what}", ensure_ascii=False)
    return [f"if {differs}:", f"    raise ValueError({why})"]


def counts(node: fx.Node) -> int:
    """Return how many tensors a call gave, where the sizes of what it takes apart decide it; else zero."""
    parts: Any = [*node.args[1:2], *node.kwargs.values()]
    is_of_list = any(isinstance(each, tuple | list) for each in parts)  # whose length is that of the result
    is_counted = node.op != "call_module" and name_of(node) in COUNTED and not is_of_list
    return len(value_of(node)) if is_counted else 0


def required_count(node: fx.Node, text: str) -> list[str]:
    """Return the lines that refuse another number of tensors than a call gave, from the text of these."""
    return required_value(counts(node), f"len({text})") if counts(node) else []


def required_mode(module: str, mode: object) -> list[str]:
    """Return the lines that refuse another mode of a module than that in which forward was traced."""
    why = f"{module}.training is not {mode}: call train() or eval() on the model"
    return [f"if {module}.training is not {mode}:", f"    raise RuntimeError({json.dumps(why)})"]


def wrapped(line: str) -> list[str]:
    """Return a line of Python in several, if it is long and is one call: its arguments are on their own."""
    head, opening, rest = line.partition("(")
    depths = itertools.accumulate({"(": 1, ")": -1}.get(each, 0) for each in line)
    is_call = opening and rest.endswith(")") and list(depths)[len(head) : -1].count(0) == 0
    return [f"{head}(", f"    {rest[:-1]},", ")"] if is_call and len(line) > WIDTH else [line]
