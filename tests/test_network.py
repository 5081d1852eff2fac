"""`fusegen.lift(model, inputs)`: a network whose regions run generated kernels, and its command line."""

# ruff: noqa: E501  # messages stand as they are

from __future__ import annotations

import copy
import inspect
import json
import pickle
import re
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networks
import pytest
import torch
import torch.nn.functional as F
from conftest import ROOT, Workshop
from torch import Tensor, nn

from fusegen.errors import FusegenError
from fusegen.models.lift.lifted_network import lifted_network
from fusegen.models.lift.network import Network
from fusegen.models.lift.regions.region_module import Kernel


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("regions")


@pytest.fixture(scope="module")
def model() -> networks.Mobile:
    return networks.mobile()


@pytest.fixture(scope="module")
def network(model: networks.Mobile, folder: Path) -> Network:
    package: Any = sys.modules["fusegen.models.lift"]  # which is the function, too
    found = package(model, networks.images(), folder=folder)
    assert isinstance(found, Network)
    return found


def kernels(of: nn.Module) -> list[str]:
    return [name for name, each in of.named_modules() if isinstance(each, Kernel)]


def calls(of: Network) -> list[str]:
    """The kernels that the graph calls, in order."""
    return [
        str(node.target)
        for node in of.graph.nodes
        if node.op == "call_module" and str(node.target) in kernels(of)
    ]


def exact(of: nn.Module, x: Tensor) -> Tensor:
    result: Tensor = copy.deepcopy(of).double()(x.double())
    return result


def test_equal_regions_run_one_kernel(network: Network, folder: Path) -> None:
    block = ["squeeze_excite_hardsigmoid_mul", "block_mul_add_relu"]
    assert calls(network) == [*block, *block, "mobile_mul_tanh_mul"]
    names = sorted([*block, "mobile_batch_norm_hardswish", "mobile_mul_tanh_mul"])
    assert sorted(path.stem for path in folder.glob("*.yaml")) == names


