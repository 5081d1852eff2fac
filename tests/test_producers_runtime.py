"""The layers in front of a kernel as modules run them: the bias, the layout, the memory that is reused.

What holds on CUDA only is tried on the CPU, where the same calls give the same values.
"""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernels import generated
from torch import Tensor, nn

from fusegen.algebra.compose import compose
from fusegen.errors import SpecErrors
from fusegen.language.parse import parse_spec
from fusegen.runtime import channels_last, producers

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "Conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2), (2, 4, 11)),
    "Conv2d": (lambda: nn.Conv2d(4, 6, (3, 5), groups=2, padding="same"), (2, 4, 7, 8)),
    "reflected": (lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), (2, 4, 7, 8)),
    "Conv3d": (lambda: nn.Conv3d(4, 6, 2, padding=(1, 0, 1)), (1, 4, 5, 4, 3)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 6, 3, 2, 1, 1), (2, 4, 7)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 6, 3, 3, 0, 2, groups=2), (2, 4, 5, 6)),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(4, 6, 2, dilation=2), (1, 4, 3, 4, 5)),
}


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions leave their bias to the kernel, as on CUDA."""
    monkeypatch.setattr(producers, "adds_bias_apart", lambda x: True)


@pytest.mark.parametrize("name", LAYERS)
def test_a_convolution_and_its_bias_are_the_layer(name: str, apart: None) -> None:
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    layer, x = make().double(), torch.randn(shape, dtype=torch.float64)
    for given in (x, x[0]):  # a batch, and none
        y, bias = producers.without_bias(layer, given)
        assert bias.shape == (6, *[1] * (x.dim() - 2))
        assert not torch.equal(y, layer(given))
        torch.testing.assert_close(y + bias, layer(given), rtol=1e-13, atol=1e-13)
    gradients = torch.autograd.grad((y * bias).sum(), [*layer.parameters()])
    assert all(gradient.abs().sum() > 0 for gradient in gradients)


class Own(nn.Conv2d):
    """A convolution that is not exactly PyTorch's."""


def parametrized() -> nn.Module:
    """A convolution whose weight is computed again in each call."""
    normed: Any = nn.utils.parametrizations.weight_norm
    made: nn.Module = normed(nn.Conv2d(4, 6, 3))
    return made


def hooked() -> nn.Module:
    """A convolution whose output somebody looks at."""
    layer = nn.Conv2d(4, 6, 3)
    layer.register_forward_hook(lambda *_: None)
    return layer


def replaced() -> nn.Module:
    """A convolution with another forward, as libraries give it that load weights when they are needed."""
    layer: Any = nn.Conv2d(4, 6, 3)
    layer.forward = lambda x: nn.Conv2d.forward(layer, x).clamp(min=0)
    made: nn.Module = layer
    return made


WHOLE = {
    "another forward": replaced,
    "no bias": lambda: nn.Conv2d(4, 6, 3, bias=False),
    "another class": lambda: Own(4, 6, 3),
    "a hook": hooked,
    "parametrized": parametrized,
}


@pytest.mark.parametrize("name", WHOLE)
def test_other_layers_run_whole_and_leave_nothing(name: str, apart: None) -> None:
    layer, x = WHOLE[name](), torch.randn(2, 4, 7, 8)
    y, bias = producers.without_bias(layer, x)
    assert torch.equal(y, layer(x))
    zeros = torch.tensor([0.0, -0.0, 1.0, torch.nan])
    assert torch.equal((zeros + bias).view(torch.int32), zeros.view(torch.int32))


@pytest.mark.parametrize("name", LAYERS)
def test_a_bias_of_another_size_is_refused_as_pytorch_does(name: str, apart: None) -> None:
    make, shape = LAYERS[name]
    layer, x = make(), torch.randn(shape)
    layer.bias = nn.Parameter(torch.ones(1))
    with pytest.raises(RuntimeError) as ours:
        producers.without_bias(layer, x)
    with pytest.raises(RuntimeError) as theirs:
        layer(x)
    assert str(ours.value) == str(theirs.value)


def test_a_bias_of_another_dtype_is_refused_as_pytorch_does(apart: None) -> None:
    layer, x = nn.Conv2d(4, 6, 3), torch.randn(2, 4, 7, 8)
    layer.bias = nn.Parameter(torch.ones(6, dtype=torch.bfloat16))
    with pytest.raises(RuntimeError, match=r"^Input type \(float\) and bias type \(c10::BFloat16\)"):
        producers.without_bias(layer, x)
    with torch.autocast("cpu", torch.bfloat16):  # which has one dtype for all
        y, bias = producers.without_bias(layer, x)
        assert y.dtype == bias.dtype == torch.bfloat16
        assert torch.equal(y + bias, layer(x))


def test_on_the_cpu_a_convolution_adds_its_bias() -> None:
    """In one rounding, which a sum behind it would double in 16 bits."""
    layer, x = nn.Conv2d(4, 6, 3).bfloat16(), torch.randn(2, 4, 7, 8).bfloat16()
    y, bias = producers.without_bias(layer, x)
    assert torch.equal(y + bias, layer(x))
    assert bias.dim() == 0


