"""Commands as people type them: output, exit status, and the files that each touches."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tomllib
import yaml
from click import Group
from click.testing import CliRunner
from conftest import ROOT, Workshop

from fusegen.cli import EXTRAS, WHOLE, main
from fusegen.cli.showing import STAGES
from fusegen.evidence.show import STAGES as SHOWN
from fusegen.language import library
from fusegen.project import modules

RUNTIME = "new      generated/_runtime\n"  # what the first build in a folder prints, too


def times(workshop: Workshop) -> dict[str, int]:
    """When each file was last written, in nanoseconds."""
    return {path: (workshop.folder / path).stat().st_mtime_ns for path in workshop.files()}


ACCEPTED = (
    "narrow the inputs with 'assume', write the formula another way, set 'numerics: eager', or give the "
    "reason why it is right with 'accept: {{{}: ...}}'"
)
DOUBTED = {  # specs with what `build` says of them, and what they may accept
    "dtypes: [float32]\ninputs: {x: {}, s: {}, b: {}}\nformula: hardswish(x * s + b)": (
        "the gradient of x is nan at x = inf, s = inf, b = -inf; eager gives inf",
        "value: ..., gradient",
    ),
    "formula: x ** 20 / (x ** 20 + 1 + abs(x))": ("the gradient on ", "value: ..., gradient"),
}


@pytest.mark.full
@pytest.mark.parametrize("body", DOUBTED)
def test_build_says_which_promises_a_spec_may_miss(body: str, workshop: Workshop) -> None:
    workshop.spec("gate", "formula: x * sigmoid(x)")
    workshop.spec("doubted", body)
    said, key = DOUBTED[body]
    told = workshop.run("build").stderr
    assert told.startswith(f"doubted: {said}")
    assert told.endswith(f"; {ACCEPTED.format(key)}\n")
    assert told.count("\n") == 2  # of the gradient and of the value
    workshop.spec("doubted", f"{body}\nnumerics: eager")
    assert workshop.run("build").stderr == ""


@pytest.mark.full
def test_what_a_spec_accepts_is_told_no_more(workshop: Workshop) -> None:
    body = "dtypes: [float32]\ninputs: {x: {}, s: {}}\nformula: hardswish(x) * s"
    workshop.spec("doubted", f"{body}\naccept: {{gradient: it is called once}}")
    assert workshop.run("build").stderr == ""
    assert "it is called once" in workshop.run("explain", "doubted").output
    assert workshop.run("list").output.split("\t")[-1] == "gradient it is called once\n"
    workshop.spec("doubted", f"{body}\naccept: {{value: it is known}}")
    told = workshop.run("build").stderr.splitlines()
    assert "the gradient of x is nan" in told[0]
    assert told[1:] == [
        "doubted: 'accept' has a reason for value, of which there is nothing to say; remove it"
    ]


@pytest.mark.full
def test_build_says_what_is_computed_in_double_until_a_spec_accepts_that(workshop: Workshop) -> None:
    body = "dtypes: [float32]\ninputs: {x: {}, s: {}, b: {}}\nformula: hardswish(x) * s + b * x\naccept: "
    workshop.spec("doubted", f"{body}{{value: so, gradient: it is known}}")
    told = workshop.run("build").stderr
    assert told.startswith(
        "doubted: the gradient on CUDA is computed in double, which takes longer than a copy and may take "
        "longer than eager: in float it would be wrong by 78.3 ulp at x = "
    )
    assert told.endswith(f"; {ACCEPTED.format('speed')}\n")
    workshop.spec("doubted", f"{body}{{value: so, gradient: it is known, speed: it is called once}}")
    assert workshop.run("build").stderr == ""
    assert "speed it is called once" in workshop.run("list").output


def test_build_says_what_is_new_then_what_changed_then_nothing(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: x + 1")
    assert workshop.run("build").output == f"new      generated/gate.py\n{RUNTIME}"
    assert workshop.run("build").output == "unchanged: 1 module\n"
    workshop.spec("gate", "formula: x + 2")
    workshop.spec("other", "formula: x + 3")
    output = workshop.run("build").output
    assert output == "changed  generated/gate.py\nnew      generated/other.py\n"
    assert workshop.run("build").output == "unchanged: 2 modules\n"


def test_build_touches_nothing_that_is_unchanged(built: Workshop) -> None:
    before = times(built)
    built.spec("gate", "formula: x * clamp(x + 3, 0, 6) / 6")
    before["specs/gate.yaml"] = times(built)["specs/gate.yaml"]
    assert built.run("build").exit_code == 0
    assert times(built) == before


def test_build_of_one_spec_leaves_the_others_alone(built: Workshop) -> None:
    built.spec("gate", "formula: x - 1")
    before = built.files()
    assert built.run("build", "gate").output == "changed  generated/gate.py\n"
    changed = {path for path, data in built.files().items() if before.get(path) != data}
    assert changed == {"generated/gate.py", "generated/MANIFEST.toml"}


@pytest.mark.parametrize("named", ["gate", "specs/gate.yaml"])
def test_build_takes_a_name_or_a_path(workshop: Workshop, named: str) -> None:
    workshop.spec("gate", "formula: x + 1")
    assert workshop.run("build", named).output == f"new      generated/gate.py\n{RUNTIME}"


def test_build_takes_a_spec_that_comes_with_fusegen(workshop: Workshop) -> None:
    assert workshop.run("build", "hardswish").output == f"new      generated/hardswish.py\n{RUNTIME}"
    committed = (ROOT / "generated/hardswish.py").read_bytes()
    made = workshop.files()["generated/hardswish.py"]
    assert made == committed.replace(b"specs/hardswish.yaml", b"hardswish")  # a spec of no project


def test_build_writes_where_output_says(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: x + 1")
    output = "new      deep/er/gate.py\nnew      deep/er/_runtime\n"
    assert workshop.run("build", "--output", "deep/er").output == output
    files = {path for path in workshop.files() if "/_runtime/" not in path}
    assert files == {"specs/gate.yaml", "deep/er/gate.py", "deep/er/MANIFEST.toml"}


def test_check_shows_a_unified_diff_of_a_changed_module(built: Workshop) -> None:
    path = Path("generated/gate.py")
    path.write_text(path.read_text(encoding="utf-8").replace("DO NOT EDIT.", "I DID."), encoding="utf-8")
    before = built.files()
    result = built.run("check")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[:5] == [
        "--- generated/gate.py",
        "+++ generated/gate.py (regenerated)",
        "@@ -1,4 +1,4 @@",
        "-# Code generated by fusegen from specs/gate.yaml. I DID.",
        "+# Code generated by fusegen from specs/gate.yaml. DO NOT EDIT.",
    ]
    assert result.stderr.startswith("1 file")
    assert "differ" in result.stderr
    assert built.files() == before


def test_check_finds_a_schema_that_has_drifted(built: Workshop) -> None:
    schema = json.loads(Path("specs/schema.json").read_text(encoding="utf-8"))
    schema["properties"]["name"]["description"] = "Something else."
    Path("specs/schema.json").write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8")
    result = built.run("check")
    assert result.exit_code == 1
    assert result.stdout.startswith("--- specs/schema.json\n+++ specs/schema.json (regenerated)\n")
    assert built.run("schema").output == "changed  specs/schema.json\n"
    assert built.run("check").exit_code == 0
    assert built.run("schema").output == ""


def test_list_in_a_pipe_is_separated_by_tabs_and_has_no_colour(built: Workshop) -> None:
    built.spec("gate", "formula: x - 1\ndtypes: [float64, float16]")
    built.spec("third", "chain: [relu, 'hardtanh(max_val=2)', x / 3]")
    printed = built.done("list")
    assert [line.split("\t") for line in printed.splitlines()] == [
        ["gate", "y = x - 1", "float16, float64", "out of date", "none", "none"],
        [
            "third",
            "x = relu(x),  x = hardtanh(x, max_val=2),  y = x / 3",
            EVERY_DTYPE,
            "not built",
            "none",
            "none",
        ],
        ["twice", "x = gate(x),  y = gate(x)", EVERY_DTYPE, "out of date", "none", "none"],
    ]
    assert "\x1b" not in printed


EVERY_DTYPE = "float32, float16, bfloat16, float64"


def test_show_has_every_stage_of_the_pipeline() -> None:
    assert tuple(SHOWN) == STAGES


@pytest.mark.parametrize("stage", ["parse", "compose", "derive", "simplify", "ir"])
def test_show_prints_the_stages_of_relu_hardswish(
    workshop: Workshop, golden: Callable[[str, str], None], stage: str
) -> None:
    printed = workshop.done("show", "relu_hardswish", "--stage", stage)
    golden(f"relu_hardswish.{stage}.txt", printed)


def test_show_prints_the_module_and_the_sources_in_it(built: Workshop) -> None:
    module = built.run("show", "gate").output
    assert module == Path("generated/gate.py").read_text(encoding="utf-8")
    assert built.run("show", "gate", "--stage", "cuda").output.strip() in module
    assert built.run("show", "gate", "--stage", "cpu").output.strip() in module


def test_show_of_an_unknown_stage_names_the_stages(workshop: Workshop) -> None:
    assert all(f"'{stage}'" in workshop.refused("show", "relu", "--stage", "ptx") for stage in STAGES)


def test_new_writes_a_spec_that_builds(workshop: Workshop) -> None:
    said = "new      specs/gate.yaml\nnew      specs/schema.json\n"
    assert workshop.run("new", "gate").output == said
    assert workshop.run("build").output == f"new      generated/gate.py\n{RUNTIME}"


def test_new_explains_every_key_with_an_example_that_parses(workshop: Workshop) -> None:
    workshop.run("new", "gate")
    text = Path("specs/gate.yaml").read_text(encoding="utf-8")
    schema = json.loads((ROOT / "specs/schema.json").read_text(encoding="utf-8"))
    for key, field in schema["properties"].items():
        assert f"# {field['description']}\n" in text or key == "name"
        example = next(line for line in text.splitlines() if line.removeprefix("# ").startswith(f"{key}:"))
        assert key in yaml.safe_load(example.removeprefix("# "))


def test_new_refuses_to_overwrite(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: x + 1")
    before = workshop.files()
    message = workshop.refused("new", "gate")
    assert message == "specs/gate.yaml: the file exists\n  hint: choose another name\n"
    assert workshop.files() == before


@pytest.mark.parametrize("name", ["Gate", "class", "exp", "../gate", "a b", "x" * 65, "gate\nformula: x"])
def test_new_refuses_a_name_that_cannot_be_one(workshop: Workshop, name: str) -> None:
    assert "hint: " in workshop.refused("new", name)
    assert workshop.files() == {}


def test_list_shows_what_comes_with_fusegen_where_there_are_no_specs(
    first_build: Path, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is compiled, which would take minutes for the library."""
    monkeypatch.setattr(library, "shipped", lambda: first_build / "specs")
    monkeypatch.delattr(modules, "_one_by_one")
    monkeypatch.delattr(modules, "_on_all_processors")
    lines = [line.split("\t") for line in workshop.run("list").output.splitlines()]
    assert [(line[0], line[3]) for line in lines] == [("gate", "not built"), ("twice", "not built")]


