"""From the YAML node of one field to its value; each function raises on the first mistake in its field."""

import keyword
import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any

from fusegen.core.interval import Interval
from fusegen.core.spec import ACCEPTED, DEFAULT_SHAPE, DTYPES, MAX_INPUTS, Fill, Input, Named, Param
from fusegen.errors import (
    Empty,
    FusegenError,
    MisplacedMask,
    MisplacedSplit,
    NotAnInput,
    NotScalar,
    Span,
    TooLarge,
    UnsafeText,
    WrongType,
    WrongValue,
    nearest,
)
from fusegen.language.parse import document as yaml
from fusegen.language.parse import scalars
from fusegen.language.parse.formula import parse_formula
from fusegen.language.parse.inputs import (
    Entry,
    read_dtype,
    read_fill,
    read_index,
    read_interval,
    read_shape,
    read_split,
    tensors_of,
)
from fusegen.language.parse.names import check_attribute, check_module, check_variable
from fusegen.language.parse.shapes import as_mapping, as_scalar, as_sequence
from fusegen.language.schema import REFERENCE_PATTERN

MAX_TEXT = 200
PARTS: dict[str, Callable[[yaml.Node], object]] = {  # of an input
    "shape": read_shape, "fill": read_fill, "split": read_split, "dtype": read_dtype, "index": read_index,
}  # fmt: skip
_UNSAFE = {
    "*/": "'*/'",
    "/*": "'/*'",
    '"""': "three double quotes",
    "'''": "three single quotes",
    "\\": "a backslash",
    "??/": "the trigraph '??/'",
}


def text(node: yaml.Node, key: str) -> str:
    """Return one line of plain text that can stand in any comment or docstring."""
    scalar = as_scalar(node, key, "a line of text", f"{key}: Rectified linear unit.")
    if not scalar.text.strip():
        raise Empty(scalar.span, key=key, remedy="say it in one line of text")
    for index, character in enumerate(scalar.text):
        if unicodedata.category(character)[0] == "C" or character in "\u2028\u2029":
            raise UnsafeText(scalar.at(index), key=key, what=f"the character U+{ord(character):04X}")
    for mark, what in _UNSAFE.items():
        if mark in scalar.text:
            raise UnsafeText(scalar.at(scalar.text.index(mark)), key=key, what=what)
    if scalar.text.endswith('"'):
        what = "a double quote at its end"
        raise UnsafeText(scalar.at(len(scalar.text) - 1), key=key, what=what)
    if len(scalar.text) > MAX_TEXT:
        size, remedy = f"{len(scalar.text)} characters", "keep it to one line"
        raise TooLarge(scalar.span, what=key, size=size, limit=MAX_TEXT, remedy=remedy)
    return scalar.text


def name(node: yaml.Node) -> str:
    """Return the name of the spec."""
    scalar = as_scalar(node, "name", "a word", "name: hardsigmoid")
    check_module(scalar.text, scalar.span)
    return scalar.text


def word(node: yaml.Node, key: str, allowed: Sequence[str]) -> str:
    """Return one of the allowed words."""
    scalar = as_scalar(node, key, "a word", f"{key}: {allowed[0]}")
    if scalar.text not in allowed:
        remedy = nearest(scalar.text, allowed, f"it is one of {', '.join(allowed)}")
        raise WrongValue(scalar.span, value=scalar.text[:80], key=key, remedy=remedy)
    return scalar.text


def dtypes(node: yaml.Node) -> tuple[str, ...]:
    """Return the dtypes in the order of `spec.DTYPES`, whatever the order written."""
    items = as_sequence(node, "dtypes", "a list of tensor types", "dtypes: [float32, bfloat16]").items
    found = [word(item, "dtype", DTYPES) for item in items]
    if not found:
        raise Empty(node.span, key="dtypes", remedy="name at least one")
    return tuple(dtype for dtype in DTYPES if dtype in found)


def inputs(node: yaml.Node) -> tuple[Input, ...]:
    """Return the tensor arguments, in the order written."""
    example = "inputs: {x: {shape: [128, 64], fill: randn}}"
    found: list[Input] = []
    splits: dict[int, Span] = {}
    entries = as_mapping(node, "inputs", "a map from names", example).entries
    for key, span, value in tensors_of(entries):
        check_variable(key, span)
        parts = as_mapping(value, f"the input {key}", "a map", example).entries
        places = {part: place for part, place, _ in parts}
        if "split" in places:
            splits[len(found)] = places["split"]
        found.append(_input(key, span, parts))
    if not found:
        raise _no_tensor(node.span, len(entries))
    if len(found) > MAX_INPUTS:
        size, remedy = f"{len(found)} tensors", "compute it in several specs"
        raise TooLarge(node.span, what="the list of inputs", size=size, limit=MAX_INPUTS, remedy=remedy)
    for index, place in splits.items():
        if (index, len(entries)) != (1, 2):
            name_, position, total = found[index].name, index + 1, len(entries)
            raise MisplacedSplit(place, name=name_, position=position, number=total)
    return tuple(found)


