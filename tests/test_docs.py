"""README.md and docs/: sizes, links, paths, words, commands, and the examples, which run."""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from conftest import ROOT, Workshop
from definitions import definitions

from fusegen.cli import main

DOCS, PACKAGE = ROOT / "docs", ROOT / "fusegen"
FILES = (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
PAGES = {path.relative_to(ROOT).as_posix(): path for path in FILES}
MOST_LINES = {"README.md": 160, "docs/architecture.md": 150}
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def text_of(page: str) -> str:
    """The text of a page."""
    return PAGES[page].read_text(encoding="utf-8")


def blocks(page: str, kind: str) -> list[str]:
    """The blocks of one kind in a page."""
    return [block for found, block in FENCE.findall(text_of(page)) if found == kind]


def links_of(path: Path) -> list[Path]:
    """The files that a page links to."""
    text = SPAN.sub("`", FENCE.sub("", path.read_text(encoding="utf-8")))
    targets = [target for target in LINK.findall(text) if not target.startswith("http")]
    return [(path.parent / target.partition("#")[0]).resolve() for target in targets]


def spans_of(page: str) -> Iterator[str]:
    """The code in the sentences of a page."""
    yield from (" ".join(span.split()) for span in SPAN.findall(FENCE.sub("", text_of(page))))


def prose_of(page: str) -> str:
    """The words of a page on one line, without code and without the targets of links."""
    text = SPAN.sub("`", FENCE.sub("", text_of(page)))
    return " ".join(LINK.sub("]", text).split())


def test_the_index_has_every_page() -> None:
    """Decisions have an index of their own."""
    pages = {path for path in FILES[1:] if path.parent.name != "decisions"} - {DOCS / "README.md"}
    assert {*links_of(DOCS / "README.md")} == pages | {DOCS / "decisions/README.md"}


@pytest.mark.parametrize("page", MOST_LINES)
def test_a_page_is_short(page: str) -> None:
    assert len(text_of(page).splitlines()) <= MOST_LINES[page]


def test_the_folder_has_no_script() -> None:
    kinds = {path.suffix for path in DOCS.rglob("*") if path.is_file()}
    assert kinds == {".md", ".jsonl", ".svg", ".png"}


@pytest.mark.together
@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md"])
def test_links_lead_to_files(page: str) -> None:
    assert [path for path in links_of(ROOT / page) if not path.exists()] == []


def test_every_page_is_linked_to() -> None:
    linked = {target for path in FILES for target in links_of(path)}
    assert [page for page, path in PAGES.items() if path not in linked] == ["README.md"]


PATH = re.compile(r"[a-z_0-9*]+(/[a-z_0-9.*]+)*(/|\.(py|h|cuh|toml|j2|jsonl))")
FOLDERS = (ROOT, PACKAGE, *(PACKAGE / part for part in ("core", "runtime", "runtime/include")))
BESIDE = {  # the folders whose files a page names without them
    "docs/architecture.md": ("algebra/simplify", "evidence/certify"),
    "docs/lift.md": ("models/lift",),
}
MADE = {"fusegen_regions/", "_runtime/", "_runtime/include/"}  # folders that fusegen writes
OF_USERS = {"alone.h", "block.py", "net.py", "57_Conv2d_ReLU.py"}


@pytest.mark.together
@pytest.mark.parametrize("page", PAGES)
def test_paths_lead_to_files(page: str) -> None:
    named = {span for span in spans_of(page) if PATH.fullmatch(span)} - MADE - OF_USERS
    folders = (*FOLDERS, *(PACKAGE / folder for folder in BESIDE.get(page, ())))
    assert {path for path in named if not any([*folder.glob(path)] for folder in folders)} == set()


# phrases that the field has another word for, and that word
RETIRED = {
    r"(two|one) words?(?! of)": "double-word, single-word",
    r"settle[sd]?": "verify the rounding; verified",
    r"ask(s|ed|ing)? ahead": "L2 prefetch",
    r"ample": "single-word double",
    r"slack": "error budget",
    r"keeps? and takes?": "writes and reads a bitmask",
    r"launched": "run, with a launch configuration",
    r"(of|at) a copy's speed|(of|at) copy speed|the speed of a copy": "fraction of copy bandwidth",
    r"of a copy(?! of)": "fraction of copy bandwidth",
    r"(first|second) cache": "L1, L2",
    r"(a|each|the|every) processor": "SM",
    r"chip's own": "MUFU",
    r"units": "ulp",
    r"both ways": "forward and backward",
    r"in doubt": "undecided",
    r"laid (out )?channels last": "channels_last",
    r"stands? still": "is broadcast along",
    r"looked up|look-ups?": "a lookup table",
    r"held against": "checked against",
    r"verbs?": "commands",
}


def retired_in(prose: str) -> set[str]:
    """The retired phrases that some sentences have."""
    found = (match for old in RETIRED for match in re.finditer(rf"\b({old})\b", prose, re.IGNORECASE))
    return {match[0] for match in found}


@pytest.mark.together
@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_words_of_the_field(page: str) -> None:
    assert retired_in(prose_of(page)) == set()


def helps(command: click.Command, words: tuple[str, ...] = ()) -> dict[str, str]:
    """The help of a command and of all below it, each on one line, by its words."""
    below = command.commands if isinstance(command, click.Group) else {}
    own = CliRunner().invoke(main, [*words, "--help"]).output
    found = {" ".join(("fusegen", *words)): " ".join(own.split())}
    for name, each in below.items():
        found |= helps(each, (*words, name))
    return found


HELPS = helps(main)


@pytest.mark.together
@pytest.mark.parametrize("command", HELPS)
def test_a_help_text_has_the_words_of_the_field(command: str) -> None:
    assert retired_in(HELPS[command]) == set()


# phrases without a subject, which a line of help has no room for
VAGUE = r"is told|tells? (?:of|what|how|whether)|so many|how far|what (?:it|has|was|is|were)"


@pytest.mark.together
@pytest.mark.parametrize("command", HELPS)
def test_a_help_text_names_its_subject(command: str) -> None:
    assert re.findall(rf"\b(?:{VAGUE})\b", HELPS[command], re.IGNORECASE) == []


@pytest.mark.together
@pytest.mark.parametrize("command", HELPS)
def test_every_option_has_a_help_text(command: str) -> None:
    found: click.Command = main
    for word in command.split()[1:]:
        assert isinstance(found, click.Group)
        found = found.commands[word]
    assert found.help
    assert [each.name for each in found.params if isinstance(each, click.Option) and not each.help] == []


def glossary() -> list[list[str]]:
    """The rows of the glossary: term, meaning, name in the code, reference."""
    lines = [line for line in text_of("docs/glossary.md").splitlines() if line.startswith("|")]
    return [line.strip("| ").split(" | ") for line in lines[2:]]


def test_the_glossary_is_sorted_and_whole() -> None:
    rows = glossary()
    assert len(rows) >= 30
    assert [len(row) for row in rows] == [4] * len(rows)
    terms = [row[0].casefold() for row in rows]
    assert terms == sorted(terms)


@cache
def texts_of_the_package() -> str:
    """Return the text of all of its files of code."""
    files = (path for kind in ("py", "h", "cuh") for path in PACKAGE.rglob(f"*.{kind}"))
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


@pytest.mark.together
@pytest.mark.parametrize("row", glossary(), ids=lambda row: row[0])
def test_the_code_has_the_name_of_a_term(row: list[str]) -> None:
    name = re.compile(rf"\b{re.escape(row[2].strip('`'))}", 0 if "`" in row[2] else re.IGNORECASE)
    assert name.search(texts_of_the_package())


@pytest.mark.parametrize("folder", ["runtime", "certify"])
def test_a_comment_in_a_header_begins_with_its_subject(folder: str) -> None:
    opening = re.compile(rf"^\s*// (?:{'|'.join(OPENINGS)})\b.*", re.MULTILINE)
    headers = sorted((PACKAGE / folder / "include").rglob("*.*h"))
    texts = {path.name: path.read_text(encoding="utf-8") for path in headers}
    assert {name: found for name, text in texts.items() if (found := opening.findall(text))} == {}


OPENINGS = ("What", "Whether", "How")  # a docstring begins with its subject instead


@pytest.mark.parametrize("folder", ["fusegen", "benchmarks", "tests"])
def test_a_docstring_begins_with_its_subject(folder: str) -> None:
    found = [
        (each.path.relative_to(ROOT).as_posix(), each.name)
        for each in definitions(ROOT / folder)
        if each.opening.strip(",.:") in OPENINGS
    ]
    assert found == []


NOUNS = ("A", "All", "An", "Each", "Every", "The", "True")
MOST_NOUNS = 246  # functions whose docstring is a noun phrase still, since a verb would not fit its line


def test_the_docstring_of_a_function_is_a_command_to_it() -> None:
    nouns = [
        f"{each.path.relative_to(ROOT)}: {each.name}"
        for each in definitions(ROOT / "fusegen")
        if each.kind is ast.FunctionDef and not each.is_property and each.opening in NOUNS
    ]
    assert len(nouns) <= MOST_NOUNS, "\n".join(nouns)


DECISIONS = [page for page in PAGES if page.startswith("docs/decisions/") and "README" not in page]


@pytest.mark.together
@pytest.mark.parametrize("page", DECISIONS)
def test_a_decision_says_what_was_asked_decided_and_measured(page: str) -> None:
    heads = re.findall(r"^\| (\w+) \| \S", text_of(page), re.MULTILINE)
    assert heads[:5] == ["Question", "Decision", "Code", "Command", "Date"]
    assert re.search(r"^\| Date \| 2026-\d\d-\d\d", text_of(page), re.MULTILINE)
    assert PAGES[page].resolve() in links_of(DOCS / "decisions" / "README.md")


@dataclass(frozen=True)
class Example:
    """A command of a console block, and what it prints there."""

    page: str
    command: str
    printed: str


def examples(page: str) -> Iterator[Example]:
    """The commands of the console blocks of a page."""
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            yield Example(page, command.partition("  #")[0].strip(), printed)


EXAMPLES = [example for page in PAGES for example in examples(page)]
CALL = re.compile(r"(python -m )?fusegen [a-z]|python -m benchmarks\.")


def commands() -> Iterator[tuple[str, str]]:
    """The pages, and the commands that stand in their blocks and in their sentences."""
    yield from ((example.page, example.command) for example in EXAMPLES)
    yield from ((page, span) for page in PAGES for span in spans_of(page) if CALL.match(span))


def options(command: click.Command) -> set[str]:
    """The options that a command takes."""
    return {"--help", *(name for param in command.params for name in param.opts)}


def benchmark_options(module: str) -> set[str]:
    """The options that stand in the text of a benchmark."""
    path = ROOT / module.replace(".", "/")
    files = [path / "__main__.py"] if path.is_dir() else [path.with_suffix(".py")]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    return set(re.findall(r'"(--[a-z-]+)"', text))


def taken_by(words: list[str]) -> set[str]:
    """The options of the command that some words call."""
    if words[2:] and words[2].startswith("benchmarks."):
        return benchmark_options(words[2])
    found: click.Command = main
    for word in words[words.index("fusegen") + 1 :]:
        if isinstance(found, click.Group):
            found = found.commands[word.partition("|")[0]]
    return options(found)


@pytest.mark.together
@pytest.mark.parametrize(("page", "command"), sorted(set(commands())))
def test_a_command_has_its_options(page: str, command: str) -> None:
    words = shlex.split(command)
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert set(words[1:]) <= set(targets)
    elif words[0] == "rm":
        assert all((ROOT / path).is_file() for path in words[1:])
    else:
        given = {word.partition("=")[0] for word in words[1:] if word.startswith("--")}
        assert given <= taken_by(words)


def test_readme_lists_every_command_with_options_that_it_has() -> None:
    section = text_of("README.md").partition("## Command line")[2].partition("\n## ")[0]
    listed: set[str] = set()
    for line in section.splitlines()[4:]:
        if line.startswith("|"):
            calls = line.split(" | ")[0].strip("|` ").split("`, `")
            names = [call.split()[0] for call in calls]
            taken = set().union(*(options(main.commands[name]) for name in names))
            assert set(re.findall(r"--[a-z-]+", line)) <= taken
            listed |= set(names)
    assert listed == set(main.commands)


def a_gate(workshop: Workshop) -> None:
    """The spec whose mistake docs/language.md shows."""
    lines = ("name: gate", "summary: A test.", "formula: x * clamp(xx + 3, 0, 6) / 6")
    workshop.file("specs/gate.yaml", "\n".join(lines) + "\n")


def the_library(workshop: Workshop) -> None:
    """The committed specs, and their modules without the one of README."""
    for folder in ("specs", "generated"):
        shutil.copytree(ROOT / folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
    Path("generated/relu_hardswish.py").unlink()


def a_repository(workshop: Workshop) -> None:
    """Nothing is needed."""


RUN: dict[str, Callable[[Workshop], None]] = {  # the examples that take seconds on a CPU
    "python -m fusegen build specs/relu_hardswish.yaml": the_library,
    "python -m fusegen build specs/gate.yaml": a_gate,
    "python -m fusegen hub my-activations gelu gelu_tanh silu swiglu": a_repository,
}
PARSED = {  # they need a GPU, an environment of their own, minutes, or another state of the repository
    "make demo",
    "make test",
    "rm generated/relu_hardswish.py",
    "python -m fusegen certify hardsigmoid --device cuda --dtype float32",
    "python -m fusegen compile hardsigmoid --device cuda --arch 8.0,9.0,10.0+PTX",
    "python -m fusegen compile hardsigmoid --device cpu --isa AVX2 --isa AVX512 --into libraries",
    "python -m fusegen compile gelu rows/softmax windows/min_pool --device cpu --wheel my-kernels==1.0",
    "python -m benchmarks.same_kernels HEAD gelu relu6 --renew",
}
ONE_INPUT = "python -m fusegen certify hardsigmoid --device cpu --dtype float16 --at 0x1.4cc0000000000p+0"


def test_every_example_runs_or_is_known_not_to() -> None:
    shown = {example.command for example in EXAMPLES if example.page != "docs/kernelbench.md"}
    assert shown == {*RUN, *PARSED, ONE_INPUT}


@pytest.mark.parametrize("command", RUN)
def test_an_example_prints_what_the_page_shows(command: str, workshop: Workshop) -> None:
    [example] = [each for each in EXAMPLES if each.command == command]
    RUN[command](workshop)
    assert workshop.run(*shlex.split(command)[3:]).output == example.printed


@pytest.mark.full
def test_one_input_again_is_what_the_page_shows() -> None:
    [example] = [each for each in EXAMPLES if each.command == ONE_INPUT]
    words = [sys.executable, *shlex.split(ONE_INPUT)[1:]]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, example.printed), done.stderr


def test_the_example_of_readme_runs() -> None:
    [block] = blocks("README.md", "python")
    expected = "torch.nn.functional.hardswish(torch.relu(x))"
    check = f"\nassert torch.allclose(y, {expected})\nassert x.grad.any()\n"
    done = subprocess.run([sys.executable, "-c", block + check], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


TORCH = "import fusegen, torch\nfrom torch import nn\n"
MODEL = f"{TORCH}model = nn.Sequential(nn.Linear(4, 4), nn.GELU())\n"
IMAGES = f"{TORCH}model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Softsign())\n"
REGISTER = (  # as the entry point of an installed package does
    "from fusegen.models.backend import fusegen as backend\n"
    "from torch._dynamo.backends.registry import register_backend\n"
    'register_backend(backend, "fusegen")\n'
)
SNIPPETS = {  # by page and place: the text before and behind a block of Python
    ("docs/compile.md", 0): ("", 'assert gelu.KERNELS.compile_policy == "decompose"\n'),
    ("docs/compile.md", 2): (f"{MODEL}{REGISTER}", "assert callable(model)\n"),
    ("docs/patch.md", 0): (MODEL, "assert '-> gelu' in str(report)\nassert type(model[1]) is nn.GELU\n"),
    ("docs/lift.md", 2): (IMAGES, 'assert "softsign" in network.code\n'),
}


@pytest.mark.few(1)
@pytest.mark.parametrize(("page", "place"), SNIPPETS)
def test_a_snippet_runs(page: str, place: int, tmp_path: Path) -> None:
    before, behind = SNIPPETS[page, place]
    text = before + blocks(page, "python")[place] + behind
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, env=settings, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_the_model_of_lift_becomes_the_spec_that_the_page_shows(workshop: Workshop) -> None:
    model, inputs = (
        blocks("docs/lift.md", "python")[0],
        "def get_inputs():\n    return [torch.rand(512, 1024)]\n",
    )
    init = "def get_init_inputs():\n    return [1024, 2048, 1.5]\n"
    workshop.file(
        "block.py", f"{TORCH}{model}{inputs}{init}".replace("import fusegen, torch", "import torch")
    )
    assert workshop.run("lift", "block.py:Model").exit_code == 0
    spec = Path("specs/block.yaml").read_text(encoding="utf-8")
    assert spec.endswith(blocks("docs/lift.md", "yaml")[0])


@pytest.mark.together
@pytest.mark.parametrize("page", PAGES)
def test_python_in_the_pages_is_python(page: str) -> None:
    for block in blocks(page, "python"):
        indent = len(block) - len(block.lstrip(" "))
        text = "\n".join(line[indent:] for line in block.splitlines())
        ast.parse(f"{{{text}}}" if text.startswith('"') else text)  # a row of a table


def test_the_spec_of_readme_is_the_one_in_specs() -> None:
    [block] = blocks("README.md", "yaml")
    committed = (ROOT / "specs" / "relu_hardswish.yaml").read_text(encoding="utf-8")
    assert block.splitlines()[1:] == committed.splitlines()[1:]
