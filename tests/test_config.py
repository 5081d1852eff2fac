"""`[tool.fusegen]` of pyproject.toml: where it is found, what it decides, and the mistakes in it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Workshop

from fusegen.cli import github
from fusegen.core import config
from fusegen.errors import SpecErrors

LAYOUT = '[tool.fusegen]\nspecs = "src/own/specs"\noutput = "src/own/kernels"\n'
SPEC = "name: squared\nsummary: A test.\nformula: x * x\n"


@pytest.fixture
def project(workshop: Workshop) -> Workshop:
    """A project with folders of its own."""
    workshop.file("pyproject.toml", LAYOUT)
    workshop.file("src/own/specs/squared.yaml", SPEC)
    return workshop


def test_without_a_file_the_folders_are_specs_and_generated(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert config.found(tmp_path) == config.Config()


@pytest.mark.parametrize("text", ["[tool.other]\n", "no toml at all", "tool = 1\n", "x" * 2**23])
def test_a_file_of_other_tools_is_not_read(tmp_path: Path, text: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").write_text(text)
    assert config.found(tmp_path) == config.Config()


def test_the_nearest_file_with_the_table_is_the_project(tmp_path: Path) -> None:
    inner = tmp_path / "inner" / "deep"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.fusegen]\nspecs = "s"\nbinding = "pybind"\n')
    (inner / "pyproject.toml").write_text("[project]\n")
    found = config.found(inner)
    assert (found.root, found.specs, found.output) == (
        Path("../.."),
        Path("../../s"),
        Path("../../generated"),
    )
    assert found.binding == "pybind"


def test_the_table_is_not_looked_up_above_a_repository(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(LAYOUT)
    (tmp_path / "other" / ".git").mkdir(parents=True)
    assert config.found(tmp_path / "other") == config.Config()


MISTAKES = {
    "spec = 'a'": "[tool.fusegen] has no key 'spec'\n  hint: did you mean 'specs'?",
    "colour = 1": "[tool.fusegen] has no key 'colour'\n"
    "  hint: it has specs, output, binding, namespace, policy",
    "specs = '../specs'": "specs = '../specs': it has to be a folder of the project",
    "output = '/tmp'": "output = '/tmp': it has to be a folder of the project",
    "output = 3": "output = 3: it has to be the path of a folder",
    "output = ''": "output = '': it has to be the path of a folder",
    "binding = 'c'": "binding = 'c': it has to be one of stable, pybind",
    "policy = 'x'": "policy = 'x': it has to be one of auto, kernel, decompose",
    "namespace = 'a-b'": "namespace = 'a-b': it has to be a word of lower-case letters, digits and single "
    "underscores",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_sentence(workshop: Workshop, line: str) -> None:
    workshop.file("pyproject.toml", f"[tool.fusegen]\n{line}\n")
    said = workshop.refused("list")
    sentence, *hint = MISTAKES[line].splitlines()
    told = [f"pyproject.toml:2:1: {sentence}", f"    {line}", "    ^", *hint]
    assert said.splitlines() == told


PLACES = {
    "[project]\nspec = 1\n\n[ tool . fusegen ]  # folders\nspecs = 's'\n  'spec' = 2\n": (6, 3),
    "[tool.fusegen]\nspecs = 's'\n[other]\nspec = 1\n[tool.fusegen.spec]\na = 1\n": (1, 1),
    "tool.fusegen.spec = 1\n": (0, 0),
    "[tool]\nfusegen = {spec = 1}\n": (0, 0),
    "[tool]\nother = 1\nfusegen = 3\n": (3, 1),
    "[tool.fusegen]\nspecs = 's'\noutput = [\n": (0, 0),  # at its end
    "[tool.fusegen]\nspecs = 's'\noutput = o\n": (3, 10),
}


@pytest.mark.parametrize("text", PLACES)
def test_github_gets_mistakes_at_their_place(
    workshop: Workshop, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(github.VARIABLE, "summary.md")
    workshop.file("pyproject.toml", text)
    result = workshop.run("check", "--format", "github")
    assert (result.exit_code, result.stderr) == (2, "")
    line, column = PLACES[text]
    where = f",line={line},col={column}" * bool(line)
    assert result.stdout.startswith(f"::error file=pyproject.toml{where}::")
    assert "<pre>pyproject.toml:" in Path("summary.md").read_text(encoding="utf-8")


def test_a_folder_has_no_null_byte(workshop: Workshop) -> None:
    workshop.file("pyproject.toml", '[tool.fusegen]\noutput = "a\\u0000b"\n')
    assert workshop.run("list").stderr == (
        "pyproject.toml:2:1: output = 'a\\x00b': it has to be the path of a folder\n"
        '    output = "a\\u0000b"\n    ^\n'
    )


def test_a_table_in_broken_toml_is_a_mistake(workshop: Workshop) -> None:
    workshop.file("pyproject.toml", f"{LAYOUT}[project\n")
    said = workshop.refused("build")
    assert said.startswith("pyproject.toml:4:9: this is not TOML: ")
    assert "at line" not in said  # which the place says already


def test_a_pipe_is_no_configuration(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / "pyproject.toml")
    assert config.found(tmp_path) == config.Config()


def test_the_binding_of_the_file_is_that_of_every_command(project: Workshop) -> None:
    assert project.run("build").exit_code == 0
    project.file("pyproject.toml", f'{LAYOUT}binding = "pybind"\n')
    result = project.run("check")
    assert result.exit_code == 1
    assert '+binding = "pybind"\n' in result.output
    assert project.run("build", "--standalone", "single").exit_code == 0
    assert "pybind.h" in (project.folder / "single/squared.py").read_text()


def test_several_mistakes_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.fusegen]\nspec = 1\noutput = 2\n")
    with pytest.raises(SpecErrors) as caught:
        config.found(tmp_path)
    assert len(caught.value.errors) == 2


def test_a_table_that_is_none_is_refused(workshop: Workshop) -> None:
    workshop.file("pyproject.toml", "[tool]\nfusegen = 3\n")
    told = "pyproject.toml:2:1: [tool.fusegen] is not a table\n    fusegen = 3\n    ^\n"
    assert workshop.run("list").stderr == told


@pytest.mark.parametrize("below", ["", "src/own", "docs/deep"])
def test_commands_work_in_every_folder_of_the_project(
    project: Workshop, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    (project.folder / below).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(project.folder / below)
    assert project.run("build").exit_code == 0
    assert project.run("schema").exit_code == 0
    assert project.run("check").output == "1 module is what its spec says, without a certificate\n"
    assert project.run("list").output.startswith("squared\t")
    made = {name for name in project.files() if "_runtime" not in name}
    assert made == {
        "pyproject.toml",
        *(f"src/own/kernels/{name}" for name in ("MANIFEST.toml", "squared.py")),
        *(f"src/own/specs/{name}" for name in ("schema.json", "squared.yaml")),
    }


@pytest.mark.full
def test_the_command_in_the_header_remakes_the_module(project: Workshop) -> None:
    assert project.run("build").exit_code == 0
    module = project.folder / "src/own/kernels/squared.py"
    first, second, *_ = module.read_text().splitlines()
    assert first == "# Code generated by fusegen from src/own/specs/squared.yaml. DO NOT EDIT."
    command = second.rpartition(": ")[2]
    assert command == "python -m fusegen build src/own/specs/squared.yaml"
    before = module.read_bytes()
    module.unlink()
    done = subprocess.run([sys.executable, *command.split()[1:]], cwd=project.folder, capture_output=True)
    assert (done.returncode, module.read_bytes()) == (0, before)


def test_the_header_of_a_shipped_spec_has_a_command_that_works(project: Workshop) -> None:
    assert project.run("build", "relu").exit_code == 0
    lines = (project.folder / "src/own/kernels/relu.py").read_text().splitlines()
    assert lines[0] == "# Code generated by fusegen from relu. DO NOT EDIT."
    assert lines[1].endswith("Remake it with: python -m fusegen build relu")


def test_the_command_in_the_header_works_in_subfolders(
    project: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.folder / "src")
    assert project.run("build", "src/own/specs/squared.yaml").output.startswith(
        "new      own/kernels/squared.py"
    )


def test_a_spec_outside_the_project_has_no_command(
    project: Workshop, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The name alone would make the shipped spec's module, and a path would be one of this machine."""
    outside = tmp_path_factory.mktemp("outside") / "silu.yaml"
    outside.write_text("name: silu\nsummary: Another.\nformula: x * sigmoid(2 * x)\n")
    assert project.run("build", str(outside)).exit_code == 0
    first, second, third, *_ = (project.folder / "src/own/kernels/silu.py").read_text().splitlines()
    assert first == "# Code generated by fusegen from silu. DO NOT EDIT."
    assert second.startswith("# Spec ")
    assert second.endswith(".")
    assert third == "# SPDX-License-Identifier: MIT-0"


