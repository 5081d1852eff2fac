"""Calls of poolings: a tensor, and numbers that say where its windows lie."""

import ast
from collections.abc import Callable, Iterator
from fractions import Fraction

from fusegen.core.poolings import (
    FLAGS,
    MAX_SIZE,
    POOLINGS,
    TUPLE,
    Pooling,
    Window,
    example,
    poolings,
    window,
)
from fusegen.core.spec import Spec
from fusegen.core.term import Number, SpecCall, Term
from fusegen.errors import (
    FusegenError,
    MissingArgument,
    NotWithWindows,
    OnePooling,
    RepeatedArgument,
    Span,
    UnknownArgument,
    WidePadding,
    WindowArgument,
)

Place = Callable[[ast.AST], Span]
LEAST = {"padding": 0}  # of a number; of others 1


def pooling_call(node: ast.Call, place: Place, tensor: Callable[[ast.expr], Term] | None) -> SpecCall:
    """Return the term of a call of a pooling.

    Args:
        node: the call, of a function of `POOLINGS`.
        place: where a node was written.
        tensor: reads its first argument; None where the call is a step of a chain, which lacks it.

    Raises:
        MissingArgument, UnknownArgument, RepeatedArgument, WindowArgument, WidePadding.
    """
    assert isinstance(node.func, ast.Name)
    pooling, span = POOLINGS[node.func.id], place(node)
    names = pooling.args if tensor else pooling.args[1:]
    given: dict[str, ast.expr] = dict(zip(names, node.args, strict=False))
    for keyword in node.keywords:
        key = str(keyword.arg)
        if key not in names or key in given:
            mistake = RepeatedArgument if key in given else UnknownArgument
            raise mistake(place(keyword), name=pooling.name, argument=key, signature=_signature(pooling))
        given[key] = keyword.value
    if len(node.args) > len(names):
        extra = node.args[len(names)]
        raise UnknownArgument(
            place(extra), name=pooling.name, argument=ast.unparse(extra), signature=_signature(pooling)
        )
    for name in (*names[: tensor is not None], "kernel_size"):
        if name not in given:
            raise MissingArgument(span, name=pooling.name, argument=name, signature=_signature(pooling))
    read = {name: _numbers(pooling, name, value, place) for name, value in given.items() if name != "input"}
    args = (tensor(given["input"]),) if tensor else ()
    keywords = tuple((name, value) for name, value in read.items() if value is not None)
    found = SpecCall(pooling.name, args, keywords, span)
    _check_padding(window(found), place(given.get("padding", node)))
    return found


def _signature(pooling: Pooling) -> str:
    return f"{pooling.name}({', '.join(pooling.args)})"


def _numbers(pooling: Pooling, name: str, node: ast.expr, place: Place) -> Term | None:
    """Return an argument as a number or a tuple of numbers; None where PyTorch's default is meant."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        value = node
    span, least = place(node), LEAST.get(name, 1)
    if value is None and name in ("stride", "divisor_override"):
        return None
    if name in FLAGS and isinstance(value, bool):
        return Number(Fraction(value), span)
    several = value if isinstance(value, tuple | list) else (value,)
    fits = all(type(each) is int and least <= each <= MAX_SIZE for each in several)
    if name in FLAGS or not fits or len(several) not in (1, pooling.rank * (name != "divisor_override")):
        expected = "True or False" if name in FLAGS else _expected(pooling, name, least)
        raise WindowArgument(
            span, name=pooling.name, argument=name, expected=expected, example=example(pooling)
        )
    parts = tuple(Number(Fraction(each), span) for each in several)
    return parts[0] if len(parts) == 1 else SpecCall(TUPLE, parts, (), span)


def _expected(pooling: Pooling, name: str, least: int) -> str:
    one = f"a whole number from {least} to {MAX_SIZE:,}"
    many = f", or a tuple of {pooling.rank}" if pooling.rank > 1 and name != "divisor_override" else ""
    return one + many


def _check_padding(of: Window, span: Span) -> None:
    for padding, most, size in zip(of.padding, of.widest_padding, of.kernel, strict=True):
        if padding > most:
            raise WidePadding(span, name=of.pooling.name, padding=padding, size=size, most=most)


def windows_are_reduced(spec: Spec) -> Iterator[FusegenError]:
    """Yield mistakes of a spec with a pooling: more than one, and what no kernel of windows takes."""
    found = [*dict.fromkeys(poolings(spec))]
    if not found:
        return
    first, *others = found
    for each in found:
        if "kernel_size" not in dict(each.keywords):  # of a step that is a name alone
            signature = _signature(POOLINGS[each.spec])
            yield MissingArgument(each.span, name=each.spec, argument="kernel_size", signature=signature)
    for other in others:
        yield OnePooling(other.span, first=first.spec)
    refused = {
        "over": (
            spec.over is not None and spec.over.is_declared and not spec.over.is_part,
            "reduce the rows in another spec",
        ),
        "numerics: eager": (
            spec.numerics == "eager",
            "its sums are in another order than eager's; leave numerics out",
        ),
        "split": (any(each.split is not None for each in spec.inputs), "declare two inputs"),
        "a reduction": (spec.reduction != "none", "leave the reduction out"),
    }
    for what, (is_there, remedy) in refused.items():
        if is_there:
            yield NotWithWindows(spec.span, what=what, remedy=remedy)