@pytest.mark.full
def test_on_cuda_a_kernel_adds_the_bias_of_a_convolution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = networks.mobile().eval()
    monkeypatch.setattr("fusegen.models.lift.found.adds_bias_apart", lambda _: True)
    network, x = lifted_network(model, networks.images(), tmp_path), networks.images()[0]
    excite = ["squeeze_excite_bias_relu", "squeeze_excite_hardsigmoid_mul"]
    block = ["block_batch_norm_hardswish", *excite, "block_mul_add_relu"]
    assert calls(network) == ["mobile_bias_batch_norm_hardswish", *block, *block, "mobile_mul_tanh_mul"]
    assert network.state_dict().keys() == model.state_dict().keys()
    for each in (network, copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        torch.testing.assert_close(each(x), model(x))
    grads = [
        torch.autograd.grad(each(x).sum(), [each.get_parameter("blocks.0.excite.reduce.bias")])
        for each in (network, model)
    ]
    torch.testing.assert_close(*grads)


class Flat(nn.Module):
    """A view behind a convolution."""

    def __init__(self) -> None:
        """Make its layers."""
        super().__init__()
        self.conv, self.pool = nn.Conv2d(4, 8, 3), nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the view."""
        y: Tensor = self.pool(torch.relu(self.conv(x)))
        return y.view(y.size(0), -1)


def test_a_view_may_stand_behind_an_output_that_is_channels_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kernels have it of 16 bits on a GPU without gradients."""
    monkeypatch.setattr("fusegen.models.lift.found.adds_bias_apart", lambda _: True)
    model, x = Flat().bfloat16(), torch.randn(2, 4, 9, 7).bfloat16()
    network = lifted_network(model, (x,), tmp_path)
    modules: list[tuple[str, Any]] = [*network.named_modules()]
    [run] = [each for name, each in modules if name.startswith("without_bias")]
    monkeypatch.setitem(run.run.__globals__, "adds_bias_apart", lambda _: True)
    with torch.no_grad():
        torch.testing.assert_close(network(x), model(x), rtol=2e-2, atol=2e-2)


def test_the_state_is_the_models(network: Network, model: networks.Mobile) -> None:
    theirs, ours = model.state_dict(), network.state_dict()
    assert list(ours) == list(theirs)
    assert all(ours[name].data_ptr() == theirs[name].data_ptr() for name in theirs)
    assert [name for name, _ in network.named_parameters()] == [
        name for name, _ in model.named_parameters()
    ]
    assert [name for name, _ in network.named_buffers()] == [name for name, _ in model.named_buffers()]


def test_the_model_is_left_as_it_is(model: networks.Mobile, folder: Path) -> None:
    model.train()
    model.blocks[0].eval()
    before = {name: (module.training, list(vars(module))) for name, module in model.named_modules()}
    state = copy.deepcopy(model.state_dict())
    lifted_network(model, networks.images(), folder)
    assert before == {name: (module.training, list(vars(module))) for name, module in model.named_modules()}
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    model.train()


@pytest.mark.few(1)
@pytest.mark.parametrize("size", [(1, 3, 16, 16), (5, 3, 24, 16)])
def test_in_evaluation_it_is_the_model_at_any_size(
    network: Network, model: networks.Mobile, size: tuple[int, ...]
) -> None:
    x = 3 * torch.randn(size)
    network.eval()
    model.eval()
    ours, theirs, right = network(x), model(x), exact(model, x)
    assert (ours - right).abs().max() <= 2 * (theirs - right).abs().max() + 1e-6
    model.train()
    network.train()


def test_in_training_it_draws_the_models_numbers_and_has_its_gradients(
    network: Network, model: networks.Mobile
) -> None:
    x = torch.randn(4, 3, 16, 16)
    ours, theirs = copy.deepcopy(network).train(), copy.deepcopy(model).train()
    results = []
    for each in (ours, theirs):
        torch.manual_seed(3)
        results.append(each(x))
        results[-1].square().sum().backward()
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)
    for (name, one), two in zip(theirs.named_parameters(), ours.parameters(), strict=True):
        if one.grad is None:
            assert (name, two.grad) == ("unused", None)
        else:
            torch.testing.assert_close(two.grad, one.grad, rtol=1e-4, atol=1e-5, msg=name)
    for before, after in zip(theirs.buffers(), ours.buffers(), strict=True):
        torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-6)


def test_copies_and_pickles_are_networks_of_their_own(network: Network) -> None:
    x = torch.randn(2, 3, 16, 16)
    network.eval()
    others: list[Network] = [copy.deepcopy(network), pickle.loads(pickle.dumps(network))]
    for other in others:
        assert torch.equal(other(x), network(x))
        assert list(other.state_dict()) == list(network.state_dict())
        with torch.no_grad():
            other.get_parameter("head.bias").add_(1)
        assert not torch.equal(other(x), network(x))
    network.train()


@pytest.mark.full
def test_a_second_lift_compiles_nothing(
    model: networks.Mobile, folder: Path, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fusegen.project import build

    def compiled(*_: Any) -> None:
        raise AssertionError("a module is compiled again")

    lifted_network(model, networks.images(), folder)
    files = {path: path.read_bytes() for path in folder.glob("*.*")}
    monkeypatch.setattr(build, "built", compiled)
    assert calls(lifted_network(model, networks.images(), folder)) == calls(network)
    assert files == {path: path.read_bytes() for path in folder.glob("*.*")}


def test_it_compiles_to_one_graph(network: Network) -> None:
    x = torch.randn(2, 3, 16, 16)
    network.eval()
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), network(x), rtol=1e-5, atol=1e-6)
    network.train()