def test_a_subfolder_of_specs_keeps_its_place(project: Workshop) -> None:
    project.file("src/own/specs/sub/cubed.yaml", SPEC.replace("squared", "cubed"))
    assert project.run("build", "--specs", "src/own/specs/sub").exit_code == 0
    assert (project.folder / "src/own/kernels/sub/cubed.py").is_file()


def test_a_path_that_is_no_word_of_a_shell_is_not_in_the_header(workshop: Workshop) -> None:
    workshop.file("pyproject.toml", '[tool.fusegen]\nspecs = "my specs"\n')
    workshop.file("my specs/squared.yaml", SPEC)
    assert workshop.run("build").exit_code == 0
    first, second, *_ = (workshop.folder / "generated/squared.py").read_text().splitlines()
    assert first == "# Code generated by fusegen from squared. DO NOT EDIT."
    assert second.endswith(": python -m fusegen build squared")


def test_options_win_over_the_file(project: Workshop) -> None:
    project.file("elsewhere/sub/cubed.yaml", SPEC.replace("squared", "cubed"))
    result = project.run("build", "--specs", "elsewhere", "--output", "made")
    assert result.exit_code == 0, result.output
    assert (project.folder / "made/sub/cubed.py").is_file()
    assert "build elsewhere/sub/cubed.yaml" in (project.folder / "made/sub/cubed.py").read_text()
    assert not (project.folder / "src/own/kernels").exists()
    assert config.current() == config.Config()  # after the command


