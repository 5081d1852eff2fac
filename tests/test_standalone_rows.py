"""Standalone files of rows: how long they are, and their results on the CPU and, emulated, on CUDA."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from budget import FULL
from kernels import DTYPES, GENERATED
from standalone_files import (
    Draw,
    assert_near,
    drawing,
    emulate,
    emulated,
    executed,
    file_of,
    results,
    strings,
    wide,
)
from torch import Tensor
from torch.nn import functional

from fusegen.codegen.standalone import row_file

TESTED = DTYPES if FULL else [torch.float32, torch.bfloat16]
DTYPE_NAMES = [str(dtype)[6:] for dtype in TESTED]
ROWS: dict[str, Callable[[Draw, int], list[Any]]] = {  # the arguments, for rows of a length
    "softmax": lambda draw, n: [draw(5, n)],
    "log_softmax": lambda draw, n: [draw(5, n)],
    "logsumexp": lambda draw, n: [draw(5, n)],
    "layer_norm": lambda draw, n: [draw(5, n), draw(n), draw(n), 1e-5],
    "rms_norm": lambda draw, n: [draw(2, 3, n), draw(n), 1e-6],
    "add_rms_norm": lambda draw, n: [draw(5, n), draw(5, n), draw(n), 1e-6],
    "scaled_masked_softmax": lambda draw, n: [draw(2, 3, n), draw(2, 3, n), 0.125],
    "cross_entropy": lambda draw, n: [draw(5, n), torch.tensor([0, n - 1, n // 2, -100, 0])],
}


def eager_of(name: str, space: dict[str, Any]) -> Callable[..., Any]:
    """The function by PyTorch's operations alone."""
    eager: Callable[..., Any] = functional.cross_entropy if name == "cross_entropy" else space["eager"]
    return eager


def assert_exact(name: str, given: list[Any], times: float = 4) -> None:
    """The function of float32 is PyTorch's of float64, which a file for float32 leaves to PyTorch."""
    function, _ = executed(f"rows/{name}", "float32")
    assert_near(results(function, given), results(function, wide(given)), times)


def test_names_of_the_file_itself_keep_the_whole_runtime() -> None:
    module = (GENERATED / "rows/softmax.py").read_text(encoding="utf-8")
    assert row_file.is_light(module)
    for name, other in (('    "softmax", ', '    "layout", '), ("Tensor x", "Tensor made")):
        assert name in module
        assert not row_file.is_light(module.replace(name, other))


@pytest.mark.parametrize("name", ["layer_norm_statistics"])
def test_other_rows_keep_the_whole_runtime(name: str) -> None:
    assert not row_file.is_light((GENERATED / f"rows/{name}.py").read_text(encoding="utf-8"))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ROWS)
def test_rows_on_the_cpu(name: str) -> None:
    function, space = executed(f"rows/{name}", *DTYPE_NAMES)
    for dtype in TESTED:
        for n in (1, 7, 40, 300):
            given = ROWS[name](drawing(dtype), n)
            assert_near(results(function, given), results(eager_of(name, space), wide(given)))


@pytest.mark.full
def test_special_values_stay_in_their_rows() -> None:
    x = torch.randn(6, 37)
    x[1, 3], x[2, 36], x[3, 0], x[4] = torch.nan, torch.inf, -torch.inf, -torch.inf
    assert_exact("softmax", [x])
    assert_exact("layer_norm", [x, torch.randn(37), torch.randn(37), 1e-5])


def test_rows_of_no_element() -> None:
    function, _ = executed("rows/softmax", "float32")
    x = torch.empty(3, 0, requires_grad=True)
    assert torch.autograd.grad(function(x).sum(), x)[0].shape == (3, 0)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0, 4)])
def test_calls_of_no_row(shape: tuple[int, ...]) -> None:
    assert_exact("softmax", [torch.randn(shape)])
    assert_exact("layer_norm", [torch.randn(shape), torch.randn(shape[-1]), torch.randn(shape[-1]), 1e-5])


def test_rows_of_other_layouts() -> None:
    torch.manual_seed(6)
    layouts = [torch.randn(4, 6, 9).transpose(0, 1), torch.randn(4, 9, 6).mT, torch.randn(8, 30)[::2, 3:12]]
    for x in (*layouts, torch.randn(4, 1).expand(4, 9), torch.randn(9).expand(3, 4, 9), torch.randn(9)):
        assert_exact("softmax", [x])
        for shape in ((9,), (1, 9), (1,), x.shape, (x.shape[0], *[1] * (x.dim() - 1))):
            summed = 100 if shape[-1] == 1 else 4  # by PyTorch, of rounded elements
            assert_exact("layer_norm", [x, torch.randn(shape), torch.randn(9), 1e-5], summed)


