"""The regions of a network that `lift` writes specs and modules of, and the report of them."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fusegen.cli.building import build, make
from fusegen.cli.options import specs_folder
from fusegen.core.chips import USUAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fusegen.cli.lift_command import Options
    from fusegen.models.lift.clocks import Timing
    from fusegen.models.lift.found import Found
    from fusegen.models.lift.network_times import NetworkTimes

TEXT, JSON = "text", "json"  # formats of the report
SECONDS = 5.0  # of turns on a CPU


def lift_network(ctx: click.Context, target: str, given: Options) -> None:
    """Lift the distinct regions of a network to specs and their modules."""
    with redirect_stdout(sys.stderr if given.form == JSON else sys.stdout):  # what the network prints, too
        lines = _lifted(ctx, target, given)
    click.echo("\n".join(lines))


def _lifted(ctx: click.Context, target: str, given: Options) -> list[str]:
    """Write the specs and the modules, and return the lines of the report."""
    from fusegen.core import write
    from fusegen.models.lift.found import found
    from fusegen.models.lift.lifted_network import named_regions
    from fusegen.models.lift.rule import ANY, asked
    from fusegen.models.lift.summary import summary
    from fusegen.models.lift.target import inputs_of, model_of

    model = model_of(target)
    inputs = inputs_of(model, given.shapes, given.inputs)
    regions = found(model, inputs, target, given.least_passes, given.runs_on, ANY if given.chip else None)
    names = named_regions(regions, specs_folder())
    timings: tuple[Timing, ...] = ()
    if given.chip is not None and not given.every:
        from fusegen.models.lift.modelled_clocks import gaining_on

        regions, names, timings = gaining_on(given.chip, regions, names)
    make(write.changes(dict(names.texts)))
    build_specs(ctx, tuple(names.texts), given.output)
    report = summary(regions, names, given.runs_on, given.chip or USUAL)
    times = _times(regions, inputs, given)
    if given.form == JSON:
        parts = [
            report.records(),
            *(each.records() for each in timings),
            *(each.records() for each in times),
        ]
        return [json.dumps(each) for part in parts for each in part]
    lines = [asked(given.runs_on, given.least_passes, given.chip), *report.lines(), *map(str, timings)]
    return [*lines, *(line for each in times for line in each.lines())]


def _times(regions: Found, inputs: Any, given: Options) -> list[NetworkTimes]:
    """Return the times that are asked for of a model and its network, on the device that is here."""
    if not given.times:
        return []
    from fusegen.models.lift.clocks import FORWARD, STEP
    from fusegen.models.lift.lifted_network import network
    from fusegen.models.lift.network_times import network_times

    made = network(regions, specs_folder(), given.output)
    whats = (FORWARD, STEP) if given.trains else (FORWARD,)
    return [network_times(regions.model, made, inputs, what, _in_turns) for what in whats]


def _in_turns(runs: Mapping[str, Callable[[], Any]], device: str) -> dict[str, float]:
    """Return milliseconds of a call; of many in a row on a GPU, which take what the later clock says."""
    from fusegen.evidence.bench import clock

    if device == "cuda":
        return {name: taken / 1e3 for name, taken in clock.calls(runs, device).items()}
    return {name: taken.median for name, taken in clock.turns(runs, device, SECONDS).items()}


def build_specs(ctx: click.Context, specs: tuple[Path, ...], output: Path) -> None:
    """Build the modules of some specs."""
    names = tuple(map(str, specs))
    ctx.invoke(build, specs=names, output=output, binding=None, prune=False, standalone=None)
