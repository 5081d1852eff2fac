"""Activations of torch.nn replaced by generated modules, and put back."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import activation
from torch.nn.utils import parametrizations

import fusegen
from fusegen.models.patch.activations import OTHER
from fusegen.models.patch.patch_report import Kept, Replaced

ARGUMENTS: dict[type[nn.Module], tuple[dict[str, Any], ...]] = {  # of each row, beside the defaults
    nn.CELU: ({"alpha": 0.5}, {"inplace": True}),
    nn.ELU: ({"alpha": 2}, {"inplace": True}),
    nn.GELU: ({"approximate": "tanh"},),
    nn.GLU: ({"dim": 0},),
    nn.Hardshrink: ({"lambd": 0.25},),
    nn.Hardsigmoid: ({"inplace": True},),
    nn.Hardswish: ({"inplace": True},),
    nn.Hardtanh: ({"min_val": -0.5, "max_val": 2.0}, {"inplace": True}),
    nn.LeakyReLU: ({"negative_slope": 0.2}, {"inplace": True}),
    nn.Mish: ({"inplace": True},),
    nn.PReLU: ({"num_parameters": 12, "init": 0.5},),
    nn.ReLU: ({"inplace": True},),
    nn.ReLU6: ({"inplace": True},),
    nn.SELU: ({"inplace": True},),
    nn.SiLU: ({"inplace": True},),
    nn.Softplus: ({"beta": 2, "threshold": 5},),
    nn.Softshrink: ({"lambd": 0.25},),
    nn.Threshold: ({"inplace": True},),
    **dict.fromkeys((nn.LogSigmoid, nn.Sigmoid, nn.Softsign, nn.Tanh, nn.Tanhshrink), ()),
}
STAY = {nn.MultiheadAttention, nn.RReLU, nn.Softmax, nn.Softmax2d, nn.Softmin, nn.LogSoftmax}
FIRST: dict[type[nn.Module], dict[str, Any]] = {
    nn.Threshold: {"threshold": 0.25, "value": -1.0}
}  # which have no default
CORE = (nn.ELU, nn.GELU, nn.Hardtanh, nn.LeakyReLU, nn.PReLU, nn.ReLU, nn.SiLU, nn.Softplus)  # or `full`
CASES = [
    pytest.param(kind, {**FIRST.get(kind, {}), **more}, marks=() if kind in CORE else pytest.mark.full)
    for kind in ARGUMENTS
    for more in ({}, *ARGUMENTS[kind])
]


def named(case: type | dict[str, object]) -> str:
    return case.__name__ if isinstance(case, type) else ", ".join(f"{k}={v}" for k, v in case.items())


def test_every_activation_of_torch_is_replaced_or_stays() -> None:
    assert {getattr(activation, name) for name in activation.__all__} == {*ARGUMENTS, *STAY}


def results(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """The value and the gradient of the input."""
    leaf = x.clone().requires_grad_()
    value = model(leaf * 1)
    return value.detach(), torch.autograd.grad(value.square().sum(), leaf)[0]


@pytest.mark.few(3)
@pytest.mark.parametrize(("kind", "arguments"), CASES, ids=named)
def test_an_activation_is_replaced_with_its_arguments(
    kind: type[nn.Module], arguments: dict[str, Any]
) -> None:
    model = nn.Sequential(nn.Identity(), kind(**arguments)).eval()
    before = copy.deepcopy(model)
    report = fusegen.patch(model)
    assert [(each.path, each.before) for each in report.replaced] == [("1", repr(kind(**arguments)))]
    assert type(model[1]).__module__ == f"fusegen.generated.{report.replaced[0].module}"
    assert not model[1].training
    x = torch.linspace(-6, 6, 48).reshape(4, 12)
    for ours, theirs in zip(results(model, x), results(before, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    if arguments.get("inplace"):
        given = x.clone()
        assert model(given) is given


class Network(nn.Module):
    """A network with layers in others, a shared activation, and some that stay."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.BatchNorm1d(8))
        self.act = nn.SiLU(inplace=True)
        self.again = self.act
        self.hooked, self.own = nn.Tanh(), nn.Mish()
        self.learned, self.soft, self.drawn = nn.PReLU(), nn.Softmax(1), nn.RReLU()
        self.hooked.register_forward_hook(lambda layer, given, result: result * 2)

    def forward(self, x: Tensor) -> Tensor:
        """All layers."""
        x = self.again(self.act(self.first(x)))
        result: Tensor = self.drawn(self.soft(self.learned(self.own(self.hooked(x)))))
        return result


