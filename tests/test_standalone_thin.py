"""Standalone files of thin convolutions: the kernel of the tensor cores, emulated, and where it runs."""

from __future__ import annotations

import copy
import ctypes
import functools
import itertools
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import compiler
import pytest
import torch
from budget import FULL
from emulated import FLAGS
from parsed import spec_file
from standalone_files import HARNESS, assert_near, drawing, file_of, nvcc, strings
from thin_emulated import on_cpu
from torch import Tensor, nn

from fusegen.codegen.standalone import thin_file
from fusegen.project import build, standalone
from fusegen.runtime import thin as runtime
from fusegen.runtime import thin_operator

LINES = {  # of a file, for all dtypes and for float32
    "conv_relu_hardswish": (880, 855),
    "kernelbench/conv2d_divide_leaky_relu": (900, 875),
    "kernelbench/conv2d_two_differences_mish": (1325, 1075),
}
CHAIN = """\
inputs: {x: {shape: [2, 3, 9, 12]}}
init: {channels: 3, divisor: 2.0}
layers:
  - conv: Conv2d(channels, 5, 3, stride=(2, 1), padding=1)
  - multiplier: Parameter(randn((5, 1, 1)))
chain: [x * multiplier, "leaky_relu(negative_slope=0.1)", x / divisor]
"""
RELU = """\
inputs: {x: {shape: [2, 3, 9, 16]}}
layers: [conv: "Conv2d(3, 5, 3, padding=1, bias=False)"]
chain: [relu(x)]
"""
CHIP = "emulation.shared = 99 * 1024, emulation.chip = 80"
DTYPES = (torch.float32, torch.float16, torch.bfloat16)[: 3 if FULL else 1]


class Library:
    """The library of a file, whose convolution is emulated."""

    def __init__(self, file: str, of_cpu: ctypes.CDLL) -> None:
        text = on_cpu(strings(file)["CUDA"])
        text += f"\nstatic const bool given = [] {{ {CHIP}; return true; }}();\n"
        emulated = ctypes.CDLL(str(compiler.library(text, ["-O0", *FLAGS, "-Wno-sign-compare"])))
        self.on_cpu, self.calls = of_cpu.on_cpu, 0
        self.convolved = emulated.convolved_on_cuda

    def convolved_on_cuda(self, call: Any) -> int:
        """Run the convolution."""
        self.calls += 1
        return int(self.convolved(call))


@functools.cache
def executed(body: str) -> dict[str, Any]:
    """Return what the file of a spec defines; its convolution is emulated, and taken whatever its size."""
    with tempfile.TemporaryDirectory() as folder:
        module = build.module(build.compiled_file(spec_file(Path(folder), "thin_chain", body)))
    file, made = standalone.text(module, "stable", [str(dtype)[6:] for dtype in DTYPES]), dict[str, Any]()
    of_any_size = file.replace("count < 4194304", "False").replace("width < 32", "False")
    assert len(file) - len(of_any_size) == 15
    exec(compile(of_any_size, "<string>", "exec"), made)
    made["LIBRARY"] = Library(file, made["LIBRARY"])
    return made


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have layers take tensors as those of a GPU."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: SimpleNamespace(cuda_stream=None))


def results(call: Callable[[Tensor], Tensor], x: Tensor, parameters: Iterable[Tensor]) -> list[Tensor]:
    """A result, and the gradients of the input and of parameters."""
    leaf = x.clone().requires_grad_()
    y = call(leaf)
    incoming = (torch.arange(y.numel()) % 13 - 6).reshape(y.shape).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, [leaf, *parameters], incoming)]


def steps(function: Callable[..., Tensor], model: Any, x: Tensor) -> Tensor:
    """A model of the chain: PyTorch's convolution, and a function of what is behind it."""
    conv = model.conv
    u = nn.functional.conv2d(x, conv.weight, None, conv.stride, conv.padding)
    return function(u, conv.bias.view(-1, 1, 1), model.multiplier, model.divisor)


