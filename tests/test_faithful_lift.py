"""Models that a graph would hold wrongly: their network computes the same, or they are refused."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_capture import network as lifted
from torch import Tensor, nn

from fusegen.errors import NotAModel
from fusegen.models.lift.captured_modes import captured_in_each_mode
from fusegen.models.lift.network import Network

TORCH: Any = torch  # some of whose functions have no types
X = torch.linspace(-2, 2, 32).view(4, 8)
Forward = Callable[[Any, Tensor], Any]


class Model(nn.Module):
    """A layer, a norm, a buffer and numbers around a function."""

    def __init__(self, function: Forward) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function, self.calls = function, 1
        self.steps, self.state = [0], torch.ones(8)
        self.lin, self.bn, self.second = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.BatchNorm1d(8)
        self.second.running_mean = self.bn.running_mean
        self.register_buffer("mean", torch.linspace(0, 1, 8))
        self.table = {"calls": 1}

    def forward(self, x: Tensor) -> Any:
        """The function's result."""
        return self.function(self, x)


class Around(nn.Module):
    """A model behind one that has a mode of its own."""

    def __init__(self, function: Callable[[nn.Module, Tensor, bool], Tensor]) -> None:
        super().__init__()
        self.block = Model(lambda block, x: function(block, x, self.training))

    def forward(self, x: Tensor) -> Any:
        """The model's result, behind other operations."""
        return self.block(x).sigmoid() * 3


def network(model: nn.Module) -> Network:
    """The network of a model, whose regions run PyTorch's operations."""
    return lifted(model, (X,))


def results(model: nn.Module) -> list[Tensor | None]:
    """The outputs, and the gradients with respect to the input and the parameters."""
    torch.manual_seed(1)
    model.zero_grad()
    x = X.clone().requires_grad_()
    out = model(x)
    outs = out if isinstance(out, tuple) else (out,)
    TORCH.stack([each.float().square().sum() for each in outs]).sum().backward()
    return [*outs, x.grad, *(each.grad for each in model.parameters())]


def assert_same(own: nn.Module, reference: nn.Module) -> None:
    pairs = zip(results(own), results(reference), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other)


def size(model: Any, x: Tensor) -> Any:
    count = x.size(0)
    before = count
    count += 1
    return x * before + count


def shape(model: Any, x: Tensor) -> Any:
    count = x.shape[0] * 2
    before = count
    count -= 1
    return (x * before).tanh() + count


def by_mode(model: Any, x: Tensor) -> Any:
    factor = torch.tensor(2.0) if model.training else torch.tensor(1.0)
    return torch.tanh(x * factor) + model.lin(x)


def gradients_by_mode(model: Any, x: Tensor) -> Any:
    with torch.set_grad_enabled(model.training):
        out = model.lin(x).tanh()
    return out * x


def complex_without_gradients(model: Any, x: Tensor) -> Any:
    with torch.no_grad():
        out = torch.fft.fft(model.lin(x))
    return out.abs() * x


def tuple_without_gradients(model: Any, x: Tensor) -> Any:
    with torch.no_grad():
        halves = model.lin(x).chunk(2, 1)
    return torch.cat(halves, 1) * x


def named_without_gradients(model: Any, x: Tensor) -> Any:
    with torch.no_grad():
        largest = model.lin(x).max(1, keepdim=True)
    return largest.values * x


def is_list(model: Any, x: Tensor) -> Any:
    return x.tanh() * (2.0 if isinstance(x, list | tuple) else 1.0)


def is_tensor(model: Any, x: Tensor) -> Any:
    return x.tanh() * (2.0 if isinstance(x, Tensor) and torch.is_tensor(x) else 1.0)


def written_after(model: Any, x: Tensor) -> Any:
    out = torch.empty_like(x)
    torch.mul(x.detach(), 2, out=out)
    return out.exp().tanh() * x


def by_place(model: Any, x: Tensor) -> Any:
    out = model.lin(x)
    before = out.cos()
    F.relu(out, True)
    return before.tanh() * out


@torch.jit.script
def scripted(x: Tensor) -> Tensor:
    """A function that TorchScript compiles, whose second call it would optimize."""
    return torch.sigmoid(x) * x


def written_elsewhere(function: Callable[[Tensor, Tensor], Tensor]) -> Forward:
    """A forward that writes to a tensor of which a function made a view before."""

    def forward(model: Any, x: Tensor) -> Any:
        out = model.lin(x)
        view = function(out, x)
        out.mul_(2)
        return view.tanh() * 2

    return forward


SAME: dict[str, Forward] = {
    each.__name__: each
    for each in (
        *(size, shape, by_mode, gradients_by_mode, complex_without_gradients, tuple_without_gradients),
        *(named_without_gradients, is_list, is_tensor, written_after),
    )
}
SAME["TorchScript"] = lambda model, x: scripted(model.lin(x)) * 2
SAME["conj"] = written_elsewhere(lambda out, x: out.conj())  # which of a real tensor is it
SAME["sum_to_size"] = written_elsewhere(lambda out, x: out.sum_to_size(4, 8))


