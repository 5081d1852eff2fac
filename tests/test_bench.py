"""Measuring: turns, spreads, competitors that are wrong or fail, files, and what has become slower."""

import dataclasses
import importlib
import json
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from conftest import Workshop
from kernels import ON_CUDA
from torch import Tensor, nn

from fusegen.errors import FusegenError
from fusegen.evidence import plot_style
from fusegen.evidence.bench import clock, measurements, plots, session
from fusegen.evidence.bench.case import Case
from fusegen.evidence.bench.clock import Run, Spread
from fusegen.evidence.bench.competitors import Competitors
from fusegen.evidence.bench.measurements import Report, Row
from fusegen.language.parse import parse_spec
from fusegen.project.loader import imported

CASE = Case("gate", "forward", "float32", (3, 1001), "cpu")
SPEC = parse_spec("name: gate\nsummary: A test.\nformula: x * sigmoid(x)\n", "gate.yaml")
HALVES = parse_spec(
    "name: gate\nsummary: A test.\ninputs: {a: {}, b: {}}\nformula: a * relu(b)\n", "gate.yaml"
)

# --- the clock ------------------------------------------------------------------------------------------


def test_a_spread_is_the_median_and_the_middle_of_the_measurements() -> None:
    found = clock.spread([float(x) for x in range(10, 21)])
    assert found == Spread(15.0, 11.0, 19.0, 11)
    assert found.noise == pytest.approx(4 / 15)


@pytest.mark.parametrize(("seconds", "turns"), [(0.0, clock.FEWEST), (1e9, clock.MOST)])
def test_runs_take_turns_and_who_is_first_changes(seconds: float, turns: int) -> None:
    seen: list[str] = []
    runs: dict[str, Run] = {name: partial(seen.append, name) for name in "abc"}
    found = clock.turns(runs, "cpu", seconds)
    assert [found[name].turns for name in "abc"] == [turns] * 3
    rounds = ["".join(seen[k : k + 3]) for k in range(0, len(seen), 3)]
    assert rounds[: clock.WARM_UPS + 4] == ["abc"] * clock.WARM_UPS + ["abc", "bca", "cab", "abc"]


def test_the_spread_is_of_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_timed", lambda run: run())
    monkeypatch.setattr(clock, "MOST", 20)
    found = clock.at_memory_offsets(5, lambda place: {"one": lambda: float(place)}, "cpu", 1e9)
    assert found == {"one": Spread(2.0, 0.0, 4.0, 20)}


def test_one_place_is_left_before_the_next_is_made() -> None:
    alive: list[weakref.ref[Any]] = []

    def arranged(place: int) -> dict[str, Run]:
        assert all(ref() is None for ref in alive)
        tensor = torch.empty(1)
        alive.append(weakref.ref(tensor))
        return {"one": tensor.clone}

    clock.at_memory_offsets(3, arranged, "cpu", 0.0)
    assert len(alive) == 3


def test_the_same_inputs_come_at_every_place() -> None:
    found = competitors(dataclasses.replace(CASE, what="backward"))
    first = [t.detach().clone() for t in (*found.inputs, found.incoming)]
    found.allocate(3)
    again = (*found.inputs, found.incoming)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_the_median_is_of_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_timed", lambda run: run())
    found = clock.turns({"fast": lambda: 1.0, "slow": lambda: 3.0}, "cpu", 0.0)
    assert {name: spread.median for name, spread in found.items()} == {"fast": 1.0, "slow": 3.0}


def test_the_time_of_processors_is_counted_without_that_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10**6))
    monkeypatch.setattr(time, "process_time", lambda: next(ticks) * 2e-3)
    found = clock.turns({"a": lambda: None}, "processor", 0.0)
    assert found["a"].median == pytest.approx(2.0)


