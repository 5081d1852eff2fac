"""The dimensions that a spec reduces: those of a row, the last ones of its first input."""

from collections.abc import Iterator

from fusegen.core.spec import MAX_DIMENSIONS, Spec
from fusegen.errors import Empty, FusegenError, NotARow, NotWithRows, WrongType
from fusegen.language.parse import document as yaml
from fusegen.language.parse.shapes import as_scalar, as_sequence

EXAMPLE, REST = "over: [-1]", "..."


def read_over(node: yaml.Node) -> int:
    """Return the first dimension of a row, which has all behind it.

    ``[-1]`` is -1 and ``[-2, -1]`` is -2; ``[1, ...]`` is 1, whatever the rank.
    """
    items = [_item(item) for item in as_sequence(node, "over", "a list of dimensions", EXAMPLE).items]
    if not items:
        raise Empty(node.span, key="over", remedy=f"name the dimensions of a row, as in  {EXAMPLE}")
    if items == [REST]:
        return 0
    first, *others = items
    if isinstance(first, int) and 0 <= first < MAX_DIMENSIONS and others == [REST]:
        return first
    if isinstance(first, int) and first >= -MAX_DIMENSIONS and items == list(range(first, 0)):
        return first
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
    if spec.over >= len(first.shape) or -spec.over > len(first.shape):
        yield NotARow(first.span, dims=f"{spec.over} and those behind it of the shape {list(first.shape)}")
