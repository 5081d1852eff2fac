"""Specs and files that are none: one sentence each, status 2, nothing written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import Workshop


def test_a_comment_in_a_formula_is_refused(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: |\n  x + 1  # and\n  + relu(x)")
    result = workshop.run("build", "gate")
    assert result.output == (
        "specs/gate.yaml:4:10: this is not a formula: a comment is not part of the language\n"
        "      x + 1  # and\n".replace("      ", "    ", 1)
        + "           ^\n"
        "  hint: put the comment on a line of its own outside of the formula\n"
    )
    assert result.exit_code == 2


def test_two_specs_of_one_name_are_refused(workshop: Workshop) -> None:
    for folder in ("specs", "other"):
        workshop.file(f"{folder}/gate.yaml", "name: gate\nsummary: A test.\nformula: x + 1\n")
    result = workshop.run("build", "specs/gate.yaml", "other/gate.yaml")
    assert result.output == (
        "other/gate.yaml:1:1: 'gate' is the name of specs/gate.yaml, too, so that both would write "
        "generated/gate.py\n    name: gate\n    ^\n"
        "  hint: give each spec a name of its own, or build them one at a time with another --output\n"
    )
    assert (result.exit_code, Path("generated").exists()) == (2, False)


def test_a_pipe_is_not_a_spec(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: x + 1")
    os.mkfifo("specs/pipe.yaml")
    result = workshop.run("build", "specs/pipe.yaml")
    assert result.output == (
        "specs/pipe.yaml: this is not a regular file\n  hint: name a file, such as relu.yaml\n"
    )
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("folder", "arguments"),
    [
        ("generated/gate.py", ("build", "gate")),
        ("specs/schema.json", ("schema",)),
        ("specs/schema.json", ("check",)),
    ],
)
def test_a_folder_in_place_of_a_file_is_told(
    workshop: Workshop, folder: str, arguments: tuple[str, ...]
) -> None:
    workshop.spec("gate", "formula: x + 1")
    Path(folder).mkdir(parents=True)
    result = workshop.run(*arguments)
    assert (result.exit_code, result.output) == (
        2,
        f"{folder}: this cannot be read: is a directory\n"
        "  hint: this is a folder; give the name of a file\n",
    )


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("a" * 300, f"{'a' * 300}: there is no spec '{'a' * 300}'"),
        (f"specs/{'a' * 300}.yaml", f"specs/{'a' * 300}.yaml: the file cannot be read: file name too long"),
    ],
)
def test_a_name_of_300_characters_is_told(workshop: Workshop, name: str, sentence: str) -> None:
    workshop.spec("gate", "formula: x + 1")
    result = workshop.run("build", name)
    assert (result.exit_code, result.output.splitlines()[0]) == (2, sentence)


def test_a_step_of_300_characters_is_told(workshop: Workshop) -> None:
    workshop.spec("gate", f"chain: [{'a' * 300}]")
    result = workshop.run("build", "gate")
    assert result.output.splitlines()[0] == (f"specs/gate.yaml:3:9: unknown function '{'a' * 300}'")
