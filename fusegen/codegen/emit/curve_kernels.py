"""The text of kernels by curves, as the printers write it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from textwrap import wrap

from fusegen.algebra.segments import VALUE
from fusegen.codegen.printers.cpp import CppPrinter
from fusegen.codegen.printers.notation import term
from fusegen.codegen.render import CurvesText, CurveText
from fusegen.compiler.pipeline import Compiled
from fusegen.core.facts import Curve, Curves
from fusegen.core.ir import Kernel
from fusegen.core.method import Pass, Segmented
from fusegen.core.targets import Device
from fusegen.core.term import Program

WIDTH = 120  # of a comment


def taken(of: Compiled, which: Pass) -> Curves | None:
    """Return the curves that give a pass's float32 results on CUDA."""
    match of.plan.in_bits(which, Device.CUDA, 32), of.facts[which].curves:
        case Segmented(), Curves() as curves:
            return curves
    return None


def curves_texts(of: Compiled) -> tuple[dict[Pass, CurvesText], tuple[CurveText, ...]]:
    """Return the texts of the passes by curves, and of the curves of both, each once."""
    both = {which: found for which in Pass if (found := taken(of, which))}
    every = dict.fromkeys(curve for curves in both.values() for curve in curves.curves)
    texts = {curve: _curve(of.spec.name, place, curve) for place, curve in enumerate(every)}
    return {which: _text(found, texts) for which, found in both.items()}, tuple(texts.values())


def kernels(of: Compiled) -> tuple[Kernel, ...]:
    """Return the kernels that call curves, and the curves."""
    found = [found for which in Pass if (found := taken(of, which))]
    return tuple(kernel for each in found for kernel in (each.kernel, *(c.kernel for c in each.curves)))


def _text(of: Curves, texts: Mapping[Curve, CurveText]) -> CurvesText:
    """Return the text of a pass by curves."""
    printer = CppPrinter(of.kernel)
    return CurvesText(
        printer.definition(),
        printer.element(),
        tuple(texts[curve].functor for curve in of.curves),
    )


def _curve(spec: str, place: int, of: Curve) -> CurveText:
    """Return the text of a curve: its value is an expression, or the call of a function."""
    kernel, functor = replace(of.kernel, name=f"{spec}_curve{place}"), f"Curve{place}"
    printer, grid = CppPrinter(kernel), (of.step, of.low, of.high)
    if kernel.inputs == (VALUE,) and not kernel.lets:
        return CurveText(functor, printer.result(kernel.results[0]), (), "", grid)
    notes = tuple(wrap(f"{functor}: {_formula(of.segment)}", WIDTH - len("// ")))
    return CurveText(functor, f"{kernel.name}({VALUE})", notes, printer.definition(), grid)


def _formula(of: Program) -> str:
    """Return the formula of a segment, its steps behind the result."""
    return ",  ".join(
        [*map(term, of.results), *(f"{let.name} = {term(let.term)}" for let in reversed(of.lets))]
    )
