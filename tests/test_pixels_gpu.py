"""Convolutions of single pixels on a GPU: errors, gradients, layouts, bits, and what stays PyTorch's."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from kernels import compiled
from test_linear_gpu import assert_near, of_leaf
from test_pixels import SPEC, own
from torch import Tensor, nn

from fusegen.runtime import linear, linear_operator

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
LAYERS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
SIZES = {  # images, channels, results, by the dimensions of an image
    "lines": (3, 100, 40, (37,)),
    "images": (3, 1028, 520, (7, 9)),
    "one image of few pixels": (1, 36, 5, (2, 3)),
    "volumes": (2, 64, 132, (3, 5, 4)),
}


@pytest.fixture(autouse=True)
def in_float32(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have kernels compute layers of all sizes, and PyTorch convolutions in float32."""
    monkeypatch.setattr(linear_operator, "is_worth", lambda columns, weight: True)
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


def made(what: str) -> tuple[Any, Tensor]:
    """A layer and images of channels last."""
    torch.manual_seed(0)
    images, channels, results, sizes = SIZES[what]
    layer = LAYERS[len(sizes)](channels, results, 1, device="cuda")
    return layer, torch.randn(images, *sizes, channels, device="cuda").movedim(-1, 1)


@pytest.mark.parametrize("what", SIZES)
def test_values_and_gradients_are_near_float64(what: str) -> None:
    layer, x = made(what)
    assert linear.factors(layer, x) is not None
    wide, wide_x = copy.deepcopy(layer).double(), x.double().requires_grad_()
    x.requires_grad_()
    y, expected = linear.linear(layer, x), wide(wide_x)
    grad = torch.randn_like(y)
    y.backward(grad)
    expected.backward(grad.double())
    assert_near(y, expected)
    for mine, exact in ((x, wide_x), (layer.weight, wide.weight), (layer.bias, wide.bias)):
        assert_near(of_leaf(mine), of_leaf(exact))


@pytest.mark.parametrize("what", SIZES)
def test_results_and_gradients_are_laid_as_eagers(what: str) -> None:
    layer, x = made(what)
    found = []
    for call in (lambda x: linear.linear(layer, x), layer):
        leaves = [x.detach().requires_grad_(), *layer.parameters()]
        y = call(leaves[0])
        of_x, *_ = torch.autograd.grad(y, leaves, torch.randn_like(y))
        found.append((y.stride(), of_x.stride() if x.dim() > 3 else ()))
    assert found[0] == found[1]


def test_infinities_and_nan_are_eagers() -> None:
    layer, x = made("images")
    with torch.no_grad():
        x[0, 3, 1, 1], x[1, 5, 2, 2], layer.weight[7, 9], layer.bias[2] = (
            torch.inf,
            torch.nan,
            -torch.inf,
            torch.inf,
        )
        y, eager = linear.linear(layer, x), layer(x)
    assert torch.equal(y.isnan(), eager.isnan())
    assert torch.equal(y.isinf(), eager.isinf())


def test_where_tf32_is_allowed_the_bits_are_eagers() -> None:
    layer, x = made("images")
    torch.backends.cudnn.allow_tf32 = True
    with torch.no_grad():
        assert linear.factors(layer, x) is None
        assert torch.equal(linear.linear(layer, x), layer(x))


def test_mistakes_have_eagers_words() -> None:
    layer, x = made("images")
    for given in (x[:, :8], x.double(), x[0, 0]):
        with pytest.raises(RuntimeError) as eager:
            layer(given)
        with pytest.raises(RuntimeError) as mine:
            linear.linear(layer, given)
        assert str(mine.value) == str(eager.value)


def test_one_kernel_has_the_bits_of_two(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = compiled(tmp_path, "conv_relu_scale", SPEC.format(1))
    monkeypatch.setattr(own(module, "linear_operator"), "is_worth", lambda columns, weight: True)
    model = module.ModelNew().cuda()
    x = torch.randn(16, 9, 7, 32, device="cuda").movedim(-1, 1)
    with torch.no_grad():
        both = module.KERNELS.multiplied(model.conv, x, None, model.scale)
        y, bias = module.KERNELS.linear_without_bias(model.conv, x)
        assert both is not None
        assert both.stride() == y.stride() == model.conv(x).stride()
        assert torch.equal(both, module.conv_relu_scale(y, bias, model.scale))
        assert torch.equal(model(x), both)
        assert_near(both, model.conv.double()(x.double()).relu() * model.scale)