@pytest.mark.few
@pytest.mark.parametrize("case", SAME)
@pytest.mark.parametrize("mode", [nn.Module.train, nn.Module.eval])
def test_the_network_computes_what_the_model_computes(
    case: str, mode: Callable[[nn.Module], nn.Module]
) -> None:
    model = Model(SAME[case])
    own = network(copy.deepcopy(model))
    assert_same(mode(own), mode(model))


def kept_dtype(model: Any, x: Tensor) -> Any:
    out = model.lin(x).half().exp()
    before = out * 2
    out += x
    return out * 1.5, before


def kept_dtype_by_size(model: Any, x: Tensor) -> Any:
    for _ in range(min(x.shape[0], 1)):
        made = kept_dtype(model, x)
    return made


def without_gradients(model: Any, x: Tensor) -> Any:
    out = model.lin(x)
    before = out * 1.5
    with torch.no_grad():
        out.mul_(2)
    return out * before.detach()


def out(model: Any, x: Tensor) -> Any:
    out = torch.zeros_like(x)
    before = out.exp()
    torch.mul(x.detach(), 2, out=out)
    return before * out.tanh() * x


def statistics(model: Any, x: Tensor) -> Any:
    before = model.bn.running_mean.exp()
    return before.tanh() * model.bn(x).square().mean(0)


def shared_statistics(model: Any, x: Tensor) -> Any:
    before = torch.tanh(x * model.bn.running_mean + x) * 2
    return torch.sigmoid(before - model.second(x)) * x


def statistics_of_the_second(model: Any, x: Tensor) -> Any:
    before = model.second.running_mean.exp()
    return before.tanh() * model.bn(x).square().mean(0)


def own_statistics(model: Any, x: Tensor) -> Any:
    before = model.mean.exp()
    return before.tanh() * F.batch_norm(x, model.mean, model.bn.running_var, training=True).square().mean(0)


def seeded(model: Any, x: Tensor) -> Any:
    torch.manual_seed(3)
    return torch.tanh(x * torch.rand(8))


def counted(model: Any, x: Tensor) -> Any:
    model.calls += 1
    return torch.tanh(x) * model.calls


def listed(model: Any, x: Tensor) -> Any:
    model.steps.append(1)
    return torch.tanh(x) * len(model.steps)


def tabled(model: Any, x: Tensor) -> Any:
    model.table["calls"] += 1
    return torch.tanh(x) * model.table["calls"]


def asked_for_gradients(model: Any, x: Tensor) -> Any:
    return torch.tanh(x) * (2 if torch.is_grad_enabled() else 3)


def asked_for_a_gradient(model: Any, x: Tensor) -> Any:
    return torch.tanh(x) * (2 if x.requires_grad else 3)


def hooked(model: Any, x: Tensor) -> Any:
    out = model.lin(x)
    out.register_hook(lambda gradient: gradient * 3)
    return torch.tanh(out) * 2


def in_inference(model: Any, x: Tensor) -> Any:
    with torch.inference_mode():
        scale = torch.tanh(x) * 2
    return scale.clone() * x


def caught(model: Any, x: Tensor) -> Any:
    try:
        scale = 2 if x.sum() > 0 else 3
    except Exception:
        scale = 4
    return torch.tanh(x) * scale


def state(model: Any, x: Tensor) -> Any:
    model.state = model.state + 1
    return torch.tanh(x) * model.state


def state_in_place(model: Any, x: Tensor) -> Any:
    model.state += 1
    return torch.tanh(x) * model.state


def data(model: Any, x: Tensor) -> Any:
    out = model.lin(x)
    out.data = out.data * 3
    return out.tanh() * 2


READ = "what it writes to is read elsewhere"
REFUSED: dict[str, tuple[Forward, str]] = {
    "einsum": (written_elsewhere(lambda out, x: torch.einsum("ij->ji", out)), READ),
    "broadcast": (written_elsewhere(lambda out, x: TORCH.broadcast_tensors(out, x)[0]), READ),
    "dtype": (kept_dtype, "a write in place keeps torch.float16, and its operands make torch.float32"),
    "dtype of operators": (
        kept_dtype_by_size,
        "it raises TypeError: a write in place keeps torch.float16, and its operands make torch.float32",
    ),
    "no_grad": (without_gradients, "it writes without a gradient to a value that has one"),
    "out": (out, "mul: what it writes to is read before"),
    "bn": (statistics, "bn: what it writes to is read before"),
    "the second norm": (statistics_of_the_second, "bn: what it writes to is read before"),
    "two norms": (shared_statistics, "second: what it writes to is read before"),
    "batch_norm": (own_statistics, "batch_norm: what it writes to is read before"),
    "python": (lambda model, x: x.tanh() * random.random(), "random numbers by Python's module random"),
    "numpy": (lambda model, x: x.tanh() * float(np.random.rand()), "makes random numbers by numpy"),
    "seed": (seeded, "it seeds random numbers, which its graph does not keep"),
    "list": (listed, "forward changes the attribute steps, which its graph does not"),
    "tensor": (state, "forward sets the attribute state to a tensor, which its graph does not"),
    "in place": (state_in_place, "forward changes the attribute state, which its graph does not"),
    "data": (data, "it sets the attribute data of a tensor"),
    "table": (tabled, "forward changes the attribute table, which its graph does not"),
    "is_grad_enabled": (asked_for_gradients, "it asks if gradients are recorded, which its graph does not"),
    "requires_grad": (asked_for_a_gradient, "it reads requires_grad of a tensor, which its graph does not"),
    "hook": (hooked, "it registers a hook of a tensor, which its graph does not keep"),
    "inference mode": (in_inference, "it enters inference mode, which its graph does not keep"),
    "caught": (caught, "forward cannot be traced, as a condition in it depends on its inputs"),
    "counter": (counted, "forward changes the attribute calls, which its graph does not"),
}


