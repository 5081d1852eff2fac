"""The launches of kernels that NVRTC compiles: results and refusals, on the CPU."""

from pathlib import Path
from typing import Any

import pytest
import torch
from emulated import emulated, fill_table, run
from kernels import assert_same, generated
from nvrtc_emulated import Launch, launched_on_cpu
from torch import Tensor

from fusegen.runtime import launched, layouts
from fusegen.runtime.launcher import Launcher

F32, F16, BF16, F64 = torch.float32, torch.float16, torch.bfloat16, torch.float64


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    """The launches of a test, whose kernels run on the CPU."""
    return launched_on_cpu(monkeypatch)


def launcher_of(name: str, kernel: str) -> Launcher:
    """The launcher of a kernel of a committed module."""
    return Launcher(generated(name).KERNELS, kernel)


def values(*shape: int, dtype: torch.dtype = F32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)


CASES = [("gelu", F32), ("gelu", F16), ("leaky_relu", BF16), ("swiglu", F32)]


@pytest.mark.full
@pytest.mark.parametrize(("name", "dtype"), CASES)
@pytest.mark.parametrize("kernel", ["forward", "backward"])
def test_results_have_the_bits_of_the_launcher_in_cpp(
    name: str, dtype: torch.dtype, kernel: str, launches: list[Launch], tmp_path: Path
) -> None:
    """Of dense tensors, of those off a vector's boundary, and of tensors with gaps."""
    of, params = launcher_of(name, kernel), (0.25,) if name == "leaky_relu" else ()
    text: Any = generated(name)
    text.CUDA_TEXT = text.KERNELS.texts().cuda
    other = getattr(emulated(text, name, tmp_path, len(params)), kernel)
    if name == "gelu" and dtype == F16:
        fill_table(other, dtype, 0)
    inputs = [values(3, 1040, dtype=dtype) * (k + 1) for k in range(of.inputs)]
    found, real = of.new(*inputs, *params), run(other, *inputs, params=params)
    for one, same in zip(found if of.outputs > 1 else [found], real, strict=True):
        assert_same(one, same)
    for part in ((slice(None), slice(1, None)), (slice(None), slice(8, None, 2))):
        again = of.new(*(t[part] for t in inputs), *params)
        for one, whole in zip(again if of.outputs > 1 else [again], real, strict=True):
            assert_same(one, whole[part])
    assert [each.of.dense for each in launches] == [True, False, False]


@pytest.mark.full
def test_a_call_of_too_many_elements_is_cut(
    launches: list[Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "MOST_INDICES", 100)
    x = values(7, 60)[:, ::2]
    assert_same(launcher_of("relu", "forward").new(x), torch.relu(x))
    assert len(launches) == 4


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_gradients_of_operands_that_are_broadcast(dtype: torch.dtype, launches: list[Launch]) -> None:
    """They are sums in double of terms that are not rounded to 16 bits."""
    gate, up, grad = (values(*shape, dtype=dtype) for shape in ((4, 1, 9), (3, 9), (4, 3, 9)))
    found = launcher_of("swiglu", "backward").new(grad, gate, up)
    wide = [t.double().requires_grad_() for t in (gate, up)]
    real = torch.autograd.grad(torch.nn.functional.silu(wide[0]) * wide[1], wide, grad.double())
    for one, other, like in zip(found, real, (gate, up), strict=True):
        assert (one.shape, one.dtype) == (like.shape, dtype)
        tolerance = {F32: 1e-5, BF16: 1e-2}[dtype]
        torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=tolerance)
    assert len(launches) == {F32: 1, BF16: 2}[dtype]


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_sums_beside_a_gradient_that_is_written_over_its_input(
    dtype: torch.dtype, launches: list[Launch]
) -> None:
    gate, up, grad = (values(*shape, dtype=dtype) for shape in ((4, 3, 9), (3, 9), (4, 3, 9)))
    of = launcher_of("swiglu", "backward")
    real = of.new(grad, gate, up)
    found = torch.empty_like(up)
    of.into(grad, gate, up, grad, found)
    assert_same(grad, real[0])
    assert_same(found, real[1])


def test_empty_tensors_launch_nothing(launches: list[Launch]) -> None:
    assert launcher_of("hardsigmoid", "forward").new(torch.empty(3, 0)).shape == (3, 0)
    gradients = launcher_of("swiglu", "backward").new(torch.empty(0, 2), torch.empty(0, 2), values(2))
    assert [t.tolist() for t in gradients] == [[], [0, 0]]
    assert launches == []


@pytest.mark.parametrize("shift", [0, 1, 5], ids=["over its input", "next to it", "behind it"])
def test_results_in_memory_that_inputs_share(shift: int, launches: list[Launch]) -> None:
    room = values(24)
    x, out = room[:16], room[shift : shift + 16]
    real = torch.relu(x.clone())
    launcher_of("relu", "forward").into(x, out)
    assert_same(out, real)


OF_ONE = "expected float32, float16, bfloat16 or float64 tensors, all of one dtype"
REFUSED = [
    ("into", (values(3), values(4)), "out has another shape than the result"),
    (
        *("into", (values(3), values(1).expand(3))),
        "several elements of the written-to tensor share their memory; clone() it first",
    ),
    ("new", (torch.ones(3, dtype=torch.int32),), OF_ONE),
    ("into", (values(3), values(3, dtype=F64)), OF_ONE),
    (
        *("into", (values(3), torch.empty(3, device="meta"))),
        "expected every tensor on one device, the CPU or a CUDA GPU",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("call", "arguments", "sentence"), REFUSED)
def test_refusals_are_those_of_the_binding(call: str, arguments: tuple[Tensor, ...], sentence: str) -> None:
    with pytest.raises(RuntimeError) as told:
        getattr(launcher_of("hardsigmoid", "forward"), call)(*arguments)
    assert str(told.value) == f"hardsigmoid: {sentence}"


@pytest.mark.parametrize("name", ["hardtanh", "relu"])
def test_gradients_without_a_bitmask(name: str, launches: list[Launch]) -> None:
    """The copy is of the input, or of the output where the gradient reads that."""
    module, params = generated(name), (-1.0, 1.0) if name == "hardtanh" else ()
    made: dict[str, Any] = {}
    for kernel in ("forward", "backward"):
        made |= launched.without_bitmasks(module.KERNELS, Launcher(module.KERNELS, kernel))[kernel]
    x, grad = values(20), values(20) + 1
    function = {"hardtanh": torch.nn.functional.hardtanh, "relu": torch.relu}[name]
    leaf = x.clone().requires_grad_()
    [real] = torch.autograd.grad(function(leaf), leaf, grad)
    y, mask = made["forward_masked"](x, *params)
    assert_same(y, function(x))
    saved = y if name == "relu" else x
    assert_same(made["backward_masked"](grad, saved, *params, mask), real)
    over = x.clone()
    kept = made["forward_masked_out"](over, *params, over)
    assert_same(over, y)
    assert_same(made["backward_by_mask"](grad, over, *params, kept), real)