def test_a_new_folder_has_the_binding_of_the_file(project: Workshop) -> None:
    project.file("pyproject.toml", f'{LAYOUT}binding = "pybind"\n')
    assert project.run("build").exit_code == 0
    assert 'binding = "pybind"' in (project.folder / "src/own/kernels/MANIFEST.toml").read_text()


def test_many_modules_are_compiled_by_processes_with_the_configuration(project: Workshop) -> None:
    for k in range(6):
        project.file(f"src/own/specs/part/s{k}.yaml", SPEC.replace("squared", f"s{k}"))
    assert project.run("build").exit_code == 0
    text = (project.folder / "src/own/kernels/part/s5.py").read_text()
    assert "build src/own/specs/part/s5.yaml" in text
    assert "from .._runtime import" in text


@pytest.mark.full
def test_the_runtime_has_the_namespace_and_the_policy_of_the_file(project: Workshop) -> None:
    project.file("pyproject.toml", f'{LAYOUT}namespace = "own"\npolicy = "kernel"\n')
    assert project.run("build").exit_code == 0
    assert project.run("check").exit_code == 0
    code = "from own.kernels import _runtime; from own.kernels.squared import KERNELS as k; import torch"
    code += "; from own.kernels._runtime.policy import policy_of; print(k.operators.name, policy_of(None))"
    code += "; print(k.call(torch.ones(1) * 3).tolist())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project.folder / "src", capture_output=True, text=True, check=True
    )
    name, policy, value = done.stdout.split()
    assert (name.rpartition("_")[0], policy, value) == ("own_squared", "kernel", "[9.0]")
    project.file("pyproject.toml", f'{LAYOUT}namespace = "own"\n')
    result = project.run("check")
    assert result.exit_code == 1
    assert '-POLICY = "kernel"' in result.stdout
