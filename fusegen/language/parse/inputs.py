"""The values of an input's fields: its shape, fill, split and interval."""

import math
import re
from collections.abc import Iterator, Sequence

from fusegen.core.interval import INFINITY, Bound, Interval, between
from fusegen.core.spec import MAX_DIMENSIONS, MAX_ELEMENTS, Fill, Param
from fusegen.errors import Span, TooLarge, WrongValue
from fusegen.language.parse import document as yaml
from fusegen.language.parse import scalars
from fusegen.language.parse.names import check_variable
from fusegen.language.parse.shapes import as_scalar, as_sequence

Entry = tuple[str, Span, yaml.Node]
DIMENSIONS = range(-MAX_DIMENSIONS, MAX_DIMENSIONS)


def read_shape(node: yaml.Node) -> tuple[int, ...]:
    """Return the shape of an input."""
    found = []
    for item in as_sequence(node, "shape", "a list of sizes", "shape: [128, 64]").items:
        scalar = as_scalar(item, "a size", "a whole number", "shape: [128, 64]")
        size_ = scalars.whole(scalar)
        if size_ is None or size_ < 0:
            remedy = "a size is a whole number, zero or more"
            raise WrongValue(scalar.span, value=scalar.text[:80], key="size", remedy=remedy)
        if size_ > MAX_ELEMENTS:
            size, limit = scalar.text[:80], f"{MAX_ELEMENTS:,}"
            remedy = "no device holds such a tensor"
            raise TooLarge(scalar.span, what="the size", size=size, limit=limit, remedy=remedy)
        found.append(size_)
    if len(found) > MAX_DIMENSIONS:
        size, remedy = f"{len(found)} dimensions", "use fewer"
        raise TooLarge(node.span, what="the shape", size=size, limit=MAX_DIMENSIONS, remedy=remedy)
    if math.prod(found) > MAX_ELEMENTS:
        size, remedy = f"{math.prod(found):.3g} elements", "no device holds such a tensor"
        limit = f"{MAX_ELEMENTS:,}"
        raise TooLarge(node.span, what="the shape", size=size, limit=limit, remedy=remedy)
    return tuple(found)


def read_fill(node: yaml.Node) -> Fill:
    """Return the random numbers that an input is filled with."""
    scalar = as_scalar(node, "fill", "rand, randn or uniform(a, b)", "fill: randn")
    if scalar.text in ("rand", "randn"):
        return Fill(scalar.text)
    match = re.fullmatch(r"uniform\(([^,()]+),([^,()]+)\)", scalar.text)
    if not match:
        remedy = "it is rand, randn or uniform(a, b)"
        raise WrongValue(scalar.span, value=scalar.text[:80], key="fill", remedy=remedy)
    low, high = (scalars.real(end.strip(), scalar.span, "fill") for end in match.groups())
    if low >= high:
        remedy = "the first number is the smaller one"
        raise WrongValue(scalar.span, value=scalar.text, key="fill", remedy=remedy)
    return Fill("uniform", low, high)


def read_split(node: yaml.Node) -> int:
    """Return the dimension that an input is split along."""
    scalar = as_scalar(node, "split", "a whole number", "split: -1")
    found = scalars.whole(scalar)
    if found is None or found not in DIMENSIONS:
        remedy = f"it is a dimension from {DIMENSIONS[0]} to {DIMENSIONS[-1]}, such as -1 for the last"
        raise WrongValue(scalar.span, value=scalar.text[:80], key="split", remedy=remedy)
    return found


def read_dtype(node: yaml.Node) -> str:
    """Return the dtype of a mask."""
    scalar = as_scalar(node, "dtype", "bool", "dtype: bool")
    if scalar.text != "bool":
        remedy = "a mask has  dtype: bool; other tensors have those listed under `dtypes`"
        raise WrongValue(scalar.span, value=scalar.text[:80], key="dtype of an input", remedy=remedy)
    return scalar.text


def read_index(node: yaml.Node) -> str:
    """Return the input whose rows an index picks an element of."""
    return as_scalar(node, "index", "the name of the first input", "index: logits").text


def tensors_of(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Return the entries of `inputs` that are tensors; a number is a scalar of forward."""
    return (entry for entry in entries if _number(entry[2]) is None)


def read_numbers(node: yaml.Node) -> tuple[Param, ...]:
    """Return the scalars of forward, with their places among its arguments."""
    found = []
    for position, (key, span, value) in enumerate(node.entries if isinstance(node, yaml.Mapping) else ()):
        scalar = _number(value)
        if scalar is not None:
            check_variable(key, span)
            number = scalars.real(scalar.text, scalar.span, f"the input {key}")
            found.append(Param(key, number, span, position))
    return tuple(found)


def _number(node: yaml.Node) -> yaml.Scalar | None:
    """Return the scalar that may be a number, which any plain one may; None for other nodes."""
    plain = isinstance(node, yaml.Scalar) and not node.quoted and bool(node.text.strip())
    return node if plain and isinstance(node, yaml.Scalar) else None


def read_interval(scalar: yaml.Scalar) -> Interval:
    """Return an interval that an input is assumed to lie in."""
    match = re.fullmatch(r"([\[(])([^,]+),([^,]+)([\])])", scalar.text.strip())
    if not match:
        remedy = "write it as [0, 1], (0, 1) or [0, inf)"
        raise WrongValue(scalar.span, value=scalar.text[:80], key="interval", remedy=remedy)
    low, high = (_end(text_.strip(), scalar.span) for text_ in match.group(2, 3))
    if low >= high:
        remedy = "the first end is the smaller one"
        raise WrongValue(scalar.span, value=scalar.text, key="interval", remedy=remedy)
    return between(low, high)


def _end(written: str, span: Span) -> Bound:
    infinities = {"inf": INFINITY, "+inf": INFINITY, "-inf": -INFINITY}
    known = written in infinities
    return infinities[written] if known else scalars.exact(written, span, "the end of an interval")
