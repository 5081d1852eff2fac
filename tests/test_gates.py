"""Gated feed-forward layers with one kernel for the activation and the product."""

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import fusegen
from fusegen.models.patch import gates


class Gated(nn.Module):
    """A feed-forward layer with a gate, as in Llama."""

    def __init__(self, act: nn.Module) -> None:
        """Make the layers."""
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(8, 12), nn.Linear(8, 12), nn.Linear(12, 8)
        self.act = act

    def forward(self, hidden: Tensor) -> Tensor:
        """The value."""
        result: Tensor = self.down(self.act(self.gate(hidden)) * self.up(hidden))
        return result


class Turned(Gated):
    """The product the other way round, as a method."""

    def forward(self, hidden: Tensor) -> Tensor:
        """The value."""
        result: Tensor = self.down(self.up(hidden).mul(self.act(self.gate(hidden))))
        return result


SETTINGS: dict[str, bool] = {}
OTHERS: dict[str, Callable[..., Any]] = {
    "scaled": lambda self, x: self.down(self.act(self.gate(x)) * self.up(x) * 2),
    "sum": lambda self, x: self.down(self.act(self.gate(x)) + self.up(x)),
    "product_behind": lambda self, x: (product := self.act(self.gate(x)) * self.up(x), self.down(product))[
        0
    ],
    "by_mode": lambda self, x: self.down(self.act(self.gate(x if self.training else x * 2)) * self.up(x)),
    "chained": lambda self, x: self.down(self.act(gate := self.gate(x)) * self.up(gate)),
    "by_value": lambda self, x: self.down(self.act(self.gate(x)) * self.up(x)) if x else x,
    "by_attribute": lambda self, x: self.down(
        self.act(self.gate(x)) * self.up(self.up(x) if self.flag else x)
    ),
    "by_layer": lambda self, x: self.down(
        self.act(self.gate(x if self.up.training else self)) * self.up(x)
    ),
    "by_gradients": lambda self, x: self.down(
        self.act(self.gate(x if torch.is_grad_enabled() else None)) * self.up(x)
    ),
    "by_global": lambda self, x: self.down(self.act(self.gate(None if SETTINGS else x)) * self.up(x)),
    "by_argument": lambda self, x, *, y=None: self.down(self.act(self.gate(y or x)) * self.up(x)),
    "by_inner": lambda self, x: self.down(self.act((lambda: self.gate(x))()) * self.up(x)),
}
BODIES: dict[str, dict[str, Any]] = {
    **{name: {"forward": forward, "flag": False} for name, forward in OTHERS.items()},
    "layer_of_the_class": {"up": property(lambda self: self._modules["up"])},
    "state_of_its_own": {"__setstate__": lambda self, state: self.__dict__.update(state)},
}


def derived(name: str) -> type[Gated]:
    """A class with a forward that stays."""
    return type(name, (Gated,), BODIES[name])


class Mark:
    """A class that another library derives from, too."""


