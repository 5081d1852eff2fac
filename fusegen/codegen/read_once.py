"""Two phases of a row as one loop, on CUDA: its largest element, and the sum of exponentials below it."""

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite

from fusegen.codegen.printed import FUNCTORS
from fusegen.codegen.row_exponentials import inlined
from fusegen.compiler.row_kernels import CompiledRows, PhaseKernels
from fusegen.core.folds import AMAX, SUM, Level
from fusegen.core.ir import Call, Const, Ref
from fusegen.core.method import Pass
from fusegen.core.targets import Device


def headers(of: CompiledRows, device: Device) -> list[str]:
    """Return the header of such a loop, if a spec's kernels have one."""
    terms = ("largest_and_terms", "wide_terms")[of.is_wide]
    return [f"cuda/{terms}.cuh"] if _found(of, device) else []


def loops(of: CompiledRows, which: Pass, device: Device, types: Sequence[str]) -> Sequence[str]:
    """Return the types of a pass's phases, two as one where such a loop runs them."""
    found = _found(of, device) if which is Pass.FORWARD else None
    if found is None:
        return types
    place, value = found
    loop = f"LargestAndSum<{types[place]}, {types[place + 1]}, &{FUNCTORS[which]}Values::{value}>"
    return [*types[:place], loop, *types[place + 2 :]]


def _found(of: CompiledRows, device: Device) -> tuple[int, str] | None:
    """Return the place of the first of both phases, and the value of a row that the second one reads.

    Results are values of rows, whose elements lie side by side: else a row is read again to store them.
    """
    over = of.spec.over
    if device is not Device.CUDA or of.stored is not Level.ROW or of.in_parts or of.scans:
        return None
    if over is None or over.count:
        return None
    for place, (top, terms) in enumerate(pairwise(of.kernels[Pass.FORWARD, device])):
        if value := _shift(top, terms):
            return place, value
    return None


def _shift(top: PhaseKernels, terms: PhaseKernels) -> str | None:
    """Return what exponentials that are summed subtract from the elements whose largest one is found."""
    folds = [each.phase.folds for each in (top, terms) if not each.phase.picks]
    if folds != [(AMAX,), (SUM,)]:
        return None
    match inlined(terms.elements, terms.elements.results[0]):
        case Call("exp", (Call("sub", (Ref() as x, Ref(value))),)) if top.elements.results == (x,):
            return value if _is_largest(top, value) else None
    return None


def _is_largest(of: PhaseKernels, value: str) -> bool:
    """Return True if a value of a row is the largest element, or that or a number.

    Of another one, -infinity less it may be NaN where the largest element less it is not.
    """
    if of.row is None or value not in of.phase.values:
        return value in of.phase.folded
    match inlined(of.row, of.row.results[of.phase.values.index(value)]):
        case Call("where", (_, Ref(name), Const(number))):
            return name in of.phase.folded and isfinite(number)
    return False
