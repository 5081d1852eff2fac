"""Which launch is taken, and what is written, of times that were measured; and on a GPU, all of it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Workshop
from kernels import ON_CUDA

from fusegen.core import launch
from fusegen.core.launch import Launch, Table
from fusegen.core.method import Pass
from fusegen.errors import FusegenError
from fusegen.evidence.bench import clock, launch_rows, launch_tuning
from fusegen.evidence.bench.clock import Spread
from fusegen.evidence.bench.launch_rows import Trial
from fusegen.project import build

ONE, TWO, FOUR = (Launch(None, 128, vectors) for vectors in (1, 2, 4))
NOW = Table({90: ""}, {(90, "light", 32): (ONE,), (90, "heavy", 32): (ONE,)})


def spread(median: float, noise: float = 0.001) -> Spread:
    return Spread(median, median * (1 - noise), median * (1 + noise), 11)


def trial(
    kib: int, one: float, two: float, four: float, *, kernel: str = "a_forward", noise: float = 0.001,
    cost: str = "light", now: Launch = ONE,
) -> Trial:  # fmt: skip
    times = {ONE: spread(one, noise), TWO: spread(two, noise), FOUR: spread(four, noise)}
    return Trial(kernel, cost, 32, kib, now, times)


@pytest.mark.parametrize(
    ("times", "noise", "expected"),
    [
        ((1.0, 0.9, 0.95), 0.001, TWO),
        ((1.0, 0.985, 1.0), 0.001, ONE),  # less than two hundredths
        ((1.0, 0.89, 0.95), 0.12, TWO),  # a tenth is what noise can be at most
        ((1.0, 0.96, 0.97), 0.05, ONE),
        ((1.0, 1.1, 1.2), 0.001, ONE),
        ((1.0, 1.1, 0.8), 0.001, FOUR),
    ],
)
def test_a_launch_must_gain_more_than_the_noise(
    times: tuple[float, float, float], noise: float, expected: Launch
) -> None:
    found = trial(256, *times, noise=noise)
    assert found.best(ONE, launch_rows.GAIN) == expected
    assert found.gain(expected) == pytest.approx(1 - min(times) if expected != ONE else 0)


def test_rows_hold_halfway_to_the_next_size() -> None:
    best = {256: ONE, 1024: ONE, 4096: TWO, 16384: TWO, 65536: FOUR}
    expected = (Launch(2048, 128, 1), Launch(32768, 128, 2), FOUR)
    assert launch_rows.merged(best) == expected
    assert {kib: launch_rows.at(expected, kib) for kib in best} == best
    assert launch_rows.merged({256: ONE}) == (ONE,)


def test_a_kernel_gets_rows_of_its_own_where_the_present_ones_are_slower() -> None:
    found = (
        trial(256, 1.0, 1.1, 1.2),
        trial(1024, 1.0, 0.9, 1.2),
        trial(256, 1.0, 1.1, 1.2, kernel="b_forward"),
    )
    table = launch_rows.tuned(found, 90, NOW, Table({}, {}), "here", classes=False)
    assert table == Table({90: "here"}, {(90, "a_forward", 32): (Launch(512, 128, 1), TWO)})


def test_rows_that_serve_no_more_go() -> None:
    old = Table({90: "old"}, {(90, "a_forward", 32): (FOUR,), (90, "b_forward", 32): (FOUR,)})
    found = (trial(256, 1.0, 1.1, 1.2, now=FOUR),)
    table = launch_rows.tuned(found, 90, old.over(NOW), old, "here", classes=False)
    assert table == Table({90: "here"}, {(90, "b_forward", 32): (FOUR,)})


def test_no_size_becomes_slower() -> None:
    found = tuple(trial(4**k, 1.0, 0.5 + 0.1 * k, 1.5 - 0.1 * k) for k in range(4, 10))
    for classes in (False, True):
        table = launch_rows.tuned(found, 90, NOW, Table({}, {}), "here", classes=classes).over(NOW)
        for one in found:
            taken = launch_rows.at(table.at(90, one.kernel, one.cost, one.bits), one.kib)
            assert one.times[taken].median <= one.times[ONE].median


def test_a_class_gets_what_is_best_on_the_mean_and_who_loses_much_an_exception() -> None:
    found = (
        trial(256, 1.0, 0.8, 0.9, kernel="a_forward"),
        trial(256, 1.0, 0.9, 0.95, kernel="b_forward"),
        trial(256, 1.0, 1.3, 0.98, kernel="c_forward"),
        trial(256, 1.0, 0.97, 1.1, kernel="d_forward", cost="heavy"),
    )
    table = launch_rows.tuned(found, 90, NOW, Table({}, {}), "here", classes=True)
    assert table.rows == {
        (90, "light", 32): (FOUR,),  # 0.94 on the mean, where two vectors have 0.98
        (90, "heavy", 32): (TWO,),
        (90, "a_forward", 32): (TWO,),
        (90, "b_forward", 32): (TWO,),
    }


def test_launches_that_give_other_bits_are_an_error() -> None:
    x = torch.tensor([0.0, 1.0])
    launch_tuning.check("a_forward", {ONE: lambda: x, TWO: x.clone, FOUR: lambda: x})
    launch_tuning.check("a_forward", {ONE: lambda: (x, x), TWO: lambda: (x, x.clone())})
    with pytest.raises(FusegenError) as caught:
        launch_tuning.check("a_forward", {ONE: lambda: x, TWO: lambda: -x})
    assert str(caught.value).startswith("a_forward: launched as 128x2 it gives other bits than as 128x1\n")
    with pytest.raises(FusegenError, match="it gives other bits than as 128x1"):
        launch_tuning.check("a_forward", {ONE: lambda: (x, x), TWO: lambda: (x, -x)})


def test_a_forward_kernel_of_several_tensors_is_tuned_with_operands_too(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = workshop.spec("gate", "inputs: {x: {}, b: {}}\nformula: x * sigmoid(b)\ndtypes: [float32]")
    own = Launch(None, 256, 4)
    table = Table({90: ""}, {(90, "gate_forward_broadcast", 32): (own,)})
    workshop.file(f"specs/{launch.OWN}", launch.text(table))
    compiled = build.compiled_file(path)
    forward, backward = build.launch_plans(compiled)
    dense, several = launch_tuning._cases(compiled, Pass.FORWARD, forward[0], 90)
    assert (dense.name, several.name, several.rows) == (
        "gate_forward",
        "gate_forward_broadcast",
        "broadcast",
    )
    assert several.now == (own,)
    ahead = Launch(None, 128, 2, 132)
    assert [case.takes(ahead) for case in (dense, several)] == [True, False]
    [gradient] = launch_tuning._cases(compiled, Pass.BACKWARD, backward[0], 90)
    assert gradient.name == "gate_backward"
    count = launch_tuning.CHANNELS * launch_tuning.PIXELS * 2
    monkeypatch.setattr(launch_tuning, "_tensors", lambda *_: [torch.arange(count), torch.arange(count)])
    shapes = [tuple(t.shape) for t in several.tensors(compiled.programs.forward, torch.float32, 256) or []]
    assert shapes == [(2, launch_tuning.CHANNELS, launch_tuning.PIXELS), (launch_tuning.CHANNELS, 1)]
    monkeypatch.setattr(launch_tuning, "_tensors", lambda *_: None)
    assert several.tensors(compiled.programs.forward, torch.float32, 256) is None


def test_without_a_gpu_nothing_is_tuned(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    workshop.spec("gate", "formula: x / 2")
    assert (
        workshop.refused("tune", "gate")
        == "tune: there is no CUDA GPU here\n  hint: run it on the GPU that the kernels are for\n"
    )


def test_the_verb_writes_a_table_that_the_next_build_takes(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.build("gate", "formula: x / 2\ndtypes: [float32]")

    def trials(compiled: Any, chip: int, seconds: float) -> list[Trial]:
        kernels = ("gate_forward", "gate_backward")
        return [trial(256, 1.0, 1.1, 0.5, kernel=name) for name in kernels]

    monkeypatch.setattr(launch_tuning, "chip", lambda: 90)
    monkeypatch.setattr(launch_tuning, "trials", trials)
    monkeypatch.setattr(
        "fusegen.evidence.bench.session.machine", lambda _: {"device": "H200", "torch": "PyTorch 2"}
    )
    printed = workshop.done("tune", "gate")
    assert re.search(r"gate_forward +32 +128x4 \+50\.0%", printed)
    assert "wrote specs/launch.toml; python -m fusegen build puts it into the modules" in printed
    table = launch.read(workshop.folder / "specs" / "launch.toml")
    assert table.rows == {(90, "gate_forward", 32): (FOUR,), (90, "gate_backward", 32): (FOUR,)}
    assert workshop.run("check").exit_code == 1
    assert workshop.run("build").exit_code == 0
    assert "{90, ANY, 128, 4}," in (workshop.folder / "generated" / "gate.py").read_text()


@pytest.mark.parametrize("device", [ON_CUDA])
def test_a_gpu_is_tuned_by_turns_of_bounded_time(
    workshop: Workshop, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.spec("gate", "formula: x * sigmoid(x)\ndtypes: [float32, bfloat16]")
    asked: list[float] = []
    turns = clock.turns

    def spy(runs: Mapping[Launch, clock.Run], where: str, seconds: float) -> dict[Launch, Spread]:
        asked.append(seconds)
        return turns(runs, where, seconds)

    monkeypatch.setattr(clock, "turns", spy)
    printed = workshop.done("tune", "gate", "--table", "launch.toml")
    assert asked
    assert sum(asked) < 60  # seconds, of two kernels in two widths at each size
    assert "gate_backward" in printed
    major, minor = torch.cuda.get_device_capability()
    table = launch.read(Path(workshop.folder / "launch.toml"))
    assert list(table.chips) == [10 * major + minor]
    assert {key[1] for key in table.rows} <= {"gate_forward", "gate_backward"}
