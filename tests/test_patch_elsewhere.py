"""Activations of transformers and timm, replaced by generated modules."""

import copy
import importlib.util
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from test_gates import called, results
from torch import Tensor, nn

import fusegen
from fusegen.models.patch.activations import ARGUMENTS, OTHER, PARTS

TRANSFORMERS, TIMM = "transformers.activations", "timm.layers.activations"
TIMM_SAVING = "timm.layers.activations_me"
MODULES: dict[str, dict[str, str]] = {  # by the class
    TRANSFORMERS: {
        "AccurateGELUActivation": "gelu_tanh",
        "FastGELUActivation": "gelu_tanh",  # which rounds sqrt(2 / pi) to ten digits
        "GELUActivation": "gelu",
        "GELUTanh": "gelu_tanh",
        "MishActivation": "mish",
        "NewGELUActivation": "gelu_tanh",
        "PytorchGELUTanh": "gelu_tanh",
        "QuickGELUActivation": "quick_gelu",
        "ReLUSquaredActivation": "squared_relu",
        "SiLUActivation": "silu",
    },
    TIMM: {
        "GELU": "gelu",
        "GELUTanh": "gelu_tanh",
        "HardSigmoid": "hardsigmoid",
        "HardSwish": "hardswish",
        "Mish": "mish",
        "PReLU": "prelu",
        "QuickGELU": "quick_gelu",
        "Sigmoid": "sigmoid",
        "Swish": "silu",
        "Tanh": "tanh",
    },
    TIMM_SAVING: {
        "HardSigmoidMe": "hardsigmoid",
        "HardSwishMe": "hardswish",
        "MishMe": "mish",
        "SwishMe": "silu",
    },
}
STAY: dict[str, dict[str, str]] = {
    TRANSFORMERS: {
        "ClippedGELUActivation": OTHER,
        "LaplaceActivation": ARGUMENTS,
        "LinearActivation": "it returns its input",
        "SqrtSoftplusActivation": OTHER,
        "XIELUActivation": PARTS,
    },
    TIMM: {"HardMish": OTHER},
    TIMM_SAVING: {"HardMishMe": OTHER},
}
GIVEN = {"ClippedGELUActivation": (-10, 10)}
LAYERS, TOKENS = 2, 50
SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "vocab_size": TOKENS,
    "intermediate_size": 64,
}
MODELS: dict[str, tuple[dict[str, Any], str]] = {  # arguments, and what runs
    "GPT2": ({"n_embd": 32, "n_layer": LAYERS, "n_head": 4, "vocab_size": TOKENS}, "gelu_tanh"),
    "Llama": (SMALL, "swiglu"),
    "Bert": (SMALL, "gelu"),
}
IDS = torch.arange(14).reshape(2, 7)


@pytest.fixture(scope="module")
def timm() -> Iterator[ModuleType]:
    """The activations of timm, without the rest of it, which needs torchvision."""
    found = importlib.util.find_spec("timm")
    if found is None or found.origin is None:
        pytest.skip("timm is not installed")
    yield from _loaded(TIMM, Path(found.origin).parent / "layers/activations.py")


@pytest.fixture(scope="module")
def timm_saving() -> Iterator[ModuleType]:
    """The activations of timm that save memory."""
    found = importlib.util.find_spec("timm")
    if found is None or found.origin is None:
        pytest.skip("timm is not installed")
    yield from _loaded(TIMM_SAVING, Path(found.origin).parent / "layers/activations_me.py")


