"""Regions that gain by the two clocks of a device: which of a network run kernels."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fusegen
from fusegen.errors import NoRegion
from fusegen.models.lift import clocks, lifted_network, network_clock
from fusegen.models.lift.clocks import Clock, Times, Timing
from fusegen.models.lift.found import found
from fusegen.models.lift.lifted_network import network
from fusegen.models.lift.network import Network


class Two(nn.Module):
    """Two regions, beside a product."""

    def __init__(self) -> None:
        """Make the layer."""
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Return the second region of the product of the first."""
        result: Tensor = torch.relu(self.layer(torch.tanh(x * 2) + x)) * 3
        return result


def lifted(folder: Path, clock: Clock | None) -> Network:
    """Return the network of the model with a kernel for each region that gains."""
    return network(found(Two(), [torch.randn(4, 8)], least_passes=1), folder, folder, clock)


def by_kernel(table: dict[str, tuple[Times, Times]]) -> Clock:
    """Return a clock of eager's times and those of kernels, by a function that a call runs."""
    turns: list[Any] = []

    def clock(run: Callable[[], Any]) -> Times:
        run()  # as a clock does
        turns.append(run)
        names = [*table]
        own = table[names[(len(turns) - 1) // 4 % len(names)]]  # forward and a step, of each region
        return own[(len(turns) - 1) % 2]

    return clock


class Chain(nn.Module):
    """A region that is worth a kernel."""

    def __init__(self) -> None:
        """Make the parameter."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """Return some activations."""
        return torch.tanh(torch.relu(x) * self.weight) + x


FAST, SLOW = Times(1e-6, 5e-6), Times(9e-6, 2e-6)  # the later clock is the device's, and the CPU's
TABLES = {
    "both": ((SLOW, FAST), (SLOW, SLOW), 2),
    "the second": ((FAST, SLOW), (SLOW, FAST), 1),
    "the first": ((SLOW, FAST), (Times(0, 4e-6), FAST), 1),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of specs and modules, which all tests share."""
    return tmp_path_factory.mktemp("regions")


@pytest.mark.few(1)
@pytest.mark.parametrize("name", TABLES)
def test_a_region_runs_where_its_later_clock_gains(folder: Path, name: str) -> None:
    first, second, count = TABLES[name]
    made = lifted(folder, by_kernel({"first": first, "second": second}))
    called = [word for word in ("self.two_mul_tanh_add", "self.two_relu_mul") if f"{word}(" in made.code]
    assert called == {"both": ["self.two_mul_tanh_add", "self.two_relu_mul"]}.get(
        name, ["self.two_relu_mul" if name == "the second" else "self.two_mul_tanh_add"]
    )
    assert len([*made.children()]) == 1 + count
    assert len(made.timings) == 4
    x = torch.randn(4, 8)
    torch.testing.assert_close(made(x), reference(made, x))
    assert pickle.loads(pickle.dumps(made)).timings == made.timings


def reference(of: Network, x: Tensor) -> Tensor:
    """Return the model's result."""
    model = Two()
    model.load_state_dict(of.state_dict())
    result: Tensor = model(x)
    return result


def test_a_sentence_of_each_time(folder: Path) -> None:
    made = lifted(folder, by_kernel({"first": (SLOW, FAST), "second": (FAST, SLOW)}))
    assert [str(each) for each in made.timings if each.what == "forward"] == [
        "two_mul_tanh_add, forward: enqueue 1.0 us for 9.0, device 5.0 us for 2.0: a kernel",
        "two_relu_mul, forward: enqueue 9.0 us for 1.0, device 2.0 us for 5.0: left to PyTorch",
    ]


def test_without_a_gain_there_is_no_network(folder: Path) -> None:
    with pytest.raises(NoRegion, match="no kernel is faster than the operations that it replaces"):
        lifted(folder, by_kernel({"all": (FAST, SLOW)}))
    assert not lifted(folder, None).timings


class Odd(nn.Module):
    """Regions with a norm, a dropout, shared elements, a mask, and without gradients."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(8), nn.Dropout(0.5)
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of the regions' results."""
        y = self.one(torch.relu(self.norm(x * 2)))
        z = self.other(self.drop(torch.relu(y) * 2))
        wide = (x[:1].expand(4, 8).unsqueeze(0).expand(3, 4, 8) * 2 + 1).softmax(0)
        result: Tensor = torch.where(x > 0, z * 2, 1.0).cumsum(0) + (x.detach() * 2 + 1).cumsum(0) + wide[0]
        return result


@pytest.mark.full
def test_each_region_is_timed_and_the_model_stays_as_it_is(folder: Path) -> None:
    model = Odd()
    before = [each.clone() for each in (*model.buffers(), torch.tensor(model.training))]
    regions = found(model, [torch.randn(4, 8)], least_passes=1)
    made = network(regions, folder, folder, by_kernel({"all": (SLOW, FAST)}))
    training = regions.modes.graphs[0]
    names = {each.title for each in regions.chosen if each.region.result.graph is training}
    assert names <= {each.name for each in made.timings}
    assert {"odd_mul_batch_norm_relu", "odd_relu_mul_dropout"} <= names
    after = [*model.buffers(), torch.tensor(model.training)]
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


class Queue:
    """The events of a device whose queue holds some calls; more wait until it has begun."""

    most, calls = 7, 0

    def __init__(self, **_: Any) -> None:
        """Count from 0."""

    def record(self) -> None:
        """Begin or end."""

    def query(self) -> bool:
        """Tell if the device has begun."""
        return Queue.calls > Queue.most

    def elapsed_time(self, _: Any) -> float:
        """Return 2 ms for each call."""
        return 2.0 * Queue.calls


def test_fewer_calls_are_timed_where_they_overflow_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(_: int) -> None:
        Queue.calls = 0

    def run() -> None:
        Queue.calls += 1

    fakes = {"Event": Queue, "_sleep": begin, "synchronize": lambda: None}
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    assert clocks.of_cuda(run).device == 2e-3
    assert Queue.calls == 5  # of 20, 10 and 5
    assert network_clock.of_network(run).device == 2e-3  # in one call
    assert Queue.calls == 1


class Counted(nn.Module):
    """A model that counts its calls, draws, and averages."""

    def __init__(self, factor: float) -> None:
        """Make the layers."""
        super().__init__()
        self.norm, self.factor, self.modes = nn.BatchNorm1d(8), factor, list[bool]()

    def forward(self, x: Tensor) -> dict[str, Any]:
        """Return a tensor among other things."""
        self.modes.append(torch.is_grad_enabled())
        return {"a": self.norm(x) * torch.rand(8), "b": [3, None]}


@pytest.mark.parametrize("is_training", [True, False])
def test_a_whole_network_is_timed_and_its_model_stays_as_it_is(is_training: bool) -> None:
    model, other = (Counted(of).train(is_training) for of in (1.0, 2.0))
    given = {"x": torch.randn(4, 8)}
    before = [each.clone() for each in (*model.buffers(), torch.get_rng_state())]
    timing = network_clock.network_timing(model, other, given, by_kernel({"all": (SLOW, FAST)}))
    what = "a step" if is_training else "forward"
    assert str(timing) == (f"Counted, {what}: enqueue 1.0 us for 9.0, device 5.0 us for 2.0: lifted")
    assert model.modes == other.modes == [is_training]
    assert all(each.grad is None for each in model.parameters())
    after = [*model.buffers(), torch.get_rng_state()]
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_a_network_is_not_timed_where_memory_is_short() -> None:
    def clock(_: Callable[[], Any]) -> Times:
        raise torch.cuda.OutOfMemoryError

    assert network_clock.network_timing(Counted(1.0), Counted(1.0), [torch.randn(4, 8)], clock) is None


@pytest.mark.full
@pytest.mark.parametrize("is_faster", [True, False])
def test_a_network_that_is_slower_is_refused(
    is_faster: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (FAST, SLOW) if not is_faster else (SLOW, FAST)
    monkeypatch.setattr(lifted_network, "clock_of", lambda _: by_kernel({"all": (SLOW, FAST)}))
    monkeypatch.setattr(lifted_network, "of_network", by_kernel({"all": whole}))

    def lift() -> Network:
        result: Network = fusegen.lift(Chain(), torch.randn(4, 1 << 16), folder=folder)
        return result

    if is_faster:
        report = lift().report
        assert "1 kernel; 1 region saves 7.34 MB of 9.44 MB" in report
        assert report.endswith("Chain, a step: enqueue 1.0 us for 9.0, device 5.0 us for 2.0: lifted")
    else:
        with pytest.raises(NoRegion, match="all of it is slower than the model \\(Chain, a step"):
            lift()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_gpu_has_both_clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Timing, "is_gain", True)  # whatever else runs on it
    model, x = Two().cuda(), torch.randn(1 << 21, 8, device="cuda")
    made = fusegen.lift(model, x, folder=tmp_path)
    assert made.timings
    assert all(min(each.eager.device, each.eager.enqueue, each.kernel.device) > 0 for each in made.timings)
    torch.testing.assert_close(made(x), model(x))
