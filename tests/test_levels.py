"""`--quiet` and `--verbose`: one meaning in every command."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from conftest import Workshop

from fusegen.cli import main
from fusegen.cli.levels import levelled
from fusegen.core.timing import LOG, step


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command, also below groups."""
    for name, command in group.commands.items():
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("words", [(), *commands(main)])
def test_every_command_takes_both(words: tuple[str, ...]) -> None:
    text = " ".join(CliRunner().invoke(main, [*words, "--help"]).output.split())
    assert "-q, --quiet Print errors only; the exit status says the rest." in text
    assert "-v, --verbose Print the steps and their seconds, " in text


@pytest.mark.parametrize("before", [(), ("-q",)])
def test_a_quiet_command_does_its_work_and_prints_nothing(
    workshop: Workshop, before: tuple[str, ...]
) -> None:
    workshop.spec("gate", "formula: x / 2")
    after = () if before else ("--quiet",)
    result = workshop.run(*before, "build", *after)
    assert (result.exit_code, result.output) == (0, "")
    assert Path("generated/gate.py").is_file()
    workshop.spec("gate", "formula: x / 3")
    result = workshop.run(*before, "check", *after)
    assert (result.exit_code, result.output) == (1, "")
    result = workshop.run(*before, "list", *after)
    assert (result.exit_code, result.output) == (0, "")


def test_a_quiet_command_prints_errors(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: xx / 2")
    assert workshop.refused("build", "-q").startswith("specs/gate.yaml:3:10: 'xx' is neither an input")


@pytest.mark.parametrize(
    "words", [("build", "-q", "-v"), ("-v", "build", "--quiet"), ("report", "-v", "eager", "-q")]
)
def test_the_two_exclude_each_other(workshop: Workshop, words: tuple[str, ...]) -> None:
    assert workshop.refused(*words).endswith("Error: --quiet and --verbose exclude each other\n")


STAGES = ("parse", "compose", "derive", "limit", "hoist", "lower", "halves", "measure", "choose", "emit")


def test_a_verbose_command_prints_its_steps_and_their_seconds(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: x / 2")
    result = workshop.run("build", "--verbose")
    assert result.stdout == "new      generated/gate.py\nnew      generated/_runtime\n"
    first, *lines = result.stderr.splitlines()
    assert first == "0 of 1 modules from the cache"
    found = [re.fullmatch(r" +\d+\.\d\d s  (.+)", line) for line in lines]
    assert [each and each[1] for each in found] == [*(f"gate: {stage}" for stage in STAGES), "main build"]
    assert workshop.run("build").stderr == ""
    assert LOG.handlers == []


def test_a_verbose_command_prints_what_a_failed_compiler_said(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "#!/bin/sh\n[ $1 = --version ] && exit 0\nprintf 'first line\\nsecond line\\n' >&2\nexit 1\n"
    workshop.file("broken", script).chmod(0o755)
    monkeypatch.setenv("CXX", str(Path("broken").resolve()))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(Path("made").resolve()))
    workshop.build("gate", "formula: x / 7")
    words = ("certify", "--device", "cpu", "--dtype", "float16")
    assert "second line" not in workshop.run(*words).output
    said = workshop.refused(*words, "-v")
    assert "\nfirst line\nsecond line\n" in said
    assert re.search(r"\d s  gate: build for cpu$", said, re.MULTILINE)


def test_a_verbose_compile_prints_its_libraries_and_a_failed_compiler(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "#!/bin/sh\nprintf 'first line\\nsecond line\\n' >&2\nexit 1\n"
    workshop.file("broken", script).chmod(0o755)
    monkeypatch.setenv("CXX", str(Path("broken").resolve()))
    workshop.build("gate", "formula: x / 7")
    said = workshop.refused("compile", "-v", "--device", "cpu", "--isa", "DEFAULT")
    assert "first line\nsecond line\n" in said
    assert re.search(r"\d s  gate: compile forward for cpu$", said, re.MULTILINE)


def test_a_command_within_another_is_part_of_it() -> None:
    @click.command()
    def inner() -> None:
        with step("inner"):
            click.echo("done")

    @click.command()
    @click.pass_context
    def outer(ctx: click.Context) -> None:
        ctx.invoke(inner)

    group = levelled(click.Group("all", commands={"inner": inner, "outer": outer}))
    result = CliRunner().invoke(group, ["outer", "-v"])
    assert result.stdout == "done\n"
    titles = [line.partition(" s  ")[2] for line in result.stderr.splitlines()]
    assert titles == ["inner", "all outer"]
    assert CliRunner().invoke(group, ["outer", "-q"]).output == ""
