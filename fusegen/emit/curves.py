"""The text of a kernel by curves, as the printers write it."""

from __future__ import annotations

from dataclasses import replace

from fusegen.facts import Curve, Curves
from fusegen.ir import Device, Kernel
from fusegen.method import Arithmetic, Pass, Segmented
from fusegen.pipeline import Compiled
from fusegen.printers.cpp import CppPrinter
from fusegen.render import CurvesText, CurveText
from fusegen.segments import VALUE

OTHERWISE = {Arithmetic.FLOAT: "float", Arithmetic.DOUBLE: "double", Arithmetic.PLAIN_DOUBLE: "PlainDouble"}


def taken(of: Compiled, which: Pass) -> Curves | None:
    """The curves of a pass, if its float32 results on CUDA come from them."""
    method = of.plan.in_bits(which, Device.CUDA, 32)
    return of.facts[which].curves if isinstance(method, Segmented) else None


def kernels(of: Compiled) -> tuple[Kernel, ...]:
    """The kernels that call curves, and the curves."""
    found = [curves for which in Pass if (curves := taken(of, which))]
    return tuple(kernel for each in found for kernel in (each.kernel, *(c.kernel for c in each.curves)))


def curves_text(of: Compiled, which: Pass) -> CurvesText | None:
    """The text of a pass by curves, if its float32 results on CUDA come from them."""
    found, method = taken(of, which), of.plan.in_bits(which, Device.CUDA, 32)
    if found is None or not isinstance(method, Segmented):
        return None
    printer, every = CppPrinter(found.kernel), _every(of)
    return CurvesText(
        OTHERWISE[method.otherwise.arithmetic],
        printer.definition(),
        printer.element(),
        tuple(_curve(of.spec.name, every.index(curve), curve) for curve in found.curves),
    )


def _every(of: Compiled) -> list[Curve]:
    """The curves of both passes, each once."""
    both = [curves for which in Pass if (curves := taken(of, which))]
    return list(dict.fromkeys(curve for each in both for curve in each.curves))


def _curve(spec: str, place: int, of: Curve) -> CurveText:
    kernel = replace(of.kernel, name=f"{spec}_curve{place}")
    printer, grid = CppPrinter(kernel), (of.step, of.low, of.high)
    if kernel.inputs == (VALUE,) and not kernel.lets:
        return CurveText(f"Curve{place}", printer.result(kernel.results[0]), "", grid)
    return CurveText(f"Curve{place}", f"{kernel.name}({VALUE})", printer.definition(), grid)
