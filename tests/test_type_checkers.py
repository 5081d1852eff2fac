"""The tools that a user's project runs over its own code are quiet about a folder of generated modules."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

MODULES = ("hardsigmoid", "glu", "prelu", "swish", "threshold", "conv_relu_hardswish")
USE = """\
import torch

from kernels.hardsigmoid import ModelNew, hardsigmoid


def twice(x: torch.Tensor) -> torch.Tensor:
    return hardsigmoid(ModelNew(inplace=True)(x), inplace=True)


def wrong(x: torch.Tensor) -> int:
    return hardsigmoid(x)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a package of generated modules."""
    folder = tmp_path_factory.mktemp("project")
    kernels = folder / "kernels"
    for name in MODULES:
        kernels.mkdir(exist_ok=True)
        shutil.copy(ROOT / "generated" / f"{name}.py", kernels)
    shutil.copytree(ROOT / "generated/_runtime", kernels / "_runtime", ignore=lambda *_: ["__pycache__"])
    (kernels / "__init__.py").touch()
    return folder


def told(folder: Path, *command: str) -> tuple[int, str]:
    """The status and the output of a tool."""
    done = subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "command", [("ruff", "check", "--isolated", "."), ("ruff", "format", "--isolated", "--check", ".")]
)
def test_ruff_is_quiet(project: Path, command: tuple[str, ...]) -> None:
    status, printed = told(project, *command)
    assert status == 0, printed


@pytest.mark.full
def test_black_is_quiet(project: Path) -> None:
    status, printed = told(project, "black", "--check", "kernels")
    assert status == 0, printed


@pytest.mark.full
def test_mypy_is_quiet_and_knows_the_types(project: Path) -> None:
    (project / "use.py").write_text(USE, encoding="utf-8")
    cache = f"--cache-dir={ROOT / '.mypy_cache'}"
    status, printed = told(project, "mypy", "--strict", cache, "--no-pretty", "-p", "kernels", "-m", "use")
    told_of = [line.partition(": ")[2] for line in printed.splitlines() if "error" in line]
    expected = 'error: Incompatible return value type (got "Tensor", expected "int")  [return-value]'
    assert (status, told_of[:1]) == (1, [expected]), printed
    assert len(told_of) == 2, printed  # and the line that counts


@pytest.mark.skipif(not shutil.which("pyright"), reason="needs pyright")
def test_pyright_is_quiet(project: Path) -> None:
    done = subprocess.run(
        ["pyright", "--pythonpath", sys.executable, "kernels"], cwd=project, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
