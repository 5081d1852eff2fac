"""The C++ of kernels by curves: a type for each curve, and what the kernel's own type says of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusegen.codegen.render.texts import CurvesText, CurveText

NOTE = "Functions of one value, which piecewise cubics give in float."


def kernels(curves: Sequence[CurveText]) -> list[dict[str, Any]]:
    """Return the values for the template of kernels: the curves of both."""
    return [
        {
            "functor": curve.functor,
            "notes": curve.notes,
            "remarks": (NOTE,) * (place == 0),
            "definitions": (curve.definition,) * bool(curve.definition),
            "struct": _struct(curve),
        }
        for place, curve in enumerate(curves)
    ]


def _struct(curve: CurveText) -> str:
    """Return the type that the pieces of a curve are fitted of."""
    step, low, high = curve.grid
    return f"FUSEGEN_CURVE({curve.functor}, 1 / {1 / step}f, {low}, {high}, {curve.value})"


def members(of: CurvesText | None) -> list[str]:
    """Return the members of a kernel's type that are about its curves."""
    if of is None:
        return []
    return [f"FUSEGEN_BY_CURVES({of.element}, {', '.join(of.functors)})"]
