"""`build --package`: an `__init__.py` that exports the functions and layers of a folder of modules."""

import subprocess
import sys

import pytest
from conftest import Workshop

INIT = "generated/__init__.py"


@pytest.fixture
def packaged(built: Workshop) -> Workshop:
    """A workshop whose modules are a package."""
    assert built.done("build", "--package") == f"unchanged: 2 modules\nnew      {INIT}\n"
    return built


def exports(workshop: Workshop) -> list[str]:
    """The lines of the file that export names."""
    lines = (workshop.folder / INIT).read_text().splitlines()
    return [line for line in lines if line.startswith("from")]


def test_a_package_exports_functions_and_layers(packaged: Workshop) -> None:
    assert exports(packaged) == ["from .gate import Gate, gate", "from .twice import Twice, twice"]
    code = "import generated, torch; print(generated.__all__, generated.gate(torch.tensor([3.0])).tolist())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=packaged.folder, capture_output=True, text=True, check=True
    )
    assert done.stdout == "['Gate', 'Twice', 'gate', 'twice'] [3.0]\n"


@pytest.mark.full
def test_a_package_is_green_and_follows_its_modules(packaged: Workshop) -> None:
    assert packaged.run("check").exit_code == 0
    packaged.spec("cubed", "formula: x * x * x")
    assert packaged.run("build", "cubed").output.endswith(f"changed  {INIT}\n")
    assert exports(packaged)[0] == "from .cubed import Cubed, cubed"
    (packaged.folder / "specs/cubed.yaml").unlink()
    assert packaged.run("build", "--prune").output.endswith(
        f"removed  generated/cubed.py\nchanged  {INIT}\n"
    )
    assert len(exports(packaged)) == 2
    assert packaged.run("check").exit_code == 0


def test_a_package_that_was_changed_is_a_difference(packaged: Workshop) -> None:
    path = packaged.folder / INIT
    path.write_text(path.read_text().replace("Gate, gate", "Gate"))
    result = packaged.run("check")
    assert result.exit_code == 1
    assert "+from .gate import Gate, gate\n" in result.stdout


def test_modules_of_subfolders_are_not_exported(built: Workshop) -> None:
    built.file("specs/deep/other.yaml", "name: other\nsummary: A test.\nformula: x + 1\n")
    assert built.run("build", "--package").exit_code == 0
    assert [line.split()[1] for line in exports(built)] == [".gate", ".twice"]


@pytest.mark.full
def test_an_empty_file_is_replaced_and_another_is_not(built: Workshop) -> None:
    built.file(INIT, "import os\n")
    before = built.files()
    built.file("specs/extra.yaml", "name: extra\nsummary: A test.\nformula: x + 1\n")
    assert built.refused("build", "--package") == (
        f"{INIT}: fusegen did not write this file, and --package would replace it\n"
        "  hint: empty it, or write its exports yourself\n"
    )
    assert {**before, "specs/extra.yaml": built.files()["specs/extra.yaml"]} == built.files()
    assert built.run("check").exit_code == 1  # for the new spec
    assert built.run("build").exit_code == 0
    assert built.run("check").exit_code == 0
    built.file(INIT, "\n")
    assert built.run("build", "--package").exit_code == 0


def test_layers_of_one_name_are_refused_before_anything_is_written(packaged: Workshop) -> None:
    packaged.spec("twice_", "formula: x + x")
    before = packaged.files()
    result = packaged.run("build")
    assert (result.exit_code, result.stdout, packaged.files()) == (2, "", before)
    assert result.stderr == (
        f"{INIT}: the specs twice and twice_ both export Twice\n  hint: give one of them another name; "
        "'python -m fusegen build --prune' removes modules without a spec\n"
    )
    (packaged.folder / "specs/twice.yaml").unlink()
    assert packaged.run("build", "--prune").exit_code == 0
    assert exports(packaged) == ["from .gate import Gate, gate", "from .twice_ import Twice, twice_"]


BROKEN: dict[str, tuple[bytes, str]] = {  # what a module becomes, and the reason
    "a syntax error": (b"def f(:\n", "invalid syntax"),
    "no text": (b"x = '\xff'\n", "(unicode error) 'utf-8' codec can't decode byte 0xff"),
    "exports that are computed": (b"__all__ = sorted('ab')\n", "malformed node or string on line 1"),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("case", BROKEN)
def test_another_module_that_was_broken_is_named_in_a_sentence(packaged: Workshop, case: str) -> None:
    content, why = BROKEN[case]
    packaged.file("generated/twice.py", content)
    packaged.spec("gate", "formula: x + 1")
    before = packaged.files()
    result = packaged.run("build", "gate")
    assert (result.exit_code, result.stdout, packaged.files()) == (2, "", before)
    sentence, hint = result.stderr.splitlines()
    start = (
        "generated/twice.py: this module was changed after it was written, and its exports cannot be read: "
    )
    assert sentence.startswith(f"{start}{why}")
    assert hint == "  hint: run 'python -m fusegen build twice', or delete it if it has no spec"
    assert packaged.run("build", "twice").exit_code == 0
    assert packaged.run("build", "gate").exit_code == 0


def test_standalone_files_are_no_package(built: Workshop) -> None:
    said = built.refused("build", "--standalone", "single", "--package")
    assert said.endswith("Error: --standalone excludes --prune and --package\n")
