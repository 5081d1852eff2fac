"""A dtype's results are the same whatever others a spec has: double makes them also where nobody asked."""

import shutil
from pathlib import Path
from types import ModuleType

import pytest
import torch
from emulated import Emulated, emulated, looked_up_by
from emulated import defined as defined
from kernels import DEVICES, assert_same, compiled, methods
from torch import Tensor

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

CHAIN = "chain: [mish, silu]"  # polynomials in float32 on CUDA, tables in 16 bits; verified on the CPU
GATE = "inputs: {x: {}, y: {}}\nparams: {a: 0.7}\nformula: a * x * sigmoid(y)"  # verified on CUDA
ALONE = (torch.float32, torch.float16, torch.bfloat16)


def named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def only(dtype: torch.dtype, body: str, folder: Path) -> ModuleType:
    """The module of a spec of one dtype."""
    return compiled(folder, "alone", f"{body}\ndtypes: [{named(dtype)}]\n")


def tensors(count: int, dtype: torch.dtype, device: str = "cpu") -> list[Tensor]:
    generator = torch.Generator(device).manual_seed(count)
    several = torch.randn(count, 20_011, generator=generator, device=device) * 4
    return list(several.to(dtype))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModuleType]:
    """The modules with all dtypes."""
    folder = tmp_path_factory.mktemp("whole")
    return {body: compiled(folder, "every", body + "\n") for body in (CHAIN, GATE)}


@pytest.fixture(scope="module")
def emulation(whole: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    return emulated(whole[CHAIN], "every", tmp_path_factory.mktemp("emulated"))


@pytest.mark.few(3)
@pytest.mark.parametrize("body", [CHAIN, GATE], ids=["chain", "gate"])
@pytest.mark.parametrize("dtype", ALONE)
def test_results_come_about_in_the_same_way(
    body: str, dtype: torch.dtype, whole: dict[str, ModuleType], tmp_path: Path
) -> None:
    place = dtype == torch.float32  # of 16 bits, or of 32
    alone, every = only(dtype, body, tmp_path), whole[body]
    for source in ("CUDA_SOURCE", "CPU_SOURCE"):
        found, expected = ([each[place] for each in methods(getattr(of, source))] for of in (alone, every))
        assert found == expected
    kind = "PiecewiseUniform" if dtype == torch.float32 else "Table"
    assert (kind in [each[place] for each in methods(alone.CUDA_SOURCE)]) == (body == CHAIN)
    verified = "Verified<float, double>" in [each[place] for each in methods(alone.CPU_SOURCE)]
    assert verified == (dtype != torch.float32)


@pytest.mark.full
@pytest.mark.parametrize("dtype", ALONE)
def test_in_emulation(dtype: torch.dtype, emulation: Emulated, tmp_path: Path) -> None:
    alone = emulated(only(dtype, CHAIN, tmp_path), "alone", tmp_path)
    x, grad = tensors(2, dtype)
    for ours, theirs, given in (
        (alone.forward, emulation.forward, (x,)),
        (alone.backward, emulation.backward, (grad, x)),
    ):
        assert_same(looked_up_by(ours, *given)[0], looked_up_by(theirs, *given)[0], x)


@pytest.mark.full
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("body", [CHAIN, GATE], ids=["chain", "gate"])
@pytest.mark.parametrize("dtype", ALONE)
def test_bit_by_bit(
    body: str, dtype: torch.dtype, device: str, whole: dict[str, ModuleType], tmp_path: Path,
    extensions: Path,
) -> None:  # fmt: skip
    alone, every = only(dtype, body, tmp_path), whole[body]
    params = () if body == CHAIN else (0.7,)
    grad, *inputs = tensors(1 + alone.INPUTS, dtype, device)
    assert_same(alone.FORWARD(*inputs, *params), every.FORWARD(*inputs, *params), *inputs)
    ours, theirs = (module.KERNELS.backward(grad, *inputs, *params) for module in (alone, every))
    pairs = zip(ours, theirs, strict=True) if alone.INPUTS > 1 else ((ours, theirs),)
    for given, expected in pairs:
        assert_same(given, expected, grad, *inputs)