@pytest.mark.parametrize("name", ["rows/softmax", "rows/group_norm", "hardsigmoid"])
def test_numbers_with_the_negative_bit(name: str) -> None:
    """Memory has the opposite ones, of inputs and of incoming gradients."""
    function, _ = executed(name, "float32")
    given = [torch.randn(3, 4, 9), torch.randn(3, 4, 9)]
    others = [torch.ones(4), torch.zeros(4), 1e-5, 2] if name == "rows/group_norm" else []
    made = []
    for x, grad in (map(torch._neg_view, given), (-t for t in given)):
        leaf = x.requires_grad_()
        y = function(leaf, *others)
        made.append((y, *torch.autograd.grad(y, leaf, grad)))
    assert all(torch.equal(*each) for each in zip(*made, strict=True))


def test_a_row_has_equal_bits_whatever_the_batch() -> None:
    x, weight = torch.randn(70, 300), torch.randn(300)
    function, _ = executed("rows/layer_norm", "float32")
    whole = function(x, weight, weight, 1e-5)
    assert torch.equal(whole[61:62], function(x[61:62], weight, weight, 1e-5))
    assert_exact("layer_norm", [x, weight, weight.flip(0), 1e-5])  # whose sums are of all parts of the rows


@pytest.mark.full
def test_indices_and_reductions() -> None:
    function, _ = executed("rows/cross_entropy", "float32")
    x, picked = torch.randn(6, 11), torch.tensor([3, 0, -100, 10, 2, 2])
    exact = functools.partial(functional.cross_entropy, target=picked)
    for reduction in ("none", "sum", "mean"):
        assert_near(
            results(lambda t, how=reduction: function(t, picked, how), [x]),
            results(functools.partial(exact, reduction=reduction), [x.double()]),
        )
    for wrong in (11, -1):
        with pytest.raises(IndexError, match="an index is out of range for 11 elements"):
            function(x, torch.full((6,), wrong))
    with pytest.raises(ValueError, match="every is not a valid value for reduction"):
        function(x, picked, "every")
    with pytest.raises(
        RuntimeError,
        match=r"expected integers of the shape \(6,\) on cpu, not torch.int64 of \(3,\) on cpu",
    ):
        function(x, picked[:3])
    with pytest.raises(RuntimeError, match=r"on cpu, not torch.int64 of \(6,\) on meta"):
        function(x, picked.to("meta"))


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch.compile does
def test_second_derivatives_and_compilers_of_rows() -> None:
    function, space = executed("rows/layer_norm", "float32")
    shapes = (3, 5), (5,), (5,)
    wide_ones = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    assert torch.autograd.gradgradcheck(lambda *t: function(*t, 1e-5), wide_ones)
    x, weight, bias = (t.detach().float().requires_grad_() for t in wide_ones)
    [slope] = torch.autograd.grad(function(x, weight, bias, 1e-5).square().sum(), x, create_graph=True)
    assert torch.isfinite(torch.autograd.grad(slope.sum(), weight)[0]).all()
    compiled: Callable[..., Tensor] = torch.compile(function, fullgraph=True, backend="aot_eager")
    given = [x, weight, bias, 1e-5]
    for own, other in zip(results(compiled, given), results(function, given), strict=True):
        assert torch.equal(own, other)
    with torch.no_grad():
        torch.library.opcheck(space["operator"], (True, [x, x, weight, bias], [1e-5]), {})


ELEMENTS: dict[str, tuple[int, int]] = {"rotary": (6, 385), "lstm_cell": (5, 690)}  # tensors, and lines


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ELEMENTS)
def test_several_results_of_each_element(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, and on an emulated chip."""
    count, lines = ELEMENTS[name]
    whole = file_of(f"results/{name}", "float32")
    assert len(whole.splitlines()) <= lines
    function, space = executed(f"results/{name}", "float32")
    torch.manual_seed(4)
    for library in (space["LIBRARY"], emulated(strings(whole)["CUDA"])):
        monkeypatch.setitem(space, "LIBRARY", library)
        for shape in ((3, 7), (2, 1, 1100), (5,)):
            last = shape if name == "lstm_cell" else shape[-1:]  # of the last tensor, which may broadcast
            given = [*(torch.randn(shape) for _ in range(count - 1)), torch.randn(last)]
            own, exact = results(function, given), results(space["eager"], wide(given))
            assert_near(own, exact, 16 if last == shape else 200)  # PyTorch adds gradients that broadcast


# CUDA


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ROWS)
def test_rows_on_an_emulated_chip(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's Python launches the text for CUDA, which g++ has made."""
    function, space = executed(f"rows/{name}", *DTYPE_NAMES)
    emulate(monkeypatch, f"rows/{name}", *DTYPE_NAMES)
    for dtype in TESTED:
        for n in (1, 7, 40, 1100, 1104):
            given = ROWS[name](drawing(dtype), n)
            assert_near(results(function, given), results(eager_of(name, space), wide(given)))
