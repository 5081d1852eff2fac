"""CUDA's kernels of rows that several blocks have parts of, run on the CPU; and which modules have them."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT
from emulated import State
from rows_emulated import Rows, emulated
from test_rows import made
from torch import Tensor
from torch.nn import functional

from fusegen.codegen import long_rows
from fusegen.compiler.row_kernels import CompiledRows
from fusegen.evidence.certify.rows import families, row_subject
from fusegen.project import build
from fusegen.project.loader import built

LEAST = "LEAST_LONG = 1 << 19, LEAST_PART = 1 << 16"
TOLERANCES = {torch.float32: 3e-7, torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float64: 1e-13}
# float32 is computed in double, bfloat16 in float
FLOAT32, DTYPES = (
    [dtype if dtype in tried else pytest.param(dtype, marks=pytest.mark.full) for dtype in TOLERANCES]
    for tried in ((torch.float32,), (torch.float32, torch.bfloat16))
)
NORM = """inputs: {x: {shape: [2, 8, 131072]}}
init: {features: 8, parts: 2}
layers: [weight: Parameter(ones(features)), bias: Parameter(zeros(features))]
params: {eps: 1.0e-5}
over: ["1 / parts", ...]
where: {centred: x - mean(x)}
formula: centred * rsqrt(mean(centred ** 2) + eps) * along(weight, 1) + along(bias, 1)
"""
SOFTMAX = "inputs: {x: {shape: [2, 524288]}}\nover: [-1]\nformula: softmax(x)\n"
LAYER = """inputs: {x: {shape: [2, 524288]}, weight: {shape: [524288]}, bias: {shape: [524288]}}
over: [-1]
where: {centred: x - mean(x)}
formula: centred * rsqrt(mean(centred ** 2) + 1e-5) * weight + bias
"""
SPECS = {"norm_of_parts": NORM, "long_softmax": SOFTMAX, "long_layer_norm": LAYER}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The emulated kernels of a spec, in which rows are long from 512 elements on."""

    @cache
    def of(name: str) -> Rows:
        module: Any = made(tmp_path_factory.mktemp(name), name, SPECS[name])
        assert LEAST in module.KERNELS.texts().cuda
        return emulated(module, (LEAST, "LEAST_LONG = 512, LEAST_PART = 64"))

    return of


def drawn(size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(sum(size))).to(dtype)


def assert_near(own: Tensor, exact: Tensor, times: float = 1) -> None:
    tolerance = times * TOLERANCES[own.dtype]
    torch.testing.assert_close(own.double(), exact, rtol=tolerance, atol=1e-3 * tolerance, equal_nan=True)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [pytest.param(511, marks=pytest.mark.full), 512, 1001])
