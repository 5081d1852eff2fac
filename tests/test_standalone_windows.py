"""Standalone files of poolings: how long they are, and their results on the CPU and, emulated, on CUDA."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import compiler
import pytest
import torch
from emulated import FLAGS
from rows_emulated import on_cpu
from standalone_files import (
    HARNESS,
    Draw,
    assert_near,
    drawing,
    executed,
    file_of,
    nvcc,
    results,
    strings,
    wide,
)

TESTED = [torch.float32, torch.bfloat16]
NAMES = [str(dtype)[6:] for dtype in TESTED]
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
MOST_LINES = 720  # lines of a file, at most


def assert_right(name: str) -> None:
    """The function is that of float64, which these files leave to PyTorch."""
    function, _ = executed(name, *NAMES)
    for dtype in TESTED:
        for given in WINDOWS[name](drawing(dtype)):
            own, exact = results(function, given), results(function, wide(given))
            assert_near(own[:2], exact[:2])
            assert_near(own[2:], exact[2:], 100)  # whose rounded elements PyTorch adds


@pytest.mark.parametrize("name", WINDOWS)
def test_a_file_of_windows_can_be_read(name: str) -> None:
    whole = file_of(name, "float32")
    assert len(whole.splitlines()) <= MOST_LINES
    assert max(map(len, whole.splitlines())) <= 120
    assert "\n# Given up: " in whole
    assert not HARNESS.search(whole)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_on_the_cpu(name: str) -> None:
    assert_right(name)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_on_an_emulated_chip(name: str) -> None:
    _, space = executed(name, *NAMES)
    text = on_cpu(strings(file_of(name, *NAMES))["CUDA"]).replace("on_cuda", "on_cpu")
    space["LIBRARY"] = ctypes.CDLL(str(compiler.library(text, ["-O1", *FLAGS, "-Wno-sign-compare"])))
    assert_right(name)


def test_the_first_of_equal_elements_takes_the_gradient() -> None:
    function, _ = executed("windows/max_pool2d", *NAMES)
    x = torch.randn(2, 3, 9, 12).round()
    x[0, 0, 4, 4] = torch.nan
    given = [x, 3, 2, 1, 1, False]
    assert_near(results(function, given), results(function, wide(given)))


@pytest.mark.full
@pytest.mark.parametrize("chip", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", WINDOWS)
def test_nvcc_compiles_windows(name: str, chip: str, tmp_path: Path) -> None:
    nvcc(strings(file_of(name))["CUDA"], chip, tmp_path)
