"""Convolutions of single pixels as linear layers: which ones are, their layouts, what is behind them."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import Workshop
from dispatching import after_each
from kernels import compiled
from linear_emulated import Layer, built, product
from parsed import spec_file
from torch import Tensor, nn
from torch.nn import functional

from fusegen.compiler.pipeline import Compiled
from fusegen.evidence.explain.attributes import in_front
from fusegen.project.build import compiled_file
from fusegen.runtime import linear, linear_operator
from fusegen.runtime.channels_last import as_they_are

CHANNELS = 32
SPEC = """\
inputs: {{x: {{shape: [2, 32, 3, 4]}}}}
layers: [conv: "Conv2d(32, 8, {})", scale: "Parameter(randn(8, 1, 1))"]
chain: [relu, x * scale]
"""
LAST, LAST_3D = torch.channels_last, torch.channels_last_3d


def image(*sizes: int) -> Tensor:
    """Images of 32 channels, channels last."""
    torch.manual_seed(0)
    return torch.randn(2, *sizes, CHANNELS).movedim(-1, 1)


def own(module: Any, part: str) -> Any:
    """A file of the runtime of a module's kernels, or of a file of the runtime."""
    holder = getattr(type(getattr(module, "KERNELS", None)), "__module__", "")
    return sys.modules[f"{holder.rpartition('.')[0] or 'fusegen.runtime'}.{part}"]


