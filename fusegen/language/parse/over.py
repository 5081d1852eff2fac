"""The dimensions that a spec reduces: those of a row, neighbours in its first input."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fusegen.core.folds import REDUCTIONS
from fusegen.core.row_dimensions import DTYPES, Over
from fusegen.core.spec import MAX_DIMENSIONS, Spec, Step
from fusegen.core.spec import REDUCTIONS as WORDS
from fusegen.core.tensor_shapes import first_shape
from fusegen.core.term import SpecCall, walk
from fusegen.errors import (
    Empty,
    FusegenError,
    NoRowDtype,
    NoRows,
    NotARow,
    NotGroups,
    NotWithRows,
    NoValuesKept,
    WrongType,
)
from fusegen.language.parse import document as yaml
from fusegen.language.parse import fields
from fusegen.language.parse.checks import terms_of
from fusegen.language.parse.shapes import as_scalar, as_sequence

EXAMPLE, REST, TRUTHS = "over: [-1]", "...", ("true", "false")
GROUPS = re.compile(r"([0-9]{1,2}) */ *([A-Za-z_][A-Za-z0-9_]*)")


def read_over(node: yaml.Node, nodes: Mapping[str, yaml.Node]) -> Over:
    """Return the dimensions of a row, and what the keys beside it say of its values.

    ``[-2, -1]`` are the last two, ``[1, ...]`` all from dimension 1 on, whatever the rank; ``[1]`` is one.
    ``["1 / groups", ...]`` is a part of dimension 1, of as many as an argument says, and all behind it;
    ``[0, 2, ...]`` is all of a channel.
    """
    items = [_item(item) for item in as_sequence(node, "over", "a list of dimensions", EXAMPLE).items]
    if not items:
        raise Empty(node.span, key="over", remedy=f"name the dimensions of a row, as in  {EXAMPLE}")
    keeps = "keepdim" in nodes and fields.word(nodes["keepdim"], "keepdim", TRUTHS) == TRUTHS[0]
    dtype = fields.word(nodes["row_dtype"], "row_dtype", DTYPES) if "row_dtype" in nodes else ""
    return replace(_row(node, items), keeps=keeps, dtype=dtype)


def _row(node: yaml.Node, items: Sequence[int | str | Over]) -> Over:
    """Return the dimensions of a row that the items of a list say."""
    if items == [0, 2, REST]:
        return Over(0, of_channel=True)
    first, *others = [0, REST] if items == [REST] else items
    if isinstance(first, Over) and others == [REST]:
        return first
    if isinstance(first, int) and -MAX_DIMENSIONS <= first < MAX_DIMENSIONS:
        last = first + len(items)
        if (others == [REST] and first >= 0) or (items == [*range(first, last)] and last == 0):
            return Over(first)
        if items == [*range(first, last)] and not first < 0 < last:
            return Over(first, len(items))
    shown = ", ".join(map(str, items))
    raise NotARow(node.span, dims=f"[{shown}]")


def _item(node: yaml.Node) -> int | str | Over:
    scalar = as_scalar(node, "over", "a dimension", EXAMPLE)
    if scalar.text == REST:
        return REST
    if found := GROUPS.fullmatch(scalar.text):
        return Over(int(found[1]), groups=found[2])
    digits = scalar.text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 2:
        raise WrongType(node.span, key="a dimension of over", expected="a whole number", example=EXAMPLE)
    return int(scalar.text)


def read_reduction(node: yaml.Node) -> tuple[str, str]:
    """Return a reduction, and the tensor by whose sum a mean is divided, as in ``{mean: weight}``."""
    match node:
        case yaml.Mapping(((key, _, yaml.Scalar() as divisor),)) if key == "mean":
            return key, divisor.text
    return fields.word(node, "reduction", WORDS), ""


def with_parts(spec: Spec) -> Spec:
    """Return a spec without rows, of whose elements a reduction is asked, as one of the means of parts.

    Raises:
        NoRows: it reduces rows, besides.
    """
    if spec.over is not None or spec.reduction == "none":
        return spec
    calls = [part for term in terms_of(spec) for part in walk(term) if isinstance(part, SpecCall)]
    for call in [*calls, *(step.call for step in spec.chain if step.call)]:
        if call.spec in REDUCTIONS:
            raise NoRows(call.span, name=call.spec)
    mean = SpecCall("mean", (spec.formula,) if spec.formula else (), (), spec.span)
    chain = (*spec.chain, Step(mean, None, spec.span)) if spec.chain else ()
    return replace(spec, over=Over(-1, is_part=True), formula=mean if spec.formula else None, chain=chain)


def rows_are_reduced(spec: Spec) -> Iterator[FusegenError]:
    """Yield mistakes of a spec with rows: their dimensions, and what no kernel of rows takes."""
    if spec.over is None:
        return
    if spec.numerics == "eager" and not spec.results:
        remedy = (
            "eager's order of summation depends on the device and the number of rows; leave numerics out"
        )
        yield NotWithRows(spec.at("numerics"), what="numerics: eager", remedy=remedy)
    for each in spec.inputs:
        if each.split is not None and not spec.results:
            yield NotWithRows(each.span, what="split", remedy="declare two inputs")
    first, known = spec.inputs[0], first_shape(spec)
    shape = known or first.shape
    rank = len(shape)
    row = spec.over.of(rank)
    if not row or not 0 <= row[0] < len(row) + row[0] <= rank or rank < 2 * spec.over.of_channel:
        named = ", ".join(map(str, spec.over.named)) or f"{spec.over.first} and those behind it"
        yield NotARow(first.span, dims=f"{named} of the shape {list(shape)}")
    elif spec.over.groups:
        yield from _groups_divide(spec, known[row[0]] if known else None)
    if spec.over.dtype and spec.over.of_channel:
        yield NoRowDtype(spec.at("row_dtype"), found="batch statistics have none of their own")
    if spec.over.keeps and (spec.over.groups or spec.over.of_channel):
        yield NoValuesKept(
            spec.at("keepdim"), found="a part of a dimension, or all but one, is no row to keep"
        )
    elif spec.over.keeps and spec.reduction != "none":
        yield NoValuesKept(spec.at("keepdim"), found=f"reduction: {spec.reduction} makes one of them")


def _groups_divide(spec: Spec, size: int | None) -> Iterator[FusegenError]:
    """Yield mistakes of a spec whose rows are parts of a dimension, of some size if it is known."""
    assert spec.over is not None
    name = spec.over.groups
    argument = next((each for each in spec.init if each.symbol == name), None)
    count = argument.default if argument else None
    if argument is None or not isinstance(count, int) or isinstance(count, bool) or count < 1:
        problem = f"{name} is no positive whole number of `init`"
        yield NotGroups(spec.at("over"), problem=problem, size=size or "channels")
    elif size is not None and size % count:
        yield NotGroups(argument.span, problem=f"{count} groups do not divide {size}", size=size)
    if any(scalar.name == name for scalar in spec.scalars):
        yield NotWithRows(spec.span, what=f"a formula of {name}", remedy="it may count the groups only")
    for each in spec.indices:
        yield NotWithRows(each.span, what="an index", remedy="groups of a dimension have none")
