"""The times in the report of a network: modelled for a chip, and measured beside torch.compile."""

import json
from typing import Any

import pytest
import torch
from conftest import Workshop
from torch import nn

from fusegen.core.chips import CHIPS
from fusegen.errors import counted
from fusegen.evidence.bench import clock
from fusegen.evidence.bench.clock import Spread
from fusegen.models.lift.clocks import FORWARD, STEP
from fusegen.models.lift.network_times import COMPILED, EAGER, LIFTED, NetworkTimes, network_times
from fusegen.schedule import cost

NET = """import torch
from torch import nn


class Chain(nn.Module):
    def forward(self, x):
        scale = x.abs() * 2
        y = torch.relu(scale * scale + x * 3) * scale
        return torch.relu(y.cumsum(0) * 3)


class Pair(nn.Module):
    def forward(self, x):
        return torch.relu(x * 3)
"""
MODELLED = """\
this runs net.py
new      specs/chain_abs_relu.yaml
new      generated/chain_abs_relu.py
new      generated/_runtime
the clocks of an H100 are modelled: a kernel runs where its later one is not behind that of PyTorch
Chain, float32: 1 kernel; 1 region saves 7.17 MB of 10.2 MB that pointwise operations and reductions move
microseconds as expected on an H100, for those of eager's operations at the speed of a copy
  1x  chain_abs_relu  net.py:7-8  1 read, 1 written  7.17 MB saved of 8.19 MB, 2 us for 14
stays PyTorch's: 1 cumsum (net.py:9): the language has no such operation
stays PyTorch's: 1 mul, 1 relu (net.py:9): on an H100 a kernel is expected to be later than the operations \
that it replaces
chain_abs_relu, a step: enqueue 40.8 us for 113.4, device 4.0 us for 28.0: a kernel
chain_abs_relu, forward: enqueue 10.4 us for 56.7, device 2.0 us for 14.0: a kernel
chain_mul_relu, a step: enqueue 40.8 us for 32.4, device 4.0 us for 8.0: left to PyTorch
chain_mul_relu, forward: enqueue 10.4 us for 16.2, device 2.0 us for 4.0: a kernel
"""


@pytest.mark.full
def test_the_clocks_of_a_chip_choose_the_regions(workshop: Workshop) -> None:
    workshop.file("net.py", NET)
    command = ("lift", "net.py:Chain", "--input", "4000x32", "--for", "h100")
    told = workshop.run(*command)
    assert (told.exit_code, told.output) == (0, MODELLED)
    assert not (workshop.folder / "specs/chain_mul_relu.yaml").exists()
    records = [json.loads(line) for line in workshop.run(*command, "--format", "json").stdout.splitlines()]
    assert records[-2] == {
        **{"kind": "timing", "name": "chain_mul_relu", "what": "a step", "gain": False},
        **{"kernel": {"enqueue": 4.08e-5, "device": 4e-6}, "eager": {"enqueue": 3.24e-5, "device": 8e-6}},
    }


@pytest.mark.full
def test_where_the_gpu_is_late_bytes_decide(workshop: Workshop) -> None:
    workshop.file("net.py", NET)
    alone = "chain_mul_relu, forward: enqueue 10.4 us for 16.2, device {} us for {}: a kernel\n"
    for chip, kernel, eager in (("h100", 347.1, 694.2), ("a100", 572.1, 1144.1)):
        result = workshop.run("lift", "net.py:Chain", "--input", "4000000x32", "--for", chip)
        assert alone.format(kernel, eager) in result.output
        assert "3 regions" not in result.output
        assert "Chain, float32: 2 kernels; 2 regions" in result.output


def test_a_chip_on_which_nothing_gains(workshop: Workshop) -> None:
    workshop.file("net.py", NET)
    result = workshop.run("lift", "net.py:Pair", "--input", "8x8", "--for", "b200")
    assert (result.exit_code, result.output) == (
        2,
        "this runs net.py\n"
        "net.py:Pair: net.py:Pair has no region that is worth a kernel, since on a B200 a kernel is "
        "expected to be later than the operations that it replaces\n  hint: leave it to PyTorch\n",
    )
    assert not (workshop.folder / "specs").exists()


def test_the_budgets_are_those_of_the_chips() -> None:
    assert cost.BUDGETS[90] == 132 * 128 * 1.98 / 4230
    assert {CHIPS[name].bandwidth for name in ("a100", "h200")} == {1.79e12, 4.23e12}