def test_calls_are_counted_in_microseconds_each(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10**6))
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks) * 1e-3)
    found = clock.calls({"a": lambda: None}, "cpu")  # a row of calls takes a tick
    assert found == {"a": pytest.approx(1e-3 / 200 * 1e6)}


# --- the competitors ------------------------------------------------------------------------------------


def silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def competitors(
    case: Case = CASE,
    function: Callable[..., Tensor] = silu,
    spec: Any = SPEC,
    eager: Any = None,
    outputs: tuple[int, ...] = (),
) -> Competitors:
    """Competitors whose module computes `function`."""

    class ModelNew(nn.Module):
        def forward(self, *tensors: Tensor) -> Tensor:
            return function(*tensors)

    module = ModuleType("gate")
    vars(module).update(ModelNew=ModelNew, get_init_inputs=list, eager=eager or function)
    return Competitors(spec, module, case, outputs)


def told(case: Case, function: Callable[..., Tensor], spec: Any = SPEC, eager: Any = silu) -> str:
    found = competitors(case, function, spec, eager)
    with torch.set_grad_enabled(case.what != "forward"):
        return found.wrong(found.run(function))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("what", ["forward", "backward", "training"])
def test_eager_is_right(dtype: str, what: str) -> None:
    assert told(dataclasses.replace(CASE, dtype=dtype, what=what), silu) == ""


def at(place: int, value: float) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        y = silu(x).reshape(-1).clone()
        y[place] = value
        return y.reshape(x.shape)

    return function


@pytest.mark.parametrize("place", [0, 1500, 3002])
@pytest.mark.parametrize("value", [1e6, float("nan"), float("inf")])
def test_one_wrong_element_is_told(monkeypatch: pytest.MonkeyPatch, place: int, value: float) -> None:
    monkeypatch.setattr("fusegen.evidence.bench.competitors.CHUNK", 1000)
    right = float(silu(competitors().inputs[0]).reshape(-1)[place])
    assert told(CASE, at(place, value)) == f"it is wrong: {value:.6g} for {right:.6g} at element {place}"


def test_what_is_off_by_three_digits_is_told() -> None:
    assert told(CASE, lambda x: silu(x) * 1.0003).startswith("it is wrong: ")
    assert told(CASE, lambda x: silu(x) * 1.00003) == ""


def test_a_wrong_gradient_is_told_though_the_value_is_right() -> None:
    backward = dataclasses.replace(CASE, what="backward")
    assert told(backward, lambda x: silu(x) + (x - x.detach()) * 0.01).startswith("it is wrong: ")


def test_the_gradient_of_each_input_is_looked_at() -> None:
    backward = dataclasses.replace(CASE, what="backward")
    right: Callable[..., Tensor] = lambda a, b: a * torch.relu(b)  # noqa: E731
    assert told(backward, right, HALVES, right) == ""
    assert told(backward, lambda a, b: a.detach() * torch.relu(b) + a - a.detach(), HALVES, right) != ""


BEHIND = parse_spec(
    "name: gate\nsummary: A test.\ninit: {n: 3}\n"
    "layers: [conv: 'Conv1d(2, n, 3)', bias: 'Parameter(randn(n, 1))']\n"
    "inputs: {x: {shape: [4, 2, 9]}, r: {shape: [4, 3, 7]}}\nformula: (x + bias) * r * n\n",
    "gate.yaml",
)


class Behind(nn.Module):
    """The model of this spec, with another factor where it is to be wrong."""

    def __init__(self, n: int = 3, factor: float = 1.0) -> None:
        super().__init__()
        self.conv, self.bias = nn.Conv1d(2, n, 3), nn.Parameter(torch.randn(n, 1))
        self.n, self.factor = n, factor

    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        """The value."""
        value: Tensor = (self.conv(x) + self.bias) * r * self.n * self.factor
        return value