def _loaded(name: str, path: Path) -> Iterator[ModuleType]:
    """A file as a module of this name, for a time."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        yield module


def compared(layer: nn.Module, expected: str) -> None:
    """Compare an activation with the module of the library that replaces it."""
    model, x = nn.Sequential(nn.Identity(), layer), torch.linspace(-6, 6, 48).reshape(4, 12)
    before = copy.deepcopy(model)
    report = fusegen.patch(model)
    assert [(each.path, each.module) for each in report.replaced] == [("1", expected)]
    for ours, theirs in zip(results(model, x * 1), results(before, x * 1), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def own(module: ModuleType) -> set[str]:
    """The layers that a module defines."""
    kinds = {name: kind for name, kind in vars(module).items() if isinstance(kind, type)}
    return {
        kind.__qualname__
        for kind in kinds.values()
        if issubclass(kind, nn.Module) and kind.__module__ == module.__name__
    }


OLDER = {"PytorchGELUTanh"}  # names of earlier versions


def known(module: str) -> set[str]:
    """The layers of a module that have a row or a reason."""
    return {*MODULES[module], *STAY[module]} - OLDER


def test_every_activation_of_transformers_has_a_row_or_a_reason() -> None:
    module = pytest.importorskip(TRANSFORMERS)
    assert own(module) == known(TRANSFORMERS)


def test_every_activation_of_timm_has_a_row_or_a_reason(timm: ModuleType, timm_saving: ModuleType) -> None:
    assert own(timm) == known(TIMM)
    assert own(timm_saving) == known(TIMM_SAVING)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", sorted(set(MODULES[TRANSFORMERS]) - OLDER))
def test_an_activation_of_transformers_is_replaced(name: str) -> None:
    module = pytest.importorskip(TRANSFORMERS)
    compared(getattr(module, name)(), MODULES[TRANSFORMERS][name])


@pytest.mark.parametrize("name", sorted(MODULES[TIMM]))
def test_an_activation_of_timm_is_replaced(name: str, timm: ModuleType) -> None:
    compared(getattr(timm, name)(), MODULES[TIMM][name])


@pytest.mark.parametrize("name", sorted(MODULES[TIMM_SAVING]))
def test_a_saving_activation_of_timm_is_replaced(name: str, timm_saving: ModuleType) -> None:
    compared(getattr(timm_saving, name)(), MODULES[TIMM_SAVING][name])


def test_an_activation_of_timm_keeps_inplace(timm: ModuleType) -> None:
    model = nn.Sequential(timm.Swish(inplace=True))
    fusegen.patch(model)
    x = torch.linspace(-2, 2, 9)
    assert model(x) is x


@pytest.mark.parametrize("name", STAY[TRANSFORMERS])
def test_an_activation_of_transformers_stays(name: str) -> None:
    module = pytest.importorskip(TRANSFORMERS)
    layer = getattr(module, name)(*GIVEN.get(name, ()))
    [kept] = fusegen.patch(nn.Sequential(layer)).kept
    assert kept.why == STAY[TRANSFORMERS][name]


NO_GAIN = "no kernel is known to be faster in float32 on cpu"


def small(name: str) -> nn.Module:
    """A small model of transformers, randomly initialised."""
    transformers = pytest.importorskip("transformers")
    arguments = MODELS[name][0]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**arguments)
    model: nn.Module = getattr(transformers, f"{name}Model")(config)
    return model.eval()


def hidden(model: Callable[[Tensor], Any]) -> Tensor:
    """The last hidden state of a model."""
    state: Tensor = model(IDS).last_hidden_state
    return state


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """The gradients of the parameters of a model."""
    state = hidden(model)
    loss = (state * torch.linspace(-1, 1, state.numel()).reshape(state.shape)).sum()
    named = dict(model.named_parameters())
    found = torch.autograd.grad(loss, [*named.values()], allow_unused=True)
    return {name: each for name, each in zip(named, found, strict=True) if each is not None}


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_a_patched_model_of_transformers(name: str) -> None:
    model = small(name)
    before = copy.deepcopy(model)
    report = fusegen.patch(model)
    function = MODELS[name][1]
    assert [each.module for each in report.replaced].count(function) == LAYERS  # beside rotary embeddings
    kept = {each.layer.partition("(")[0]: each.why for each in report.kept}
    assert set(kept) <= {"LayerNorm", "LlamaRMSNorm"}
    assert kept.get("LlamaRMSNorm", NO_GAIN) == NO_GAIN
    assert called(model, IDS)[:LAYERS] == [function] * LAYERS
    assert list(model.state_dict()) == list(before.state_dict())
    torch.testing.assert_close(hidden(model), hidden(before), rtol=1e-5, atol=2e-6)
    expected = gradients(before)
    for each, found in gradients(model).items():
        torch.testing.assert_close(found, expected[each], rtol=1e-4, atol=2e-5)
    assert torch.equal(hidden(pickle.loads(pickle.dumps(model))), hidden(model))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(hidden(compiled), hidden(before), rtol=1e-5, atol=2e-6)
    assert report.undo() == len(report.replaced)
    assert torch.equal(hidden(model), hidden(before))
