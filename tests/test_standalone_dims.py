"""Standalone files of rows along other dimensions, of groups and of channels."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from kernels import GENERATED
from parsed import spec_file
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
from test_kernelbench_specs import RUN
from torch import Tensor, nn

from fusegen.project import build, standalone

NORM = 1e-5  # the eps of a norm
DIMS: dict[str, Callable[[Draw, int], list[Any]]] = {  # the arguments
    "rows/softmax_of_channels": lambda draw, n: [draw(2, n, 3, 5)],
    "rows/layer_norm_of_channels": lambda draw, n: [draw(2, n, 37), draw(n, 1), draw(n, 1), NORM],
    "rows/group_norm": lambda draw, n: [draw(2, 6, n), draw(6), draw(6), NORM, 3],
    "rows/instance_norm": lambda draw, n: [draw(2, 3, 2, n), draw(3), draw(3), NORM],
    "kernelbench/columns_max": lambda draw, n: [draw(2, n, 35)],
    "kernelbench/columns_mean": lambda draw, n: [draw(40, n, 1)],
    "kernelbench/linear_gelu_softmax": lambda draw, n: [draw(5, n)],
}
WIDE = """\
inputs: {x: {shape: [4, 6, 10], fill: randn}, scale: {shape: [6, 1], fill: randn}}
over: [1]
row_dtype: float32
formula: logsumexp(x * scale)
"""


def is_short(name: str) -> bool:
    """True of a module with one kernel, which is no thin convolution."""
    module = (GENERATED / f"kernelbench/{name}.py").read_text(encoding="utf-8")
    return module.count("KERNELS = ") == 1 and "thin_launch" not in module


def assert_right(name: str, lengths: tuple[int, ...]) -> None:
    """The function is that of float64, which these files leave to PyTorch."""
    function, _ = executed(name, *NAMES)
    for dtype in TESTED:
        for n in lengths:
            given = DIMS[name](drawing(dtype), n)
            own, exact = results(function, given), results(function, wide(given))
            assert_near(own[:2], exact[:2])
            assert_near(own[2:], exact[2:], 100)  # whose rounded elements PyTorch adds


@pytest.mark.few(1)
@pytest.mark.parametrize("name", DIMS)
def test_rows_along_other_dimensions(name: str) -> None:
    assert_right(name, (1, 7, 40, 300))


def test_values_in_float32_along_another_dimension(tmp_path: Path) -> None:
    """A long line of such a file was broken into one that Python refused."""
    module = build.module(build.compiled_either(spec_file(tmp_path, "wide_rows", WIDE)))
    space: dict[str, Any] = {}
    exec(compile(standalone.text(module, "stable", NAMES), "<string>", "exec"), space)
    for dtype in TESTED:
        given = [(draw := drawing(dtype))(5, 3, 2).permute(2, 1, 0), draw(3, 1)]
        own, exact = results(space["wide_rows"], given), results(space["wide_rows"], wide(given))
        assert [t.dtype for t in own] == [torch.float32, dtype, dtype]
        assert_near(own[:2], exact[:2])
        assert_near(own[2:], exact[2:], 100)


@pytest.mark.full  # test_standalone_rows.py has one of these
@pytest.mark.parametrize("name", DIMS)
def test_rows_along_other_dimensions_on_an_emulated_chip(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulate(monkeypatch, name, *NAMES)
    assert_right(name, (1, 8, 1100))


def test_other_layouts() -> None:
    function, _ = executed("rows/softmax_of_channels", *NAMES)
    x = torch.randn(2, 9, 4, 5)
    last = x.contiguous(memory_format=torch.channels_last)
    for given in (last, x.transpose(0, 1), x[:, :, 1:, ::2], x[:, :, :, :1], x[:1].expand(3, 9, 4, 5)):
        assert_near(results(function, [given]), results(function, [given.double()]))
    assert function(torch.randn(2, 0, 3)).shape == (2, 0, 3)


@pytest.mark.full
def test_groups() -> None:
    function, _ = executed("rows/group_norm", *NAMES)
    weight, bias = torch.randn(2, 6)
    for shape, groups in (((4, 6), 2), ((2, 6, 4, 4), 6), ((2, 6, 3, 5), 1), ((0, 6, 2), 3)):
        given = [torch.randn(shape), weight, bias, NORM, groups]
        x, *others = (t.double() for t in given[:3])
        assert_near([function(*given)], [nn.functional.group_norm(x, groups, *others)])
        assert_near(results(function, given), results(function, wide(given)), 100)
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        function(torch.randn(2, 6, 4), weight, bias, NORM, 4)


def test_second_derivatives_of_groups() -> None:
    function, _ = executed("rows/group_norm", *NAMES)
    found: list[list[Tensor]] = []
    for dtype in (torch.float32, torch.float64):
        draw = drawing(dtype)
        x, weight = draw(2, 4, 3).requires_grad_(), draw(4).requires_grad_()
        y = function(x, weight, weight, NORM, 2)
        [slope] = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        found.append([*torch.autograd.grad(slope.square().sum(), [x, weight])])
    torch.testing.assert_close([t.double() for t in found[0]], found[1], rtol=1e-3, atol=1e-4)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", [name for name in RUN if is_short(name)])
def test_models_of_kernelbench(name: str) -> None:
    """Against PyTorch's operations in float64: values, and gradients of inputs and of every parameter."""
    arguments, shapes, reference = RUN[name]
    _, space = executed(f"kernelbench/{name}", "float32")
    torch.manual_seed(0)
    model = space["ModelNew"](*arguments)
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    exact = copy.deepcopy(model).double()
    doubles = [each.detach().double().requires_grad_() for each in inputs]
    for training in (True, False):
        result, expected = model.train(training)(*inputs), reference(exact.train(training), *doubles)
        incoming = torch.randn(result.shape)
        ours = torch.autograd.grad(result, [*inputs, *model.parameters()], incoming)
        theirs = torch.autograd.grad(
            expected, [*doubles, *exact.parameters()], incoming.double(), allow_unused=True
        )
        for mine, other in zip((result, *ours), (expected, *theirs), strict=True):
            torch.testing.assert_close(mine.double(), other, rtol=1e-5, atol=2e-5)
