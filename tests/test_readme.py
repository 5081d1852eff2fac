"""The tables of README.md and docs/ hold the committed figures."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import ROOT

from fusegen.cli import main
from fusegen.core.ops import FUNCTIONS
from fusegen.evidence.bench.measurements import from_json_lines
from fusegen.evidence.certify import certificate_text
from fusegen.evidence.certify.certificate import Certificate, Claim, Kernel, Machine
from fusegen.evidence.certify.findings import Accuracy, Evidence, Local, Output, Worst
from fusegen.evidence.report import accuracy, speed
from fusegen.language.parse import parse_spec
from fusegen.language.schema import FIELDS

GENERATED = ROOT / "generated"
SPEEDS, ACCURACY = "docs/reports/speed.md", "docs/reports/accuracy.md"
TABLES = {"headline": ("README.md", SPEEDS), "bench": (SPEEDS,)}


def erring(ulp: float, misrounded: int) -> Accuracy:
    return Accuracy((Worst(("0x1.0p+0",), ulp, "0x1.0p+0", "0x1.0p+0"),), misrounded)


OUTPUT = Output("value", erring(2.0, 2), erring(3.0, 1))


def certified(device: str, dtype: str, evidence: Evidence | None = None) -> str:
    evidence = evidence or Evidence(dtype, 4, False, 0, (OUTPUT,))
    kernel = Kernel(device, "0" * 16, Machine("a chip", "2.13.0", "c++ 12"))
    return certificate_text.text(Certificate().with_evidence(Claim("gate", "", (dtype,)), kernel, evidence))


def table_in(page: str, head: str) -> list[str]:
    """The lines of the table that begins with a head."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    start = lines.index(head)
    return list(itertools.takewhile(lambda line: line.startswith("|"), lines[start:]))


@pytest.mark.parametrize("device", accuracy.NAMES)
def test_the_tables_of_accuracy_are_the_certificates(device: str) -> None:
    table = accuracy.table(GENERATED, device)
    assert table_in(ACCURACY, table[0]) == table


def test_the_table_of_4_ulp_is_that_of_the_certificates() -> None:
    table = accuracy.within(GENERATED)
    assert table_in(ACCURACY, table[0]) == table


def test_an_output_is_within_4_ulp_if_no_cell_exceeds_it(tmp_path: Path) -> None:
    exceeding = replace(OUTPUT, name="gradient of x", local=Local((1234, 3)))
    for name, inputs in (("gate", 2**32), ("several", 2**20)):
        evidence = Evidence("float32", inputs, True, 0, (OUTPUT, exceeding))
        text = certified("cuda", "float32", evidence)
        (tmp_path / f"{name}.certificate.txt").write_text(text, encoding="utf-8")
    assert accuracy.within(tmp_path) == [
        "| within 4 ulp: 1 of 2 | CUDA, value | CUDA, gradient | CPU, value | CPU, gradient |",
        "|---|---|---|---|---|",
        "| gate | yes | 1,234 | - | - |",
    ]


def test_readme_has_rows_of_the_table_of_accuracy() -> None:
    table = accuracy.table(GENERATED, "cuda")
    rows = table_in("README.md", table[0])
    assert rows[:2] == table[:2]
    assert len(rows) > 4
    assert set(rows) <= set(table)


@pytest.mark.parametrize(("name", "page"), [(name, page) for name in TABLES for page in TABLES[name]])
def test_the_tables_of_speeds_are_what_was_measured(name: str, page: str) -> None:
    table = speed.table(from_json_lines(ROOT / "docs" / "reports" / f"{name}.jsonl"))
    assert table_in(page, table[0]) == table


@pytest.mark.parametrize("page", ["README.md", "docs/language.md"])
def test_the_keys_are_the_languages(page: str) -> None:
    rows = table_in(page, "| key | meaning |")[2:]
    assert rows == [f"| `{field.key}` | {field.meaning} |" for field in FIELDS]


