"""Processes that use a module, each with a folder of builds of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from budget import HANG
from kernels import GENERATED, ROOT, complaints

MODULE = GENERATED / "hardsigmoid.py"
USE = "import torch; from generated.hardsigmoid import hardsigmoid as f; print(f(torch.ones(3)).tolist())"
ANSWER = "[0.6666666865348816, 0.6666666865348816, 0.6666666865348816]\n"


def environment(folder: Path, **more: str) -> dict[str, str]:
    """An environment in which the modules of the checkout are found, and builds go to `folder`."""
    kept = {key: value for key, value in os.environ.items() if key not in ("CXX", "CC", "CUDA_HOME")}
    return kept | {"TORCH_EXTENSIONS_DIR": str(folder), "PYTHONPATH": str(ROOT)} | more


def started(code: str, folder: Path, **more: str) -> subprocess.Popen[str]:
    """A process that runs some Python."""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment(folder, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def told(code: str, folder: Path, **more: str) -> str:
    """The output of a process that runs some Python; it has to end well and to complain of nothing."""
    process = started(code, folder, **more)
    out, err = process.communicate(timeout=HANG)
    assert (process.returncode, complaints(err)) == (0, "")
    return out


def script(folder: Path, name: str, text: str) -> str:
    """The path of a new executable shell script."""
    path = folder / name
    path.write_text("#!/bin/sh\n" + text, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def built(folder: Path) -> list[str]:
    """The names of all files below the folder of builds."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which hardsigmoid for the CPU has been built once."""
    folder = tmp_path_factory.mktemp("cache")
    assert told(USE, folder) == ANSWER
    return folder


CAUGHT = """
import torch
from generated.hardsigmoid import hardsigmoid
def attempt():
    try:
        print(hardsigmoid(torch.ones(3)).tolist())
    except RuntimeError as error:
        print(type(error).__name__, error, error.__cause__, error.__suppress_context__)
attempt()
"""
