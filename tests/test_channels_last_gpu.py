"""Convolutions in channels_last on a GPU: eager's results and accuracy, in both directions."""

import copy
from typing import Any

import pytest
import torch
from kernels import generated
from torch import Tensor, nn

from fusegen.runtime import layout_copy
from fusegen.runtime.layout_copy import Laid

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
CASES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "large images": (nn.Conv2d(64, 128, 3), (32, 64, 128, 128)),
    "small images": (nn.Conv2d(256, 256, 3), (64, 256, 28, 28)),
    "volumes": (nn.Conv3d(32, 64, 3, padding=1), (4, 32, 16, 64, 64)),
    "transposed": (nn.ConvTranspose2d(64, 128, 4, stride=2, padding=1), (16, 64, 64, 64)),
    "groups": (nn.Conv2d(64, 64, 3, groups=2), (32, 64, 64, 64)),
    "few channels": (nn.Conv2d(8, 64, 3), (32, 8, 128, 128)),
}


def convolved(layer: Any, x: Tensor) -> Tensor:
    """The convolution without its bias, as a module runs it."""
    kernels: Any = generated("conv_relu_hardswish").KERNELS
    y, _ = kernels.without_bias(layer, x)
    assert isinstance(y, Tensor)
    return y


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_as_exact_as_eagers(name: str) -> None:
    """Values to the order of sums of eager's; both no further from float64."""
    torch.manual_seed(0)
    layer: Any = copy.deepcopy(CASES[name][0]).cuda()
    torch.nn.init.zeros_(layer.bias)
    exact = copy.deepcopy(layer).double()
    x = torch.randn(CASES[name][1], device="cuda", requires_grad=True)
    wide = x.detach().double().requires_grad_()
    expected, true = layer(x), exact(wide)
    with torch.no_grad():
        assert (convolved(layer, x) - expected).abs().max() <= 2e-5 * expected.abs().max()
    y, grad = convolved(layer, x), torch.randn_like(expected)
    found = (y, *torch.autograd.grad(y, (x, layer.weight), grad))
    usual = (expected, *torch.autograd.grad(expected, (x, layer.weight), grad))
    reference = (true, *torch.autograd.grad(true, (wide, exact.weight), grad.double()))
    for own, eager, of in zip(found, usual, reference, strict=True):
        assert (own - of).norm() <= 1.05 * (eager - of).norm() + 1e-7 * of.norm()


@pytest.mark.parametrize("chosen", [Laid.CHANNELS_LAST, Laid.ROUNDED])
@pytest.mark.parametrize("shape", [(2, 64, 17, 19), (1, 40, 3, 64, 5), (64, 32, 3, 3), (8, 32, 1, 1)])
def test_copies_have_the_elements(chosen: Laid, shape: tuple[int, ...]) -> None:
    """Rounded to TF32, a tie away from 0."""
    x = torch.randn(shape, device="cuda")
    made = layout_copy.copied(x, chosen)
    assert made.is_contiguous(memory_format=layout_copy.LAYOUTS[x.dim()])
    bits = x.view(torch.int32)
    rounded = ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
    assert torch.equal(made, rounded if chosen is Laid.ROUNDED else x)


def test_a_graph_that_is_captured_keeps_the_layout() -> None:
    layer: Any = nn.Conv2d(64, 64, 3).cuda()
    x = torch.randn(16, 64, 96, 97, device="cuda")  # a shape of no other test
    with torch.no_grad():
        expected = layer(x) - layer.bias.view(-1, 1, 1)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = convolved(layer, x)
        graph.replay()
    torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-5)
