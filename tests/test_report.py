"""The reports: eager's bits, speeds, and predicted speeds beside measured ones."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT, Workshop

from fusegen.errors import FusegenError
from fusegen.evidence.bench import measurements
from fusegen.evidence.bench.case import Case
from fusegen.evidence.bench.clock import Spread
from fusegen.evidence.bench.measurements import Report, Row
from fusegen.evidence.report import eager, speed

EAGER = ("report", "eager", "--device", "cpu", "--count", "1000")


@pytest.fixture
def half(workshop: Workshop) -> Workshop:
    """A workshop with a spec outside of specs/."""
    workshop.file("mine/halved.yaml", "name: halved\nsummary: A test.\nnumerics: accurate\nformula: x / 2")
    return workshop


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # which PyTorch says of oneDNN
def test_report_eager_writes_nothing_beside_a_spec(half: Workshop) -> None:
    before = half.files()
    assert half.done(*EAGER, "mine/halved.yaml").splitlines()[-1] == f"| halved | {' | '.join(['='] * 8)} |"
    assert half.files() == before


def test_the_modules_of_report_eager_are_in_its_folder_only(half: Workshop, tmp_path: Path) -> None:
    shared = half.spec("shared", "formula: x * 3")
    inner = half.file("specs/inner/calls.yaml", "name: calls\nsummary: A test.\nformula: relu(x) * 2\n")
    before = half.files()
    folder = tmp_path / "made"
    found = eager.eager_modules((Path("mine/halved.yaml"), shared, inner), folder)
    assert [(spec.name, spec.numerics) for spec, _ in found] == [
        (name, "eager") for name in ("halved", "shared", "calls")
    ]
    modules = [path for path in folder.rglob("*.py") if "_runtime" not in path.parts]
    assert sorted(path.stem for path in modules) == ["calls", "halved", "shared"]
    assert {name: text for name, text in half.files().items() if not name.startswith("made/")} == before


def test_report_eager_refuses_two_specs_of_one_module(half: Workshop, tmp_path: Path) -> None:
    half.file("yours/halved.yaml", "name: halved\nsummary: A test.\nformula: x * 0.5\n")
    with pytest.raises(FusegenError, match=r"'halved' is the name of mine/halved\.yaml, too"):
        eager.eager_modules((Path("mine/halved.yaml"), Path("yours/halved.yaml")), tmp_path / "made")


def test_report_eager_leaves_out_specs_with_layers() -> None:
    names = {path.stem for path in eager.without_layers(ROOT / "specs")}
    assert "gelu" in names
    assert "conv_relu_hardswish" not in names


def test_a_comment_about_layers_is_no_layer(workshop: Workshop) -> None:
    path = workshop.spec("gate", "formula: x / 2  # no layers: here")
    assert eager.without_layers(path.parent) == (path,)


def test_report_eager_knows_no_such_spec(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: x / 2")
    assert workshop.refused(*EAGER, "gat") == "gat: there is no spec 'gat'\n  hint: did you mean 'gate'?\n"


CASES = (
    Case("gelu", "forward", "float32", (2**20,), "cuda"),
    Case("silu", "backward", "bfloat16", (2**20,), "cuda"),
)
MACHINE = {"device": "a chip", "torch": "PyTorch", "date": "today"}


def timed(case: Case, **times: float) -> tuple[Row, ...]:
    """The rows of competitors, by milliseconds; `compiled` stands for torch.compile."""
    names = {"compiled": "torch.compile"}
    spreads = {names.get(who, who): Spread(ms, ms, ms, 3) for who, ms in times.items()}
    return tuple(Row(case, who, 8, spread) for who, spread in spreads.items())


def saved(path: Path, *rows: tuple[Row, ...]) -> Path:
    path.write_text(measurements.as_json_lines(Report(MACHINE, sum(rows, ()))), encoding="utf-8")
    return path


def test_report_predicted_is_of_kernels(workshop: Workshop) -> None:
    steps = replace(CASES[0], what="training")
    times = {"copy": 2.0, "eager": 4.0, "fusegen": 1.6}
    rows = (timed(case, **times) for case in (CASES[0], steps, CASES[1]))
    lines = workshop.run("report", "predicted", str(saved(Path("all.jsonl"), *rows))).output.splitlines()
    assert lines[2].startswith("Fractions of copy bandwidth at 2^20 elements: `schedule/cost.py` predicts ")
    assert lines[4].startswith("a chip, PyTorch, today. ")
    first, second = lines[9:11]
    assert re.fullmatch(
        r"\| gelu_forward \| float32 \| \w+ \| \d+ (\| \d\.\d\d ){3}\| 1\.25 \| 0\.50 \|", first
    )
    assert second.startswith("| silu_backward | bfloat16 | ")
    assert lines[11:] == ["", "Not predicted: 1 training step, of two kernels each."]


def test_report_predicted_says_which_sizes_were_measured(workshop: Workshop) -> None:
    cases = (CASES[0], replace(CASES[0], shape=(3, 1001)))
    file = saved(Path("all.jsonl"), *(timed(case, copy=1.0, fusegen=1.0) for case in cases))
    lines = workshop.run("report", "predicted", str(file)).output.splitlines()
    assert lines[2].startswith("Fractions of copy bandwidth at 3,003 to 2^20 elements: ")
    names = [line.split(" | ")[0] for line in lines[9:]]
    assert names == ["| gelu_forward, 2^20 elements", "| gelu_forward, 3,003 elements"]


def test_report_predicted_refuses_training_steps_alone(workshop: Workshop) -> None:
    file = saved(Path("all.jsonl"), timed(replace(CASES[0], what="training"), fusegen=1.0))
    assert workshop.refused("report", "predicted", str(file)).splitlines()[0] == (
        "report predicted: these are no measurements that can be compared: "
        "the files have no forward or backward pass"
    )


TIMED = "ms | fraction of copy bandwidth | speed-up over eager | eager, ms | `torch.compile`, ms |"


@pytest.mark.parametrize(
    ("cases", "head", "labels"),
    [
        (CASES[:1], "| | ", ["gelu"]),
        ((CASES[0], replace(CASES[0], shape=(3, 5))), "| | shape | ", ["gelu | 1048576", "gelu | 3x5"]),
        (CASES, "| | pass | dtype | ", ["gelu | forward | float32", "silu | backward | bfloat16"]),
    ],
)
def test_a_table_of_times_shows_the_keys_that_differ(
    cases: tuple[Case, ...], head: str, labels: list[str]
) -> None:
    rows = (timed(case, copy=2.0, eager=4.0, fusegen=1.6, compiled=3.0) for case in cases)
    found = speed.table(Report(MACHINE, sum(rows, ())))
    assert found[0] == head + TIMED
    assert found[2:] == [f"| {label} | 1.600 | 1.250 | 2.50 | 4.000 | 3.000 |" for label in labels]


def test_competitors_that_were_not_timed_have_no_numbers() -> None:
    rows = (*timed(CASES[0], copy=2.0, fusegen=1.6), Row(CASES[0], "eager", 8, said="it is wrong"))
    assert speed.table(Report(MACHINE, rows))[2] == "| gelu | 1.600 | 1.250 | - | - | - |"


def test_a_table_of_fractions_has_one_number_a_cell() -> None:
    panels = [
        replace(CASES[0], dtype=dtype, what=what) for dtype, what in (*speed.PANELS, ("float16", "forward"))
    ]
    silu = replace(CASES[0], name="silu")  # in one panel, without torch.compile
    rows = (timed(case, copy=2.0, eager=4.0, fusegen=1.6, compiled=2.0) for case in panels)
    found = speed.table(Report(MACHINE, (*sum(rows, ()), *timed(silu, copy=2.0, eager=2.5, fusegen=2.0))))
    assert found == [
        "| fraction of copy bandwidth | by | float32 forward | float32 backward | bfloat16 forward "
        "| bfloat16 backward | float16 forward |",
        "|---|---|---|---|---|---|---|",
        "| gelu | fusegen | 1.25 | 1.25 | 1.25 | 1.25 | 1.25 |",
        "| gelu | eager | 0.50 | 0.50 | 0.50 | 0.50 | 0.50 |",
        "| gelu | torch.compile | 1.00 | 1.00 | 1.00 | 1.00 | 1.00 |",
        "| silu | fusegen | 1.00 | - | - | - | - |",
        "| silu | eager | 0.80 | - | - | - | - |",
    ]


def test_the_rows_of_a_sweep_show_its_shapes() -> None:
    table = speed.table(measurements.from_json_lines(ROOT / "docs" / "reports" / "sweep.jsonl"))
    rows = [line.split(" | ")[:2] for line in table[2:]]
    assert len(rows) == 22
    assert sorted({shape for _, shape in rows}, key=int) == [str(4**k) for k in range(5, 16)]
