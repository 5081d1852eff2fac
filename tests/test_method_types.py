"""The C++ type of a method, from the method, the width of an element and the device alone."""

import pytest

from fusegen.codegen.printers.methods import method_type, method_types
from fusegen.core.method import (
    DOUBLE,
    FAST,
    FLOAT,
    PLAIN,
    SERIES,
    SINGLE_RESULT,
    SINGLE_WORD,
    Arithmetic,
    AtDefaults,
    Grid,
    Method,
    Piecewise,
    Segmented,
    Table,
    Verified,
)
from fusegen.core.targets import Device

CUDA, CPU = Device.CUDA, Device.CPU
TYPES: list[tuple[Method, int, Device, str]] = [
    (FLOAT, 32, CUDA, "Formula<float>"),
    (FAST, 16, CUDA, "Formula<FastFloat>"),
    (SINGLE_RESULT, 32, CPU, "Formula<float>"),
    (DOUBLE, 32, CUDA, "Widened<double>"),
    (PLAIN, 16, CUDA, "Widened<PlainDouble>"),
    (DOUBLE, 64, CUDA, "Formula<double>"),
    (DOUBLE, 32, CPU, "Formula<double>"),
    (SERIES, 16, CPU, "Formula<double>"),
    (Table(Arithmetic.SERIES), 16, CUDA, "Table"),
    (Piecewise(Grid.UNIFORM, FLOAT), 32, CUDA, "PiecewiseUniform"),
    (Piecewise(Grid.OCTAVES, PLAIN), 32, CUDA, "PiecewiseOctaves"),
    (Segmented(PLAIN), 32, CUDA, "PiecewiseSegments<PlainDouble>"),
    (Verified(SINGLE_WORD, DOUBLE), 16, CPU, "Verified<float, double>"),
    (Verified(FAST, DOUBLE), 16, CUDA, "Verified<FastFloat, double>"),
    (Verified(Piecewise(Grid.OCTAVES, DOUBLE), DOUBLE), 16, CPU, "PiecewiseOctaves"),
    (
        AtDefaults(Table(), Verified(FAST, DOUBLE)),
        16,
        CUDA,
        "AtDefaults<Table, Verified<FastFloat, double>>",
    ),
    (AtDefaults(Table(), PLAIN), 16, CUDA, "AtDefaults<Table, Widened<PlainDouble>>"),
]


@pytest.mark.parametrize(("method", "bits", "device", "expected"), TYPES)
def test_a_method_has_one_type(method: Method, bits: int, device: Device, expected: str) -> None:
    assert method_type(method, bits, device) == expected


@pytest.mark.parametrize("device", list(Device))
def test_a_width_without_a_method_has_the_default(device: Device) -> None:
    default = "ByWidth<Formula<float>, Formula<float>, Formula<double>>"
    assert method_types({}, device) == default
    assert method_types({"float64": DOUBLE}, device) == default
    octaves = {"float32": Piecewise(Grid.OCTAVES, DOUBLE)}
    assert method_types(octaves, device) == "ByWidth<Formula<float>, PiecewiseOctaves, Formula<double>>"
