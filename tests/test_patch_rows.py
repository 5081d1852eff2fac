"""Norms and softmax layers replaced by kernels of rows, where these are faster."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from blocks import trained
from torch import Tensor, nn

import fusegen
from fusegen.models.patch import row_layers
from fusegen.models.patch.library import row_names
from fusegen.models.patch.row_functions import OTHER
from fusegen.models.patch.row_layers import RowLayer, row_layer_of
from fusegen.models.reader import row_gains
from fusegen.models.reader.row_gains import FUSED, GAINS, WRITTEN_OUT, Gain, is_gain

ROWS, LENGTH = 12, 64


class Scaled(nn.Module):
    """A layer with a weight."""

    def __init__(self, size: int = LENGTH, eps: float = 1e-6) -> None:
        """Make the weight."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.variance_epsilon = eps


class CastRms(Scaled):
    """The norm of most language models: in float32, and cast back before the weight."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the norm."""
        dtype = hidden.dtype
        hidden = hidden.to(torch.float32)
        hidden = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * hidden.to(dtype)


class BranchedRms(Scaled):
    """One that casts to 16 bits where the weight has them."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the norm."""
        variance = hidden.float().square().mean(dim=-1, keepdim=True)
        hidden = hidden / torch.sqrt(variance + self.variance_epsilon)
        if self.weight.dtype in (torch.float16, torch.bfloat16):
            hidden = hidden.to(self.weight.dtype)
        return self.weight * hidden


class WrittenOut(Scaled):
    """Layer norm as operations, its bias before its weight."""

    def __init__(self) -> None:
        """Make the bias first."""
        super().__init__()
        weight = self.weight
        del self.weight
        self.b, self.g = nn.Parameter(torch.zeros(LENGTH)), weight

    def forward(self, x: Tensor) -> Tensor:
        """Return the norm."""
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).pow(2).mean(-1, keepdim=True)
        return self.g * ((x - mean) / torch.sqrt(variance + self.variance_epsilon)) + self.b


class OfChannels(nn.LayerNorm):
    """Layer norm over the channels of pictures."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the norm."""
        x = input.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class OneMore(Scaled):
    """A norm whose weight is one more than the parameter."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the norm."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon) * (1 + self.weight)


class OneMoreLayerNorm(nn.LayerNorm):
    """Such a layer norm, as Nemotron's."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the norm."""
        return F.layer_norm(input, self.normalized_shape, self.weight + 1, self.bias, self.eps)


class InTraining(CastRms):
    """One that is another function in training."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the norm."""
        return super().forward(hidden) * 2 if self.training else super().forward(hidden)


class Narrowed(CastRms):
    """One whose result is float32, whatever it is given."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the norm."""
        return super().forward(hidden.float())