@pytest.mark.together
@pytest.mark.parametrize("case", REFUSED)
def test_what_a_graph_does_not_keep_is_refused(case: str) -> None:
    forward, why = REFUSED[case]
    model = Model(forward)
    with pytest.raises(NotAModel) as error:
        network(model)
    assert why in str(error.value)
    assert model.calls == 1


def test_a_write_that_is_given_by_its_place_is_one() -> None:
    model = Model(by_place)
    with torch.no_grad():
        torch.testing.assert_close(network(copy.deepcopy(model))(X), model(X))


BLOCKS: dict[str, Callable[[nn.Module, Tensor, bool], Tensor]] = {
    "number": lambda block, x, mode: x.tanh() * (2.0 if block.training else 1.0),
    "wiring": lambda block, x, mode: (x.tanh(), x.exp())[block.training] * 2,
    "negation": lambda block, x, mode: F.dropout(x, 0.5, not block.training) * 2,
}


@pytest.mark.parametrize("case", BLOCKS)
def test_a_module_in_another_mode_runs_the_model_itself_where_its_mode_decides(case: str) -> None:
    sentence = "^Around: a Model and the network are in different modes; the model itself runs$"
    for mode in (nn.Module.train, nn.Module.eval):
        own: Any = network(Around(BLOCKS[case]))
        model = mode(Around(BLOCKS[case]))
        assert_same(mode(own), model)
        for each in (own, model):
            each.block.train(not each.training)
        with pytest.warns(UserWarning, match=sentence):
            assert_same(own, model)


def test_a_mode_that_is_handed_on_is_the_callers() -> None:
    function = lambda block, x, mode: F.dropout(x, 0.5, mode) * 2  # noqa: E731
    pair: Any = (network(Around(function)), Around(function))
    for each in pair:
        each.block.eval()
    assert_same(*pair)


def test_a_module_that_stays_in_evaluation_is_lifted() -> None:
    class Frozen(Model):
        def train(self, mode: bool = True) -> Frozen:
            return super().train(False)

    model = nn.Sequential(Frozen(by_mode), Model(by_mode))
    own = network(copy.deepcopy(model))
    assert_same(own.train(), model.train())


def test_another_thread_draws_its_own_numbers_while_a_forward_is_traced() -> None:
    drawn: list[Tensor] = []

    def forward(model: Any, x: Tensor) -> Any:
        if not drawn:  # what is drawn in each trace would be the model's
            other = threading.Thread(target=lambda: drawn.append(torch.rand(2)))
            other.start()
            other.join()
        return x * torch.rand(8)

    found = captured_in_each_mode(Model(forward), (X,), {})
    assert [type(each) for each in drawn] == [Tensor]
    assert [node.target for node in found.graphs[0].nodes].count(TORCH.ops.aten.rand.default) == 1


def test_a_module_of_torchscript_is_captured() -> None:
    class Scripted(Model):
        def __init__(self) -> None:
            super().__init__(lambda model, x: torch.tanh(model.script(x)) * x)
            self.script = torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))

    model = Scripted()
    assert_same(network(model), model)


class Doubled(torch.autograd.Function):
    """A product whose gradient is another."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        """Return it."""
        return x * 2

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        """Return five times the gradient."""
        return gradients[0] * 5


def test_another_thread_may_call_what_is_refused_while_a_forward_is_traced() -> None:
    found: list[Any] = []

    def train() -> None:
        torch.manual_seed(torch.initial_seed())
        with torch.autocast("cpu"), torch.inference_mode():
            found.append(torch.is_grad_enabled())
        x = torch.ones(2, requires_grad=True)
        doubled: Any = Doubled
        doubled.apply(x).sum().backward()
        found.append(x.grad)

    def forward(model: Any, x: Tensor) -> Any:
        if not found:
            other = threading.Thread(target=train)
            other.start()
            other.join()
        return x * 2

    captured_in_each_mode(Model(forward), (X,), {})
    assert found[0] is False
    assert found[1].tolist() == [5, 5]
