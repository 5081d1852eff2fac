"""Processes that use a module, each with a folder of builds of its own."""

import multiprocessing
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
import stories
from budget import HANG
from kernels import GENERATED, ROOT, complaints

MODULE = GENERATED / "hardsigmoid.py"
USE = "import torch; from generated.hardsigmoid import hardsigmoid as f; print(f(torch.ones(3)).tolist())"
ANSWER = "[0.6666666865348816, 0.6666666865348816, 0.6666666865348816]\n"


def environment(folder: Path, **more: str) -> dict[str, str]:
    """An environment in which the modules of the checkout are found, and builds go to `folder`."""
    kept = {key: value for key, value in os.environ.items() if key not in ("CXX", "CC", "CUDA_HOME")}
    return kept | {"TORCH_EXTENSIONS_DIR": str(folder), "PYTHONPATH": str(ROOT)} | more


SERVER = multiprocessing.get_context("forkserver")  # a process that has imported torch, and forks
SERVER.set_forkserver_preload(["torch"])


class Forked:
    """A process that runs some Python and finds torch imported, which takes longer than most of them.

    It has what the tests use of `subprocess.Popen`. Variables that an interpreter or torch reads as it
    starts have no effect.
    """

    def __init__(self, code: str, environment: dict[str, str]) -> None:
        """Starts it."""
        files = tempfile.mkdtemp(dir=os.environ["TORCH_EXTENSIONS_DIR"])
        self.outputs = f"{files}/out", f"{files}/err"
        self.process = SERVER.Process(target=stories.run, args=(code, environment, self.outputs))
        self.process.start()
        assert self.process.pid is not None
        self.pid = self.process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for the number of a signal; none while it runs."""
        return self.process.exitcode

    def poll(self) -> int | None:
        """The same."""
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """The output and the complaints of the process, when it has ended."""
        self.process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0)
        out, err = (Path(path).read_text(encoding="utf-8") for path in self.outputs)
        return out, err


def started(code: str, folder: Path, **more: str) -> Forked:
    """A process that runs some Python, forked from one that has imported torch."""
    return Forked(code, environment(folder, **more))


def told(code: str, folder: Path, **more: str) -> str:
    """The output of such a process; it has to end well and to complain of nothing."""
    return answer(code, environment(folder, **more))


def answer(code: str, environment: dict[str, str]) -> str:
    """The same of a process with these variables."""
    process = Forked(code, environment)
    out, err = process.communicate(timeout=HANG)
    assert (process.returncode, complaints(err)) == (0, ""), err
    return out


def script(folder: Path, name: str, text: str) -> str:
    """The path of a new executable shell script."""
    path = folder / name
    path.write_text("#!/bin/sh\n" + text, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def built(folder: Path) -> list[str]:
    """The names of all files below the folder of builds."""
    return sorted(name for _, _, names in os.walk(folder) for name in names)  # which may vanish meanwhile


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