ROW = (ROWS, LENGTH)
LAYERS: dict[str, tuple[Any, tuple[int, ...], str]] = {  # with the shape of a tensor, and the function
    "LayerNorm": (lambda: nn.LayerNorm(LENGTH), (3, 4, LENGTH), "layer_norm"),
    "RMSNorm": (lambda: nn.RMSNorm(LENGTH, eps=1e-5), ROW, "rms_norm"),
    "Softmax": (lambda: nn.Softmax(-1), (2, 3, 2, LENGTH), "softmax"),
    "LogSoftmax": (lambda: nn.LogSoftmax(1), ROW, "log_softmax"),
    "Softmin": (lambda: nn.Softmin(-1), ROW, "softmin"),
    "cast": (CastRms, (2, 6, LENGTH), "rms_norm"),
    "branched": (lambda: BranchedRms(eps=1e-3), ROW, "rms_norm"),
    "written out": (WrittenOut, ROW, "layer_norm"),
    "of channels": (lambda: OfChannels(LENGTH, eps=1e-6), (2, LENGTH, 3, 2), "layer_norm"),
}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have all kernels be faster; the list has the functions that were asked, and whether they run."""
    ran: list[str] = []

    def always(name: str, *_: Any, is_recorded: bool) -> bool:
        ran.append(name)
        return True

    for name in row_names():
        for written in (FUSED, WRITTEN_OUT):
            for size in (2, 4, 8):
                for mode in (False, True):
                    monkeypatch.setitem(GAINS, ("cpu", name, written, size, mode), Gain(1, 2**20))
    monkeypatch.setattr(row_gains, "is_gain", always)
    return ran


def made(name: str) -> nn.Module:
    """Return a layer with parameters that are no ones and zeros."""
    torch.manual_seed(0)
    layer: nn.Module = LAYERS[name][0]()
    for each in layer.parameters():
        each.data.add_(0.5 * torch.randn_like(each))
    return layer


def results(layer: nn.Module, x: Tensor, grad: Tensor) -> list[Tensor]:
    """Return the value and the gradients."""
    leaf = x.clone().requires_grad_()
    value = layer(leaf)
    found = torch.autograd.grad(value, [leaf, *layer.parameters()], grad.to(value.dtype))
    return [value.detach(), *found]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_layer_of_rows_runs_the_kernel(name: str, dtype: torch.dtype, runs: list[str]) -> None:
    layer = made(name).to(dtype)
    _, shape, function = LAYERS[name]
    exact = copy.deepcopy(layer).double()
    ours = copy.deepcopy(layer)
    report = fusegen.patch(ours)
    assert [(each.before, each.module) for each in report.replaced] == [(repr(layer), f"rows.{function}")]
    assert type(ours).__name__ == type(layer).__name__
    assert isinstance(ours, type(layer))
    x, grad = 3 * torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
    truth = results(exact, x.double(), grad.double())
    bound = torch.finfo(dtype).eps
    for mine, other, true in zip(results(ours, x, grad), results(layer, x, grad), truth, strict=True):
        assert mine.dtype == dtype
        assert mine.stride() == other.stride()
        error = (mine.double() - true).abs().max()
        # casts to float32 in the layer itself leave the comparison in float64 seven digits
        assert error <= (other.double() - true).abs().max() + (bound + 1e-6) * true.abs().max()
    assert set(runs) == {function}


@pytest.mark.full
def test_rows_whose_kernel_would_lay_the_result_otherwise_stay(runs: list[str]) -> None:
    layer = nn.Softmax(1)
    fusegen.patch(nn.Sequential(layer))
    x = torch.randn(2, LENGTH, 3)
    assert layer(x).is_contiguous()
    assert torch.equal(layer(x), x.softmax(1))
    assert runs == []
    layer(x[..., 0].contiguous())
    assert runs == ["softmax"]


@pytest.mark.parametrize(
    "kind", [OneMore, OneMoreLayerNorm, InTraining, nn.RMSNorm], ids=lambda kind: kind.__name__
)
def test_other_functions_stay(kind: Any, runs: list[str]) -> None:
    layer = kind(LENGTH)
    report = fusegen.patch(nn.Sequential(layer))
    assert report.replaced == ()
    assert [each.why for each in report.kept] == ([] if kind is InTraining else [OTHER])


def test_undo_copies_and_pickles(runs: list[str]) -> None:
    model = nn.Sequential(nn.Linear(LENGTH, LENGTH), nn.LayerNorm(LENGTH), CastRms())
    before = copy.deepcopy(model)
    names, weight = [*model.state_dict()], model[1].weight
    report = fusegen.patch(model)
    assert str(report).splitlines()[0] == "replaced 2 layers, kept 0"
    assert [*model.state_dict()] == names
    assert model[1].weight is weight
    assert repr(model) == repr(before)
    again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    x = torch.randn(ROWS, LENGTH)
    again(x)
    assert runs == ["layer_norm", "rms_norm"]
    assert str(fusegen.patch(again)) == "the model is patched already: it has 2 generated modules"
    assert fusegen.unpatch(again) == report.undo() == 2
    for each in (again, model):
        assert [type(layer) for layer in each] == [nn.Linear, nn.LayerNorm, CastRms]
        assert torch.equal(each(x), before(x))


def test_training_follows_the_own_forward(runs: list[str]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(LENGTH, LENGTH), CastRms(), nn.Linear(LENGTH, 1), nn.Softmax(0))
    patched = copy.deepcopy(model)
    fusegen.patch(patched)
    losses = [trained(each, ROWS, LENGTH, rate=1.0) for each in (model, patched)]
    torch.testing.assert_close(*losses)


CHANGES: dict[str, Any] = {
    "eps": lambda layer: setattr(layer, "variance_epsilon", 0.5),
    "a longer row": lambda layer: setattr(layer, "weight", nn.Parameter(torch.ones(1))),
    "another dtype": lambda layer: layer.double(),
    "a class": lambda layer: setattr(layer, "weight", Tagged(torch.ones(LENGTH))),
}


class Tagged(nn.Parameter):
    """A parameter of a class of its own."""


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_runs_its_own_forward(change: str, runs: list[str]) -> None:
    layer, x = CastRms(), torch.randn(ROWS, LENGTH)
    other = copy.deepcopy(layer)
    fusegen.patch(layer)
    CHANGES[change](layer)
    CHANGES[change](other)
    assert torch.equal(layer(x), other(x))
    assert runs == []


def test_a_forward_that_is_replaced_in_the_class_runs(
    runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = CastRms()
    fusegen.patch(layer)
    monkeypatch.setattr(CastRms, "forward", lambda self, x: x + 1)
    assert torch.equal(layer(torch.zeros(1, LENGTH)), torch.ones(1, LENGTH))


def test_tensors_that_the_kernel_does_not_take(runs: list[str]) -> None:
    layer, other = nn.LayerNorm(LENGTH), nn.LayerNorm(LENGTH)
    fusegen.patch(layer)
    x = torch.randn(4, ROWS, LENGTH)
    for given in (x.transpose(0, 1), x[:, ::2], x[:0], x[0, 0]):
        assert torch.equal(layer(given), other(given))
        assert layer(given).stride() == other(given).stride()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(x), other(x))
    assert runs == []
    with pytest.raises(RuntimeError, match="normalized_shape"):
        layer(x[..., 1:])
    layer(input=x)
    assert runs == ["layer_norm"]


def test_a_result_of_another_dtype_stays_so(runs: list[str]) -> None:
    layer, x = Narrowed().bfloat16(), torch.randn(ROWS, LENGTH, dtype=torch.bfloat16)
    other = copy.deepcopy(layer)
    fusegen.patch(layer)
    assert layer(x).dtype == other(x).dtype == torch.float32
    assert runs == []


def test_hooks_run(runs: list[str]) -> None:
    layer, seen = CastRms(), list[Tensor]()
    fusegen.patch(layer)
    layer.register_forward_hook(lambda *given: seen.append(given[2]))
    value = layer(torch.randn(ROWS, LENGTH))
    assert seen[0] is value
    assert runs == ["rms_norm"]


def test_compilers_and_tracers_see_the_own_forward(runs: list[str]) -> None:
    model = nn.Sequential(nn.LayerNorm(LENGTH), CastRms())
    x = torch.randn(ROWS, LENGTH)
    value = model(x)
    fusegen.patch(model)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), value)
    torch.testing.assert_close(torch.fx.symbolic_trace(model)(x), value)  # a layer of torch.nn is a leaf
    assert torch.equal(torch.export.export(model, (x,)).module()(x), value)


def test_vmap_and_jvp(runs: list[str]) -> None:
    layer, x = made("LayerNorm"), torch.randn(3, 4, LENGTH)
    value = layer(x)
    fusegen.patch(layer)
    torch.testing.assert_close(torch.func.vmap(layer)(x), value)
    torch.func.jvp(layer, (x,), (x,))


def test_the_table_decides() -> None:
    assert {key[1] for key in GAINS} <= {*row_names(), "batch_norm", "rotary"}
    large, small = torch.empty(2**15, 64, dtype=torch.bfloat16), torch.empty(64, 64, dtype=torch.bfloat16)
    assert is_gain("rms_norm", WRITTEN_OUT, large, 64, is_recorded=False)
    assert not is_gain("rms_norm", WRITTEN_OUT, small, 64, is_recorded=False)
    assert not is_gain("layer_norm", FUSED, large, 64, is_recorded=False)


REPORT = """\
replaced 1 layer, kept 3
  1: CastRms() -> rows.rms_norm
  0: {} stays, since no kernel is known to be faster in bfloat16 on cpu
  2: Softmax(dim=-1) stays, since no kernel is known to be faster in bfloat16 on cpu
  3: OneMore() stays, since the library has no such function of rows"""


def test_the_report_says_why_a_layer_stays() -> None:
    model = nn.Sequential(nn.LayerNorm(4096), CastRms(4096), nn.Softmax(-1), OneMore(4096)).bfloat16()
    assert str(fusegen.patch(model)) == REPORT.format(model[0])
    of = row_layer_of(nn.LayerNorm(2048))
    assert isinstance(of, RowLayer)
    assert row_layers.condition(of, "cuda", torch.bfloat16) == "where no gradients are recorded"
    assert row_layers.condition(of, "cuda", torch.float32) == ""