def called(model: nn.Module, x: Tensor) -> list[str]:
    """The functions of fusegen that a model runs."""
    found: list[str] = []

    def dispatched(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "fusegen" in str(func):
            found.append(str(func).rpartition("_forward")[0].rpartition(".")[2])
        return func(*args, **(kwargs or {}))

    mode: Any = type("Recorded", (TorchDispatchMode,), {"__torch_dispatch__": dispatched})
    with torch.no_grad(), mode():
        model(x)
    return found


def only(model: nn.Module) -> Any:
    """The only layer of a model."""
    [layer] = model.children()
    return layer


def results(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The value and the gradients of the input and of every parameter."""
    leaf = x.clone().requires_grad_()
    value = model(leaf)
    loss = (value * torch.linspace(-1, 1, value.numel()).reshape(value.shape)).sum()
    return [value.detach(), *torch.autograd.grad(loss, [leaf, *model.parameters()])]


ACTS = {"swiglu": nn.SiLU, "geglu": nn.GELU, "reglu": nn.ReLU}


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", [Gated, Turned])
@pytest.mark.parametrize("name", ACTS)
def test_one_kernel_computes_activation_and_product(name: str, kind: type[Gated]) -> None:
    model = nn.Sequential(kind(ACTS[name]()))
    before, x = copy.deepcopy(model), torch.randn(5, 8)
    report = fusegen.patch(model)
    shown = f"{kind.__name__}, down(act(gate(x)) * up(x))"
    assert str(report) == f"replaced 1 layer, kept 0\n  0: {shown} -> {name}"
    assert called(model, x) == [name]
    assert list(model.state_dict()) == list(before.state_dict())
    assert isinstance(model[0], kind)
    assert repr(model) == repr(before)
    for ours, theirs in zip(results(model, x), results(before, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model[0](hidden=x), before(x), rtol=1e-5, atol=1e-6)


@pytest.mark.together
@pytest.mark.parametrize("name", BODIES)
def test_a_class_of_another_form_stays(name: str) -> None:
    stays(derived(name)(nn.SiLU()))


@pytest.mark.parametrize("act", [nn.GELU(approximate="tanh"), nn.SiLU(inplace=True)], ids=str)
def test_a_layer_with_another_activation_stays(act: nn.Module) -> None:
    stays(Gated(act))


def stays(layer: nn.Module) -> None:
    """Patch a layer that is no gated one, and so has its activation replaced alone."""
    model, kind = nn.Sequential(layer), type(layer)
    assert gates.gate_of(layer) is None
    assert [each.path for each in fusegen.patch(model).replaced] == ["0.act"]
    assert type(model[0]) is kind


def test_a_forward_that_does_more_is_not_run() -> None:
    run: list[int] = []

    def forward(self: Gated, hidden: Tensor) -> Tensor:
        run.append(1)
        return Gated.forward(self, hidden)

    assert gates.gate_of(type("Counting", (Gated,), {"forward": forward})(nn.SiLU())) is None
    assert run == []


def test_a_forward_is_traced_in_each_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[bool] = []
    parts = gates._parts

    def recorded(holder: nn.Module, act: str) -> Any:
        modes.append(holder.training)
        return parts(holder, act)

    monkeypatch.setattr(gates, "_parts", recorded)
    assert gates.gate_of(Gated(nn.SiLU())) is not None
    assert sorted(modes) == [False, True]


def hooked(act: nn.Module) -> nn.Module:
    act.register_forward_hook(lambda layer, given, result: result * 2)
    return act


def test_a_hook_on_the_activation_keeps_the_forward() -> None:
    model = nn.Sequential(Gated(hooked(nn.SiLU())))
    assert str(fusegen.patch(model)) == (
        "replaced 0 layers, kept 1\n  0.act: SiLU() stays, since it has hooks"
    )


def replaced_act(layer: Any) -> None:
    layer.act = nn.ReLU()


def doubled_forward(layer: Any) -> None:
    own = layer.act.forward
    layer.act.forward = lambda x: own(x) * 2


def derived_forward(layer: Any) -> None:
    layer.act.__class__ = type("Own", (nn.GELU,), {"forward": lambda self, x: x * 2})


CHANGES: dict[str, Callable[[Any], object]] = {
    "a hook": lambda layer: hooked(layer.act),
    "a hook before": lambda layer: layer.act.register_forward_pre_hook(lambda _, given: (given[0] * 2,)),
    "another activation": replaced_act,
    "an option": lambda layer: setattr(layer.act, "approximate", "tanh"),
    "a forward": doubled_forward,
    "a class": derived_forward,
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_the_activation_after_the_patch_does_what_it_does_in_eager(name: str) -> None:
    model, x = nn.Sequential(Gated(nn.GELU())), torch.randn(5, 8)
    eager = copy.deepcopy(model)
    fusegen.patch(model)
    assert called(model, x) == ["geglu"]
    for each in (model, eager):
        CHANGES[name](each[0])
    assert torch.equal(model(x), eager(x))
    assert called(model, x) == []


def test_a_forward_that_is_replaced_in_the_class_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Sequential(Gated(nn.SiLU())), torch.randn(5, 8)
    fusegen.patch(model)
    own = Gated.forward
    monkeypatch.setattr(Gated, "forward", lambda self, x: own(self, x) + 1)
    eager = Gated(nn.SiLU())
    eager.load_state_dict(only(model).state_dict())
    assert torch.equal(model(x), eager(x))


def own_weights(layer: nn.Module) -> nn.Module:
    """Give a copy that shares its layers others, as nn.DataParallel does."""
    vars(layer)["_modules"] = {name: copy.deepcopy(each) for name, each in layer._modules.items()}
    return layer


COPIES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "copy": lambda model: nn.Sequential(own_weights(copy.copy(only(model)))),
    "replica": lambda model: nn.Sequential(own_weights(only(model)._replicate_for_data_parallel())),
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_has_the_kernel_and_weights_of_its_own(how: str) -> None:
    model, x = nn.Sequential(Gated(nn.SiLU())), torch.randn(5, 8)
    fusegen.patch(model)
    copied = COPIES[how](model)
    before = copied(x)
    with torch.no_grad():
        only(model).gate.weight.zero_()
    assert called(copied, x) == ["swiglu"]
    assert torch.equal(copied(x), before)
    assert copied.state_dict().keys() == model.state_dict().keys()
    assert fusegen.unpatch(copied) == 1
    assert called(copied, x) == []
    assert type(only(copied)) is Gated
    assert called(model, x) == ["swiglu"]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_each_protocol_of_pickle(protocol: int) -> None:
    model, x = nn.Sequential(Gated(nn.SiLU())), torch.randn(5, 8)
    fusegen.patch(model)
    assert torch.equal(pickle.loads(pickle.dumps(model, protocol))(x), model(x))


@pytest.mark.parametrize("named", [{}, {"y": 1}, {"hidden": 1, "y": 1}])
def test_other_arguments_raise_as_the_original_does(named: dict[str, object]) -> None:
    patched, before = nn.Sequential(Gated(nn.SiLU())), Gated(nn.SiLU())
    fusegen.patch(patched)
    with pytest.raises(TypeError) as expected:
        before(**named)
    with pytest.raises(TypeError) as raised:
        patched[0](**named)
    assert str(raised.value) == str(expected.value)
    assert inspect.signature(patched[0].forward) == inspect.signature(before.forward)


def test_a_forward_that_is_put_over_the_kernel_is_called() -> None:
    model, x = nn.Sequential(Gated(nn.SiLU())), torch.randn(5, 8)
    fusegen.patch(model)
    inner = model[0].forward
    model[0].forward = lambda x: inner(x) + 1
    expected = inner(x) + 1
    assert torch.equal(model(x), expected)
    del model[0].forward
    assert called(model, x) == ["swiglu"]


def test_a_class_derived_from_that_of_a_patched_layer_is_undone() -> None:
    """As FSDP2 derives one from the class of each layer that it shards."""
    model, x = nn.Sequential(Gated(nn.SiLU())), torch.randn(5, 8)
    before = model(x)
    fusegen.patch(model)
    kind: Any = type(model[0])
    model[0].__class__ = type("Sharded", (Mark, kind), {"more": 3})
    assert called(model, x) == ["swiglu"]
    assert fusegen.unpatch(model) == 1
    layer: Any = model[0]
    assert (type(layer).__name__, type(layer).__bases__, layer.more) == ("Sharded", (Mark, Gated), 3)
    assert called(model, x) == []
    assert torch.equal(model(x), before)


def test_a_second_patch_and_undo() -> None:
    model, x = nn.Sequential(Gated(nn.SiLU())), torch.randn(5, 8)
    before = model(x)
    report = fusegen.patch(model)
    assert str(fusegen.patch(model)) == "the model is patched already: it has 1 generated module"
    assert report.undo() == 1
    copied = pickle.loads(pickle.dumps(model))
    assert type(copied[0]) is Gated
    assert torch.equal(copied(x), before)
    assert torch.equal(model(x), before)
    assert type(model[0]) is Gated
    assert str(fusegen.patch(model)).startswith("replaced 1 layer, kept 0\n  0: Gated, ")
    assert called(model, x) == ["swiglu"]


def test_it_compiles_to_one_graph() -> None:
    model, x = nn.Sequential(Gated(nn.SiLU())), torch.randn(5, 8)
    expected = model(x)
    fusegen.patch(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected, rtol=1e-5, atol=1e-6)
    fusegen.unpatch(model)
    assert torch.equal(compiled(x), expected)