@pytest.mark.parametrize("what", ["forward", "backward"])
def test_a_model_with_a_layer_a_parameter_and_a_second_input_is_held_against_eager(what: str) -> None:
    module = ModuleType("gate")

    def eager(x: Tensor, r: Tensor, conv_bias: Tensor, bias: Tensor, n: float) -> Tensor:
        return (x + conv_bias + bias) * r * n

    vars(module).update(ModelNew=Behind, get_init_inputs=lambda: [3], eager=eager)
    found = Competitors(BEHIND, module, Case("gate", what, "float32", (4, 2, 9), "cpu"))
    assert [tuple(x.shape) for x in found.inputs] == [(4, 2, 9), (4, 3, 7)]
    other = Behind(factor=1.01)
    other.load_state_dict(found.model.state_dict())
    with torch.set_grad_enabled(what == "backward"):
        assert found.shape == (4, 3, 7)
        assert found.wrong(found.run(found.model)) == ""
        assert found.wrong(found.run(found.eager(found.model))) == ""
        assert found.wrong(found.run(other)).startswith("it is wrong: ")


def test_another_shape_is_told() -> None:
    assert told(CASE, lambda x: silu(x)[:2]) == "it gives (2, 1001)"


def test_inputs_are_signed_scaled_and_the_same_each_time() -> None:
    (x,), (again,) = competitors().inputs, competitors().inputs
    assert torch.equal(x, again)
    assert (x < -3).any()
    assert (x > 3).any()


@pytest.mark.parametrize(
    ("what", "spec", "outputs", "tensors"),
    [
        *(("forward", SPEC, (), 2), ("backward", SPEC, (), 3), ("training", SPEC, (), 5)),
        *(("forward", HALVES, (), 3), ("backward", HALVES, (), 5), ("training", HALVES, (), 8)),
        *(("forward", HALVES, (0, 0), 3), ("backward", HALVES, (0, 0), 4), ("training", HALVES, (0, 0), 7)),
    ],
)
def test_bytes_are_those_that_are_read_and_written(
    what: str, spec: Any, outputs: tuple[int, ...], tensors: int
) -> None:
    case = dataclasses.replace(CASE, what=what, dtype="bfloat16")
    found = competitors(case, lambda *t: t[0] * 1, spec, outputs=outputs)
    assert found.moved == tensors * 3003 * 2
    assert found.copy()().nbytes == found.moved // 2


# --- a session ------------------------------------------------------------------------------------------

OPTIONS = session.BenchOptions(Path(), "cpu", compiled=False, seconds=0.0)
RIVAL = """
import torch
from torch import nn

class Right(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)

class Off(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.1 * x)

class Fails(nn.Module):
    def forward(self, x):
        raise RuntimeError("no kernel image\\nis available")
"""


def rows(found: Competitors, **more: Any) -> dict[str, Row]:
    with torch.no_grad():
        return {row.who: row for row in session._rows(found, dataclasses.replace(OPTIONS, **more))}


def test_others_compete_and_those_that_are_wrong_or_fail_are_not_timed(tmp_path: Path) -> None:
    rival = tmp_path / "rival.py"
    rival.write_text(RIVAL, encoding="utf-8")
    names = tuple(f"{rival}:{name}" for name in ("Right", "Off", "Fails"))
    found = rows(competitors(), against=names)
    assert list(found) == ["copy", "eager", "fusegen", *names]
    right, off, fails = (found[name] for name in names)
    assert right.time is not None
    assert right.call is not None
    assert (right.graph, right.peak, right.said) == (None, None, "")  # of a GPU
    assert off.time is None
    assert off.said.startswith("it is wrong: ")
    assert (fails.time, fails.said) == (None, "it fails: RuntimeError: no kernel image")


