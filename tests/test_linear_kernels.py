"""The kernels of linear layers in float32: CUDA's text in emulation, and under nvcc."""

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from linear_emulated import Layer, built, product, text_of
from test_cuda_text import NVCC
from torch import Tensor
from torch.nn import functional

KERNELS = ("together", "apart")
# rows of the input, terms, features
SHAPES = {
    "one of each": (1, 4, 4),
    "a step": (3, 32, 8),
    "more than a tile": (5, 36, 132),
    "two levels": (2, 1100, 4),
    "more tiles than blocks": (8, 64, 392),
}
# by halves where the terms of a row allow it
DATA: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": lambda x: x,
    "of one sign": lambda x: x.abs(),
    "one hot": lambda x: functional.one_hot(x.argmax(1), x.shape[1]).float(),
    "far apart": lambda x: x * torch.exp(12 * x),
    "huge": lambda x: x * 1e30,
    "tiny": lambda x: x * 1e-36,
}
MOST = 2**-21  # of the sum of magnitudes: what two halves of 11 digits leave out of a product, and sums


@pytest.fixture(scope="module", params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> str:
    """The kernel of a weight whose terms lie together or apart."""
    return str(request.param)


@pytest.fixture(scope="module")
def library(kernel: str) -> ctypes.CDLL:
    """The kernel as a library of the CPU."""
    return built(kernel)


def drawn(shape: tuple[int, int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """An input, a weight and a bias."""
    rows, terms, features = shape
    draw = torch.Generator().manual_seed(3)
    sizes = (rows, terms), (features, terms), (features,)
    x, weight, bias = (torch.randn(size, generator=draw) for size in sizes)
    return x, weight, bias


def largest_error(y: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> float:
    """The largest error over the sum of magnitudes, against float64."""
    wide = None if bias is None else bias.double()
    exact = functional.linear(x.double(), weight.double(), wide)
    size = functional.linear(x.double().abs(), weight.double().abs(), None if wide is None else wide.abs())
    return float(((y.double() - exact).abs() / size.clamp_min(2**-149)).max())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_layer_is_that_of_float64(library: ctypes.CDLL, kernel: str, shape: str) -> None:
    x, weight, bias = drawn(SHAPES[shape])
    assert largest_error(product(library, kernel, Layer(x, weight, bias)), x, weight, bias) <= MOST


@pytest.mark.parametrize("data", DATA)
def test_rows_of_any_range_keep_the_contract(library: ctypes.CDLL, kernel: str, data: str) -> None:
    x, weight, _ = drawn((4, 96, 8))
    x = DATA[data](x)
    assert largest_error(product(library, kernel, Layer(x, weight)), x, weight) <= MOST


def test_weights_of_any_range_keep_the_contract(library: ctypes.CDLL, kernel: str) -> None:
    x, weight, _ = drawn((4, 96, 8))
    assert largest_error(product(library, kernel, Layer(x, weight * 1e-30)), x, weight * 1e-30) <= MOST
    weight = weight * torch.exp(8 * weight)
    assert largest_error(product(library, kernel, Layer(x, weight)), x, weight) <= MOST


def test_columns_that_meet_in_size_keep_the_contract(library: ctypes.CDLL, kernel: str) -> None:
    """Numbers of the input are small just where the weight is large."""
    x, weight, _ = drawn((4, 96, 8))
    size = torch.linspace(-20, 20, 96)
    x, weight = x * torch.exp(size), weight * torch.exp(-size)
    assert largest_error(product(library, kernel, Layer(x, weight)), x, weight) <= MOST


def test_a_row_has_its_bits_in_any_batch(library: ctypes.CDLL, kernel: str) -> None:
    """Among rows that halves multiply, and among others."""
    x, weight, bias = drawn((65, 8, 12))
    x[1] = torch.arange(8) == 3
    y = product(library, kernel, Layer(x, weight, bias))
    for row in (1, 64):
        assert torch.equal(
            product(library, kernel, Layer(x[row : row + 1], weight, bias)), y[row : row + 1]
        )


def test_infinities_and_nan_are_eagers(library: ctypes.CDLL, kernel: str) -> None:
    x, weight, bias = drawn((6, 40, 8))
    x[0, 3], x[1, 5], x[2, 2], weight[3, 7] = torch.inf, torch.nan, 3e38, -torch.inf
    x[4, 7], bias[1], bias[2] = 0, torch.inf, torch.nan
    weight[5] *= 1e30
    y, eager = product(library, kernel, Layer(x, weight, bias)), functional.linear(x, weight, bias)
    assert torch.equal(y.isnan(), eager.isnan())
    assert torch.equal(y.isinf(), eager.isinf())
    assert torch.equal(y[y.isinf()], eager[y.isinf()])


FAULTS = {
    "a rest is left out": ("left.big[0], right + RESTS)", "left.big[0], right)"),
    "a power of two is not taken back": ("level.at[k])", "level.at[k] * 0 + 1)"),
    "the neighbour's power of two": ("by.back(row_of_sum(k))", "by.back(1 - row_of_sum(k))"),
    "the bias of the first feature": ("of.bias + row)", "of.bias)"),
    "no row is left to TF32": ("float norm) {\n", "float norm) {\n  return true;\n"),
    "the last terms are left out": ("(of.terms + STEP - 1) / STEP))};", "of.terms / STEP))};"),
    "a level is lost": ("total.at[k] += this->level.at[k]", "total.at[k] = this->level.at[k]"),
}


@pytest.mark.full
@pytest.mark.parametrize(
    "fault", [pytest.param(f, marks=[pytest.mark.full] * (k > 1)) for k, f in enumerate(FAULTS)]
)
def test_a_planted_fault_is_seen(fault: str) -> None:
    old, new = FAULTS[fault]
    text = text_of("together")
    assert text.count(old) == 1
    library = built("together", text.replace(old, new))
    x, weight, bias = drawn((3, 1100, 12))
    size = torch.linspace(-20, 20, 1100)
    x[1], weight[5] = x[1] * torch.exp(size), weight[5] * torch.exp(-size)
    assert not largest_error(product(library, "together", Layer(x, weight, bias)), x, weight, bias) <= MOST


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("chip", "count"), [("80", 6), ("90a", 11), pytest.param("86", 6, marks=pytest.mark.full)]
)
@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
def test_nvcc_compiles_the_kernels_without_a_spill(
    tmp_path: Path, kernel: str, chip: str, count: int
) -> None:
    """For sm_90a those of warps, too, which are empty there."""
    assert NVCC
    source = tmp_path / "linear.cu"
    source.write_text(text_of(kernel), encoding="utf-8")
    flags = (
        f"-std=c++17 -O3 --fmad=false -cubin -Xptxas -v -gencode=arch=compute_{chip},code=sm_{chip}".split()
    )
    flags += ["-DFUSEGEN_SM90A"] * (chip == "90a")
    command = [NVCC, *flags, str(source), "-o", str(tmp_path / "linear.cubin")]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    spills = [line for line in told.stderr.splitlines() if "spill stores" in line]
    assert len(spills) == count
    assert all(" 0 bytes spill stores, 0 bytes spill loads" in line for line in spills)
    assert "serialized" not in told.stderr
