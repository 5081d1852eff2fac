"""The C++ types of methods, which say in the type of a kernel how its results are obtained.

Formula<float>
AtDefaults<Table, Verified<FastFloat, double>>
ByWidth<Table, PiecewiseUniform, Formula<double>>
"""

from collections.abc import Mapping

from fusegen.core.dtypes import ELEMENTS
from fusegen.core.ir import Math
from fusegen.core.method import (
    Arithmetic,
    AtDefaults,
    Formula,
    Grid,
    Method,
    Piecewise,
    Segmented,
    Table,
    Verified,
)
from fusegen.core.targets import Device

WIDTHS = {16: "Formula<float>", 32: "Formula<float>", 64: "Formula<double>"}  # of call.h, by bits
GRIDS = {Grid.UNIFORM: "PiecewiseUniform", Grid.OCTAVES: "PiecewiseOctaves"}
OWN_TYPES = {Arithmetic.FAST_FLOAT: "FastFloat", Arithmetic.PLAIN_DOUBLE: "PlainDouble"}


def method_types(methods: Mapping[str, Method], device: Device) -> str:
    """Return the C++ type of a kernel's methods; a width that has none takes the default of call.h."""
    own = {ELEMENTS[dtype].bits: method for dtype, method in methods.items()}
    found = WIDTHS | {bits: method_type(method, bits, device) for bits, method in own.items()}
    return f"ByWidth<{', '.join(found.values())}>"


def method_type(method: Method, bits: int, device: Device) -> str:
    """Return the C++ type of the method of a kernel's results, for elements of a width in bits."""
    match method:
        case Formula(arithmetic):
            wider = bits < 64 and arithmetic.variant.math is Math.DOUBLE
            return f"{device.wider if wider else 'Formula'}<{scalar(arithmetic)}>"
        case Table():
            return "Table"
        case Piecewise(grid) | Verified(Piecewise(grid)):
            return GRIDS[grid]
        case Segmented(Formula(arithmetic)):
            return f"PiecewiseSegments<{scalar(arithmetic)}>"
        case Verified(Formula(fast), Formula(exact)):
            return f"Verified<{scalar(fast)}, {scalar(exact)}>"
        case AtDefaults(then, otherwise):
            return f"AtDefaults<{method_type(then, bits, device)}, {method_type(otherwise, bits, device)}>"
    raise NotImplementedError(method)


def scalar(arithmetic: Arithmetic) -> str:
    """Return the C++ type that an arithmetic computes in."""
    return OWN_TYPES.get(arithmetic, arithmetic.variant.math.value)
