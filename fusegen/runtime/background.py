"""A build in the background: a process of low priority, which ends with this one and leaves nothing behind.

The environment variable FUSEGEN_BACKGROUND, if it is 0, turns such builds off, as CI does, which many
services set; any other value turns them on.
"""

import _thread
import contextlib
import fcntl
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any, Callable, List

from .cache import publish

VARIABLE, SERVICE, OFF = "FUSEGEN_BACKGROUND", "CI", "0"
# Starts a command with a group of processes of its own, and tells its status. At the end of its input, at
# the latest when the process that started it ends, it ends the group, and removes the folder.
WATCH = """
import _thread, contextlib, os, shutil, signal, subprocess, sys
folder, *words = sys.argv[1:]
os.nice(19)
with open(os.path.join(folder, "log"), "wb") as log:
    of = dict(stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    build = subprocess.Popen(words, env={**os.environ, "TMPDIR": folder}, **of)
_thread.start_new_thread(lambda: os.write(1, b"%d\\n" % build.wait()), ())
sys.stdin.read()
with contextlib.suppress(ProcessLookupError):
    os.killpg(build.pid, signal.SIGKILL)
build.wait()
shutil.rmtree(folder, ignore_errors=True)
os._exit(0)
"""


def allowed() -> bool:
    """Return True if builds may run in the background."""
    given = os.environ.get(VARIABLE, "")
    return given != OFF if given else not os.environ.get(SERVICE)


def build(
    library: pathlib.Path, words: "List[str]", source: str, keep: "Callable[[pathlib.Path, bytes], None]"
) -> None:
    """Build a library, unless another process does; what the compiler says if it fails is kept as a log.

    Args:
        library: its path.
        words: the command, which makes made.so of main.cpp in its folder.
        source: the text of main.cpp.
        keep: writes the library at its path.
    """
    lock = _lock(library)
    if lock is None or library.exists():
        return
    folder = tempfile.mkdtemp(dir=library.parent)
    pathlib.Path(folder, "main.cpp").write_text(source, encoding="utf-8")
    command = [sys.executable, "-I", "-S", "-c", WATCH, folder, *words]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, **pipes)
    _thread.start_new_thread(_wait, (process, pathlib.Path(folder), lock, library, keep))


def _lock(library: pathlib.Path) -> Any:
    """Return the lock of a library; None where another build has it, of this process or of another one."""
    with contextlib.suppress(OSError):
        lock = open(library.with_suffix(".lock"), "ab")  # noqa: SIM115
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return lock
    return None


def _wait(process: Any, folder: pathlib.Path, lock: Any, library: pathlib.Path, keep: Any) -> None:
    """Wait for a build, and keep what it made."""
    with lock, process, contextlib.suppress(Exception):
        if process.stdout.readline() == b"0\n":
            keep(library, (folder / "made.so").read_bytes())
        else:
            publish(library.with_suffix(".log"), (folder / "log").read_bytes())