def assert_one_kernel(space: dict[str, Any], model: Any, x: Tensor) -> None:
    """The model runs the kernel once: its result is near that of float64, its gradients those of steps."""
    library, function = space["LIBRARY"], space["thin_chain"]
    library.calls = 0
    own = results(model, x, model.parameters())
    assert library.calls == 1
    exact = copy.deepcopy(model).double()
    y = steps(space["eager"], exact, x.double()).detach()
    allowed = 1e-6 * y.abs().max() + y.abs() * torch.finfo(x.dtype).eps
    assert bool(((own[0].double() - y).abs() <= allowed).all())
    expected = results(lambda t: steps(function, model, t), x, model.parameters())
    for one, other in zip(own[1:], expected[1:], strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", LINES)
def test_a_file_of_a_thin_convolution_can_be_read(name: str) -> None:
    for dtypes, most in zip(([], ["float32"]), LINES[name], strict=True):
        whole = file_of(name, *dtypes)
        lines = whole.splitlines()
        assert len(lines) <= most
        assert max(map(len, lines)) <= 120
        assert "# Given up: Hopper's wgmma, convolutions in torch.compile, " in whole
        assert "mma.sync.aligned.m16n8k8" in whole
        assert not HARNESS.search(whole)


def test_a_file_of_other_dtypes_has_no_convolution() -> None:
    whole = file_of("conv_relu_hardswish", "float64")
    assert "mma.sync" not in whole
    assert "convolved" not in whole


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_model_is_one_kernel(on_gpu: None, dtype: torch.dtype) -> None:
    space, draw = executed(CHAIN), drawing(dtype)
    torch.manual_seed(4)
    model = space["ModelNew"](3, -3.0).to(dtype)
    for width in (12, 16, 296)[dtype != torch.float32 :]:  # tiles of whole rows, and of others
        assert_one_kernel(space, model, draw(2, 3, 9, width))
    model.multiplier.data = draw(5, 5, 16)  # an operand of pixels
    assert_one_kernel(space, model, draw(2, 3, 9, 16))


@pytest.mark.full
def test_an_output_that_is_saved_in_place_of_inputs(on_gpu: None) -> None:
    space = executed(RELU)
    model, x = space["ModelNew"](), torch.randn(2, 3, 9, 16)
    own = results(model, x, model.parameters())
    assert space["LIBRARY"].calls == 1
    exact = copy.deepcopy(model).double()
    assert_near(own, results(lambda t: exact.conv(t).relu(), x.double(), exact.parameters()), 100)


def test_second_derivatives_and_special_values(on_gpu: None) -> None:
    space = executed(CHAIN)
    torch.manual_seed(4)
    model, x = space["ModelNew"](), torch.randn(1, 3, 5, 12, requires_grad=True)
    [slope] = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    exact, wide = copy.deepcopy(model).double(), x.detach().double().requires_grad_()
    [other] = torch.autograd.grad(
        steps(space["eager"], exact, wide).square().sum(), wide, create_graph=True
    )
    [second] = torch.autograd.grad(slope.square().sum(), x)
    [expected] = torch.autograd.grad(other.square().sum(), wide)
    torch.testing.assert_close(second.double(), expected, rtol=1e-5, atol=1e-5)
    special = torch.zeros(1, 3, 5, 12)
    special[0, 0, 0, 0], special[0, 1, 2, 6], special[0, 2, 4, 9] = torch.inf, torch.nan, 1e38
    with torch.no_grad():
        torch.testing.assert_close(
            model(special), steps(space["eager"], model, special), equal_nan=True, rtol=1e-5, atol=1e-6
        )


def test_a_gradient_under_autocast_is_that_of_the_call(on_gpu: None) -> None:
    model, x = executed(CHAIN)["ModelNew"](), torch.randn(2, 3, 9, 12)
    expected = torch.autograd.grad(model(x).sum(), [*model.parameters()])
    y = model(x).sum()
    with torch.autocast("cpu", torch.bfloat16):
        own = torch.autograd.grad(y, [*model.parameters()])
    assert all(map(torch.equal, own, expected))


def test_a_call_where_no_tile_fits_takes_steps(on_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    space = executed(CHAIN)
    monkeypatch.setattr(space["LIBRARY"], "convolved", lambda _: -1)
    monkeypatch.setattr(space["LIBRARY"], "on_cuda", space["LIBRARY"].on_cpu, raising=False)
    assert_one_kernel(space, space["ModelNew"](), torch.randn(2, 3, 9, 12))


def test_layers_that_are_not_one_kernel(on_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    space = executed(CHAIN)
    model, x = space["ModelNew"](), torch.randn(2, 3, 9, 12)
    conv, given = model.conv, (None, model.multiplier, 2.0)
    convolved, library = space["convolved"], space["LIBRARY"]
    library.calls = 0
    assert convolved(conv, x, *given) is not None
    assert convolved(conv, x.to(memory_format=torch.channels_last), *given) is None
    assert convolved(conv, x.double(), *given) is None
    assert convolved(conv, x, conv.bias.view(-1, 1, 1), *given[1:]) is None
    assert convolved(conv, x, *given[:2], torch.nan) is None
    for size, words in (("stride", (3, 0)), ("padding", ("same", -1)), ("padding_mode", ("circular",))):
        for word in words:  # of which PyTorch refuses some
            options: dict[str, Any] = {size: word}
            assert convolved(nn.Conv2d(3, 5, 3, **options), x, *given) is None
    assert convolved(nn.Conv2d(3, 5, 3, dilation=2), x, *given) is None
    assert convolved(nn.Conv2d(3, 5, 9, padding=4), x, *given) is None
    handle = conv.register_forward_hook(lambda *_: None)
    assert convolved(conv, x, *given) is None
    handle.remove()
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda: True)
    assert convolved(conv, x, *given) is None
    assert library.calls == 1


def test_one_kernel_runs_where_it_runs_in_modules() -> None:
    made = {"most_channels": runtime.MOST_CHANNELS, "most_kernel": runtime.MOST_KERNEL}
    made["most_terms"], made["most_narrow"] = thin_operator.MOST_WORTH[1], thin_operator.MOST_NARROW
    made["least_columns"], made["least_elements"] = thin_operator.LEAST_WORTH
    made["enough_terms"] = thin_operator.ENOUGH_TERMS
    assert (thin_operator.MOST_WORTH[0], made) == (thin_file.WORTH["most_channels"], thin_file.WORTH)
    space: dict[str, Any] = {"torch": torch}
    [text] = re.findall(
        r"^def convolved_shape.*?\n\n", file_of("conv_relu_hardswish"), re.DOTALL | re.MULTILINE
    )
    exec(text, space)
    taken = set()
    for batch, channels, width, kernel, padding, dtype in itertools.product(
        (1, 9), (4, 8, 13, 17), (30, 97, 258, 264), (3, 5, 6), (0, 2), (torch.float32, torch.bfloat16)
    ):
        x = torch.empty(batch, channels, 260, width, dtype=dtype)
        weight, bias = (
            torch.empty(32, channels, kernel, kernel, dtype=dtype),
            torch.empty(32, 1, 1, dtype=dtype),
        )
        sizes = (1, 1, padding, padding)
        expected = thin_operator.shape_of((x, weight, bias), sizes)
        assert space["convolved_shape"](x, weight, [bias], sizes[:2], sizes[2:]) == expected
        taken.add(expected is None)
    assert taken == {True, False}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", LINES)
def test_nvcc_compiles_thin_convolutions(name: str, tmp_path: Path) -> None:
    nvcc(strings(file_of(name))["CUDA"], "sm_90", tmp_path)
