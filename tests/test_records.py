"""JSON lines for machines, of one form, and shell completion."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import ROOT, Workshop

from fusegen.cli import main
from fusegen.cli.json_records import print_records, record
from fusegen.evidence.certify import certification
from fusegen.evidence.certify.certificate import Certificate
from fusegen.evidence.certify.findings import Evidence
from fusegen.evidence.explain import Explanation, records
from fusegen.project.build import compiled_file


def documented() -> dict[str, list[tuple[str, list[str]]]]:
    """The kinds that docs/commands.md lists for each command, with their keys."""
    found: dict[str, list[tuple[str, list[str]]]] = {}
    for line in (ROOT / "docs/commands.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0].startswith("`"):
            command, kind, keys = (cell.strip("`") for cell in cells)
            found.setdefault(command, []).append((kind, keys.split("`, `")))
    return found


KINDS = documented()


def lines(text: str, command: str) -> list[dict[str, Any]]:
    """The records in a text, each of a kind and with the keys that the page lists for the command."""
    found: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    keys = dict(KINDS[command])
    for each in found:
        assert next(iter(each)) == "kind"
        assert set(keys[each["kind"]]) <= each.keys()
        assert command == "certify" or len(each) == 1 + len(keys[each["kind"]])
    return found


def test_list_has_a_record_for_each_spec(gated: Workshop) -> None:
    gated.spec("third", "chain: [relu]")
    found = lines(gated.run("list", "--json").stdout, "list")
    assert [(one["spec"], one["module"], one["certificate"]) for one in found] == [
        ("gate", "current", {}),
        ("third", "not built", {}),
    ]
    assert found[0]["dtypes"] == ["float32", "float16", "bfloat16", "float64"]
    functions = lines(gated.run("list", "--functions", "--json").stdout, "list --functions")
    assert functions[1] == {"kind": "function", "function": "relu(x)", "value": "Max(0, x)"}


def test_check_has_a_record_for_each_difference(gated: Workshop) -> None:
    counts = dict.fromkeys(("differences", "complaints", "added", "removed"), 0)
    assert lines(gated.run("check", "--json").stdout, "check") == [
        {"kind": "summary", "modules": 1, "uncertified": 1} | counts
    ]
    Path("generated/gate.py").unlink()
    result = gated.run("check", "--json")
    assert (result.exit_code, result.stderr) == (1, "")
    difference, summary = lines(result.stdout, "check")
    assert (difference["file"], difference["change"]) == ("generated/gate.py", "new")
    assert difference["diff"].startswith("--- /dev/null\n+++ generated/gate.py (regenerated)\n")
    assert summary["differences"] == 1


def test_check_has_a_record_for_each_complaint_and_certificate(gated: Workshop) -> None:
    gated.file("generated/gone.certificate.txt", "{}")
    [note, _] = lines(gated.run("check", "--json").stdout, "check")
    assert note["kind"] == "certificate"
    assert "there is no module of this certificate" in note["text"]
    gated.build("other", "formula: x + 1")
    Path("specs/gate.yaml").unlink()
    result = gated.run("check", "--json")
    assert result.exit_code == 1
    complaint, summary = lines(result.stdout, "check")
    assert complaint["kind"] == "complaint"
    assert (summary["differences"], summary["complaints"]) == (0, 1)


def test_explain_has_a_record_for_each_part_of_its_text(gated: Workshop) -> None:
    found = lines(gated.run("explain", "relu_hardswish", "--json").stdout, "explain")
    first, second, *_ = found
    assert first["summary"] == "ReLU, then hard-swish, as one kernel."
    assert (second["kind"], second["part"], second["rule"]) == ("rewrite", "Forward", "dead lower bound")
    assert second["since"] == "after_relu + 3 lies in [3, inf]"
    costs = [each for each in found if each["kind"] == "cost"]
    assert costs[0]["budgets"].keys() == {"sm_80", "sm_90", "sm_100"}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["gelu", "conv_relu_hardswish"])
def test_the_records_of_an_explanation_are_those_of_the_page(workshop: Workshop, name: str) -> None:
    found = Explanation(compiled_file(ROOT / f"specs/{name}.yaml"), Certificate(), {})
    text = workshop.run("explain", str(ROOT / f"specs/{name}.yaml"), "--json").stdout
    assert len(lines(text, "explain")) == len([*records(found)])
    kinds = {each["kind"] for each in records(found)}
    assert kinds <= {kind for kind, _ in KINDS["explain"]}
    assert ("attribute" in kinds) == (name == "conv_relu_hardswish")
    assert "estimate" in kinds


def test_certify_has_a_record_for_each_dtype(gated: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = Evidence("float16", 4, True, 0, ())
    verdicts = [
        certification.Verdict("gate", "cpu", evidence),
        certification.Verdict("gate", "cpu", replace(evidence, dtype="float32", broken=("too large",))),
    ]
    monkeypatch.setattr(certification, "certify_all", lambda *_: iter(verdicts))
    result = gated.run("certify", "gate", "--json", "--device", "cpu", "--sample", "4")
    assert result.exit_code == 1
    found = lines(result.stdout, "certify")
    assert [(one["dtype"], one["broken"]) for one in found] == [("float16", []), ("float32", ["too large"])]


@pytest.mark.parametrize("words", [("--random", "1"), ("--at", "1")])
def test_certify_has_records_of_verdicts_only(gated: Workshop, words: tuple[str, ...]) -> None:
    result = gated.run("certify", "--json", *words)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        2,
        "Error: --json takes no --random and no --at",
    )


def test_numbers_that_json_lacks_are_texts(capsys: pytest.CaptureFixture[str]) -> None:
    print_records([record("odd", ulp={"forward": [math.inf, -math.inf, math.nan, 1.5]})])
    assert capsys.readouterr().out == '{"kind": "odd", "ulp": {"forward": ["inf", "-inf", "nan", 1.5]}}\n'


# --- completion -----------------------------------------------------------------------------------------

Complete = Callable[[str], list[str]]


@pytest.fixture
def complete(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """The completions that bash gets for the last word of a line."""

    def found(line: str) -> list[str]:
        monkeypatch.setenv("_FUSEGEN_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        return CliRunner().invoke(main, [], prog_name="fusegen").output.splitlines()

    return found


@pytest.mark.parametrize(
    "command", ["build", "compile", "certify", "bench", "tune", "show", "explain", "report eager"]
)
def test_the_names_of_specs_are_completed(workshop: Workshop, complete: Complete, command: str) -> None:
    workshop.spec("gelu_mine", "formula: x")
    names = ["gelu", "gelu_gelu", "gelu_mine", "gelu_tanh"]
    assert complete(f"fusegen {command} gel") == [f"plain,{name}" for name in names]


def test_folders_of_specs_and_files_are_completed(workshop: Workshop, complete: Complete) -> None:
    assert complete("fusegen build kernelbench/matrix_relu") == ["plain,kernelbench/matrix_relu"]
    assert complete("fusegen build specs/g") == ["file,specs/g"]


def test_options_and_commands_are_completed(complete: Complete) -> None:
    assert complete("fusegen cert") == ["plain,certify"]
    assert complete("fusegen build --verb") == ["plain,--verbose"]
