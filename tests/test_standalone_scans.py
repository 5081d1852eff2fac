"""Standalone files of scans and of the places of elements, on the CPU and, emulated, on CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from standalone_files import (
    NAMES,
    TESTED,
    Draw,
    assert_near,
    drawing,
    emulate,
    executed,
    file_of,
    results,
    wide,
)

SCANS: dict[str, Callable[[Draw, int], list[Any]]] = {  # the arguments
    "scans/cumsum": lambda draw, n: [draw(3, n)],
    "scans/cumprod": lambda draw, n: [draw(3, n)],
    "kernelbench/matrix_cumsum_exclusive": lambda draw, n: [draw(3, n)],
    "kernelbench/matrix_cumsum_reverse": lambda draw, n: [draw(3, n)],
    "scans/silu_of_sums_to_come": lambda draw, n: [draw(2, n, 3), draw(n, 1)],
}


def assert_right(name: str, lengths: tuple[int, ...]) -> None:
    """The function is that of float64, which these files leave to PyTorch."""
    function, _ = executed(name, *NAMES)
    for dtype in TESTED:
        for n in lengths:
            given = SCANS[name](drawing(dtype), n)
            own, exact = results(function, given), results(function, wide(given))
            assert_near(own[:2], exact[:2], 20)
            assert_near(own[2:], exact[2:], 100)  # whose rounded elements PyTorch adds


def assert_places(name: str) -> None:
    function, _ = executed(name, *NAMES)
    best = torch.argmax if name.endswith("max") else torch.argmin
    for dtype in TESTED:
        for shape in ((5, 1), (3, 600), (2, 300, 3)):
            x = (torch.randn(shape) * 4).round().to(dtype)
            x[0, 0] = torch.nan
            dim = 1 if "columns" in name else -1
            assert torch.equal(function(x), best(x, dim))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", SCANS)
def test_scans_on_the_cpu(name: str) -> None:
    assert_right(name, (1, 7, 300))


@pytest.mark.full
@pytest.mark.parametrize("name", ["scans/argmax", "kernelbench/columns_argmin"])
def test_places_on_the_cpu_and_on_an_emulated_chip(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_places(name)
    emulate(monkeypatch, name, *NAMES)
    assert_places(name)


@pytest.mark.full
@pytest.mark.parametrize("name", SCANS)
def test_scans_on_an_emulated_chip(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch, name, *NAMES)
    assert_right(name, (1, 7, 1500))


@pytest.mark.parametrize(("name", "holds"), [("cumsum", False), ("cumprod", True), ("argmax", False)])
def test_only_the_second_of_two_scans_needs_the_results_of_the_first(name: str, holds: bool) -> None:
    assert ("room = x.new_empty(" in file_of(f"scans/{name}", "float32")) is holds


def test_rows_without_a_place() -> None:
    function, _ = executed("scans/argmax", *NAMES)
    assert function(torch.randn(0, 3)).shape == (0,)
    with pytest.raises(RuntimeError, match="a row has no elements, so that none is found"):
        function(torch.randn(3, 0))


@pytest.mark.full
def test_zeros_of_a_product() -> None:
    function, _ = executed("scans/cumprod", *NAMES)
    x = torch.randn(4, 9)
    x[0, 3] = x[1, 0] = x[2, 2] = x[2, 5] = 0
    assert_near(results(function, [x]), results(function, [x.double()]), 20)
