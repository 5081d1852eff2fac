"""The house: who may import whom, and which file is the door to which library.

    cli > lift, report > certify, bench, modules > loader, show > build > emit > pipeline > measure, forms
        > stages, candidates > library, expected > rooms > ground > errors

A module imports only from floors below its own. Rooms never import each other; the files of one room may.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

GROUND, ROOM, LIBRARY, STAGES, MEASURE, PIPELINE, EMIT, BUILD, BUILT, RUNS, LIFT, CLI = range(1, 13)
FLOORS = {
    "errors": 0,
    **dict.fromkeys(
        ("spec", "term", "ops", "instructions", "typed", "gradients", "aten", "signatures"), GROUND
    ),
    **dict.fromkeys(("arguments", "constructor", "sizes"), GROUND),
    **dict.fromkeys(
        ("interval", "ir", "elements", "grids", "launch", "plot_style", "mask", "pieces"), GROUND
    ),
    **dict.fromkeys(("budget", "facts", "headers", "method", "notes", "propagation"), GROUND),
    **dict.fromkeys(
        ("access", "cache", "config", "manifest", "producers", "reals", "sample", "values"), GROUND
    ),
    **dict.fromkeys(("builds", "fits", "registration", "runtime_text", "schema", "steps", "thin"), GROUND),
    **dict.fromkeys(("parse", "compose", "derive", "distinct", "simplify", "finite", "hoist"), ROOM),
    **dict.fromkeys(("cost", "plan", "lower", "verify", "roundoff", "printers", "render"), ROOM),
    **dict.fromkeys(("segments", "write"), ROOM),
    **dict.fromkeys(("agreement", "expected", "library"), LIBRARY),
    **dict.fromkeys(("candidates", "excess", "halves", "new", "stages"), STAGES),
    **dict.fromkeys(("curves", "forms", "measure"), MEASURE),
    "pipeline": PIPELINE,
    "emit": EMIT,
    **dict.fromkeys(("build", "misses"), BUILD),
    **dict.fromkeys(("loader", "doubts", "outputs", "show", "toolkit"), BUILT),
    **dict.fromkeys(("certify", "bench", "modules", "package", "standalone", "generated", "runtime"), RUNS),
    **dict.fromkeys(("ahead", "doctor", "explain", "hub", "lift", "outdated", "report"), LIFT),
    **dict.fromkeys(("backend", "cli", "dropin", "onnx"), CLI),
}
DOORS = {
    "yaml": {"parse.document"},
    "tomli": {"config", "launch", "manifest"},
    "jinja2": {"render"},
    "click": {
        "cli",
        *(
            f"cli.{name}"
            for name in (
                *("building", "checking", "cleaning", "compiling", "diagnosing", "evidence", "levels"),
                *("lifting", "modules", "options", "progress", "records", "reporting", "speed"),
                *("folders", "hub", "printing", "stat", "tuning"),
            )
        ),
    },
    "rich": {f"cli.{name}" for name in ("modules", "printed_verdicts", "progress", "speed", "tuning")},
    "torch": {
        *(
            f"certify.{name}"
            for name in (
                *(
                    "allowed",
                    "certification",
                    "exact",
                    "findings",
                    "guard",
                    "host",
                    "inputs",
                    "evaluator",
                    "error_plot",
                ),
                *("reference", "scalars", "interval_filter", "specials", "suite", "sweep"),
                *("boxes", "cells", "compared", "open_inputs", "runs", "slopes"),
                *("relations", "relations.trial", "relations.incoming", "relations.layouts"),
                *("relations.modes", "relations.shapes"),
            )
        ),
        *(f"bench.{name}" for name in ("arguments", "clock", "competitors", "rows", "session", "tuning")),
        *(
            f"lift.{name}"
            for name in (
                *("found", "graph", "inputs", "lifted", "load", "modes", "network", "places", "record"),
                *("rows", "rule", "spec_text", "state", "summary", "table", "target", "trace", "tracer"),
                *("forwards", "pair", "pickled", "settings", "smaller", "verify"),
                *(f"partial.{part}" for part in ("attributes", "calls", "forward", "model")),
                *(
                    f"regions.{part}"
                    for part in (
                        "aliases",
                        "biases",
                        "examples",
                        "front",
                        "gradient",
                        "kernel",
                        "naming",
                        "partition",
                        "pointwise",
                        "spec",
                    )
                ),
                "regions.worth",
            )
        ),
        *(f"dropin.{name}" for name in ("derived", "elsewhere", "gated", "gates", "paired", "pairs")),
        *(f"dropin.{name}" for name in ("replace", "rows", "table")),
        *("ahead.shared_library", "backend", "cli.options", "doctor", "report.eager", "toolkit"),
    },
    "flint": {f"certify.enclosures{part}" for part in ("", ".doubles", ".functions", ".series")},
    "numpy": {
        *("excess", "expected", "halves.misses", "halves.numbers", "halves.several", "measure", "misses"),
        *(f"roundoff{part}" for part in ("", ".beyond", ".graph", ".local", ".results")),
        "values",
    },
    "matplotlib": {"bench.plots", "certify.error_plot"},
    "sympy": {"ops.forms", "ops.language", "simplify.constants", "simplify.rules"},
    "onnxscript": {"onnx"},
    "mpmath": {"reals", "reals.enclosures", "reals.functions", "reals.laurent", "reals.series"},
}
PACKAGE = ROOT / "fusegen"
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.parent.name != "runtime"
}
GENERATED = sorted(p for p in (ROOT / "generated").rglob("*.py") if p.parent.name != "_runtime")
RUNTIME = sorted((ROOT / "generated/_runtime").glob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """The full name of everything a file imports, also inside its functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            own = path in RUNTIME or node.module == "_runtime"
            assert own or node.level == 0, f"{path.name} imports by a relative name"
            if node.level == 0:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            assert called not in ("__import__", "import_module"), f"{path.name} imports at run time"


