"""The dimensions that a spec reduces: those of a row, neighbours in its first input."""

from collections.abc import Iterator

from fusegen.core.spec import MAX_DIMENSIONS, Over, Spec
from fusegen.errors import Empty, FusegenError, NotARow, NotWithRows, WrongType
from fusegen.language.parse import document as yaml
from fusegen.language.parse.shapes import as_scalar, as_sequence

EXAMPLE, REST = "over: [-1]", "..."


def read_over(node: yaml.Node) -> Over:
    """Return the dimensions of a row.

    ``[-2, -1]`` are the last two, ``[1, ...]`` all from dimension 1 on, whatever the rank; ``[1]`` is one.
    """
    items = [_item(item) for item in as_sequence(node, "over", "a list of dimensions", EXAMPLE).items]
    if not items:
        raise Empty(node.span, key="over", remedy=f"name the dimensions of a row, as in  {EXAMPLE}")
    first, *others = [0, REST] if items == [REST] else items
    if isinstance(first, int) and -MAX_DIMENSIONS <= first < MAX_DIMENSIONS:
        last = first + len(items)
        if (others == [REST] and first >= 0) or (items == [*range(first, last)] and last == 0):
            return Over(first)
        if items == [*range(first, last)] and not first < 0 < last:
            return Over(first, len(items))
    shown = ", ".join(map(str, items))
    raise NotARow(node.span, dims=f"[{shown}]")


def _item(node: yaml.Node) -> int | str:
    scalar = as_scalar(node, "over", "a dimension", EXAMPLE)
    if scalar.text == REST:
        return REST
    digits = scalar.text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 2:
        raise WrongType(node.span, key="a dimension of over", expected="a whole number", example=EXAMPLE)
    return int(scalar.text)


def rows_are_reduced(spec: Spec) -> Iterator[FusegenError]:
    """Yield mistakes of a spec with rows: their dimensions, and what no kernel of rows takes."""
    if spec.over is None:
        return
    if spec.numerics == "eager":
        remedy = (
            "eager's order of summation depends on the device and the number of rows; leave numerics out"
        )
        yield NotWithRows(spec.span, what="numerics: eager", remedy=remedy)
    for each in spec.inputs:
        if each.split is not None:
            yield NotWithRows(each.span, what="split", remedy="declare two inputs")
    first = spec.inputs[0]
    rank = len(first.shape)
    row = spec.over.of(rank)
    if not 0 <= row.start < row.stop <= rank:
        named = ", ".join(map(str, spec.over.named)) or f"{spec.over.first} and those behind it"
        yield NotARow(first.span, dims=f"{named} of the shape {list(first.shape)}")
