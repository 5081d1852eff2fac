"""The text of kernels by curves, as the printers write it."""

from collections.abc import Mapping
from dataclasses import replace
from textwrap import wrap
from typing import NamedTuple

from fusegen.algebra.segments import VALUE
from fusegen.codegen.printed import Printed
from fusegen.codegen.printers.cpp import CppPrinter
from fusegen.codegen.printers.notation import term
from fusegen.compiler.pipeline import Compiled
from fusegen.core.facts import Curve, Curves
from fusegen.core.ir import Kernel
from fusegen.core.method import Pass, Segmented
from fusegen.core.targets import Device
from fusegen.core.term import Program

WIDTH = 120  # of a comment
NOTE = "Functions of one value, which piecewise cubics give in float."


class PassByCurves(NamedTuple):
    """The kernels that curves add to a pass."""

    definition: str  # the function that calls the curves
    struct: str  # the member of the type that calls this function


def taken(of: Compiled, which: Pass) -> Curves | None:
    """Return the curves that give a pass's float32 results on CUDA."""
    match of.plan.in_bits(which, Device.CUDA, 32), of.facts[which].curves:
        case Segmented(), Curves() as curves:
            return curves
    return None


def curves_printed(of: Compiled) -> tuple[dict[Pass, PassByCurves], tuple[Printed, ...]]:
    """Return what curves add to the types of the passes, and the types of the curves of both, each once."""
    both = {which: found for which in Pass if (found := taken(of, which))}
    every = dict.fromkeys(curve for curves in both.values() for curve in curves.curves)
    printed = {curve: _curve(of.spec.name, place, curve) for place, curve in enumerate(every)}
    passes = {which: _pass(found, printed) for which, found in both.items()}
    return passes, tuple(printed.values())


def kernels(of: Compiled) -> tuple[Kernel, ...]:
    """Return the kernels that call curves, and the curves."""
    found = [found for which in Pass if (found := taken(of, which))]
    return tuple(kernel for each in found for kernel in (each.kernel, *(c.kernel for c in each.curves)))


def _pass(of: Curves, printed: Mapping[Curve, Printed]) -> PassByCurves:
    printer, functors = CppPrinter(of.kernel), [printed[curve].functor for curve in of.curves]
    member = f"FUSEGEN_BY_CURVES({', '.join([printer.element(), *functors])})"
    return PassByCurves(printer.definition(), member)


def _curve(spec: str, place: int, of: Curve) -> Printed:
    """Return the type of a curve: its value is an expression, or the call of a function."""
    kernel, functor = replace(of.kernel, name=f"{spec}_curve{place}"), f"Curve{place}"
    printer = CppPrinter(kernel)
    alone = kernel.inputs == (VALUE,) and not kernel.lets
    value = printer.result(kernel.results[0]) if alone else f"{kernel.name}({VALUE})"
    functions = () if alone else (printer.definition(),)
    notes = () if alone else tuple(wrap(f"{functor}: {_formula(of.segment)}", WIDTH - len("// ")))
    struct = f"FUSEGEN_CURVE({functor}, 1 / {1 / of.step}f, {of.low}, {of.high}, {value})"
    return Printed(functor, functions, notes, struct, (NOTE,) * (place == 0))


def _formula(of: Program) -> str:
    return ",  ".join(
        [*map(term, of.results), *(f"{let.name} = {term(let.term)}" for let in reversed(of.lets))]
    )
