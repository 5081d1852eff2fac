"""Linear layers in float32 on a GPU: errors, gradients, bits, graphs."""

import copy
from collections.abc import Callable

import pytest
import torch
from test_linear import Traced, layer_and_input
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import products
from benchmarks.linear import kinds
from fusegen.project import toolkit
from fusegen.runtime import linear, linear_operator

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
SIZES = ((1024, 2048, 512), (129, 100, 257), (70, 20000, 40), (3, 36, 5), (300, 1000, 700))


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have kernels compute layers of all sizes."""
    monkeypatch.setattr(linear_operator, "is_worth", lambda columns, weight: True)


def of_leaf(leaf: Tensor) -> Tensor:
    """The gradient of a leaf."""
    assert leaf.grad is not None
    return leaf.grad


def assert_near(own: Tensor, exact: Tensor) -> None:
    """Results are as near as sums in float32 are, beside the largest one."""
    assert (own.double() - exact).abs().max() <= 2e-6 * exact.abs().max()


@pytest.mark.parametrize("sizes", SIZES)
def test_values_and_gradients_are_near_float64(everywhere: None, sizes: tuple[int, int, int]) -> None:
    layer, x = layer_and_input(*sizes)
    layer, x = layer.cuda(), x.cuda().requires_grad_()
    wide, wide_x = copy.deepcopy(layer).double(), x.detach().double().requires_grad_()
    grad = torch.randn(sizes[0], sizes[2], device="cuda")
    y, expected = linear.linear(layer, x), wide(wide_x)
    y.backward(grad)
    expected.backward(grad.double())
    assert_near(y, expected)
    for own, exact in ((x, wide_x), (layer.weight, wide.weight), (layer.bias, wide.bias)):
        assert_near(of_leaf(own), of_leaf(exact))


def test_the_contract_is_kept_on_every_kind_of_data(everywhere: None) -> None:
    for kind, (x, weight) in kinds(384, 8192, 768).items():
        layer = nn.Linear(8192, 768, bias=False, device="cuda")
        layer.weight.data = weight
        with torch.no_grad():
            size, exact = x.double().abs() @ weight.double().abs().t(), x.double() @ weight.double().t()
            own, eager = (
                (made.double() - exact).abs() / size for made in (linear.linear(layer, x), layer(x))
            )
        assert own.square().mean().sqrt() <= max(float(eager.square().mean().sqrt()), 2**-24), kind
        assert own.max() <= max(float(eager.max()), 2**-22), kind


def test_a_row_has_its_bits_in_any_batch(everywhere: None) -> None:
    layer, x = layer_and_input(300, 2048, 1024)
    layer, x = layer.cuda(), x.cuda()
    x[7] = functional.one_hot(torch.tensor(5), 2048)
    with torch.no_grad():
        y = linear.linear(layer, x)
        for first, last in ((0, 1), (5, 133), (299, 300)):
            assert torch.equal(linear.linear(layer, x[first:last]), y[first:last])
        assert torch.equal(linear.linear(layer, x), y)


@pytest.mark.skipif(toolkit.home() is None, reason="needs nvcc")
@pytest.mark.parametrize("layer_of", [products.layer_of, products.weight_of])
def test_every_form_keeps_the_contract(layer_of: Callable[[int, int, int], products.Layer]) -> None:
    """By mma.sync, too, and in parts, which have the bits of the whole."""
    layer = layer_of(100, 5004, 392)
    layer.x[3] = functional.one_hot(torch.tensor(5), 5004)
    x, weight = layer.x.double(), layer.weight.double()
    size, exact = x.abs() @ weight.abs().t(), x @ weight.t()
    made = {name: call().clone() for name, call in products.forms(layer)}
    for by in products.kernels():
        assert ((made[by].double() - exact).abs() / size).max() <= 2**-22
        assert torch.equal(made[by], made[f"{by} in parts"])


def test_infinities_and_nan_are_eagers(everywhere: None) -> None:
    layer, x = layer_and_input(200, 256, 300)
    layer, x = layer.cuda(), x.cuda()
    x[3, 5], x[7, 9], x[21, 2], x[20, 2] = torch.inf, torch.nan, 3e38, 0
    with torch.no_grad():
        layer.weight[11, 2], layer.bias[17], layer.bias[18] = -torch.inf, torch.inf, torch.nan
        layer.weight[31] *= 1e-30
        x[40], x[41] = x[40] * 1e30, x[41] * 1e-38
        y, eager = linear.linear(layer, x), layer(x)
    assert torch.equal(y.isnan(), eager.isnan())
    assert torch.equal(y.isinf(), eager.isinf())


def test_a_weight_that_changes_is_read_again(everywhere: None) -> None:
    layer, x = layer_and_input(64, 512, 128)
    layer, x = layer.cuda(), x.cuda()
    with torch.no_grad():
        linear.linear(layer, x)
        layer.weight.mul_(torch.exp(12 * torch.randn_like(layer.weight)))
        assert_near(linear.linear(layer, x), copy.deepcopy(layer).double()(x.double()))


def test_a_graph_replays_a_layer(everywhere: None) -> None:
    layer, x = layer_and_input(128, 512, 256)
    layer, x = layer.cuda(), x.cuda()
    with torch.no_grad():
        linear.linear(layer, x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = linear.linear(layer, x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        assert torch.equal(y, linear.linear(layer, x))


def test_a_compiled_model_has_the_bits(everywhere: None) -> None:
    layer, x = layer_and_input(256, 1024, 512)
    model, x = Traced(layer.cuda()), x.cuda()
    with torch.no_grad():
        assert torch.equal(torch.compile(model, fullgraph=True)(x), model(x))


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # PyTorch's own first one
def test_a_compiled_model_in_a_graph_reads_its_weight_again(everywhere: None) -> None:
    layer, x = layer_and_input(256, 1024, 512)
    model, x = Traced(layer.cuda()), x.cuda()
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    with torch.no_grad():
        for _ in range(4):  # the third call replays a graph
            assert torch.equal(compiled(x), model(x))
            layer.weight.mul_(1.5)
