"""Two phases of a row as one loop, on CUDA: sums, and sums of differences to a mean that these give."""

from collections.abc import Sequence
from itertools import pairwise

from fusegen.codegen.printed import FUNCTORS
from fusegen.codegen.row_exponentials import inlined
from fusegen.compiler.row_kernels import CompiledRows, PhaseKernels
from fusegen.core.folds import SUM
from fusegen.core.ir import Call, Expr, Ref
from fusegen.core.method import Pass
from fusegen.core.targets import Device


def loops(of: CompiledRows, which: Pass, device: Device, types: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the type of a pass's values and those of its phases, where two are one loop.

    Where some results are values of rows, phases that store or load these know the values as they are.
    """
    values = f"{FUNCTORS[which]}Values"
    if not device.launched or of.in_parts or of.scans or of.is_mixed:
        return values, types
    for place, (sums, centred) in enumerate(pairwise(of.kernels[which, device])):
        if found := _found(sums, centred):
            several = ", ".join([*types[place : place + 2], f"&{values}::{found[0]}", *found[1:]])
            return f"Shifted<{values}>", [*types[:place], f"CentredSums<{several}>", *types[place + 2 :]]
    return values, types


def _found(sums: PhaseKernels, centred: PhaseKernels) -> Sequence[str] | None:
    """Return the value that differences are taken to, the place of its sum, and those of factors."""
    made = [name for name in (*sums.phase.folded, *sums.phase.values) if name in centred.elements.params]
    if {*sums.phase.folds, *centred.phase.folds} != {SUM} or len(made) != 1:
        return None
    summed, results = (
        [_bare(inlined(of.elements, each)) for each in of.elements.results] for of in (sums, centred)
    )
    for place, x in enumerate(summed):
        difference = Call("sub", (x, Ref(made[0])))
        factors = [factor for each in results if (factor := _factor(each, x, difference, summed))]
        if len(factors) == len(results):
            return [made[0], str(place), *factors]
    return None


def _bare(of: Expr) -> Expr:
    """Return an expression without the types of its values."""
    match of:
        case Ref(name):
            return Ref(name)
        case Call(op, args):
            return Call(op, tuple(_bare(arg) for arg in args))
    return of


def _factor(of: Expr, x: Expr, difference: Expr, summed: Sequence[Expr]) -> str | None:
    """Return the place of the sum of what is multiplied with a difference, if it is one: x for a square."""
    match of:
        case Call("square", (base,)) if base == difference:
            return str(summed.index(x))
        case Call("mul", (one, other)) if difference in (one, other):
            factor = one if other == difference else other
            return str(summed.index(factor)) if factor in summed and factor != x else None
    return None
