"""Specs and files that are none: one sentence each, status 2, nothing written."""

import os
from fractions import Fraction
from pathlib import Path

import pytest
from budget import budget
from conftest import Workshop

from fusegen.algebra.simplify import search
from fusegen.core.ir import Expr, Math
from fusegen.core.targets import Device
from fusegen.core.term import Name, Number, Program, Term, call, size
from fusegen.lower import lower
from fusegen.lower.words import DoubleWordLowering


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


SERIES = "formula: (exp(x) - 1 - x) / x**2\n"
SINES = " + ".join(f"({k} * x - sin({k} * x)) * y" for k in range(1, 40))


@pytest.mark.full
@pytest.mark.parametrize(
    ("body", "calls"),
    [
        pytest.param(SERIES, 25_000_000, id="a series"),  # 11 million are needed, 75 million once were
        pytest.param(
            f"inputs: {{x: {{}}, y: {{}}}}\nformula: {SINES}\n",
            120_000_000,
            id="39 sums",
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_search_for_stable_forms_is_bounded(workshop: Workshop, body: str, calls: int) -> None:
    workshop.spec("gate", body)
    with budget(calls):
        assert workshop.run("build", "gate").exit_code == 0


def test_variants_are_made_only_as_far_as_they_are_estimated(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[Program] = []
    made = (Program((), (), (), (Number(Fraction(k)),)) for k in range(1000))
    monkeypatch.setattr(search, "_variants", lambda *_: ((each, ()) for each in made))

    def score(program: Program) -> tuple[int, int, float, int]:
        scored.append(program)
        return 1, 0, 100.0, 0

    search.improved(Program(("x",), (), (), (Name("x"),)), score)
    assert len(scored) == 1 + search.MOST
    assert next(made).results == (Number(Fraction(search.MOST)),)


def test_a_sum_of_double_words_is_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum asks for its operands twice, so that a long one would take a square of its length."""
    found: list[Term] = []
    once = DoubleWordLowering.found

    def counted(self: DoubleWordLowering, term: Term, wanted: bool) -> Expr:
        found.append(term)
        return once(self, term, wanted)

    monkeypatch.setattr(DoubleWordLowering, "found", counted)
    term: Term = call("exp", Name("x"))
    for k in range(100):
        term = term + call("exp", Name("x")) * k
    program = Program(("x",), (), (), (term,))
    lower("kernel", program, Device.CPU, Math.FLOAT, precise=True)
    assert len(found) <= 2 * size(term)


def test_a_spec_of_too_many_operations_is_refused(workshop: Workshop) -> None:
    lines = "\n".join(f"  a{k}: tanh(a{k - 1}) * x - a{k - 1}" for k in range(1, 90))
    workshop.spec("gate", f"where:\n  a0: x + 1\n{lines}\nformula: a89")
    with budget(5_000_000):
        result = workshop.run("build", "gate")
    assert result.output == (
        "specs/gate.yaml:94:10: the spec has more than 512 operations and operands\n"
        "    formula: a89\n"
        "             ^\n"
        "  hint: compute it by several modules, one after the other\n"
    )
    assert (result.exit_code, Path("generated").exists()) == (2, False)