def test_no_other_name_is_that_of_a_bias() -> None:
    head = "name: gate\nsummary: A test.\nlayers: [conv: 'Conv2d(3, 4, 3)']\n"
    with pytest.raises(SpecErrors) as caught:
        parse_spec(f"{head}inputs: {{x: {{}}, conv_bias: {{}}}}\nformula: x * conv_bias\n", "gate.yaml")
    [error] = caught.value.errors
    assert error.message == "'conv_bias' is already an input"
    text = f"{head}inputs: {{x: {{}}, x_with_bias: {{}}}}\nformula: x * x_with_bias + x\n"
    program = compose(parse_spec(text, "gate.yaml"), lambda name: None)
    assert [let.name for let in program.lets] == ["x_with_bias2"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("groups", [1, 2])
def test_channels_of_16_bits_come_last(dtype: torch.dtype, groups: int) -> None:
    """Without a trial, which float32 takes (test_channels_last.py)."""

    def never(x: Tensor, weight: Tensor) -> Tensor:
        raise AssertionError("a convolution ran")

    for kind, size in ((nn.Conv2d, (5, 5)), (nn.ConvTranspose3d, (3, 3, 3)), (nn.Conv1d, (5,))):
        layer = kind(8 * groups, 2 * groups, 3, groups=groups, dtype=dtype, device="meta")
        x = torch.empty(2, 8 * groups, *size, dtype=dtype, device="meta")
        given, weight = channels_last.operands(layer, x, never)
        assert given.is_contiguous() != (dtype != torch.float64 and len(size) > 1)
        assert given.shape == x.shape
        assert weight is layer.weight
        given, _ = channels_last.operands(layer, x[0], never)
        assert given.is_contiguous()  # no batch, nothing comes last


@pytest.mark.parametrize("precision", ["ieee", "tf32", "none"])
def test_tf32_is_what_pytorch_allows(precision: str) -> None:
    """``torch.backends.cudnn.allow_tf32 = False`` leaves "none"."""
    backend: Any = torch.backends.cudnn
    before = backend.conv.fp32_precision
    try:
        backend.conv.fp32_precision = precision
        assert channels_last.uses_tf32() == (precision == "tf32")
    finally:
        backend.conv.fp32_precision = before


def test_an_output_is_written_over_where_nothing_else_needs_it() -> None:
    layer, x = nn.Linear(4, 6), torch.randn(3, 4)
    row, larger = torch.randn(6), torch.randn(2, 3, 6)
    with torch.no_grad():
        y = layer(x)
        assert producers.reused(layer, y) is y
        assert producers.reused(layer, y, row, torch.tensor(1.0)) is y
        assert producers.reused(layer, y, larger) is None
        assert producers.reused(layer, y, row.double()) is None
        assert producers.reused(nn.Identity(), y) is None
        assert producers.reused(nn.Flatten(), y) is None
        assert producers.reused(hooked(), y) is None
        assert producers.reused(replaced(), y) is None
    assert producers.reused(layer, layer(x)) is None


@pytest.mark.full
def test_a_model_allocates_its_result_once_and_keeps_its_input() -> None:
    model = generated("conv_relu_hardswish").ModelNew(3, 4, 3)
    x = torch.randn(2, 3, 9, 9)
    before, made = x.clone(), []
    model.conv.register_forward_hook(lambda _, __, y: made.append(y))
    kept = model(x)
    assert torch.equal(made[0], model.conv(x))
    model.conv._forward_hooks.clear()
    with torch.no_grad():
        assert torch.equal(model(x), kept)
    assert torch.equal(x, before)


@pytest.mark.few(1)
@pytest.mark.parametrize("grad", [True, False])
def test_a_model_is_the_same_with_its_bias_apart(grad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module = generated("conv_relu_hardswish")
    torch.manual_seed(0)
    model, x = module.ModelNew(3, 4, 3).double(), torch.randn(2, 3, 9, 9, dtype=torch.float64)
    results: list[list[Tensor]] = []
    own = module.KERNELS.without_bias.__globals__
    for apart in (False, True):
        with monkeypatch.context() as patch, torch.set_grad_enabled(grad):
            patch.setitem(own, "adds_bias_apart", lambda x, apart=apart: apart)
            given = copy.deepcopy(model)
            y = given(x)
            gradients = torch.autograd.grad(y.square().sum(), [*given.parameters()]) if grad else ()
            results.append([y, *gradients])
    for whole, split in itertools.zip_longest(*results):
        torch.testing.assert_close(split, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("apart", [False, True])
def test_a_model_is_one_graph(apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module = generated("conv_relu_hardswish")
    own = module.KERNELS.without_bias.__globals__
    monkeypatch.setitem(own, "adds_bias_apart", lambda x: apart)
    model, x = module.ModelNew(3, 4, 3), torch.randn(2, 3, 9, 9)
    torch._dynamo.reset()
    compiled: Any = torch.compile(model, fullgraph=True, backend="aot_eager")
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            torch.testing.assert_close(compiled(x), model(x))
    exported = torch.export.export(model, (x,)).module()
    torch.testing.assert_close(exported(x), model(x))
