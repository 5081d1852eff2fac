"""Convolutions that `patch` runs as one kernel with the activations behind them, until one is changed."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from dispatching import Called, after_each
from test_patch import results
from torch import Tensor, fx, nn
from torch.nn.utils import parametrizations, prune
from torch.nn.utils import spectral_norm as old_spectral_norm
from torch.nn.utils import weight_norm as old_weight_norm

import fusegen
from fusegen.errors import FusegenError
from fusegen.models.patch.derived import plan_of
from fusegen.models.patch.paired import KERNEL, InRow, Kernel
from fusegen.models.patch.patch_report import Report

CLOSE: Any = MappingProxyType({"rtol": 1e-4, "atol": 1e-5})


def pair_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.LeakyReLU(0.2),
        nn.Conv2d(4, 4, 3, bias=False),
        nn.GELU(),
        nn.ConvTranspose2d(4, 2, 2),
        nn.GELU(approximate="tanh"),
    )


def image(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(1), dtype=dtype)


@dataclass(frozen=True)
class Patched:
    """A patched model, and what it was before."""

    model: nn.Sequential
    folder: Path
    report: Report
    layers: tuple[nn.Module, ...]
    shown: str


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Patched:
    """Patch a model once, which takes seconds."""
    folder, model = tmp_path_factory.mktemp("pairs"), pair_model()
    layers, shown = tuple(model), repr(model)
    return Patched(model, folder, fusegen.patch(model, folder=folder), layers, shown)


@pytest.fixture
def model(once: Patched) -> nn.Sequential:
    return copy.deepcopy(once.model)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[nn.Module, nn.Module]]:
    """The pairs that ran as one kernel."""
    made: list[tuple[nn.Module, nn.Module]] = []
    own = Kernel.__call__

    def noted(kernel: Kernel, layer: nn.Module, activation: nn.Module, x: Tensor) -> Any:
        made.append((layer, activation))
        return own(kernel, layer, activation, x)

    monkeypatch.setattr(Kernel, "__call__", noted)
    return made


def add_bias_apart(model: nn.Sequential, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the kernels of a model add biases, as on CUDA."""
    for layer in model:
        if KERNEL in vars(layer):
            own = vars(layer)[KERNEL].kernels.without_bias.__globals__
            monkeypatch.setitem(own, "adds_bias_apart", lambda x: True)


@pytest.mark.full
@pytest.mark.parametrize("apart", [False, True])
def test_a_convolution_and_its_activation_are_one_kernel(
    apart: bool, model: nn.Sequential, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    eager, x = pair_model(), image()
    expected = results(eager, x)
    wanted = torch.autograd.grad(eager(x).square().sum(), [*eager.parameters()])
    if apart:
        add_bias_apart(model, monkeypatch)
    torch.testing.assert_close(results(model, x), expected, **CLOSE)
    assert calls == [(model[0], model[1]), (model[4], model[5])]
    slopes = torch.autograd.grad(model(x).square().sum(), [*model.parameters()])
    torch.testing.assert_close(slopes, wanted, **CLOSE)
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected[0], **CLOSE)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x).detach(), expected[0], **CLOSE)


def test_results_are_laid_as_eager_lays_them(model: nn.Sequential, monkeypatch: pytest.MonkeyPatch) -> None:
    """In 16 bits convolutions of modules run channels last, of which a forward behind has no view."""
    add_bias_apart(model, monkeypatch)
    layers: list[Any] = [*model.bfloat16()]
    x = image().bfloat16()
    with torch.no_grad():
        y = vars(layers[0])[KERNEL](layers[0], layers[1], x)
    assert y.is_contiguous()


@pytest.mark.full
@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_has_the_kernels(strict: bool, model: nn.Sequential) -> None:
    x = image()
    program = torch.export.export(model, (x,), strict=strict)
    targets = [str(node.target) for node in program.graph.nodes if "fusegen" in str(node.target)]
    assert [any(name in target for target in targets) for name in ("leaky_relu", "gelu_tanh")] == [
        True,
        True,
    ]
    torch.testing.assert_close(program.module()(x), pair_model()(x), **CLOSE)