REPORT = """\
replaced 5 layers, kept 3
  act: SiLU(inplace=True) -> silu
  again: SiLU(inplace=True) -> silu
  own: Mish() -> mish
  learned: PReLU(num_parameters=1) -> prelu
  first.1: GELU(approximate='none') -> gelu
  soft: Softmax(dim=1) stays, since no kernel is known to be faster in float32 on cpu
  hooked: Tanh() stays, since it has hooks
  drawn: RReLU(lower=0.125, upper=0.3333333333333333) stays, since it is random in training"""


@pytest.mark.full
def test_a_network_keeps_its_state_and_its_results() -> None:
    torch.manual_seed(0)
    model = Network().eval()
    x = torch.randn(4, 8)
    state, before = copy.deepcopy(model.state_dict()), results(model, x)
    weight = model.learned.weight
    report = fusegen.patch(model)
    assert str(report) == REPORT
    assert model.act is model.again
    assert list(model.state_dict()) == list(state)
    assert model.learned.weight is weight
    model.load_state_dict(state)
    for ours, theirs in zip(results(model, x), before, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_undo_puts_the_same_layers_back() -> None:
    model = Network()
    layers = dict(model.named_modules(remove_duplicate=False))
    report = fusegen.patch(model)
    model.eval()
    assert report.undo() == 5
    assert dict(model.named_modules(remove_duplicate=False)) == layers
    assert not model.act.training
    assert report.undo() == 0


def test_a_copy_can_be_unpatched() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.GELU())
    fusegen.patch(model)
    copied = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert type(copied[1]) is type(model[1])
    assert fusegen.unpatch(copied) == 1
    assert type(copied[1]) is nn.GELU
    assert type(model[1]) is not nn.GELU


class Shift(nn.Module):
    """A layer that TorchScript compiles."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        """The activation, shifted."""
        y: Tensor = self.act(x)
        return y + 1


def test_what_torchscript_has_compiled_stays() -> None:
    scripted: Any = torch.jit.script(Shift())
    model = nn.Sequential(nn.Linear(8, 8), scripted, nn.LayerNorm(8), nn.GELU())
    x = torch.randn(3, 8)
    expected = model(x)
    report = fusegen.patch(model)
    assert [each.path for each in report.replaced] == ["3"]
    assert [each.path for each in report.kept] == ["2"]
    assert model[1] is scripted
    torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-6)
    assert str(fusegen.patch(scripted)) == "the model has no layer that the library computes"


def test_nothing_to_replace_is_one_sentence() -> None:
    nothing = fusegen.patch(nn.Linear(2, 2))
    assert str(nothing) == "the model has no layer that the library computes"
    model = nn.Sequential(nn.GELU(), nn.ReLU())
    fusegen.patch(model)
    again = fusegen.patch(model)
    assert str(again) == "the model is patched already: it has 2 generated modules"
    assert again.replaced == ()
    assert again.undo() == 2


class Own(nn.ReLU):
    """A subclass, which computes something else."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the square root."""
        return super().forward(input).sqrt()


class Swished(nn.Module):
    """An activation of a user, by its formula."""

    def forward(self, x: Tensor) -> Tensor:
        """Return SiLU."""
        return x / (1 + (-x).exp())


class Counted(Swished):
    """One that changes its attributes."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        """Return SiLU."""
        self.calls += 1
        return super().forward(x)


class Through(torch.autograd.Function):
    """A rounding's gradient: that of a function which is another."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return the value."""
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        """Return the gradient of the identity."""
        return grads[0]


class Lazy(nn.Module):
    """A layer whose parameter has no size yet."""

    def __init__(self) -> None:
        """Make the parameter."""
        super().__init__()
        self.weight = nn.UninitializedParameter()


def of_class(forward: Callable[..., Any], base: type[nn.Module] = nn.Module) -> Callable[[], nn.Module]:
    """Return a class with a forward."""
    return type("Layer", (base,), {"forward": forward})


def through(layer: nn.Module, x: Tensor) -> Tensor:
    apply: Callable[[Tensor], Tensor] = Through.apply
    return apply(x)