def test_ours_is_not_timed_where_it_is_wrong() -> None:
    found = rows(competitors(function=lambda x: x, eager=silu))
    assert found["fusegen"].said.startswith("it is wrong: ")
    assert found["eager"].time is not None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none.py:Model", "FileNotFoundError: [Errno 2] No such file or directory: '{folder}/none.py'"),
        ("rival.py:Nobody", "the file has no 'Nobody'"),
        ("rival.py", "the file has no ''"),
    ],
)
def test_a_competitor_that_is_not_there_is_told(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "rival.py").write_text(RIVAL, encoding="utf-8")
    with pytest.raises(FusegenError) as told:
        rows(competitors(), against=(f"{tmp_path}/{name}",))
    assert str(told.value) == (
        f"{tmp_path}/{name}: this is no module that can compete: {why.format(folder=tmp_path)}\n"
        "  hint: give FILE.py:CLASS, a torch.nn.Module that is made as ModelNew is"
    )


def test_a_shape_that_does_not_fit_is_told_with_what_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_free", lambda device: 2**30)
    case = dataclasses.replace(CASE, shape=(1024, 1024, 1024))
    with pytest.raises(FusegenError) as told:
        session.check_fit(case, 1)
    assert str(told.value) == (
        "--shape 1024x1024x1024: gate forward, float32, 1024x1024x1024, cpu needs about 16.0 GiB, "
        "and 1.0 GiB are free\n  hint: 67,108,864 elements fit"
    )
    session.check_fit(dataclasses.replace(CASE, shape=(67108864,)), 1)


# --- results --------------------------------------------------------------------------------------------


def row(who: str, ms: float, noise: float = 0.01, case: Case = CASE, **more: Any) -> Row:
    return Row(case, who, 3003 * 8, Spread(ms, ms * (1 - noise), ms * (1 + noise), 11), **more)


def report(ours: float, copy: float = 1.0, noise: float = 0.01) -> Report:
    timed = (row("copy", copy), row("eager", 4.0), row("fusegen", ours, noise))
    return Report(
        {"device": "a chip", "torch": "PyTorch 9"}, (*timed, Row(CASE, "torch.compile", 9, said="no"))
    )


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "now.jsonl"
    path.write_text(measurements.as_json_lines(report(2.0)), encoding="utf-8")
    assert measurements.from_json_lines(path) == report(2.0)


def test_the_last_run_of_a_history_is_read(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    path.write_text("".join(map(measurements.as_json_lines, (report(2.0), report(3.0)))), encoding="utf-8")
    assert measurements.from_json_lines(path) == report(3.0)


def test_a_table_holds_shares_and_what_was_said() -> None:
    found = [measurements.shown(report(2.0), row) for row in report(2.0).rows]
    ours, compiled = found[2], found[3]
    heads = ("ms", "spread", "fraction of copy bandwidth", "speed-up over eager")
    assert tuple(map(ours.get, heads)) == ("2.0000", "±1.0%", "0.500", "2.00")
    assert tuple(map(compiled.get, (*heads, ""))) == ("", "", "", "", "no")
    assert measurements.columns(report(2.0)) == [
        *("spec", "pass", "dtype", "shape", "by", "ms", "spread", "GB/s", *heads[2:], ""),
    ]


def test_markdown_and_csv_hold_a_line_for_each_row() -> None:
    markdown = measurements.as_markdown(report(2.0)).splitlines()
    assert markdown[0] == "a chip, PyTorch 9"
    assert (
        markdown[4] == "| gate | forward | float32 | 3x1001 | copy | 1.0000 | ±1.0% | 0 | 1.000 | 4.00 |  |"
    )
    assert len(markdown) == 4 + 4
    sheet = measurements.as_csv(report(2.0)).splitlines()
    assert sheet[0] == "name,what,dtype,shape,device,who,moved,ms,low,high,turns,call,graph,peak,said"
    assert sheet[3] == "gate,forward,float32,3x1001,cpu,fusegen,24024,2.0,1.98,2.02,11,,,,"
    assert sheet[4] == "gate,forward,float32,3x1001,cpu,torch.compile,9,,,,,,,,no"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (report(2.0), report(2.1), [f"{CASE}: 1.05 times as long as before"]),
        (report(2.0), report(2.0), []),
        (report(2.0), report(1.0), []),
        (report(2.0), report(2.02), []),  # never called a difference
        (report(2.0, noise=0.1), report(2.1), []),  # within the spread
        (report(2.0), report(2.2, copy=1.1), []),  # the whole GPU runs slower
        (report(2.0), report(2.0, copy=0.9), [f"{CASE}: 1.11 times as long as before"]),
        (Report({}, ()), report(9.0), []),
        (Report({}, (row("fusegen", 2.0),)), Report({}, (row("fusegen", 3.0),)),
         [f"{CASE}: 1.50 times as long as before"]),
        (report(2.0), Report({}, (Row(CASE, "fusegen", 9, said="it is wrong"),)),
         [f"{CASE}: it is wrong"]),
    ],
)  # fmt: skip
def test_what_has_become_slower_beyond_noise_is_told(
    before: Report, after: Report, told: list[str]
) -> None:
    assert list(measurements.slower(before, after)) == told


