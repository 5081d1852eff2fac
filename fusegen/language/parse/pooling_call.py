"""Calls of poolings: a tensor, and numbers that say where its windows lie."""

import ast
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from fusegen.core.constructor import Value
from fusegen.core.poolings import (
    FLAGS,
    LEAST,
    MAX_SIZE,
    NONE,
    OR_NONE,
    POOLINGS,
    TUPLE,
    Pooling,
    defaults,
    example,
    is_legal,
    poolings,
    value_of,
    window,
)
from fusegen.core.spec import Spec
from fusegen.core.tensor_shapes import first_shape
from fusegen.core.term import Name, Number, SpecCall, Term, walk
from fusegen.errors import (
    FusegenError,
    MissingArgument,
    NotWithWindows,
    NoWindow,
    OnePooling,
    RepeatedArgument,
    Span,
    UnknownArgument,
    WidePadding,
    WindowArgument,
)

Place = Callable[[ast.AST], Span]


def pooling_call(node: ast.Call, place: Place, tensor: Callable[[ast.expr], Term] | None) -> SpecCall:
    """Return the term of a call of a pooling.

    Args:
        node: the call, of a function of `POOLINGS`.
        place: where a node was written.
        tensor: reads its first argument; None where the call is a step of a chain, which lacks it.

    Raises:
        MissingArgument, UnknownArgument, RepeatedArgument, WindowArgument.
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
    for name in (*names[: tensor is not None], pooling.args[1]):
        if name not in given:
            raise MissingArgument(span, name=pooling.name, argument=name, signature=_signature(pooling))
    read = {name: _numbers(pooling, name, value, place) for name, value in given.items() if name != "input"}
    args = (tensor(given["input"]),) if tensor else ()
    keywords = tuple((name, value) for name, value in read.items() if value is not None)
    return SpecCall(pooling.name, args, keywords, span)


def _signature(pooling: Pooling) -> str:
    return f"{pooling.name}({', '.join(pooling.args)})"


def _numbers(pooling: Pooling, name: str, node: ast.expr, place: Place) -> Term | None:
    """Return an argument as a number, a name or a tuple of them; None where PyTorch's default is meant."""
    is_tuple = isinstance(node, ast.Tuple | ast.List)
    several = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    values = tuple(_value(part, name) for part in several)
    if not is_legal(pooling, name, values if is_tuple else values[0]):
        raise _mistake(pooling, name, place(node))
    if values == (None,) and name in OR_NONE:
        return None
    parts = tuple(
        Name(part.id if isinstance(part, ast.Name) else NONE, place(part))
        if value is None or isinstance(part, ast.Name)
        else Number(Fraction(int(value)), place(part))
        for part, value in zip(several, values, strict=True)
    )
    return parts[0] if len(parts) == 1 else SpecCall(TUPLE, parts, (), place(node))


def _value(node: ast.expr, name: str) -> Any:
    """Return the value that is written; for a name one that is legal."""
    if isinstance(node, ast.Name):
        return True if name in FLAGS else 1
    try:
        return ast.literal_eval(node)
    except ValueError:
        return node


def _expected(pooling: Pooling, name: str) -> str:
    if name in FLAGS:
        return "True or False"
    one = f"a whole number from {LEAST.get(name, 1)} to {MAX_SIZE:,}"
    many = f", or a tuple of {pooling.rank}" if pooling.rank > 1 and name != "divisor_override" else ""
    return one + many


def _mistake(pooling: Pooling, name: str, span: Span, expected: str = "") -> FusegenError:
    expected, shown = expected or _expected(pooling, name), example(pooling)
    return WindowArgument(span, name=pooling.name, argument=name, expected=expected, example=shown)


def windows_are_reduced(spec: Spec) -> Iterator[FusegenError]:
    """Yield mistakes of a spec with a pooling: more than one, and what no kernel of windows takes."""
    found = [*dict.fromkeys(poolings(spec))]
    if not found:
        return
    first, *others = found
    for each in found:
        needed = POOLINGS[each.spec].args[1]
        if needed not in dict(each.keywords):  # of a step that is a name alone
            signature = _signature(POOLINGS[each.spec])
            yield MissingArgument(each.span, name=each.spec, argument=needed, signature=signature)
        yield from _numbers_are_legal(each, defaults(spec))
    yield from _windows_fit(spec, first)
    for other in others:
        yield OnePooling(other.span, first=first.spec)
    refused = {
        "over": (
            spec.over is not None and spec.over.is_declared and not spec.over.is_part,
            "put one of them under layers, as  - first: {formula: ...}",
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


def _windows_fit(spec: Spec, of: SpecCall) -> Iterator[FusegenError]:
    """Yield the mistake of a window for which the first input's example has no room, if it is pooled."""
    first, shape, known = spec.inputs[0], first_shape(spec), defaults(spec)
    direct = any(part == Name(first.name) for arg in of.args for part in walk(arg))
    if shape is None or not (direct or not of.args) or any(_numbers_are_legal(of, known)):
        return
    windows = window(of, known)
    if len(shape) <= windows.rank or min(windows.sizes(shape)[-windows.rank :]) > 0:
        return
    size, given = (" x ".join(map(str, sizes)) for sizes in (windows.kernel, shape))
    yield NoWindow(of.span, name=of.spec, size=size, shape=given, input=first.name)


def _numbers_are_legal(of: SpecCall, known: dict[str, Value]) -> Iterator[FusegenError]:
    """Yield mistakes of the constructor's numbers in a call of a pooling, and of its padding."""
    pooling = POOLINGS[of.spec]
    for name, term in of.keywords:
        read = [part for part in walk(term) if isinstance(part, Name) and part.name != NONE]
        unknown = [part for part in read if part.name not in known]
        for part in unknown[:1]:
            neither = f"a number or an argument of `init`, and {part.name!r} is neither"
            yield _mistake(pooling, name, part.span, neither)
        if not unknown and read and not is_legal(pooling, name, value_of(term, known)):
            yield _mistake(pooling, name, read[0].span)
            unknown = read
        if unknown:
            return
    windows, place = window(of, known), dict(of.keywords).get("padding", of).span
    each = zip(windows.padding, windows.widest_padding, windows.kernel, strict=True)
    for padding, most, size in (numbers for numbers in each if numbers[0] > numbers[1]):
        yield WidePadding(place, name=pooling.name, padding=padding, size=size, most=most)
        return
