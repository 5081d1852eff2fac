"""The house: which room imports which, and which files are the door to which library.

A room is a folder of `fusegen/`. It imports the rooms of its row in `ROOMS`, which stand above it there, so
that no two rooms import each other.
"""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

from fusegen.project import compile_cache

ROOMS = {
    "errors": "",
    "core": "errors",
    "language": "errors core",
    "numerics": "core",
    "algebra": "errors core numerics",
    "lower": "core",
    "schedule": "core",
    "compiler": "errors core language numerics algebra lower schedule",
    "codegen": "errors core algebra lower schedule compiler",
    "project": "errors core language compiler codegen",
    "models": "errors core language algebra schedule compiler codegen project",
    "evidence": "errors core language algebra lower schedule compiler codegen project",
    "tools": "errors core compiler codegen project evidence",
    "cli": "errors core language compiler codegen project models evidence tools",
}
BESIDE = {
    "runtime": "core.header_files",
    "generated": "",
}  # what is copied beside modules, and what is installed
OF_THE_RUNTIME = ("models", "tools")  # rooms that call the runtime, as modules do
DOORS = {  # the rooms and modules that import a library
    "yaml": "language.parse.document",
    "tomli": "core.config core.launch core.manifest",
    "jinja2": "codegen.render",
    "click": "cli",
    "rich": "cli.printed_verdicts cli.progress_bar cli.showing cli.benching cli.tuning",
    "torch": "models evidence tools cli.options project.toolkit",
    "flint": "evidence.certify.enclosures",
    "numpy": "numerics compiler algebra.limits core.cubic",
    "matplotlib": "evidence.bench.plots evidence.certify.error_plot",
    "sympy": "core.ops algebra.simplify.constants algebra.simplify.rules",
    "onnxscript": "models.onnx",
    "mpmath": "numerics.reals",
}
MOST_SHARED = 40  # modules whose base name another one has
PACKAGE = ROOT / "fusegen"
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
COMPILER = {name: path for name, path in MODULES.items() if name.split(".")[0] in ROOMS}
GENERATED = sorted(p for p in (ROOT / "generated").rglob("*.py") if p.parent.name != "_runtime")
RUNTIME = sorted((ROOT / "generated/_runtime").glob("*.py"))
COPIED = sorted((PACKAGE / "runtime").glob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """The full name of everything a file imports, also inside its functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            own = path in (*RUNTIME, *COPIED) or node.module == "_runtime"
            assert own or node.level == 0, f"{path.name} imports by a relative name"
            if node.level == 0:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            assert called not in ("__import__", "import_module"), f"{path.name} imports at run time"


def rooms(path: Path) -> set[str]:
    """The rooms that a file imports from."""
    parts = (name.split(".") for name in imported(path) if name.split(".")[0] == "fusegen")
    return {name[1] for name in parts if len(name) > 1 and name[1] != "__version__"}


def test_every_room_has_a_row_and_imports_rows_above_it() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert folders - {"runtime", "generated"} == set(ROOMS)
    above: set[str] = set()
    for room, others in ROOMS.items():
        assert set(others.split()) <= above, f"{room} imports a room below it"
        above.add(room)


def test_a_room_imports_what_its_row_says() -> None:
    wrong, used = [], {room: set[str]() for room in ROOMS}
    for module, path in COMPILER.items():
        room = module.split(".")[0]
        others = rooms(path) - {room} - ({"runtime"} if room in OF_THE_RUNTIME else set())
        used[room] |= others
        wrong += [f"fusegen.{module} imports fusegen.{other}" for other in others - {*ROOMS[room].split()}]
    assert wrong == []
    assert used == {room: {*others.split()} for room, others in ROOMS.items()}, "a row says too much"


def test_the_runtime_imports_one_file_of_the_compiler() -> None:
    names = {name for path in COPIED for name in imported(path) if name.startswith("fusegen.")}
    assert {name.rpartition(".")[0] for name in names} == {"fusegen.core.header_files"}


def test_the_page_shows_the_rooms_with_what_they_import() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    _, _, section = text.partition("## Rooms\n")
    cells = (line.split("|") for line in section.splitlines() if line.startswith("| `"))
    shown = {of.strip().strip("`/"): others.strip() for _, of, others, _, _ in cells}
    assert shown == {room: others.replace(" ", ", ") for room, others in ROOMS.items()}
    assert list(shown) == list(ROOMS)


def test_two_files_lie_at_the_top_and_few_share_a_base_name() -> None:
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py"}
    names = Counter(name.rpartition(".")[2] for name, path in MODULES.items() if path.name != "__init__.py")
    assert sum(count for count in names.values() if count > 1) <= MOST_SHARED


def test_the_main_module_and_the_package_hold_no_logic() -> None:
    assert list(imported(PACKAGE / "__main__.py")) == ["fusegen.cli.main"]
    lazy = [f"fusegen.models.{name}" for name in ("lift", "patch", "losses", "onnx", "pooling_layers")]
    light = ["sys", "typing.Any", "fusegen.core.registration.register"]
    assert list(imported(PACKAGE / "__init__.py")) == [*light, *lazy]


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["lift", "patch", "unpatch"])
def test_the_package_imports_torch_for_models_only(name: str) -> None:
    code = f"import sys, fusegen; assert 'torch' not in sys.modules; assert callable(fusegen.{name})"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_each_outside_library_has_its_doors() -> None:
    wrong, used = [], {library: set[str]() for library in DOORS}
    for module, path in COMPILER.items():
        outside = (
            {name.split(".")[0] for name in imported(path)} - set(sys.stdlib_module_names) - {"fusegen"}
        )
        for library in outside:
            doors = DOORS.get(library, "").split()
            through = {door for door in doors if f"{module}.".startswith(f"{door}.")}
            wrong += [] if through else [f"fusegen.{module} imports {library}"]
            used.setdefault(library, set()).update(through)
    assert wrong == []
    assert used == {library: {*doors.split()} for library, doors in DOORS.items()}, "a door is not used"


def test_a_generated_module_imports_torch_and_the_standard_library_only() -> None:
    assert len(GENERATED) >= 8
    for path in (*GENERATED, *RUNTIME):
        outside = {name.split(".")[0] for name in imported(path)} - set(sys.stdlib_module_names)
        assert outside <= {"torch"}, path.name
        assert path in RUNTIME or "torch" in outside, path.name


def test_the_commands_alone_import_rooms_that_decide_no_kept_result() -> None:
    importing = {room for room, row in ROOMS.items() if {*row.split()} & {*compile_cache.APART}}
    assert importing == {"cli"}
