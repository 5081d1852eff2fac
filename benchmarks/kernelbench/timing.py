"""Times of eager, torch.compile and the candidate, in rounds in which each has one turn.

The candidate is timed twice: without gradients, as the others are, and in gradient mode, in which the
benchmark times candidates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.kernelbench.problem import sentence
from benchmarks.kernelbench.trials import Models, Place
from benchmarks.kernelbench.turns import Turns
from fusegen.evidence.bench import clock
from fusegen.evidence.bench.clock import Run, Spread

EAGER, COMPILED, OURS, RECORDED = "eager", "torch.compile", "ours", "ours in gradient mode"
COMPETITORS = (EAGER, COMPILED, OURS, RECORDED)
SEED = 11
TURNS = Turns()  # of a process that has the GPU


@dataclass(frozen=True)
class Times:
    """The measured times of one problem."""

    spreads: Mapping[str, Spread]  # times in milliseconds, by who
    said: str = ""  # of torch.compile, why it was not timed, or how far its result is from eager's
    compiling: float = 0.0  # seconds until the first result of torch.compile; 0 where it takes no part

    def ratio(self, who: str) -> float | None:
        """Return the time of another in multiples of ours."""
        if who not in self.spreads or OURS not in self.spreads:
            return None
        return self.spreads[who].median / self.spreads[OURS].median


def times(
    of: Models, place: Place, competitors: tuple[str, ...], rounds: int, turns: Turns = TURNS
) -> Times:
    """Return the times of the given competitors.

    Args:
        of: the models, on their device.
        place: where they run.
        competitors: who takes part.
        rounds: the turns of each.
        turns: of the processes of the run; compilers work in the time of others.
    """
    inputs = of.draw(SEED)
    makers: dict[str, Callable[[], Run]] = {
        EAGER: lambda: _without_gradients(of.reference, inputs),
        COMPILED: lambda: _without_gradients(_compiled(of), inputs),
        OURS: lambda: _without_gradients(of.candidate, inputs),
        RECORDED: lambda: lambda: of.candidate(*inputs),
    }
    runs = {name: makers[name]() for name in competitors}
    begin = time.perf_counter()
    with turns.shared():
        said = _off(runs, place) if COMPILED in runs else ""
    compiling = time.perf_counter() - begin if COMPILED in runs else 0.0
    if said.startswith("it fails"):
        del runs[COMPILED]
    with turns.alone():
        return Times(clock.rounds(runs, place.device, rounds), said, compiling)


def _compiled(of: Models) -> Callable[..., Tensor]:
    torch.compiler.reset()
    compiled: Callable[..., Tensor] = torch.compile(of.reference)
    return compiled


def _without_gradients(function: Callable[..., Tensor], inputs: list[Any]) -> Run:
    def run() -> Tensor:
        with torch.no_grad():
            return function(*inputs)

    return run


def _off(runs: Mapping[str, Run], place: Place) -> str:
    """The distance of torch.compile's result from eager's, if beyond the tolerance, or why it fails."""
    try:
        found = runs[COMPILED]()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return f"it fails: {sentence(error)}"
    expected = runs[EAGER]()
    off = float(((found - expected).abs() / (1 + expected.abs())).max()) if found.numel() else 0.0
    return "" if off <= place.tolerance else f"its result is {off:.2g} from eager's"