REFUSED = {
    ("--time",): "--time needs --input or --inputs",
    ("--for", "h200"): "--for h200 needs --input or --inputs",
    ("--training", "--input", "8x8"): "--training needs --time",
}


@pytest.mark.parametrize("options", REFUSED)
def test_options_that_need_others(options: tuple[str, ...], workshop: Workshop) -> None:
    workshop.file("net.py", NET)
    result = workshop.run("lift", "net.py:Chain", *options)
    assert result.exit_code == 2
    assert f"Error: {REFUSED[options]}\n" in result.output


TIMES = {EAGER: 2.0, COMPILED: 1.0, LIFTED: 1.25}


def fake_turns(monkeypatch: pytest.MonkeyPatch, times: dict[str, float]) -> list[str]:
    """Have runs take some milliseconds, and return what was run."""
    ran = list[str]()

    def turns(runs: dict[str, Any], device: str, seconds: float) -> dict[str, Spread]:
        for name, run in runs.items():
            ran.append(name)
            run()
        return {name: Spread(times[name], 0.0, 0.0, 11) for name in runs}

    monkeypatch.setattr(clock, "turns", turns)
    return ran


def test_a_network_is_timed_beside_torch_compile(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.file("net.py", NET)
    ran = fake_turns(monkeypatch, TIMES)
    monkeypatch.setattr(torch, "compile", lambda model: model)
    command = ("lift", "net.py:Chain", "--input", "4000x32", "--for", "cpu", "--time", "--training")
    where = f"the CPU, {counted(torch.get_num_threads(), 'thread')}, PyTorch {torch.__version__}"
    lines = [
        line
        for what in ("forward", "a step")
        for line in (
            f"{what} on {where}, in turns:",
            "  eager          2 ms",
            "  torch.compile  1 ms  2.00 times eager's speed",
            "  lifted         1.25 ms  1.60 times eager's speed",
            "  torch.compile wins: the lifted network takes 1.25 times its time",
        )
    ]
    assert workshop.run(*command).stdout.splitlines()[-10:] == lines
    assert ran == [EAGER, COMPILED, LIFTED] * 2
    workshop.file("net.py", f"{NET}\n\nprint('imported')\n")
    records = [json.loads(line) for line in workshop.run(*command, "--format", "json").stdout.splitlines()]
    assert records[-1] == {
        **{"kind": "time", "what": "a step", "device": where},
        **{"run": "lifted", "ms": 1.25, "speed": 1.6},
    }


class Averaged(nn.Module):
    """A network with a buffer that moves, and a mode of a layer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop, self.frozen = nn.BatchNorm1d(4), nn.Dropout(), nn.Dropout().eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the norm."""
        result: torch.Tensor = self.frozen(self.drop(self.norm(x)))
        return result


def refused(*_: Any) -> Any:
    """Raise as a compiler does that is not there."""
    raise RuntimeError("no compiler\nhere")


class Failing(nn.Module):
    """A network of such a compiler."""

    forward = refused


@pytest.mark.parametrize("compiled", [refused, lambda _: Failing()], ids=["at once", "when called"])
def test_a_compiler_that_fails_is_named_and_the_model_stays(
    compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs, random = Averaged(), [torch.randn(8, 4)], torch.get_rng_state()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    ran = list[str]()

    def turns(runs: Any, device: str) -> dict[str, float]:
        ran.extend(runs)
        return {name: TIMES[name] for name, run in runs.items() if run() is not None}

    monkeypatch.setattr(torch, "compile", compiled)
    found = network_times(model, model, inputs, STEP, turns)
    assert [*found.lines()][1:] == [
        "  eager          2 ms",
        "  lifted         1.25 ms  1.60 times eager's speed",
        "  torch.compile is not timed: it raises RuntimeError: no compiler",
    ]
    assert ran == [EAGER, LIFTED]
    *_, last = found.records()
    assert (last["run"], last["failed"]) == (COMPILED, "is not timed: it raises RuntimeError: no compiler")
    with pytest.raises(RuntimeError, match="no compiler"):
        network_times(model, model, inputs, FORWARD, refused)
    assert [each.training for each in model.modules()] == [True, True, True, False]
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


def test_nothing_is_said_where_the_lifted_network_wins() -> None:
    found = NetworkTimes("forward", "a GPU", {EAGER: 2.0, COMPILED: 1.5, LIFTED: 1.0})
    assert [*found.lines()][-1] == "  lifted         1 ms  2.00 times eager's speed"
