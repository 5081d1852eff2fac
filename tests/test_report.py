"""The reports that compare modules with PyTorch bit by bit, and predicted speeds with measured ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT, Workshop

from fusegen.errors import TwoOfOneName
from fusegen.report import eager

EAGER = ("report", "eager", "--device", "cpu", "--count", "1000")


@pytest.fixture
def half(workshop: Workshop) -> Workshop:
    """A workshop with a spec outside of specs/."""
    workshop.file("mine/halved.yaml", "name: halved\nsummary: A test.\nnumerics: accurate\nformula: x / 2")
    return workshop


@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # which PyTorch says of oneDNN
def test_report_eager_writes_nothing_beside_a_spec(half: Workshop) -> None:
    before = half.files()
    result = half.run(*EAGER, "mine/halved.yaml")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1] == f"| halved | {' | '.join(['='] * 8)} |"
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
    with pytest.raises(TwoOfOneName, match=r"'halved' is the name of mine/halved\.yaml, too"):
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
    result = workshop.run(*EAGER, "gat")
    assert (result.exit_code, result.stderr) == (
        2,
        "gat: there is no spec 'gat'\n  hint: did you mean 'gate'?\n",
    )