def rooms(path: Path) -> set[str]:
    """The rooms and floors of fusegen that a file imports from."""
    parts = (name.split(".") for name in imported(path) if name.split(".")[0] == "fusegen")
    return {name[1] for name in parts if len(name) > 1 and name[1] != "__version__"}


@pytest.mark.together
@pytest.mark.parametrize("module", sorted(set(MODULES) - {"__init__", "__main__"}))
def test_a_module_imports_only_from_floors_below(module: str) -> None:
    own = module.split(".")[0]
    for other in rooms(MODULES[module]) - {own}:
        lower = FLOORS[other] < FLOORS[own]
        both_ground = FLOORS[own] == FLOORS[other] == GROUND
        assert lower or both_ground, f"fusegen.{module} imports fusegen.{other}"


def test_the_page_shows_the_floors_from_top_to_bottom() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    _, _, section = text.partition("## Imports\n")
    lines = [
        line.partition("   ")[0].replace("|", " ").split() for line in section.split("```")[1].splitlines()
    ]
    shown = [[FLOORS[name] for name in line] for line in lines if line]
    assert sorted(name for line in lines for name in line) == sorted(FLOORS)
    assert all(len(set(line)) == 1 for line in shown)
    assert [line[0] for line in shown] == sorted((line[0] for line in shown), reverse=True)


def test_every_module_has_a_floor() -> None:
    modules = {module.split(".")[0] for module in MODULES} - {"fusegen", "__init__", "__main__"}
    assert {*modules, "runtime"} == set(FLOORS)


def test_the_ground_has_no_cycle() -> None:
    below: dict[str, set[str]] = {name: set() for name, floor in FLOORS.items() if floor == GROUND}
    for module, path in MODULES.items():
        if (name := module.split(".")[0]) in below:
            below[name] |= rooms(path) - {"errors", name}
    while below:
        free = {name for name, others in below.items() if not others & set(below)}
        assert free, f"these import each other: {sorted(below)}"
        below = {name: others for name, others in below.items() if name not in free}


def test_the_main_module_and_the_package_hold_no_logic() -> None:
    assert list(imported(MODULES["__main__"])) == ["fusegen.cli.main"]
    lazy = ["fusegen.lift", "fusegen.dropin"]
    light = ["sys", "typing.Any", "fusegen.registration.register"]
    assert list(imported(PACKAGE / "__init__.py")) == [*light, *lazy]


@pytest.mark.parametrize("name", ["lift", "patch", "unpatch"])
def test_the_package_imports_torch_for_models_only(name: str) -> None:
    code = f"import sys, fusegen; assert 'torch' not in sys.modules; assert callable(fusegen.{name})"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.together
@pytest.mark.parametrize("module", MODULES)
def test_each_outside_library_has_one_door(module: str) -> None:
    outside = {name.split(".")[0] for name in imported(MODULES[module])}
    outside -= set(sys.stdlib_module_names) | {"fusegen"}
    strangers = {name for name in outside if module not in DOORS.get(name, set())}
    assert not strangers, f"fusegen.{module} imports {sorted(strangers)}"


@pytest.mark.together
@pytest.mark.parametrize("path", [*GENERATED, *RUNTIME], ids=lambda path: path.stem)
def test_a_generated_module_imports_torch_and_the_standard_library_only(path: Path) -> None:
    outside = {name.split(".")[0] for name in imported(path)} - set(sys.stdlib_module_names)
    assert outside <= {"torch"}
    assert path in RUNTIME or "torch" in outside


def test_there_are_generated_modules_to_look_at() -> None:
    assert len(GENERATED) >= 8