def test_layers_of_a_pair_stay_in_their_places(once: Patched) -> None:
    model = once.model
    assert [(each.path, each.module) for each in once.report.replaced] == [
        *(("0", "conv3x3_3_leaky_relu"), ("4", "bias_gelu_tanh"), ("3", "gelu"))
    ]
    assert isinstance(model, nn.Sequential)
    assert [model[k] is once.layers[k] for k in range(6)] == [True, True, True, False, True, True]
    ours, before = repr(model).splitlines(), once.shown.splitlines()
    assert [line for k, line in enumerate(ours) if k != 4] == [
        line for k, line in enumerate(before) if k != 4
    ]
    assert list(model.state_dict()) == list(pair_model().state_dict())
    assert str(fusegen.patch(model, folder=once.folder)) == (
        "the model is patched already: it has 3 generated modules"
    )


def filled(model: nn.Sequential) -> None:
    def initialise(layer: Any) -> None:
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            nn.init.constant_(layer.weight, 0.25)
            if layer.bias is not None:
                nn.init.ones_(layer.bias)

    model.apply(initialise)


def tied(model: Any) -> None:
    other = nn.Conv2d(3, 4, 3)
    other.weight.data.fill_(0.5)
    model[0].weight = other.weight


def doubled_forward(layer: Any) -> None:
    own = layer.forward
    layer.forward = lambda x: own(x) * 2


def doubled_output(layer: nn.Module) -> None:
    layer.register_forward_hook(lambda layer, given, result: result * 2)


class Doubled(nn.Conv2d):
    """A convolution that computes twice as much."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the double."""
        return super().forward(input) * 2


def reclassed(model: nn.Sequential) -> None:
    model[0].__class__ = Doubled


def replaced(place: int, new: nn.Module) -> Callable[[nn.Sequential], None]:
    def change(model: nn.Sequential) -> None:
        model[place] = copy.deepcopy(new)

    return change


def inserted(model: nn.Sequential) -> None:
    model.insert(1, nn.Sigmoid())


def shortened(model: Any) -> None:
    del model[0:2]
    model.insert(0, nn.Conv2d(3, 4, 3, padding=1, bias=False))
    model[0].weight.data.fill_(0.1)


torch.manual_seed(2)
PRUNED: Any = prune.l1_unstructured
OTHER = nn.Conv2d(3, 4, 3)
# A change after `patch`; and how many pairs still run as one kernel.
CHANGES: dict[str, tuple[Callable[[Any], Any], int]] = {
    "initialised": (filled, 2),
    "tied": (tied, 2),
    "loaded": (lambda model: model.load_state_dict({k: v * 2 for k, v in model.state_dict().items()}), 2),
    "another slope": (lambda model: setattr(model[1], "negative_slope", 0.5), 2),
    "a tensor as the slope": (lambda model: setattr(model[1], "negative_slope", torch.tensor(0.5)), 1),
    "weight_norm": (lambda model: parametrizations.weight_norm(model[0]), 1),
    "spectral_norm": (lambda model: parametrizations.spectral_norm(model[0]).eval(), 1),
    "the old weight_norm": (lambda model: old_weight_norm(model[0]), 1),
    "the old spectral_norm": (lambda model: old_spectral_norm(model[0]).eval(), 1),
    "pruned": (lambda model: PRUNED(model[0], "weight", 0.5), 1),
    "a hook of the layer": (lambda model: doubled_output(model[0]), 1),
    "a hook of the activation": (lambda model: doubled_output(model[1]), 1),
    "a hook before the layer": (
        lambda model: model[0].register_forward_pre_hook(lambda layer, given: (given[0] * 2,)),
        1,
    ),
    "a hook before the activation": (
        lambda model: model[1].register_forward_pre_hook(lambda layer, given: (given[0] * 2,)),
        1,
    ),
    "another layer": (replaced(0, OTHER), 1),
    "another activation": (replaced(1, nn.Tanh()), 1),
    "another approximation": (lambda model: setattr(model[5], "approximate", "none"), 1),
    "a forward of the layer": (lambda model: doubled_forward(model[0]), 1),
    "a forward of the activation": (lambda model: doubled_forward(model[1]), 1),
    "another class": (reclassed, 1),
    "a layer between": (inserted, 1),
    "fewer layers": (shortened, 1),
}


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_after_the_patch_does_what_it_does_in_eager(
    name: str, model: nn.Sequential, calls: list[Any]
) -> None:
    change, still = CHANGES[name]
    eager, x = pair_model(), image()
    for each in (model, eager):
        torch.manual_seed(3)
        change(each)
    assert [*model.state_dict()] == [*eager.state_dict()]
    for ours, theirs in zip(results(model, x), results(eager, x), strict=True):
        torch.testing.assert_close(ours, theirs, **CLOSE)
    assert len(calls) == still
    with torch.no_grad():
        torch.testing.assert_close(model(x), eager(x), **CLOSE)