def test_it_exports_with_the_models_arguments_and_a_dynamic_batch(network: Network) -> None:
    network.eval()
    batch = {"x": {0: torch.export.Dim("batch")}}
    exported = torch.export.export(network, (torch.randn(2, 3, 16, 16),), dynamic_shapes=batch)
    x = torch.randn(5, 3, 16, 16)
    torch.testing.assert_close(exported.module()(x), network(x), rtol=1e-5, atol=1e-6)
    assert list(inspect.signature(network.forward).parameters) == ["x"]
    network.train()


@pytest.mark.full
def test_autocast_and_16_bits_are_the_models(network: Network, model: networks.Mobile) -> None:
    x = torch.randn(2, 3, 16, 16)
    ours, theirs = copy.deepcopy(network).eval(), copy.deepcopy(model).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ours(x).dtype == theirs(x).dtype == torch.bfloat16
    right = exact(theirs, x)
    y, z = ours.bfloat16()(x.bfloat16()), theirs.bfloat16()(x.bfloat16())
    assert y.dtype == torch.bfloat16
    assert (y - right).abs().max() <= 2 * (z - right).abs().max() + 2**-8 * right.abs().max()


def test_a_network_is_not_lifted_again(network: Network, tmp_path: Path) -> None:
    with pytest.raises(FusegenError, match="it is a network that was lifted"):
        lifted_network(network, networks.images(), tmp_path)


# --- inputs that no kernel takes -------------------------------------------------------------------------


class Chain(nn.Module):
    """A chain of two tensors."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The chain."""
        return torch.relu(x * 2 + y)


class Subclass(torch.Tensor):
    """A tensor that is not PyTorch's own class."""


OTHERS: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
    "integers": lambda: (torch.arange(6) - 3, torch.arange(6)),
    "two dtypes": lambda: (torch.randn(6, dtype=torch.float64), torch.randn(6)),
    "the device meta": lambda: (torch.empty(6, device="meta"), torch.empty(6, device="meta")),
    "a subclass": lambda: (torch.randn(6).as_subclass(Subclass), torch.randn(6)),
    "sparse tensors": lambda: (torch.randn(3, 2).to_sparse(), torch.randn(3, 2).to_sparse()),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("case", OTHERS)