def _input(key: str, span: Span, entries: Sequence[Entry]) -> Input:
    """Return one tensor argument."""
    values: dict[str, Any] = {"shape": DEFAULT_SHAPE, "fill": Fill("randn")}
    for part, place, content in entries:
        if part not in PARTS:
            remedy = nearest(part, tuple(PARTS), "it has shape, fill, split, dtype and index")
            raise WrongValue(place, value=part, key="part of an input", remedy=remedy)
        values[part] = PARTS[part](content)
    made = Input(key, span=span, **values)
    filled = [place for part, place, _ in entries if part == "fill"]
    if made.is_mask and filled:
        what = "a mask" if made.index is None else "an index"
        problem = f"{key!r} is {what}, which get_inputs fills by itself"
        raise MisplacedMask(filled[0], problem=problem, remedy="leave out the fill")
    return made


def _no_tensor(span: Span, numbers: int) -> FusegenError:
    """Return the mistake of inputs without a tensor."""
    if numbers:
        example = "inputs: {x: {shape: [128, 64]}, s: 2.5}"
        return WrongType(span, key="one of the inputs", expected="a tensor", example=example)
    return Empty(span, key="inputs", remedy="name at least one, or leave the key out")


def params(node: yaml.Node) -> tuple[Param, ...]:
    """Return the scalar arguments, in the order written."""
    entries = as_mapping(node, "params", "a map from names to numbers", "params: {alpha: 1.0}").entries
    found = []
    for key, span, value in entries:
        check_variable(key, span)
        check_attribute(key, span)
        if not isinstance(value, yaml.Scalar):
            what = "a map" if isinstance(value, yaml.Mapping) else "a list"
            raise NotScalar(value.span, key=key, found=what)
        scalar = as_scalar(value, key, "a number", "params: {alpha: 1.0}")
        if scalar.quoted:
            raise WrongType(scalar.span, key=key, expected="a number", example="params: {alpha: 1.0}")
        found.append(Param(key, scalars.real(scalar.text, scalar.span, key), span))
    return tuple(found)


def reference(node: yaml.Node) -> str:
    """Return a dotted name below torch, with keyword arguments in single quotes where it has any."""
    scalar = as_scalar(node, "reference", "a dotted name", "reference: torch.nn.functional.relu")
    dotted, _, arguments = scalar.text.partition("(")
    keywords = re.findall(r"(\w+)=", arguments)
    words = [*dotted.split("."), *keywords]
    matches = re.fullmatch(REFERENCE_PATTERN, scalar.text)
    if not matches or len(set(keywords)) < len(keywords) or any(map(keyword.iskeyword, words)):
        callables = "torch.sigmoid or torch.nn.functional.gelu(approximate='tanh')"
        remedy = f"a reference is a callable of PyTorch, such as {callables}"
        raise WrongValue(scalar.span, value=scalar.text[:80], key="reference", remedy=remedy)
    return re.sub(", ?", ", ", scalar.text).replace('"', "'")


def assume(
    node: yaml.Node, known: Sequence[str], masks: Collection[str]
) -> tuple[tuple[str, Interval], ...]:
    """Return the interval each input, parameter or buffer is promised to lie in; masks lie in none."""
    entries = as_mapping(
        node, "assume", "a map from inputs to intervals", 'assume: {x: "[0, inf)"}'
    ).entries
    found = []
    for key, span, value in entries:
        if key not in known:
            hint = nearest(key, known, f"the inputs are {', '.join(known)}")
            raise NotAnInput(span, name=key, near=hint)
        if key in masks:
            problem = f"{key!r} is a mask, which lies in no interval"
            raise MisplacedMask(span, problem=problem, remedy="remove it; a mask is True or False")
        found.append((key, read_interval(as_scalar(value, key, "an interval", 'assume: {x: "[0, inf)"}'))))
    return tuple(found)


def accept(node: yaml.Node) -> tuple[tuple[str, str], ...]:
    """Return the reasons for which warnings are accepted, in the order of `spec.ACCEPTED`."""
    example = "accept: {gradient: eager loses the same digits next to 3}"
    found = {}
    for key, span, value in as_mapping(node, "accept", "a map from outputs to reasons", example).entries:
        if key not in ACCEPTED:
            remedy = nearest(key, ACCEPTED, f"it is one of {', '.join(ACCEPTED)}")
            raise WrongValue(span, value=key[:80], key="key of accept", remedy=remedy)
        as_scalar(value, f"the reason for {key}", "a line of text", example)
        found[key] = text(value, f"the reason for {key}")
    if not found:
        raise Empty(node.span, key="accept", remedy=f"name what is accepted, for example  {example}")
    return tuple((key, found[key]) for key in ACCEPTED if key in found)


def where(
    node: yaml.Node, variables: Sequence[str], collecting: Callable[[], AbstractContextManager[None]]
) -> tuple[Named, ...]:
    """Return the named steps; each may use the inputs, the parameters and the steps before it."""
    found: list[Named] = []
    scope = list(variables)
    for key, span, value in as_mapping(node, "where", "a map from names", "where: {u: x + 3}").entries:
        with collecting():
            check_variable(key, span)
            scalar = as_scalar(value, key, "a formula", "where: {u: x + 3}")
            found.append(Named(key, parse_formula(scalar.text, scalar.at, scope), span))
        scope.append(key)
    return tuple(found)


def keys(node: yaml.Node) -> tuple[str, ...]:
    """Return the keys of a map, also where their values are wrong; none of anything else."""
    return tuple(key for key, _, _ in node.entries) if isinstance(node, yaml.Mapping) else ()