def test_a_pair_that_fell_apart_is_eagers_to_the_bit(model: Any) -> None:
    eager: Any = pair_model()[:2]
    model, x = model[:2], image()
    seen: list[list[Tensor]] = [[], []]
    for each, outputs in zip((model, eager), seen, strict=True):
        for layer in each:
            layer.register_forward_hook(lambda layer, given, y, outputs=outputs: outputs.append(y.clone()))
        with torch.no_grad():
            outputs.append(each(x))
    for ours, theirs in zip(*seen, strict=True):
        assert torch.equal(ours, theirs)


def test_a_method_that_is_replaced_in_a_class_is_called(
    model: nn.Sequential, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    eager, x = pair_model(), image()
    for kind in (nn.Conv2d, nn.GELU):
        own: Any = kind.forward
        monkeypatch.setattr(kind, "forward", lambda self, x, own=own: own(self, x) * 2)
        model[3] = nn.GELU()  # which the library's module is no more
        torch.testing.assert_close(model(x), eager(x), **CLOSE)
    assert calls == [(model[4], model[5])]  # a transposed convolution, before nn.GELU changed


Kept = list[tuple[Tensor, Tensor]]


def dispatched(kept: Kept) -> Any:
    """Return a mode that keeps what each convolution returns."""

    def keep(operator: Any, given: tuple[Any, ...], y: Tensor) -> None:
        if operator is torch.ops.aten.convolution.default:
            kept.append((y, y.clone()))

    return after_each(keep)


def called(kept: Kept) -> Any:
    """Return the same of functions."""

    def keep(of: Any, y: Any) -> None:
        if "conv" in getattr(of, "__name__", ""):
            kept.append((y, y.clone()))

    return Called(keep)


@pytest.mark.parametrize("mode", [dispatched, called])
def test_a_mode_sees_the_layers(
    mode: Callable[[Kept], Any], model: nn.Sequential, calls: list[Any]
) -> None:
    eager, x = pair_model(), image()
    ours: Kept = []
    theirs: Kept = []
    with torch.no_grad(), mode(ours):
        model(x)
    with torch.no_grad(), mode(theirs):
        eager(x)
    assert calls == []
    assert len(ours) == len(theirs) == 3
    for (y, copied), (expected, _) in zip(ours, theirs, strict=True):
        assert torch.equal(y, copied)
        torch.testing.assert_close(y, expected, **CLOSE)


def test_a_default_device_is_no_mode_that_undoes_a_pair(model: nn.Sequential, calls: list[Any]) -> None:
    with torch.device("cpu"):
        model(image())
    assert len(calls) == 2


def test_a_tracer_of_fx_records_the_layers(model: nn.Sequential) -> None:
    x, expected = image(), pair_model()(image())
    traced = fx.symbolic_trace(model)
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == [
        "0",
        "1",
        "2",
        "4",
        "5",
    ]
    torch.testing.assert_close(traced(x), expected, **CLOSE)


def test_replicas_run_with_their_own_weights(model: Any, calls: list[Any]) -> None:
    """As `nn.DataParallel` makes them, with another weight for each device."""
    x = image()
    replica: Any = model._replicate_for_data_parallel()
    for name, layer in model._modules.items():
        copied: Any = layer._replicate_for_data_parallel()
        for key, parameter in layer._parameters.items():
            setattr(copied, key, None if parameter is None else parameter.detach() * 2)
        replica._modules[name] = copied
    model.load_state_dict({key: value * 2 for key, value in model.state_dict().items()})
    torch.testing.assert_close(replica(x), model(x), **CLOSE)
    assert len(calls) == 4


def test_a_pair_follows_its_parameters_and_can_be_copied_and_undone(model: nn.Sequential) -> None:
    x, layers = image(torch.float64), [*model]
    copied = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    model.double().load_state_dict({k: v * 2 for k, v in model.state_dict().items()})
    changed = model(x)
    torch.testing.assert_close(copied.double()(x), pair_model().double()(x))
    assert fusegen.unpatch(model) == 3
    assert [model[k] is layers[k] for k in range(6)] == [True, True, True, False, True, True]
    assert type(model) is nn.Sequential
    assert not any(KERNEL in vars(layer) for layer in model)
    torch.testing.assert_close(model(x), changed)
    assert plan_of(copied) == InRow()
    assert fusegen.unpatch(copied) == 3
    assert type(copied) is nn.Sequential
    assert [type(layer) for layer in copied] == [type(layer) for layer in pair_model()]


class Mark:
    """A class that another library derives from, too."""


def test_a_class_derived_from_that_of_a_patched_holder_is_undone(
    model: nn.Sequential, calls: list[Any]
) -> None:
    """As FSDP2 derives one from the class of each layer that it shards."""
    x = image()
    model.__class__ = type("Sharded", (Mark, type(model)), {"more": 3})
    torch.testing.assert_close(model(x), pair_model()(x), **CLOSE)
    assert len(calls) == 2
    assert fusegen.unpatch(model) == 3
    assert type(model).__bases__ == (Mark, nn.Sequential)
    torch.testing.assert_close(model(x), pair_model()(x), **CLOSE)
    assert len(calls) == 2


def test_other_weights_for_one_call_are_those_of_the_layers(model: nn.Sequential, calls: list[Any]) -> None:
    eager, x = pair_model(), image()
    weights = {name: value * 2 for name, value in eager.named_parameters()}
    found = torch.func.functional_call(model, weights, (x,))
    torch.testing.assert_close(found, torch.func.functional_call(eager, weights, (x,)), **CLOSE)
    assert len(calls) == 2


def test_a_copy_runs_as_one_kernel(model: Any, calls: list[Any]) -> None:
    x = image()
    copies = (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model[:], model[4:])
    for each in copies:
        calls.clear()
        each(x if len(each) == 6 else torch.randn(2, 4, 5, 5))
        assert len(calls) == len(each) // 2 - (len(each) == 6)


def test_a_pair_that_is_another_stays(tmp_path: Path) -> None:
    shared, hooked = nn.Conv1d(2, 2, 1), nn.Conv1d(2, 2, 1)
    hooked.register_forward_hook(lambda layer, given, result: None)
    last = nn.Conv1d(2, 2, 1), nn.PReLU(), nn.Conv1d(2, 2, 1), nn.GLU(1)
    model = nn.Sequential(shared, nn.Tanh(), shared, hooked, nn.Tanh(), *last)
    report = fusegen.patch(model, folder=tmp_path / "kernels")
    assert [each.module for each in report.replaced] == ["tanh", "tanh", "prelu", "glu"]
    assert not [*(tmp_path / "kernels").glob("*.yaml")]


def test_a_spec_of_another_function_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bias_gelu_tanh.yaml").write_text("name: bias_gelu_tanh\n", encoding="utf-8")
    model = pair_model()
    before = [*model]
    sentence = (
        f"{tmp_path.as_posix()}/bias_gelu_tanh.yaml: the spec is not the one that fusegen.patch writes"
    )
    with pytest.raises(FusegenError) as raised:
        fusegen.patch(model, folder=tmp_path)
    assert str(raised.value).splitlines()[0] == sentence
    assert [*model] == before
    assert [path.name for path in tmp_path.iterdir()] == ["bias_gelu_tanh.yaml"]