def with_forward() -> Any:
    """An activation whose forward was replaced."""
    layer: Any = nn.ReLU()
    layer.forward = lambda x: x
    return layer


def approximated() -> nn.Module:
    layer = nn.GELU()
    layer.approximate = "other"
    return layer


def graded() -> Any:
    layer: Any = nn.ELU()
    layer.alpha = torch.tensor(1.0)
    return layer


KEPT: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a subclass": (Own, OTHER),
    "a method": (type("Extended", (nn.ReLU,), {"more": lambda self: 1}), "it has methods of its own"),
    "an own forward": (with_forward, "it has a forward of its own"),
    "an option": (approximated, "its forward cannot be read"),
    "a tensor": (graded, "its alpha is no number"),
}


@pytest.mark.parametrize("case", KEPT)
def test_an_activation_that_is_another_stays(case: str) -> None:
    layer, why = KEPT[case][0](), KEPT[case][1]
    model = nn.Sequential(layer)
    assert fusegen.patch(model).kept == (Kept("0", repr(layer), why),)
    assert model[0] is layer


def test_a_slope_of_another_dtype_is_kept() -> None:
    model = nn.Sequential(nn.PReLU(3).half())
    assert [each.module for each in fusegen.patch(model).replaced] == ["prelu"]
    assert model.state_dict()["0.weight"].dtype is torch.float16


def test_parametrized_layers_stay_beside_activations() -> None:
    """They refuse to be copied."""
    normed = (parametrizations.weight_norm(layer) for layer in (nn.PReLU(4), nn.LayerNorm((3, 4))))
    layers = nn.Linear(4, 4), nn.ELU(0.5), parametrizations.spectral_norm(nn.Linear(4, 4)), *normed
    model, x = nn.Sequential(*layers).eval(), torch.randn(3, 4)
    before = model(x)
    assert [each.module for each in fusegen.patch(model).replaced] == ["elu"]
    torch.testing.assert_close(model(x), before)


def test_a_layer_of_any_class_is_found_by_its_formula() -> None:
    model = nn.Sequential(Swished(), of_class(nn.ReLU.forward, nn.ReLU)())
    assert [each.module for each in fusegen.patch(model).replaced] == ["silu", "relu"]
    x = torch.linspace(-4, 4, 33)
    torch.testing.assert_close(model(x), nn.functional.silu(x).relu())


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "a gradient of its own": of_class(through),
    "far bounds": of_class(lambda self, x: nn.functional.silu(x).clamp(max=12345)),
    "a constant": of_class(lambda self, x: x * (x * 1.7).sigmoid()),
    "a mode": of_class(lambda self, x: x.relu() if self.training else x.tanh()),
    "state": Counted,
    "a value": of_class(lambda self, x: x.relu() if x.sum() > 0 else x),
    "writes": of_class(lambda self, x: x.add_(1).relu() * 0 + x.tanh()),
    "a copy": nn.Identity,
    "another argument": of_class(lambda self, x, y=None: x.relu() if y is None else x),
    "no size yet": of_class(lambda self, x: x * self.weight, Lazy),
}


@pytest.mark.together
@pytest.mark.parametrize("name", OTHERS)
def test_a_layer_of_another_function_stays_and_is_not_reported(name: str) -> None:
    model = nn.Sequential(OTHERS[name]())
    assert str(fusegen.patch(model)) == "the model has no layer that the library computes"


def test_a_model_that_is_an_activation_stays() -> None:
    report = fusegen.patch(nn.ReLU())
    assert str(report).splitlines()[1:] == [
        "  the model: ReLU() stays, since an activation is replaced in the module that holds it"
    ]


def test_another_object_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^fusegen.patch takes a torch.nn.Module, not function$"):
        fusegen.patch(lambda x: x)


def test_a_report_is_a_value() -> None:
    report = fusegen.patch(nn.Sequential(nn.ReLU()))
    assert report.replaced == (Replaced("0", "ReLU()", "relu"),)
    assert report == fusegen.patch(nn.Sequential(nn.ReLU()))


def test_a_package_without_a_name_says_so() -> None:
    with pytest.raises(AttributeError, match=r"^module 'fusegen' has no attribute 'other'$"):
        fusegen.other  # noqa: B018