def test_times_that_vary_widely_are_told() -> None:
    assert list(measurements.noisy(report(2.0))) == []
    assert list(measurements.noisy(report(2.0, noise=0.25))) == [
        "gate forward, float32, 3x1001, cpu: times vary by ±25%; something else may be running"
    ]


NO_OBJECT = "is no JSON object; earlier versions wrote one object on many lines"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the file is empty"),
        ('{\n "format": 1\n}', f"line 1 {NO_OBJECT}"),
        ('{"format": 2, "machine": {}}\n{"case":', f"line 2 {NO_OBJECT}"),
        ("[]", f"line 1 {NO_OBJECT}"),
        ('{"case": {}}', "no line has a format"),
        ('{"format": 1}', "its format is 1, and this reads 2"),
        ('{"format": 2}', "KeyError: 'machine'"),
        ('{"format": 2, "machine": {}}\n{"rows": []}', "KeyError: 'case'"),
        ('{"format": 2, "machine": {}, "rows": []}',
         "it is a history of an earlier version, which has a line for each run"),
    ],
)  # fmt: skip
def test_a_file_that_holds_no_measurements_is_told(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "old.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FusegenError) as told:
        measurements.from_json_lines(path)
    assert str(told.value) == (
        f"{path}: these are no measurements that can be compared: {why}\n"
        "  hint: give a file that this version's 'fusegen bench --json FILE' has written"
    )


# --- pictures -------------------------------------------------------------------------------------------


def several(*shapes: int) -> Report:
    """A report of two dtypes at some sizes, with a competitor of the user's."""
    times = {"copy": 1.0, "eager": 4.0, "fusegen": 1.25, "torch.compile": 2.0, "rival.py:Mine": 5.0}
    cases = [
        dataclasses.replace(CASE, dtype=dtype, shape=(n,))
        for dtype in ("float32", "float16")
        for n in shapes
    ]
    return Report(
        {"device": "a chip", "date": "today"},
        tuple(row(who, ms, case=c) for c in cases for who, ms in times.items()),
    )


def texts_of(figure: Any) -> list[str]:
    """The message of a picture, its legend, and what stands below it."""
    [legend] = figure.legends
    assert legend.get_title().get_fontsize() == plot_style.LARGE
    words = [legend.get_title().get_text(), *(text.get_text() for text in legend.get_texts())]
    return [*words, figure._supxlabel.get_text()]


def drawn(report: Report, name: str) -> Any:
    """The only picture of a report, which is taller than wide and in type that a telephone shows."""
    [(found, figure)] = plots.pictures(report).items()
    assert found == name
    width, height = figure.get_size_inches()
    assert height > width == 5
    texts = [text for axes in figure.axes for text in (*axes.texts, *axes.get_xticklabels())]
    assert {text.get_fontsize() for text in texts} == {12}
    return figure


def test_bars_are_our_speeds_over_eager_and_torch_compile() -> None:
    figure = drawn(several(4096, 8192), "speedups")
    [axes] = figure.axes
    bars = {str(bars.get_label()): [bar.get_width() for bar in bars] for bars in axes.containers}
    assert bars == {"over eager": [3.2] * 4, "over torch.compile": [1.6] * 4}
    rows = [
        f"gate, {size}, forward, {dtype}" for dtype in ("float32", "float16") for size in ("4 Ki", "8 Ki")
    ]
    assert [text.get_text() for text in axes.texts] == [*["3.20"] * 4, *["1.60"] * 4, *rows]
    below = "by spec, pass and dtype;\na chip"
    assert texts_of(figure) == ["3.20 times\nas fast as eager", "over eager", "over torch.compile", below]
    assert axes.get_xlim()[1] > 3.2


def test_the_largest_speed_up_stands_first() -> None:
    ours = {"a": 2.0, "b": 1.0, "c": 4.0}
    cases = {name: dataclasses.replace(CASE, name=name) for name in ours}
    rows = [row("eager", 4.0, case=case) for case in cases.values()]
    rows += [row("fusegen", ms, case=cases[name]) for name, ms in ours.items()]
    rows += [row("torch.compile", 2.0, case=cases["a"])]
    figure = drawn(Report({"device": "a chip"}, tuple(rows)), "speedups")
    assert texts_of(figure)[0] == "1.00 to 4.00 times\nas fast as eager"
    numbers = [text.get_text() for text in figure.axes[0].texts]
    assert numbers == ["4.00", "2.00", "1.00", "1.00", "b", "a", "c"]


def test_lines_are_speeds_over_eagers_by_size() -> None:
    figure = drawn(several(4**5, 4**10, 4**15), "sizes")
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["gate, forward, float32", "gate, forward, float16"]
    lines: dict[str, Any] = {str(line.get_label()): line for line in figure.axes[0].lines}
    assert set(lines) == {"eager", "fusegen", "torch.compile", "rival.py:Mine"}
    assert list(lines["fusegen"].get_xdata()) == [4**5, 4**10, 4**15]
    assert list(lines["fusegen"].get_ydata()) == [3.2] * 3
    assert [axes.get_ylim() for axes in figure.axes] == [(0, pytest.approx(3.52))] * 2
    message, *_, below = texts_of(figure)
    assert message == "3.20 times eager's\nspeed at every size"
    assert below == "speed over eager's, by elements;\na chip"


def test_without_eager_there_is_no_picture() -> None:
    rows = tuple(each for each in several(4096).rows if each.who != "eager")
    assert plots.pictures(Report({"device": "a chip"}, rows)) == {}


@pytest.mark.parametrize(
    ("count", "text"), [(7, "7"), (1024, "1 Ki"), (3 * 2**19, "1.5 Mi"), (2**30, "1 Gi"), (2**31, "2 Gi")]
)
def test_elements_are_told_in_binary_prefixes(count: int, text: str) -> None:
    assert plots.elements(count) == text


def test_pictures_have_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second = (plots.save(several(4096), tmp_path / name) for name in ("a", "b"))
    assert [path.name for path in first] == ["speedups.svg", "speedups.png"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_report_pictures_draws_what_was_measured(workshop: Workshop, tmp_path: Path) -> None:
    workshop.file("all.jsonl", measurements.as_json_lines(several(4096)))
    printed = workshop.run("report", "pictures", "all.jsonl", "drawn").output
    drawn = plots.save(several(4096), tmp_path / "again")
    assert printed.splitlines() == [f"drawn/{path.name}" for path in drawn]
    assert [Path("drawn", path.name).read_bytes() for path in drawn] == [p.read_bytes() for p in drawn]


def test_pictures_show_the_specs_that_are_named(workshop: Workshop) -> None:
    every = several(4096)
    rest = tuple(dataclasses.replace(r, case=dataclasses.replace(r.case, name="a")) for r in every.rows)
    both = Report(every.machine, (*every.rows, *rest))
    assert measurements.of_specs(both, ["gate"]) == every
    workshop.file("all.jsonl", measurements.as_json_lines(both))
    assert workshop.run("report", "pictures", "all.jsonl", "some", "gate").exit_code == 0
    workshop.file("gate.jsonl", measurements.as_json_lines(every))
    assert workshop.run("report", "pictures", "gate.jsonl", "gate").exit_code == 0
    assert Path("some/speedups.svg").read_bytes() == Path("gate/speedups.svg").read_bytes()
    said = workshop.refused("report", "pictures", "all.jsonl", "none", "b")
    assert said.startswith("b: these are no measurements that can be compared: the file has none of")


# --- the command ----------------------------------------------------------------------------------------


QUICK = ("--device", "cpu", "--no-compile", "--seconds", "0")


def test_bench_measures_a_module_both_ways(gated: Workshop) -> None:
    files = ("--json", "now.jsonl", "--csv", "now.csv", "--markdown", "now.md")
    shown = gated.done("bench", "gate", *QUICK, "--backward", "--shape", "64x129", *files)
    written = measurements.from_json_lines(gated.folder / "now.jsonl")
    who = [(row.case.what, row.who) for row in written.rows]
    assert who == [
        (what, name) for what in ("forward", "backward") for name in ("copy", "eager", "fusegen")
    ]
    assert all(row.time and row.time.median > 0 and row.call and row.call > 0 for row in written.rows)
    assert (gated.folder / "now.csv").read_text() == measurements.as_csv(written)
    assert (gated.folder / "now.md").read_text() == measurements.as_markdown(written)
    assert "64x129" in shown
    assert "torch.compile" not in shown


@pytest.mark.full
def test_bench_draws_and_keeps_a_history(gated: Workshop) -> None:
    for run in ("first", "second"):
        shown = gated.done(
            "bench",
            "gate",
            *QUICK,
            "--shape",
            "4096",
            "--plot",
            "plots",
            "--history",
            "all.jsonl",
            "--json",
            f"{run}.jsonl",
        )
    assert shown.split()[-2:] == [f"plots/speedups.{kind}" for kind in ("svg", "png")]
    assert (gated.folder / "plots/speedups.svg").stat().st_size > 1000
    first, second = ((gated.folder / f"{run}.jsonl").read_text() for run in ("first", "second"))
    assert (gated.folder / "all.jsonl").read_text() == first + second


def test_a_suite_is_all_dtypes_and_both_passes(gated: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "rows", lambda compiled, case, options: (row("fusegen", 1.0, case=case),))
    assert gated.run("bench", *QUICK, "--suite", "--shape", "64", "--json", "now.jsonl").exit_code == 0
    cases = [row.case for row in measurements.from_json_lines(gated.folder / "now.jsonl").rows]
    dtypes = ("float32", "float16", "bfloat16", "float64")
    assert [(c.what, c.dtype) for c in cases] == [(w, d) for w in ("forward", "backward") for d in dtypes]


@pytest.mark.full
def test_a_training_step_is_forward_then_backward(gated: Workshop) -> None:
    flags = ("--training", "--shape", "64", "--json", "now.jsonl")
    gated.done("bench", "gate", *QUICK, "--dtype", "float32", *flags)
    rows = measurements.from_json_lines(gated.folder / "now.jsonl").rows
    assert [(row.case.what, row.who) for row in rows] == [
        (what, who) for what in ("forward", "training") for who in ("copy", "eager", "fusegen")
    ]
    assert all(row.time for row in rows)


def test_a_sweep_goes_as_far_as_fits(gated: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "rows", lambda compiled, case, options: (row("fusegen", 1.0, case=case),))
    monkeypatch.setattr(session, "_free", lambda device: 2**20)
    assert gated.run("bench", "gate", *QUICK, "--sweep", "--json", "now.jsonl").exit_code == 0
    cases = [row.case for row in measurements.from_json_lines(gated.folder / "now.jsonl").rows]
    assert [case.shape for case in cases] == [(1024,), (4096,), (16384,)]


@pytest.mark.full
def test_bench_ends_with_status_1_where_something_is_slower(gated: Workshop) -> None:
    measure = ("bench", "gate", *QUICK, "--shape", "4096")
    assert gated.run(*measure, "--json", "old.jsonl").exit_code == 0
    machine, case = map(json.loads, (gated.folder / "old.jsonl").read_text().splitlines())
    for row in case["rows"]:
        if row["who"] == "fusegen":
            row["time"] = {"median": 1e-6, "low": 1e-6, "high": 1e-6, "turns": 11}
    lines = [json.dumps(machine), json.dumps(case)]
    (gated.folder / "old.jsonl").write_text("\n".join(lines), encoding="utf-8")
    result = gated.run(*measure, "--compare", "old.jsonl")
    assert result.exit_code == 1
    assert "slower: gate forward, float32, 4096, cpu: " in result.stderr


@pytest.mark.parametrize("device", [ON_CUDA])
def test_a_gpu_is_measured_with_graphs_and_memory(gated: Workshop, device: str) -> None:
    shapes = ("--shape", "4096", "--shape", "4096x4096")
    measure = (
        "bench",
        "gate",
        "--device",
        device,
        "--seconds",
        "0",
        "--backward",
        *shapes,
        "--json",
        "now.jsonl",
    )
    gated.done(*measure)
    report = measurements.from_json_lines(gated.folder / "now.jsonl")
    for row in report.rows:
        small, forward = row.case.numel == 4096, row.case.what == "forward"
        assert row.time is not None, row.said
        assert (row.call is not None) == small
        assert (row.graph is not None) == (small and forward)
        assert row.peak is not None
    case = dataclasses.replace(report.rows[0].case, shape=(4096, 4096))
    ours, eager, copy = (report.of(who, case) for who in ("fusegen", "eager", "copy"))
    assert ours
    assert eager
    assert copy
    assert (ours.peak, copy.peak) == (4096 * 4096 * 4, 0)
    assert eager.peak
    assert eager.peak > 4096 * 4096 * 4  # a tensor for each step
    assert (report.share(ours, "copy") or 0) > 0


@pytest.mark.few(3)
@pytest.mark.parametrize("shape", ["", "4x", "x4", "4*4", "0x3", "-4", "4.5"])
def test_a_text_that_is_no_shape_is_refused(gated: Workshop, shape: str) -> None:
    assert gated.refused("bench", "gate", *QUICK, "--shape", shape) == (
        f"--shape: {shape!r} is no shape\n  hint: write sizes with an x between them, such as 4096x4096\n"
    )


def test_a_dtype_that_no_spec_has_is_told(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: x / 2\ndtypes: [float32]")
    assert workshop.refused("bench", "gate", *QUICK, "--dtype", "float16") == (
        "--dtype: none of gate is made for float16\n"
        "  hint: leave --dtype out, or add it to the spec's dtypes\n"
    )


def test_what_is_imported_is_known_by_a_name_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "halved.py").write_text("HALF = 1 / 2\n")
    first, second = (imported(tmp_path / "halved.py") for _ in range(2))
    assert importlib.import_module(first.__name__) is first
    assert importlib.import_module(second.__name__) is second
    assert first is not second


def test_a_module_that_is_not_built_is_not_measured(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: x / 2")
    assert "the module of gate is not what its spec says" in workshop.refused("bench", "gate", *QUICK)


def test_without_a_gpu_cuda_is_not_measured(gated: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert (
        gated.refused("bench", "gate", "--device", "cuda")
        == "--device cuda: there is no CUDA GPU here\n  hint: use --device cpu\n"
    )
