"""Standalone files of poolings: how long they are, and their results on the CPU and, emulated, on CUDA."""

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
    results,
    wide,
)

WINDOWS: dict[str, Callable[[Draw], list[list[Any]]]] = {  # the arguments of some calls
    "windows/max_pool2d": lambda draw: [
        [draw(2, 3, 9, 12), 2, None, 0, 1, False],
        [draw(3, 7, 8), (3, 2), (1, 2), (1, 0), (2, 1), True],
    ],
    "windows/avg_pool2d": lambda draw: [
        [draw(2, 3, 9, 12), 3, 2, 1, True, False, None],
        [draw(2, 3, 9, 12), 3, 1, 1, True, True, None],
        [draw(3, 7, 8), (3, 2), None, 0, False, True, 5],
        [draw(1, 2, 20, 30), (18, 17), None, 0, False, True, None],
    ],
    "windows/avg_pool3d": lambda draw: [[draw(2, 3, 5, 6, 7), 2, None, 0, False, True, None]],
    "windows/adaptive_avg_pool2d": lambda draw: [[draw(2, 3, 9, 12), (4, 5)], [draw(2, 40, 33), 1]],
    "windows/adaptive_max_pool1d": lambda draw: [[draw(2, 3, 11), 4]],
    "windows/min_pool": lambda draw: [[draw(2, 3, 9, 12)]],
    "windows/max_pool_of_shifted_tanh": lambda draw: [[draw(2, 3, 9, 12), draw(3, 1, 1), 2.0]],
    "kernelbench/conv2d_shift_hardswish_max_pool_mish": lambda draw: [
        [draw(2, 3, 9, 12), draw(3, 1, 1), 0.5, 2]
    ],
    "kernelbench/conv_transpose3d_scale_avg_pool_shift_scale": lambda draw: [
        [draw(2, 3, 4, 5, 6), draw(3, 1, 1, 1), draw(), draw(3, 1, 1, 1), draw()]
    ],
}


def assert_right(name: str) -> None:
    """The function is that of float64, which these files leave to PyTorch."""
    function, _ = executed(name, *NAMES)
    for dtype in TESTED:
        for given in WINDOWS[name](drawing(dtype)):
            own, exact = results(function, given), results(function, wide(given))
            assert_near(own[:2], exact[:2])
            assert_near(own[2:], exact[2:], 100)  # whose rounded elements PyTorch adds


@pytest.mark.few(1)
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_on_the_cpu(name: str) -> None:
    assert_right(name)


@pytest.mark.full
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_on_an_emulated_chip(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch, name, *NAMES)
    assert_right(name)


def test_the_first_of_equal_elements_takes_the_gradient() -> None:
    function, _ = executed("windows/max_pool2d", *NAMES)
    x = torch.randn(2, 3, 9, 12).round()
    x[0, 0, 4, 4] = torch.nan
    given = [x, 3, 2, 1, 1, False]
    assert_near(results(function, given), results(function, wide(given)))


REFUSED: list[tuple[str, list[Any], str]] = [  # the arguments behind a tensor
    ("max_pool2d", [(2, 2, 2)], r"^\(2, 2, 2\) gives no windows in 2D$"),
    ("max_pool2d", [2, 0], "^0 gives no windows in 2D$"),
    ("max_pool2d", [2, 2, (1, -1)], r"^\(1, -1\) gives no windows in 2D$"),
    ("max_pool2d", [2, 2, 2], r"^the padding \(2, 2\) is more than half of a window of \(2, 2\)$"),
    ("max_pool2d", [9], "^a window is larger than the tensor with its padding$"),
    ("avg_pool2d", [2, None, 0, False, True, 0], "^the divisor of an average is not 0$"),
    ("adaptive_avg_pool2d", [(3, 0)], r"^\(3, 0\) gives no windows in 2D$"),
    ("adaptive_avg_pool2d", [(3, 3, 3)], r"^\(3, 3, 3\) gives no windows in 2D$"),
]


@pytest.mark.parametrize(("name", "given", "message"), REFUSED)
def test_windows_that_are_refused(name: str, given: list[Any], message: str) -> None:
    function, _ = executed(f"windows/{name}", *NAMES)
    with pytest.raises(RuntimeError, match=message):
        function(torch.randn(2, 3, 6, 8), *given)
    with pytest.raises(RuntimeError, match=r"^a dimension of the windows has no elements$"):
        function(torch.randn(2, 3, 0, 8), 2)