def test_softmax_of_long_rows(kernels: Any, n: int, dtype: torch.dtype) -> None:
    x, grad = drawn((2, n), dtype), drawn((2, n + 1), dtype)[:, 1:].contiguous()
    x[1, n // 2] = 30
    wide = x.double().requires_grad_()
    exact = torch.softmax(wide, -1)
    own = kernels("long_softmax").forward([x])
    assert_near(own, exact.detach())
    assert torch.equal(kernels("long_softmax").forward([x[1:]]), own[1:])  # whatever other rows there are
    [slope] = kernels("long_softmax").backward([grad, x])
    assert_near(slope, torch.autograd.grad(exact, wide, grad.double())[0], 16)


@pytest.mark.full
def test_memory_that_is_not_there_is_reported_once(tmp_path: Path) -> None:
    """A launch that comes later does not report what was wrong with this one."""
    ask, x = "made.parts) * sizeof(double)", torch.zeros(1, 2**19)
    library = emulated(made(tmp_path, "long_softmax", SPECS["long_softmax"]), (ask, "made.parts) << 56"))
    for _ in range(2):
        with pytest.raises(AssertionError, match="out of memory"):
            library.forward([x])
    assert State.in_dll(library.library(torch.float32), "emulation").launch_error == 0


SPECIAL = {"NaN": torch.nan, "infinity": torch.inf, "-infinity": -torch.inf, "huge": 3e38}


@pytest.mark.parametrize("at", [77, pytest.param(999, marks=pytest.mark.full)])
@pytest.mark.parametrize("value", SPECIAL)
def test_special_elements_of_long_rows(kernels: Any, value: str, at: int) -> None:
    x = drawn((1, 1000), torch.float32)
    x[0, at] = SPECIAL[value]
    assert_near(kernels("long_softmax").forward([x]), torch.softmax(x.double(), -1))


@pytest.mark.full
@pytest.mark.parametrize("dtype", FLOAT32, ids=str)
@pytest.mark.parametrize("n", [512, 1001])
def test_layer_norm_of_long_rows(kernels: Any, n: int, dtype: torch.dtype) -> None:
    """The gradients of weight and bias are sums over the rows, by a kernel of columns."""
    x, weight, bias = drawn((3, n), dtype) + 5, drawn((n,), dtype), drawn((1, n), dtype)[0]
    grad = drawn((1, 3, n), dtype)[0]
    wide = [each.double().requires_grad_() for each in (x, weight, bias)]
    exact = functional.layer_norm(wide[0], (n,), wide[1], wide[2], 1e-5)
    assert_near(kernels("long_layer_norm").forward([x, weight, bias]), exact.detach(), 8)
    found = kernels("long_layer_norm").summed([grad, x, weight[None], bias[None]], ())
    for own, other in zip(found, torch.autograd.grad(exact, wide, grad.double()), strict=True):
        assert_near(own.reshape(other.shape), other, 64)


@pytest.mark.full  # test_rows_emulated.py has weights of channels
@pytest.mark.parametrize("dtype", FLOAT32, ids=str)
def test_group_norm_of_long_rows(kernels: Any, dtype: torch.dtype) -> None:
    """Weight and bias have one value for several neighbours in a row."""
    groups, channels, pixels, batch = 2, 4, 160, 3
    n = channels * pixels
    x, grad = drawn((batch, groups, n), dtype) - 2, drawn((batch, groups, n), dtype)
    weight, bias = drawn((groups, channels), dtype), drawn((1, groups, channels), dtype)[0]
    wide = [each.double().requires_grad_() for each in (x, weight, bias)]
    norm = functional.group_norm(
        wide[0].reshape(batch, groups * channels, pixels),
        groups,
        wide[1].flatten(),
        wide[2].flatten(),
        1e-5,
    )
    exact = norm.reshape(batch, groups, n)
    of = kernels("norm_of_parts")
    assert_near(of.forward([x, weight, bias], (1e-5,)), exact.detach(), 8)
    found = of.summed([grad, x, weight, bias], (1e-5,))
    for own, other in zip(found, torch.autograd.grad(exact, wide, grad.double()), strict=True):
        assert_near(own.reshape(other.shape), other, 64)


HEADER = '#include "cuda/long_rows.cuh"'
DECLARED = {
    "kernelbench/images_frobenius_norm": True,
    "kernelbench/images_group_norm": True,
    "kernelbench/images_layer_norm": True,
    "kernelbench/images_instance_norm": False,  # of 262,144 elements
    "kernelbench/matrix_softmax": False,  # of 393,216
    "kernelbench/images_batch_norm": False,
    "rows/softmax": False,
}


@pytest.mark.parametrize(("name", "expected"), DECLARED.items())
def test_modules_of_long_declared_rows_have_the_kernels(name: str, expected: bool) -> None:
    module: Any = importlib.import_module(f"generated.{name.replace('/', '.')}")
    assert (HEADER in module.CUDA_SOURCE) is expected
    assert HEADER not in module.CPU_SOURCE


OTHERS = {
    "values of rows": "inputs: {x: {shape: [2, 524288]}}\nover: [-1]\nformula: sum(x * x)\n",
    "a layer in front": 'init: {n: 524288}\nlayers: [fc: "Linear(n, n)"]\n' + SOFTMAX,
    "apart": "inputs: {x: {shape: [524288, 2]}}\nover: [0]\nformula: softmax(x)\n",
}


@pytest.mark.parametrize("spec", OTHERS.values(), ids=OTHERS)
def test_other_modules_have_not(spec: str, tmp_path: Path) -> None:
    module: Any = made(tmp_path, "others", spec)
    assert HEADER not in module.CUDA_SOURCE


def test_the_compiler_and_the_header_call_the_same_rows_long() -> None:
    text = (ROOT / "fusegen/runtime/include/cuda/long_rows.cuh").read_text(encoding="utf-8")
    [power] = re.findall(r"LEAST_LONG = 1 << (\d+),", text)
    assert 2 ** int(power) == long_rows.LEAST


def test_a_certificate_has_a_row_of_each_length_and_a_long_one() -> None:
    short = [*families.groups(10**6)]
    assert [*families.groups(10**6, 2**19 + 24)] == [*short, families.Group("normal", 1, 2**19 + 24)]
    assert [*families.groups(10**5, 2**19 + 24)] == [*families.groups(10**5)]  # of more than are asked for


@pytest.mark.parametrize(
    ("name", "longest"), [("images_frobenius_norm", row_subject.LONGEST), ("matrix_softmax", 0)]
)
def test_the_long_row_is_of_modules_with_its_kernels(name: str, longest: int) -> None:
    compiled = build.compiled_either(ROOT / f"specs/kernelbench/{name}.yaml")
    assert isinstance(compiled, CompiledRows)
    assert row_subject.of_module(compiled, built(compiled, ROOT / "generated")).longest == longest