def test_other_inputs_run_the_operations_as_they_were(
    case: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = OTHERS[case]()
    network = lifted_network(Chain(), (torch.randn(6), torch.randn(6)), folder)
    [name] = calls(network)
    module, original, ran = getattr(network, name), getattr(network, name).original, []

    def operations(*given: Tensor) -> Any:
        ran.append(case)
        return original(*given)

    monkeypatch.setitem(vars(module), "original", operations)
    ours, theirs = network(*inputs), Chain()(*inputs)
    assert (type(ours), ours.dtype, ours.device, ours.layout) == (
        type(theirs),
        theirs.dtype,
        theirs.device,
        theirs.layout,
    )
    if theirs.device.type == "cpu":
        assert torch.equal(ours.to_dense(), theirs.to_dense())
    expected = [] if theirs.is_meta else [case]  # the operator has a result there
    assert ran == expected
    network(torch.randn(6), torch.randn(6))
    assert ran == expected


# --- what is refused ---------------------------------------------------------------------------------------


class Holder(nn.Module):
    """A function as a module, with a layer and a buffer."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function, self.fc = function, nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: Tensor) -> Any:
        """The function's value."""
        return self.function(self, x)


class DropPath(nn.Module):
    """Drops whole samples of a residual branch in training, as timm's of this name."""

    def forward(self, x: Tensor) -> Tensor:
        """The scaled branch."""
        if not self.training:
            return x
        shape = (x.shape[0],) + (1,) * (x.ndim - 1)
        kept = 0.5 + torch.rand(shape, dtype=x.dtype, device=x.device)
        kept.floor_()
        return x.div(0.5) * kept


class Residual(nn.Module):
    """A block whose branch is dropped in training, with a dropout that reads its own mode."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.path, self.drop = nn.Linear(4, 4), DropPath(), Dropped()

    def forward(self, x: Tensor) -> Tensor:
        """A tensor of the input's shape."""
        y: Tensor = x + self.path(torch.tanh(self.drop(self.fc(x))) * 2)
        return y


class Dropped(nn.Module):
    """Dropout as a function."""

    def forward(self, x: Tensor) -> Tensor:
        """The dropped tensor."""
        return F.dropout(x, 0.5, training=self.training)


def both(*models: nn.Module) -> list[list[Tensor]]:
    """The results and the gradients of some models after one seed."""
    found = []
    for model in models:
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
        torch.manual_seed(1)
        y = model(x)
        found.append([y, *torch.autograd.grad(y.square().sum(), [x, *model.parameters()])])
    return found


@pytest.mark.full
def test_a_forward_that_runs_other_operations_in_training_has_a_graph_of_each_mode(folder: Path) -> None:
    model = Residual()
    network = lifted_network(model, torch.randn(6, 4), folder)
    assert len(network.modes.graphs) == 2
    copies = (network, copy.deepcopy(network), pickle.loads(pickle.dumps(network)))
    for mode, has_random in ((True, True), (False, False)):
        for each in (model, *copies):
            each.train(mode)
        assert ("aten.rand" in network.code) is has_random
        theirs, *ours = both(model, *copies)
        for each in ours:
            torch.testing.assert_close(each, theirs)


@pytest.mark.full
def test_modules_that_are_not_in_the_networks_mode_run_as_they_are_where_they_decide(folder: Path) -> None:
    model = Residual()
    network = lifted_network(model, torch.randn(6, 4), folder)
    network.get_submodule("fc").eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network(torch.randn(6, 4))
    network.get_submodule("path").eval()
    sentence = "Residual: a DropPath and the network are in different modes; the model itself runs"
    with pytest.warns(UserWarning, match=f"^{sentence}$"):
        theirs, ours = both(model, network)  # which share their modules
    torch.testing.assert_close(ours, theirs)


@pytest.mark.full
def test_a_function_reads_the_mode_of_the_module_that_calls_it(folder: Path) -> None:
    model = nn.Sequential(Dropped(), nn.Tanh(), nn.Softsign())
    network = lifted_network(model, torch.randn(6, 4), folder)
    assert 'getattr(self, "0").training' in network.code
    network.get_submodule("0").eval()
    theirs, ours = both(model, network)
    torch.testing.assert_close(ours, theirs)


def no_grad(m: Any, x: Tensor) -> Any:
    y = m.fc(x)
    with torch.no_grad():
        a, b = y.chunk(2, -1)
        gate = torch.cat([torch.sigmoid(a) * 2, b], -1)
    return torch.tanh(y) * gate + b.repeat(1, 2)


@torch.no_grad()
def frozen(x: Tensor) -> Tensor:
    return torch.exp(-x) + 1


WITHOUT_GRADIENTS: dict[str, Callable[..., Any]] = {
    "no_grad": no_grad,
    "a decorator": lambda m, x: torch.tanh(m.fc(x)) * frozen(m.fc(x)),
}


@pytest.mark.full
@pytest.mark.parametrize("case", WITHOUT_GRADIENTS)
def test_what_runs_without_gradients_has_none(case: str, folder: Path) -> None:
    model = Holder(WITHOUT_GRADIENTS[case])
    theirs, ours = both(model, lifted_network(model, torch.randn(6, 4), folder))
    torch.testing.assert_close(ours, theirs)


class Frozen(nn.Module):
    """A model that keeps a part in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.head = nn.Sequential(nn.Linear(4, 4), Dropped()), nn.Linear(4, 4)

    def train(self, mode: bool = True) -> Frozen:
        """Set the mode of the head."""
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """A tensor of the input's shape."""
        return torch.tanh(self.head(self.backbone(x))) * x


@pytest.mark.full
def test_a_train_of_the_models_own_class_is_called_or_refused(folder: Path) -> None:
    model, x = Frozen(), torch.randn(6, 4)
    with pytest.raises(FusegenError) as told:
        lifted_network(model, x, folder)
    assert str(told.value) == (
        "Frozen: this is no model to lift: its class has a train of its own, which a network would not call\n"
        "  hint: lift torch.nn.Sequential(model), which calls it"
    )
    network = lifted_network(nn.Sequential(model), x, folder).train()
    theirs, ours = both(model.train(), network)
    torch.testing.assert_close(ours, theirs)


class Optional(nn.Module):
    """A forward with arguments that most callers leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, scale: float = 2.0, *, pair: bool = False
    ) -> Any:
        """A tensor, or a pair."""
        y = torch.tanh(self.fc(x)) * scale
        if mask is not None:
            y = y * mask
        return (y, x) if pair else y


@pytest.mark.full
def test_arguments_that_the_inputs_leave_out_have_their_defaults(folder: Path) -> None:
    model, x = Optional(), torch.randn(6, 4)
    network = lifted_network(model, x, folder)
    torch.testing.assert_close(network(x), model(x))
    torch.testing.assert_close(network(x, mask=None, scale=2.0), model(x))
    assert list(inspect.signature(network.forward).parameters) == ["x", "mask", "scale", "pair"]
    torch.testing.assert_close(torch.compile(network, backend="eager", fullgraph=True)(x), model(x))
    for others in ({"mask": torch.ones(4)}, {"scale": 3.0}, {"pair": True}):
        name, default = next(iter(others)), {"mask": None, "scale": 2.0, "pair": False}
        sentence = (
            f"Optional: forward was traced with {name}={default[name]!r}, and {name} is another value; "
        )
        other = copy.deepcopy(network)
        with pytest.warns(UserWarning, match=re.escape(sentence + "the model itself runs")):
            torch.testing.assert_close(other(x, **others), model(x, **others))


@pytest.mark.full
def test_arguments_that_the_inputs_give_are_values(folder: Path) -> None:
    model = Optional()
    network = lifted_network(model, (torch.randn(6, 4), torch.rand(4)), folder)
    x, mask = torch.randn(3, 4), torch.rand(4)
    torch.testing.assert_close(network(x, mask), model(x, mask))


class Rounded(torch.autograd.Function):
    """Rounds, with a gradient that goes straight through."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The rounded tensor."""
        return torch.round(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """The gradient as it is."""
        return grad


rounded: Callable[[Tensor], Tensor] = Rounded.apply


def autocast(m: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        return torch.relu(m.fc(x)) * 2


def storing(m: Any, x: Tensor) -> Tensor:
    m.seen = {"last": [torch.relu(m.fc(x)) * 2]}
    return torch.tanh(x) * 2


def averaging(m: Any, x: Tensor) -> Tensor:
    m.count = m.count * 0.9 + x.detach().mean(0)
    return torch.tanh(x - m.count) * 2


def item(m: Any, x: Tensor) -> Tensor:
    y = m.fc(x)
    y[:, 0] = 1
    return torch.relu(y) * 2


def loop(m: Any, x: Tensor) -> Tensor:
    for _ in range(x.shape[0]):
        x = torch.relu(m.fc(x)) * 2
    return x


def test_layers_with_parametrizations_are_lifted(folder: Path) -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    model = nn.Sequential(layer, nn.Softsign())
    theirs, ours = both(model, lifted_network(model, torch.randn(6, 4), folder))
    torch.testing.assert_close(ours, theirs)


def test_hooks_of_the_model_itself_run(folder: Path) -> None:
    model = Holder(lambda m, x: torch.relu(m.fc(x) * 2))
    model.register_forward_hook(lambda *given: given[2] * 3)
    theirs, ours = both(model, lifted_network(model, torch.randn(6, 4), folder))
    torch.testing.assert_close(ours, theirs)


def counting(m: Any, x: Tensor) -> Tensor:
    m.count += 1
    return torch.relu(x * 2)


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "control flow": (
        lambda m, x: x * 2 if x.sum() > 0 else x,
        "this is no model to lift: forward cannot be traced, as a condition in it depends on its inputs",
    ),
    "a function with a backward": (
        lambda m, x: torch.relu(rounded(m.fc(x))) * 2,
        "this is no model to lift: forward cannot be traced, as it calls a torch.autograd.Function, whose backward its graph does not keep",
    ),
    "autocast": (autocast, "this is no model to lift: forward cannot be traced, as it enters autocast, which its graph does not keep"),
    "a tensor that stays on the model": (
        storing,
        "this is no model to lift: forward sets the attribute seen to a tensor, which its graph does not",
    ),
    "a buffer that forward replaces": (
        averaging,
        "this is no model to lift: forward sets the attribute count to a tensor, which its graph does not",
    ),
    "assignment to items": (item, "this is no model to lift: fill in place: what it writes to is read elsewhere"),
    "in place on an input": (
        lambda m, x: x.mul_(2).relu(), "this is no model to lift: mul in place: it writes to an input or a parameter",
    ),
    "a buffer that forward updates": (
        counting, "this is no model to lift: add in place: it writes to an input or a parameter",
    ),
    "in place on a view": (
        lambda m, x: (y := m.fc(x))[0].add_(1).relu() + y,
        "this is no model to lift: add in place: what it writes to is read elsewhere",
    ),
    "inputs that do not fit": (
        lambda m, x: m.fc(x[:, :3]),
        "this is no model to lift: forward cannot run on the example inputs, as it raises RuntimeError: a and b must have same reduction dim, but got [2, 3] X [4, 4].",
    ),
    "nothing that saves": (
        lambda m, x: torch.relu(m.fc(x)),
        "Holder has no region that is worth a kernel, since each operation alone is as fast in PyTorch",
    ),
}  # fmt: skip


CAPTURED: dict[str, Callable[..., Any]] = {  # that torch.fx cannot trace
    "a loop over a size": loop,
    "a count of a size": lambda m, x: torch.relu(m.fc(x)) * int(x.shape[0]),
    "a loop over a tensor": lambda m, x: sum(torch.relu(row * 2) * m.fc(row) for row in x),
    "random numbers of no input": lambda m, x: torch.relu(m.fc(x) + torch.empty(4).normal_()) * 2,
}


@pytest.mark.few(1)
@pytest.mark.parametrize("case", CAPTURED)
def test_a_forward_that_reads_sizes_is_lifted(case: str, folder: Path) -> None:
    model = Holder(CAPTURED[case])
    network = lifted_network(model, torch.randn(6, 4), folder)
    assert calls(network)
    theirs, ours = both(model, network)
    torch.testing.assert_close(ours, theirs)
    x = torch.randn(3, 4)
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where it holds for one size
        for each in (model, network):
            torch.manual_seed(2)
            results.append(each(x))
    torch.testing.assert_close(*results)


@pytest.mark.together
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_lifted_is_refused_in_a_sentence(case: str, tmp_path: Path) -> None:
    function, sentence = REFUSED[case]
    with pytest.raises(FusegenError) as told:
        lifted_network(Holder(function), torch.randn(2, 4), tmp_path)
    assert told.value.message == sentence
    if case not in (
        "a tensor that stays on the model",
        "a buffer that forward replaces",
        "nothing that saves",
        "inputs that do not fit",
    ):
        assert told.value.span.file == __file__
    assert list(tmp_path.iterdir()) == []


def test_hooks_of_a_module_that_the_graph_takes_apart_are_refused(tmp_path: Path) -> None:
    model = networks.mobile()
    model.blocks[0].register_forward_hook(lambda *_: None)
    with pytest.raises(FusegenError, match=r"blocks\.0 has hooks, which its graph does not run"):
        lifted_network(model, networks.images(), tmp_path)


@pytest.mark.full
def test_hooks_of_a_layer_run(tmp_path: Path, folder: Path) -> None:
    model, seen = networks.mobile(), []
    model.head.register_forward_hook(lambda *_: seen.append(1))
    lifted_network(model, networks.images(), folder)(*networks.images())
    assert seen == [1]


@pytest.mark.full
def test_tied_parameters_stay_tied(folder: Path) -> None:
    model = Holder(lambda m, x: m.other(torch.relu(m.fc(x) * 2 + x)))
    model.other = nn.Linear(4, 4)
    model.other.weight = model.fc.weight
    network = lifted_network(model, torch.randn(2, 4), folder)
    for each in (network, copy.deepcopy(network)):
        assert each.get_parameter("other.weight") is each.get_parameter("fc.weight")


@pytest.mark.full
def test_a_constant_of_forward_is_a_number_of_the_region(folder: Path) -> None:
    model = Holder(lambda m, x: torch.max(x, torch.tensor(0.5)) * F.softplus(x))
    network = lifted_network(model, torch.randn(2, 4), folder)
    x = torch.randn(3, 4)
    torch.testing.assert_close(network(x), model(x))
    assert not any(name.startswith("_tensor_constant") for name in vars(model))


# --- the command line --------------------------------------------------------------------------------------

REPORT = """\
this runs networks.py
new      specs/block_mul_add_relu.yaml
new      specs/mobile_batch_norm_hardswish.yaml
new      generated/block_mul_add_relu.py
new      generated/mobile_batch_norm_hardswish.py
new      generated/_runtime
mobile_batch_norm_hardswish: the gradient of x is nan at x = inf, mean = inf, var = inf, weight = 1, bias = 1; eager gives 0; narrow the inputs with 'assume', write the formula another way, set 'numerics: eager', or give the reason why it is right with 'accept: {gradient: ...}'
the rule is that of the CPU (--for cpu), where a kernel has to save 16.4 kB in a call
Mobile, float32: 2 kernels; in training 2 regions save 98.3 kB of 297 kB; in evaluation 5 regions save 172 kB of 371 kB that pointwise operations and reductions move
  2x  block_mul_add_relu           networks.py:41      3 read, 1 written  98.3 kB saved of 172 kB
  3x  mobile_batch_norm_hardswish  networks.py:39, 56  5 read, 1 written  73.7 kB saved of 148 kB  in evaluation
stays PyTorch's: 9 Conv2d, 1 Linear: layers (in training)
stays PyTorch's: 5 BatchNorm2d, 2 AdaptiveAvgPool2d, 1 mean (networks.py:21, 39-40, 56): no kernel that reduces is known to be faster (in training)
stays PyTorch's: 3 Hardswish, 2 relu (networks.py:21, 39, 56): alone it is as fast in PyTorch as in a kernel (in training)
stays PyTorch's: 4 mul, 2 Hardsigmoid, 1 tanh (networks.py:22, 57): it moves so few bytes that the call of a kernel takes longer
stays PyTorch's: 2 dropout (networks.py:40): no kernel with a dropout is known to be faster
stays PyTorch's: 9 Conv2d, 2 BatchNorm2d, 1 Linear: layers (in evaluation)
stays PyTorch's: 2 AdaptiveAvgPool2d, 1 mean (networks.py:21, 56): no kernel that reduces is known to be faster (in evaluation)
stays PyTorch's: 2 relu (networks.py:21): alone it is as fast in PyTorch as in a kernel (in evaluation)
"""
IMAGES = (("--input", "6x3x16x16"), ("--inputs", "networks.py:images"))


@pytest.mark.full
@pytest.mark.parametrize("inputs", IMAGES)
def test_the_command_builds_a_networks_regions_and_reports(
    workshop: Workshop, inputs: tuple[str, ...], use_worth: None
) -> None:
    text = (ROOT / "tests/networks.py").read_text(encoding="utf-8")
    workshop.file("networks.py", text.replace("torch.randn(2, 3, 16, 16)", "torch.randn(6, 3, 16, 16)"))
    result = workshop.run("lift", "networks.py:mobile", *inputs, "--for", "cpu")
    assert result.output == REPORT
    assert result.exit_code == 0
    assert workshop.run("check").exit_code == 0


def test_the_rule_of_another_device_is_asked(workshop: Workshop, use_worth: None) -> None:
    shutil.copy(ROOT / "tests/networks.py", workshop.folder)
    result = workshop.run("lift", "networks.py:mobile", "--input", "6x3x16x16", "--for", "cuda")
    assert (result.exit_code, result.output) == (
        2,
        "this runs networks.py\n"
        "networks.py:mobile: networks.py:mobile has no region that is worth a kernel, since it moves so few bytes "
        "that the call of a kernel takes longer\n  hint: leave it to PyTorch\n",
    )


def test_the_report_as_json_has_the_same_fields(workshop: Workshop) -> None:
    workshop.file("net.py", CHAIN)
    command = ("lift", "net.py:Chain", "--input", "64x32", "--for", "cpu")
    plain, told = (workshop.run(*command, *options) for options in ((), ("--format", "json")))
    records = [json.loads(line) for line in told.stdout.splitlines()]
    assert [record["kind"] for record in records] == ["model", "kernel", "left", "left"]
    assert records[1] == {
        **{"kind": "kernel", "mode": "", "name": "chain_tanh_mul_add", "times": 1, "places": "net.py:6-7"},
        **{
            "read": 1,
            "written": 1,
            "saved": 40960,
            "eager": 57344,
            "expected": None,
            "eager_seconds": None,
        },
    }
    assert [record["calls"] for record in records[2:]] == [{"cumsum": 1}, {"relu": 1}]
    assert (
        "  1x  chain_tanh_mul_add  net.py:6-7  1 read, 1 written  41 kB saved of 57.3 kB\n" in plain.stdout
    )


CHAIN = """from torch import nn


class Chain(nn.Module):
    def forward(self, x):
        scale = x.tanh() * 2
        return (scale + x).cumsum(0).relu()
"""


@pytest.mark.full
def test_the_report_for_cuda_has_expected_times(workshop: Workshop) -> None:
    shutil.copy(ROOT / "tests/networks.py", workshop.folder)
    result = workshop.run("lift", "networks.py:mobile", "--input", "6x3x16x16", "--for", "cuda")
    assert (
        "microseconds as expected on an H200, for those of eager's operations at the speed of a copy\n"
    ) in result.output


TARGETS: dict[tuple[str, ...], str] = {
    (
        "networks.py:gone",
        "--input",
        "2x3",
    ): "networks.py: this is no model to lift: the file defines no gone",
    ("networks:mobile", "--input", "2xx"): "--input: this is no model to lift: '2xx' is no shape",
    (
        "networks:mobile",
        "--input",
        "99999x99999",
    ): "--input: this is no model to lift: '99999x99999' is no shape",
    (
        "networks:images",
        "--input",
        "2x3",
    ): "networks:images: this is no model to lift: it returns list, no model",
    ("torch:pi", "--input", "2"): "torch:pi: this is no model to lift: it is of type float",
    (
        "no_such_module:model",
        "--input",
        "2",
    ): "no_such_module:model: this is no model to lift: importing it raises ModuleNotFoundError: No module named 'no_such_module'",
    (
        "networks:mobile",
        "--input",
        "2x4x16x16",
    ): "networks.py:56:9: this is no model to lift: forward cannot run on the example inputs, as it raises RuntimeError: ",
}


@pytest.mark.parametrize("command", TARGETS)
def test_a_mistake_in_the_command_is_a_sentence(workshop: Workshop, command: tuple[str, ...]) -> None:
    shutil.copy(ROOT / "tests/networks.py", workshop.folder)
    files = workshop.files()
    result = workshop.run("lift", *command)
    assert result.exit_code == 2
    assert TARGETS[command] in result.output
    assert "Traceback" not in result.output
    assert workshop.files() == files