def test_list_tells_the_mistakes_of_all_specs(workshop: Workshop) -> None:
    workshop.spec("first", "formula: siluu(x)")
    workshop.spec("second", "formula: x + y")
    told = workshop.refused("list")
    assert "unknown function 'siluu'" in told
    assert "'y' is neither an input, a parameter, a named step nor a constant" in told


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_output_without_space_is_one_sentence() -> None:
    command = [sys.executable, "-m", "fusegen", "list", "--functions"]
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    sentence = "standard output: this cannot be written: no space left on device"
    assert done.stderr == f"{sentence}\n  hint: free some space, or choose another place\n"
    assert done.returncode == 2


@pytest.mark.parametrize("verb", ["bench", "tune"])
def test_seconds_are_not_negative(workshop: Workshop, verb: str) -> None:
    refused = workshop.refused(verb, "gelu", "--seconds", "-1")
    assert "Invalid value for '--seconds': -1.0 is not in the range x>=0." in refused


@pytest.mark.parametrize("verb", ["build", "check", "list", "show", "new", "schema"])
def test_help_says_what_a_verb_does(workshop: Workshop, verb: str) -> None:
    assert f"\n  {verb} " in workshop.run("--help").output
    assert workshop.done(verb, "-h").startswith("Usage: ")


def test_the_command_builds_without_torch(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: x * clamp(x + 3, 0, 6) / 6")
    spy = (
        "import sys, runpy\n"
        "sys.argv = ['fusegen', 'build', 'gate']\n"
        "try:\n    runpy.run_module('fusegen', run_name='__main__')\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "print(sorted({'torch', 'numpy', 'mpmath', 'sympy'} & set(sys.modules)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(workshop.folder / "cache")}
    command = [sys.executable, "-c", spy]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"new      generated/gate.py\n{RUNTIME}['mpmath', 'numpy', 'sympy']\n"


@pytest.mark.full
def test_output_off_a_terminal_has_no_colour(built: Workshop) -> None:
    for verb in ("list", "check", "build"):
        assert "\x1b" not in built.run(verb).output


SCHEMA: dict[str, Any] = json.loads((ROOT / "specs/schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_the_schema_is_itself_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.together
@pytest.mark.parametrize("path", sorted((ROOT / "specs").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_committed_spec_keeps_the_schema(path: Path) -> None:
    VALIDATOR.validate(yaml.safe_load(path.read_text(encoding="utf-8")))


GOOD = {"name": "gate", "summary": "A test.", "formula": "x + 1"}


@pytest.mark.parametrize("item", ["Parameter(ones(1))", {"unread": "Buffer(ones(1))"}], ids=str)
def test_parameters_and_buffers_keep_the_schema(item: Any) -> None:
    VALIDATOR.validate({**GOOD, "layers": [{"bias": item}], "init": {"n": [1, 2], "on": None}})


@pytest.mark.together
@pytest.mark.parametrize(
    "change",
    [
        {"formla": "x"}, {"name": "Gate"}, {"name": "9a"}, {"name": None}, {"summary": 3},
        {"summary": "s" * 201}, {"chain": ["relu"]}, {"formula": None, "chain": []}, {"inputs": {}},
        {"inputs": {"X": {}}}, {"inputs": {"x": {"shape": [-1]}}}, {"inputs": {"x": {"shape": [1.5]}}},
        {"inputs": {"x": {"fill": "ones"}}}, {"inputs": {"x": {"size": [1]}}}, {"params": {"a": "one"}},
        {"layers": {"conv": "Conv2d(1)"}}, {"layers": [{"b": {"unraed": "Buffer(ones(1))"}}]},
        {"layers": [{"b": {"unread": "Conv2d(1)"}}]}, {"layers": [{"b": 1}]},
        {"layers": [{"B": "Identity()"}]}, {"init": {"a": {}}}, {"reference": "os.system"},
        {"reference": "torch"}, {"reference": "torch.__class__"}, {"numerics": "exact"},
        {"dtypes": ["float31"]}, {"dtypes": []},
        {"dtypes": ["float32", "float32"]}, {"assume": {"x": [0, 1]}}, {"where": {"u": ["x"]}},
    ],
    ids=str,
)  # fmt: skip
def test_a_broken_spec_breaks_the_schema(change: dict[str, Any]) -> None:
    VALIDATOR.validate(GOOD)
    broken = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(broken)


@pytest.mark.parametrize(
    "words", [(), *((name,) for name, each in main.commands.items() if isinstance(each, Group))]
)
def test_first_lines_of_help_are_whole(words: tuple[str, ...]) -> None:
    text = CliRunner().invoke(main, [*words, "--help"], terminal_width=78).output  # of 80 columns
    lines = text.split("\nCommands:\n")[1].splitlines()
    assert len(lines) > 2 - len(words)
    assert [line for line in lines if line.endswith("...")] == []


HINTS: dict[tuple[str, ...], tuple[str, str]] = {  # a command, a package that is missing, and what is said
    ("certify", "gate"): ("flint", "this needs flint: pip install 'fusegen[certify]'\n"),
    ("audit", "torch.relu"): ("torch", "this needs torch: pip install 'fusegen[certify]'\n"),
    ("bench", "gate"): ("torch", "this needs torch: pip install 'fusegen[bench]'\n"),
    ("lift", "gate.py:Model"): ("torch", "this needs torch: pip install 'fusegen[torch]'\n"),
}


@pytest.mark.parametrize("words", HINTS)
def test_a_missing_package_is_told_with_the_extra_that_has_it(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    package, said = HINTS[words]

    def missing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError(f"No module named '{package}'", name=f"{package}.part")

    monkeypatch.setattr(main.commands[words[0]], "invoke", missing)
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, result.stderr) == (2, said)


def test_extras_have_the_packages_that_hints_name() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    called = {"flint": "python-flint"}
    for package, extra in EXTRAS.items():
        assert any(re.match(f"{called.get(package, package)}\\b", each) for each in extras[extra]), package
    for extra in WHOLE.values():
        assert "fusegen[torch]" in extras[extra]
