"""Commands on streams that cannot hold every letter of a formula."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Workshop
from processes import environment

from fusegen.cli.streams import SPELLED, use_plain_letters

ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
STREAMS = {  # variables that set an encoding, with the letters that it holds
    "ascii": ({**ASCII, "PYTHONIOENCODING": ""}, "ascii"),
    "latin-1": ({"PYTHONIOENCODING": "latin-1"}, "latin-1"),
}
FORMULAS = {  # of gelu and of a product of numbers, as each encoding holds them
    "ascii": "y = x * Phi(x)",
    "latin-1": "y = x · Phi(x)",
}
COMMANDS = (
    ("list",),
    ("list", "--functions"),
    ("check",),
    ("explain", "gelu"),
    ("show", "gelu", "--stage", "parse"),
)


def ran(folder: Path, variables: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """A command of the checkout under some variables."""
    env = environment(folder, **variables, XDG_CACHE_HOME=str(folder))
    command = [sys.executable, "-m", "fusegen", *arguments]
    return subprocess.run(command, env=env, capture_output=True, cwd=folder, check=False)


@pytest.fixture
def project(workshop: Workshop) -> Path:
    """A project with gelu's spec, module and certificate."""
    for name in ("specs/gelu.yaml", "generated/gelu.py", "generated/gelu.certificate.txt"):
        workshop.file(name, (ROOT / name).read_bytes())
    workshop.done("build")
    return workshop.folder


@pytest.mark.few(1)
@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("stream", STREAMS)
def test_a_command_prints_what_its_stream_can_hold(
    project: Path, stream: str, arguments: tuple[str, ...]
) -> None:
    variables, encoding = STREAMS[stream]
    done = ran(project, variables, *arguments)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode(encoding)
    assert "\\" not in text
    if arguments == ("list",):
        assert text.split("\t")[1] == FORMULAS[stream]


@pytest.mark.full
def test_json_escapes_letters_as_json_does(project: Path) -> None:
    done = ran(project, ASCII, "list", "--json")
    assert json.loads(done.stdout.decode("ascii"))["formula"] == "y = x · Φ(x)"
    assert b"\\u00b7" in done.stdout


@pytest.mark.full
def test_a_mistake_is_told_in_ascii(project: Path) -> None:
    (project / "specs/gate.yaml").write_text('name: gate\nsummary: "é"\nformula: x × 2\n', encoding="utf-8")
    done = ran(project, ASCII, "build", "gate")
    assert done.returncode == 2
    assert done.stderr.decode("ascii").startswith("specs/gate.yaml:3:12: ")


@pytest.mark.parametrize(
    ("text", "ascii"),
    [
        ("y = x · Φ(x)", "y = x * Phi(x)"),
        ("2⁻¹²⁶ ≤ x² ≠ ∞", "2^-126 <= x^2 != inf"),
        ("é 字", "\\xe9 \\u5b57"),
    ],
)
def test_letters_have_a_plain_spelling(text: str, ascii: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors="surrogateescape")
    monkeypatch.setattr(sys, "stdout", stream)
    undo = use_plain_letters()
    print(text, end="", flush=True)
    undo()
    assert raw.getvalue().decode() == ascii
    assert (stream.encoding, stream.errors) == ("ascii", "surrogateescape")


def test_a_spelling_is_ascii() -> None:
    assert "".join(SPELLED.values()).isascii()
    assert not any(letter.isascii() for letter in SPELLED)
