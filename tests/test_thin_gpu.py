"""Thin convolutions on a GPU: errors beside eager's, gradients, and calls one after the other."""

import copy
import sys
from typing import Any

import pytest
import torch
from kernels import generated
from torch import Tensor, nn

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
# batch, input channels, size; output channels, kernel, stride, padding
SHAPES: dict[str, tuple[int, int, tuple[int, int], int, int, int, int]] = {
    "as declared": (4, 8, (128, 128), 64, 3, 1, 0),
    "a colour image": (2, 3, (224, 224), 64, 7, 2, 3),
    "an odd width": (3, 5, (37, 61), 33, 3, 1, 1),
    "the most channels": (1, 16, (40, 48), 96, 3, 2, 1),
    "one pixel": (1, 1, (1, 1), 1, 1, 1, 0),
}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module whose convolutions are one kernel with it whether that is faster or not."""
    made = generated("conv_relu_hardswish")
    own: Any = sys.modules[type(made.KERNELS).__module__.replace("activation", "thin_operator")]
    monkeypatch.setattr(own, "losses", lambda x, weight, shape: ())
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    return made


def chain(y: Tensor) -> Tensor:
    """ReLU, then hard-swish."""
    y = y.relu()
    return y * torch.clamp((y + 3) / 6, 0, 1)


def layer_and_input(name: str, dtype: torch.dtype) -> tuple[nn.Conv2d, Tensor]:
    """A convolution and an input of it."""
    batch, inputs, size, outputs, kernel, stride, padding = SHAPES[name]
    torch.manual_seed(0)
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding).cuda().to(dtype)
    return layer, torch.randn(batch, inputs, *size, device="cuda", dtype=dtype)


@pytest.mark.together
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", SHAPES)
def test_the_error_is_no_larger_than_eagers(module: Any, name: str, dtype: torch.dtype) -> None:
    """By more than the last place of the largest result, of which the smallest shape has one."""
    layer, x = layer_and_input(name, dtype)
    with torch.no_grad():
        y, eager = module.KERNELS.convolved(layer, x, None), chain(layer(x))
        expected = chain(copy.deepcopy(layer).double()(x.double()))
    own, others = (each.double() - expected for each in (y, eager))
    unit = expected.abs().max() * torch.finfo(dtype).eps
    assert bool(own.abs().max() <= others.abs().max() + unit)
    assert bool(own.square().mean().sqrt() <= others.square().mean().sqrt() + unit / 8)


def test_gradients_are_those_of_eager(module: Any) -> None:
    model = module.ModelNew(8, 64, 3).cuda()
    x = torch.randn(4, 8, 40, 40, device="cuda", requires_grad=True)
    given = [x, *model.parameters()]
    found = torch.autograd.grad(model(x).square().sum(), given)
    expected = torch.autograd.grad(chain(model.conv(x)).square().sum(), given)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def test_a_call_is_the_same_every_time(module: Any) -> None:
    layer, x = layer_and_input("a colour image", torch.float32)
    with torch.no_grad():
        first = module.KERNELS.convolved(layer, x, None)
        for _ in range(5):
            assert torch.equal(module.KERNELS.convolved(layer, x, None), first)