def as_on_a_gpu(module: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Take tensors to be on a GPU, with PyTorch in place of the kernels; the arguments of their calls."""
    calls: list[tuple[Any, ...]] = []

    def call(*given: Any) -> Tensor:
        calls.append(given)
        return functional.linear(*given)

    chosen, operator = own(module, "linear"), own(module, "linear_operator")
    graded = operator._function(call, functional.linear).apply
    monkeypatch.setattr(chosen, "on_gpu", lambda x: isinstance(x, Tensor))
    monkeypatch.setattr(chosen, "uses_tf32", lambda: False)
    monkeypatch.setattr(operator, "is_worth", lambda columns, weight: True)
    monkeypatch.setattr(operator, "fits", lambda *tensors: True)
    monkeypatch.setattr(operator, "kernels", lambda: SimpleNamespace(call=call, graded=graded))
    return calls


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The arguments of each call of the kernels."""
    return as_on_a_gpu(None, monkeypatch)


def laid_last(layer: nn.Conv2d) -> nn.Conv2d:
    """A layer whose weight lies channels last."""
    layer.weight.data = layer.weight.data.movedim(1, -1).contiguous().movedim(-1, 1)
    return layer


TAKEN: dict[str, Callable[[], tuple[Any, Tensor]]] = {
    "images": lambda: (nn.Conv2d(32, 8, 1), image(3, 4)),
    "images without a bias": lambda: (nn.Conv2d(32, 8, 1, bias=False), image(3, 4)),
    "one image": lambda: (nn.Conv2d(32, 8, 1), image(3, 4)[:1]),
    "a column": lambda: (nn.Conv2d(32, 8, 1, dilation=3), image(3, 1)),
    "channels of wider images": lambda: (nn.Conv2d(8, 8, 1), image(3, 4)[:, 8:16]),
    "every other pixel": lambda: (nn.Conv2d(32, 8, 1), image(3, 4)[:, :, :, ::2]),
    "a weight of channels last": lambda: (laid_last(nn.Conv2d(32, 8, 1)), image(3, 4)),
    "a padding in words": lambda: (nn.Conv2d(32, 8, 1, padding="same"), image(3, 4)),
    "lines": lambda: (nn.Conv1d(32, 8, 1), image(5)),
    "volumes": lambda: (nn.Conv3d(32, 8, 1), image(2, 3, 4)),
}


@pytest.mark.parametrize("what", TAKEN)
def test_pixels_are_rows_without_a_copy(calls: list[tuple[Any, ...]], what: str) -> None:
    layer, x = TAKEN[what]()
    made, eager = linear.linear(layer, x), layer(x)
    torch.testing.assert_close(made, eager)
    if x.dim() == 5:  # which PyTorch lays channels last on CUDA, not here
        assert made.is_contiguous(memory_format=LAST_3D)
    else:
        assert made.stride() == eager.stride()
    [(rows, weight, _)] = calls
    assert (rows.shape[1], weight.shape[1]) == (x.shape[1], x.shape[1])
    assert (rows.data_ptr(), weight.data_ptr()) == (x.data_ptr(), layer.weight.data_ptr())


@pytest.mark.parametrize("what", TAKEN)
def test_gradients_are_those_of_the_layer(calls: list[tuple[Any, ...]], what: str) -> None:
    layer, x = TAKEN[what]()
    found: list[list[Tensor]] = []
    calls_of: tuple[Callable[[Tensor], Any], ...] = (lambda x: linear.linear(layer, x), layer)
    for call in calls_of:
        leaves = [x.detach().requires_grad_(), *layer.parameters()]
        y = call(leaves[0])
        found.append([*torch.autograd.grad(y.sin().sum(), leaves)])
    for mine, eager in zip(*found, strict=True):
        torch.testing.assert_close(mine, eager)
    assert len(calls) == 1
    assert found[0][0].stride() == found[1][0].stride() or x.dim() != 4


class Other(nn.Conv2d):
    """A subclass."""


def hooked(layer: nn.Conv2d) -> nn.Conv2d:
    """A layer whose output somebody sees."""
    layer.register_forward_hook(lambda *_: None)
    return layer


def in_mode() -> Any:
    """A call that a mode sees."""
    with after_each(lambda *found: None):
        return linear.linear(nn.Conv2d(32, 8, 1), image(3, 4))


def in_transform() -> Any:
    """A call in a transform."""
    layer = nn.Conv2d(32, 8, 1)
    return torch.func.vmap(lambda each: linear.linear(layer, each[None]))(image(3, 4))


def of(layer: nn.Module, x: Tensor) -> Callable[[], Any]:
    """A call of a layer."""
    return lambda: linear.linear(layer, x)


LEFT: dict[str, Callable[[], Any]] = {
    "channels first": of(nn.Conv2d(32, 8, 1), image(3, 4).contiguous()),
    "a part of each line": of(nn.Conv2d(32, 8, 1), image(3, 4)[:, :, :, :3]),
    "images turned": of(nn.Conv2d(32, 8, 1), image(3, 4).mT),
    "a repeated channel": of(nn.Conv2d(32, 8, 1), image(3, 4)[:, :1].expand(-1, 32, -1, -1)),
    "windows": of(nn.Conv2d(32, 8, 1), image(6, 4).as_strided((2, 32, 3, 4), (192, 1, 64, 16))),
    "lines that overlap": of(nn.Conv2d(32, 8, 1), image(6, 4).as_strided((2, 32, 3, 4), (384, 1, 64, 32))),
    "a larger kernel": of(nn.Conv2d(32, 8, (1, 3)), image(3, 4)),
    "steps": of(nn.Conv2d(32, 8, 1, stride=(1, 2)), image(3, 4)),
    "a padding": of(nn.Conv2d(32, 8, 1, padding=1), image(3, 4)),
    "a padding with other values": of(nn.Conv2d(32, 8, 1, padding=1, padding_mode="circular"), image(3, 4)),
    "groups": of(nn.Conv2d(32, 8, 1, groups=2), image(3, 4)),
    "a transposed one": of(nn.ConvTranspose2d(32, 8, 1), image(3, 4)),
    "no batch": of(nn.Conv2d(32, 8, 1), image(3, 4)[0]),
    "float64": of(nn.Conv2d(32, 8, 1).double(), image(3, 4).double()),
    "a subclass": of(Other(32, 8, 1), image(3, 4)),
    "a hook": of(hooked(nn.Conv2d(32, 8, 1)), image(3, 4)),
    "a mode": in_mode,
    "a transform": in_transform,
}


@pytest.mark.parametrize("what", LEFT)
def test_others_are_pytorchs(calls: list[tuple[Any, ...]], what: str) -> None:
    LEFT[what]()
    assert calls == []


@pytest.mark.parametrize("what", ["conv", "matmul"])
def test_tf32_is_left_to_pytorch_where_it_is_allowed(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """By default PyTorch computes convolutions in it; the gradient is a product of matrices."""
    monkeypatch.undo()
    as_if_large = as_on_a_gpu(None, monkeypatch)
    copies = own(None, "channels_last")
    allowed = {"conv": what == "conv", "matmul": what == "matmul"}
    monkeypatch.setattr(linear, "uses_tf32", copies.uses_tf32)
    monkeypatch.setattr(linear_operator, "fits", lambda *of: not linear_operator.allows_less())
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    layer, x = nn.Conv2d(32, 8, 1), image(3, 4)
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = allowed.values()
    try:
        linear.linear(layer, x)
        assert as_if_large == []
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        linear.linear(layer, x)
        assert len(as_if_large) == 1
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def test_a_compiler_records_pytorchs_layer(calls: list[tuple[Any, ...]]) -> None:
    found: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        found.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    layer, x = nn.Conv2d(32, 8, 1), image(3, 4)
    torch.compile(lambda x: linear.linear(layer, x), backend=backend, fullgraph=True)(x)
    assert not any("fusegen" in name for name in found)
    assert calls == []


def test_the_kernel_computes_images(calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    library = built("together")

    def call(*given: Any) -> Tensor:
        return product(library, "together", Layer(*given))

    monkeypatch.setattr(linear_operator, "kernels", lambda: SimpleNamespace(call=call))
    layer, x = nn.Conv2d(32, 8, 1), image(3, 4)
    with torch.no_grad():
        made = linear.linear(layer, x)
    exact = layer.double()(x.double())
    assert made.is_contiguous(memory_format=LAST)
    assert (made - exact).abs().max() <= 1e-6 * exact.abs().max()


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A module of a convolution of single pixels, with an operand of each result's size."""
    return compiled(tmp_path_factory.mktemp("pixels"), "conv_relu_scale", SPEC.format(1))


def test_the_module_says_which_kernels_it_has(module: Any, tmp_path: Path) -> None:
    text = Path(module.__file__).read_text(encoding="utf-8")
    assert module.KERNELS.sources.joined == "multiplied"
    assert "out = KERNELS.multiplied(self.conv, x, None, self.scale)" in text
    assert "x, conv_bias = KERNELS.linear_without_bias(self.conv, x)" in text
    other = compiled(tmp_path, "conv_of_3", SPEC.format(3))
    assert other.KERNELS.sources.joined == ""
    assert "KERNELS.without_bias(self.conv, x)" in Path(str(other.__file__)).read_text(encoding="utf-8")


@pytest.mark.full
def test_a_standalone_file_has_pytorchs_layer(workshop: Workshop) -> None:
    workshop.spec("conv_relu_scale", SPEC.format(1))
    workshop.done("build", "--standalone", "alone")
    text = (workshop.folder / "alone" / "conv_relu_scale.py").read_text("utf-8")
    assert "x, conv_bias = without_bias(self.conv, x)" in text
    assert "KERNELS" not in text


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (1, "The 1 x 1 convolution and the forward kernel as one in float32, by mma.sync on sm_80 and by"),
        (3, "conv is PyTorch's convolution: it has more than 16 input channels."),
    ],
)
def test_explain_says_what_runs(tmp_path: Path, kernel: int, said: str) -> None:
    found = compiled_file(spec_file(tmp_path, "conv_relu_scale", SPEC.format(kernel)))
    assert isinstance(found, Compiled)
    [sentence] = in_front(found.spec, found.forms)
    assert sentence.startswith(said)


@pytest.mark.full
def test_the_bias_is_added_by_the_kernel_behind(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = as_on_a_gpu(module, monkeypatch)
    model, x = module.ModelNew(), image(3, 4)
    y = model(x)
    torch.testing.assert_close(y, module.eager(model.conv(x), y.new_zeros(()), model.scale))
    assert y.is_contiguous(memory_format=LAST)
    assert [bias for _, _, bias in calls] == [None]
    y, bias = module.KERNELS.linear_without_bias(nn.Conv2d(32, 8, 1, bias=False), x)
    assert torch.equal(bias, torch.tensor(-0.0))


def test_a_patched_pair_says_how_a_convolution_of_single_pixels_is_laid(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is no product of matrices, as on the CPU."""
    given: list[Any] = []

    def noted(*arguments: Any) -> Any:
        given.append(arguments[2:])
        return None, None

    monkeypatch.setattr(module.KERNELS, "without_bias", noted)
    layer, x = nn.Conv2d(32, 8, 1), image(3, 4)
    module.KERNELS.linear_without_bias(layer, x, as_they_are)
    module.KERNELS.linear_without_bias(layer, x)
    assert given == [(as_they_are,), (None,)]


OPERANDS: dict[str, tuple[Callable[[], Tensor], bool]] = {
    "one for each channel": (lambda: torch.randn(8, 1, 1), True),
    "one for all": (lambda: torch.randn(()), True),
    "one for each result": (lambda: torch.randn(2, 3, 4, 8).movedim(-1, 1), True),
    "one for each result, channels first": (lambda: torch.randn(2, 8, 3, 4), False),
    "one for each column": (lambda: torch.randn(4), False),
    "one for each channel of an image": (lambda: torch.randn(2, 8, 1, 1), False),
    "one that enlarges the images": (lambda: torch.randn(2, 1, 1, 1, 1), False),
    "one of other sizes": (lambda: torch.randn(1, 7, 1, 1), False),
}


@pytest.mark.parametrize("what", OPERANDS)
def test_both_are_one_kernel_with_operands_of_rows(
    module: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    as_on_a_gpu(module, monkeypatch)
    given: list[tuple[Any, ...]] = []

    def multiply(weight: Tensor, x: Tensor, bias: Tensor, *others: Any) -> bool:
        *_, added, scale, out = others
        given.append((bias.numel(), added.shape, scale.shape))
        out.copy_(functional.linear(x, weight).add(added).relu().mul(scale))
        return True

    monkeypatch.setattr(own(module, "build"), "can_load", lambda *of: True)
    monkeypatch.setattr(own(module, "linear_call"), "facts", lambda weight: (weight, weight))
    monkeypatch.setattr(module.KERNELS, "multiply", multiply)
    make, expected = OPERANDS[what]
    layer, x, scale = nn.Conv2d(32, 8, 1), image(3, 4), make()
    with torch.no_grad():
        made = module.KERNELS.multiplied(layer, x, None, scale)
        assert (made is not None) is expected
        if expected:
            torch.testing.assert_close(made, layer(x).relu() * scale)
            assert made.is_contiguous(memory_format=LAST)
            assert given == [(0, (24, 8), (24, 8))]
        assert module.KERNELS.multiplied(nn.Conv2d(32, 8, 1, bias=False), x, None, scale) is None
    assert module.KERNELS.multiplied(layer, x, None, scale) is None  # a gradient is recorded
