"""The times of a model, of torch.compile's and of its lifted network, which take turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fusegen.errors import counted
from fusegen.models.lift import network_clock
from fusegen.models.lift.clocks import STEP
from fusegen.models.lift.found import Inputs

# of calls by their names, on a type of device: the milliseconds of each, in turns
Turns = Callable[[Mapping[str, Callable[[], Any]], str], Mapping[str, float]]

EAGER, COMPILED, LIFTED = "eager", "torch.compile", "lifted"
WINS = "torch.compile wins: the lifted network takes {ratio:.2f} times its time"
FAILS = "is not timed: it raises {kind}: {first}"


@dataclass(frozen=True)
class NetworkTimes:
    """The milliseconds of a call of each.

    Attributes:
        what: that was timed: forward, or a step.
        device: that it ran on.
        times: by the name of what ran.
        failed: what torch.compile raises, a clause; empty where it was timed.
    """

    what: str
    device: str
    times: Mapping[str, float]
    failed: str = ""

    def lines(self) -> Iterator[str]:
        """Yield a line of each, and one where torch.compile is faster than the lifted network."""
        yield f"{self.what} on {self.device}, in turns:"
        width = max(map(len, (EAGER, COMPILED, LIFTED)))
        for name, taken in self.times.items():
            ratio = "" if name == EAGER else f"  {self.times[EAGER] / taken:.2f} times eager's speed"
            yield f"  {name:<{width}}  {taken:.4g} ms{ratio}"
        if self.failed:
            yield f"  {COMPILED} {self.failed}"
        elif self.times[COMPILED] < self.times[LIFTED]:
            yield f"  {WINS.format(ratio=self.times[LIFTED] / self.times[COMPILED])}"

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield a record of each, and one of what torch.compile raises."""
        own = {"kind": "time", "what": self.what, "device": self.device}
        for name, taken in self.times.items():
            speed = self.times[EAGER] / taken
            yield {**own, "run": name, "ms": taken, "speed": speed}
        if self.failed:
            yield {**own, "run": COMPILED, "failed": self.failed}


def network_times(
    model: nn.Module, lifted: nn.Module, inputs: Inputs, what: str, turns: Turns
) -> NetworkTimes:
    """Return the times of a model and its network: of forward in evaluation, or of a step in training.

    Args:
        model: it; its buffers stay as they are.
        lifted: its network.
        inputs: of both.
        what: is timed, as `clocks` names it: `FORWARD` or `STEP`.
        turns: times calls.
    """
    call = network_clock.step if what == STEP else network_clock.forward
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    failed = ""
    with network_clock.kept(model), _trained(what, model, lifted):
        runs = {EAGER: call(model, inputs)}
        try:
            compiled: Any = torch.compile(model)
            runs[COMPILED] = call(compiled, inputs)
            runs[COMPILED]()
        except Exception as error:  # of any of the compilers
            first = (str(error).splitlines() or [""])[0]
            failed = FAILS.format(kind=type(error).__name__, first=first)
            runs.pop(COMPILED, None)
        runs[LIFTED] = call(lifted, inputs)
        times = turns(runs, device.type)
    return NetworkTimes(what, _title(device), times, failed)


@contextmanager
def _trained(what: str, *networks: nn.Module) -> Iterator[None]:
    """Have networks be in training or in evaluation, and all of their modules as before behind that."""
    modes = {each: each.training for network in networks for each in network.modules()}
    try:
        for network in networks:
            network.train(what == STEP)
        yield
    finally:
        for each, training in modes.items():
            each.training = training


def _title(device: torch.device) -> str:
    version = f"PyTorch {torch.__version__}"
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, {version}"
    return f"the CPU, {counted(torch.get_num_threads(), 'thread')}, {version}"
