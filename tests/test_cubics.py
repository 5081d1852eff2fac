"""Chains that float would lose on the CPU: by cubic polynomials of double's results, or these."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from conftest import ROOT
from kernels import compiled, loops, methods, nearest, patterns, ulps, units
from torch import Tensor

pytestmark = pytest.mark.usefixtures("exact_eager", "optimised")

HALVES = (torch.float16, torch.bfloat16)
CHAIN = "chain: [hardswish, softsign, silu, mish, quick_gelu, tanhshrink]\n"  # has kinks
SHRINKS = "chain: [elu, tanhshrink, relu, hardswish]\n"  # is like x³ next to 0, where float takes it for 0
SCALED = f"params: {{a: 0.7}}\n{CHAIN[:-2]}, a * x]\n"
PRODUCT = f"inputs: {{x: {{}}, y: {{}}}}\n{CHAIN[:-2]}, x * y]\n"


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory, extensions: Path) -> ModuleType:
    return compiled(tmp_path_factory.mktemp("chain"), "chained", CHAIN)


@pytest.fixture(scope="module")
def shrinks(tmp_path_factory: pytest.TempPathFactory, extensions: Path) -> ModuleType:
    return compiled(tmp_path_factory.mktemp("shrinks"), "shrinks", SHRINKS)


def some() -> Tensor:
    """Floats of every kind: all bits, ordinary numbers, ends of pieces and their neighbours."""
    steps = torch.cat([torch.arange(0, 65, 1 / 128), torch.tensor([2.0**-28])])
    ends = (steps.view(torch.int32)[:, None] + torch.arange(-2, 3, dtype=torch.int32)).view(torch.float32)
    octaves = torch.arange(-150.0, 128).exp2()[:, None] * torch.linspace(1, 2, 129)
    found = torch.cat([patterns(torch.float32, 20_000, (3.0,)), ends.flatten(), octaves.float().flatten()])
    return torch.cat([found, -found])


def agree(given: Tensor, exact: Tensor, most: float) -> None:
    """No result errs by more units than these; what is no number, or too large for one, is as rounded."""
    number = exact.isfinite() & (exact.abs() <= torch.finfo(torch.float32).max)
    assert units(given[number], exact[number]).max() <= most
    assert torch.equal(given[~number].isnan(), exact[~number].isnan())
    infinite = ~number & ~exact.isnan()
    assert torch.equal(given[infinite], exact[infinite].float())


@pytest.mark.full
@pytest.mark.parametrize("name", ["chain", "shrinks"])
def test_results_are_doubles_but_for_two_units_or_three(name: str, request: pytest.FixtureRequest) -> None:
    module, x = request.getfixturevalue(name), some()
    assert [of_32 for _, of_32, _ in methods(module.CPU_SOURCE)] == ["PiecewiseOctaves"] * 2
    agree(module.KERNELS.forward(x), module.KERNELS.forward(x.double()), 2.6)  # of x³, each factor rounds
    grad = torch.randn(x.shape, generator=torch.Generator().manual_seed(3)) * 100
    exact = module.KERNELS.backward(grad.double(), x.double())
    ordinary = exact.abs() > 1e-30  # elsewhere what the slope is off by may be all of the product
    agree(module.KERNELS.backward(grad, x)[ordinary], exact[ordinary], 2.8)


@pytest.mark.full
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, whose report it reads")
@pytest.mark.parametrize("kernel", ["forward", "backward"])
def test_the_loop_that_looks_up_becomes_vector_instructions(
    kernel: str, chain: ModuleType, tmp_path: Path
) -> None:
    *_, looking_up = loops(chain, kernel, tmp_path)
    assert looking_up


@pytest.mark.full
def test_zeros_have_the_signs_of_what_is_next_to_them(chain: ModuleType) -> None:
    x = torch.tensor([0.0, -0.0] * 30)
    assert chain.FORWARD(x).signbit().tolist() == [False, True] * 30
    assert chain.BACKWARD(torch.ones(60), x).signbit().tolist() == [False] * 60


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ["chain", "shrinks"])
def test_16_bit_results_are_rounded_once(
    name: str, dtype: torch.dtype, request: pytest.FixtureRequest
) -> None:
    module = request.getfixturevalue(name)
    x = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    x = x[x.isfinite()]
    exact = module.KERNELS.forward(x.double())
    usual = exact.abs() > torch.finfo(torch.bfloat16).tiny  # below, half of an input is a tie
    assert torch.equal(module.KERNELS.forward(x)[usual], nearest(exact, dtype)[usual])


@pytest.mark.parametrize("size", [0, 1, 7, 255, 256, 257, 1000, 70_000])
def test_every_size_of_tensor_is_done(chain: ModuleType, size: int) -> None:
    x = torch.randn(size + 1, generator=torch.Generator().manual_seed(size)) * 3
    agree(chain.FORWARD(x[1:]), chain.FORWARD(x[1:].double()), 1.8) if size else None
    assert chain.FORWARD(x[1:]).shape == (size,)


def test_results_do_not_depend_on_where_the_tensor_lies(chain: ModuleType) -> None:
    x = some()[:3000]
    expected, apart = chain.FORWARD(x), torch.zeros(3000, 3)
    apart[:, 1] = x
    found = {
        "apart": chain.FORWARD(apart[:, 1]),
        "backwards": chain.FORWARD(x.flip(0)).flip(0),
        "columns": chain.FORWARD(x.view(-1, 4).t()).t().reshape(-1),
        "in place": chain.chained(x.clone(), inplace=True),
        "a column in place": chain.chained(apart[:, 1], inplace=True),
        "into another": chain.chained(x, out=torch.empty(3000)),
    }
    for layout, results in found.items():
        assert torch.equal(results.nan_to_num(), expected.nan_to_num()), layout


@pytest.mark.full
@pytest.mark.parametrize(
    "body", [SCALED, pytest.param(PRODUCT, marks=pytest.mark.full)], ids=["a parameter", "two tensors"]
)
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_what_is_no_function_of_one_element_double_computes(
    body: str, dtype: torch.dtype, tmp_path: Path, extensions: Path
) -> None:
    module = compiled(tmp_path, f"{'product' if body == PRODUCT else 'scaled'}", body)
    assert [of_32 for _, of_32, _ in methods(module.CPU_SOURCE)] == ["Formula<double>"] * 2
    x = patterns(torch.float32, 4000, (3.0,)).to(dtype)
    x = x[x.isfinite()]
    other = (x.flip(0),) if body == PRODUCT else ()
    scalars = () if body == PRODUCT else (0.3,)
    exact = module.KERNELS.forward(x.double(), *(y.double() for y in other), *scalars)
    given = module.KERNELS.forward(x, *other, *scalars)
    if dtype == torch.float32:
        assert ulps(given, exact.float()) == 0
    else:
        usual = (exact.abs() > torch.finfo(torch.bfloat16).tiny) & (exact.abs() < torch.finfo(dtype).max)
        assert torch.equal(given[usual], nearest(exact, dtype)[usual])


@pytest.mark.full
@pytest.mark.parametrize("dtypes", ["float32", "float32, float16", "bfloat16"])
def test_double_serves_also_where_no_tensor_is_of_doubles(
    dtypes: str, chain: ModuleType, tmp_path: Path, extensions: Path
) -> None:
    module = compiled(tmp_path, "fewer", f"dtypes: [{dtypes}]\n{CHAIN}")
    x = some()[:5000].to(getattr(torch, dtypes.split(",")[0]))
    given, expected = module.KERNELS.forward(x), chain.FORWARD(x)
    assert torch.equal(given.nan_to_num(), expected.nan_to_num())


@pytest.mark.full
def test_threads_that_come_first_together_find_all_pieces(tmp_path: Path, extensions: Path) -> None:
    """In a process of its own, so that this is the first use."""
    module = tmp_path / "first.py"
    compiled(tmp_path, "first", CHAIN).KERNELS.forward(torch.zeros(1))  # builds it
    script = f"""
import importlib, sys, threading, torch
sys.path.insert(0, {str(module.parent.parent)!r})
module = importlib.import_module({f"{module.parent.name}.first"!r})
x = torch.randn(50_000) * 4
found, start = [None] * 8, threading.Barrier(8)
def run(k):
    start.wait()
    found[k] = module.KERNELS.forward(x)
threads = [threading.Thread(target=run, args=(k,)) for k in range(8)]
[t.start() for t in threads], [t.join() for t in threads]
assert all(torch.equal(y, found[0]) for y in found) and not found[0].isnan().any()
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)
