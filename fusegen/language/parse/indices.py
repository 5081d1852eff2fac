"""Laws of indices: inputs of an integer for each row, as `target` in ``logits[target]``."""

import math
from collections.abc import Iterator

from fusegen.core.folds import GATHER
from fusegen.core.spec import Input, Spec
from fusegen.core.tensor_shapes import first_shape
from fusegen.core.term import Name, SpecCall, walk
from fusegen.errors import FusegenError, MisplacedIndex
from fusegen.language.parse.checks import terms_of

EXAMPLE = "target: {shape: [4096], index: logits}"


def indices_are_placed(spec: Spec) -> Iterator[FusegenError]:
    """Yield one mistake for each index that no kernel takes, and for each read of what is none."""
    for each in spec.indices:
        for problem, remedy in _problems(spec, each):
            yield MisplacedIndex(each.span, problem=problem, remedy=remedy)
            break
    names = {each.name for each in spec.indices}
    if spec.divisor and not (names and spec.divisor in {each.name for each in spec.inputs[1:-1]}):
        problem = f"{spec.divisor!r} is no tensor between the first one and an index"
        yield MisplacedIndex(spec.at("reduction"), problem=problem, remedy="write  reduction: mean")
    for part in (part for term in terms_of(spec) for part in walk(term)):
        if isinstance(part, SpecCall) and part.spec == GATHER and len(part.args) > 1:
            index = part.args[1]
            if not (isinstance(index, Name) and index.name in names):
                shown = repr(index.name) if isinstance(index, Name) else "what stands in the brackets"
                problem = f"{shown} is no index"
                yield MisplacedIndex(part.span, problem=problem, remedy=f"declare  {EXAMPLE}")


def _problems(spec: Spec, each: Input) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with an index, and how to right it."""
    first, whole = spec.inputs[0], first_shape(spec) or spec.inputs[0].shape
    shape = spec.over.parted(whole)[0] if spec.over else each.shape
    if spec.over is None:
        yield f"{each.name!r} picks elements of rows, and this spec has no rows", "add  over: [-1]"
    if each.dtype is not None:
        yield f"{each.name!r} is an index and a mask", "leave out the dtype"
    if each is first or each.index != first.name:
        yield (
            f"{each.name!r} is an index of {each.index!r}",
            f"an index is of the first input, {first.name!r}",
        )
    if len(spec.indices) > 1 or each is not spec.tensors[-1]:
        yield f"{each.name!r} is not the last tensor", "a spec has one index, behind its other tensors"
    if each.shape != shape and math.prod(whole) > 0:
        yield f"the shape of {each.name!r} is not that of the rows", f"declare  shape: {list(shape)}"