def test_the_functions_are_the_languages() -> None:
    printed = CliRunner().invoke(main, ["list", "--functions"]).output
    rows = [line.replace("|", "\\|").split("\t") for line in printed.splitlines()]
    assert [signature.partition("(")[0] for signature, _ in rows] == list(FUNCTIONS)
    table = table_in("docs/language.md", "| function | value |")
    assert table[2:] == [f"| `{signature}` | {value} |" for signature, value in rows]


def test_the_library_is_listed() -> None:
    rows = [row.strip("| ").split(" | ") for row in table_in("docs/language.md", "| | specs |")[2:]]
    listed = [name for _, names in rows for name in names.split(", ")]
    assert sorted(listed) == sorted(path.stem for path in (ROOT / "specs").glob("*.yaml"))


def test_the_spec_with_parameters_is_one() -> None:
    text = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    body, *_ = re.findall(r"```yaml\n(init: .+?)```", text, re.DOTALL)
    spec = parse_spec(f"name: gate\nsummary: A test.\n{body}", "gate.yaml")
    scalars = [f"{scalar.name}={scalar.default}" for scalar in spec.scalars]
    function = f"f({', '.join([*(tensor.name for tensor in spec.tensors), *scalars])})"
    assert f"`{function}`" in text


def test_the_kernels_shown_are_the_modules() -> None:
    [shown] = re.findall(r"```cpp\n(.+?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    module = (ROOT / "generated" / "relu_hardswish.py").read_text(encoding="utf-8")
    for kernel in shown.split("// From grad"):
        _, body = kernel.split("template", 1)
        assert f"template{body.rstrip()}\n" in module


def test_report_prints_the_tables_of_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    told = CliRunner().invoke(main, ["report", "accuracy"]).output
    shown = [
        *(accuracy.table(GENERATED, device) for device in accuracy.NAMES),
        accuracy.within(GENERATED),
        accuracy.exceptions(GENERATED),
    ]
    assert told == "".join("\n".join(lines) + "\n\n" for lines in shown)
    files = [f"docs/reports/{name}.jsonl" for name in TABLES]
    tables = [speed.table(from_json_lines(Path(file))) for file in files]
    assert CliRunner().invoke(main, ["report", "speed", *files]).output == "".join(
        "\n".join(lines) + "\n\n" for lines in tables
    )


def test_the_exceptions_are_what_the_certificates_break() -> None:
    table = accuracy.exceptions(GENERATED)
    assert table_in("docs/reports/exceptions.md", table[0]) == table


ULPS = {3.694: "3.69", 52.01: "52.01", 16777000.0: "1.7e+07", float("inf"): "infinite"}


@pytest.mark.parametrize("ulp", ULPS)
def test_a_cell_is_a_largest_error(ulp: float) -> None:
    assert accuracy.ulp(erring(ulp, 0)) == ULPS[ulp]


def test_a_cell_is_a_share_of_the_inputs() -> None:
    assert accuracy.misrounded(Accuracy(misrounded=194_102_960), 2**32) == "4.52"


CERTIFICATES = {
    "current": (certified("cpu", "float32"), ("2.00", "3.00", "50.00", "25.00")),
    "of an earlier format": (certified("cpu", "float32").replace("format 4", "format 3"), ("-",) * 4),
    "of another device": (certified("cuda", "float32"), ("-",) * 4),
    "of another dtype": (certified("cpu", "float64"), ("-",) * 4),
}


@pytest.mark.parametrize("what", CERTIFICATES)
def test_cells_are_of_current_certificates(what: str, tmp_path: Path) -> None:
    certificate, cells = CERTIFICATES[what]
    path = tmp_path / "gate.certificate.txt"
    path.write_text(certificate, encoding="utf-8")
    found = dict(accuracy.evidences(path, "cpu"))
    assert accuracy.cells(found.get("float32"), "value") == cells
