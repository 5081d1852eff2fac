"""A build in the background: a process of low priority, which ends with this one and leaves a lock only.

The environment variable FUSEGEN_BACKGROUND, if it is 0, turns such builds off, as CI does, which many
services set; any other value turns them on.
"""

import _thread
import contextlib
import fcntl
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List

from . import started
from .cache import publish

VARIABLE, SERVICE, OFF = "FUSEGEN_BACKGROUND", "CI", ("", "0", "false")
AGAIN = 86_400  # seconds after which what failed is tried again: memory or a disk may have been full
# Starts a command in a group of processes of its own, and tells its status. When it has read a line, at the
# latest when the process that started it ends, it ends the group, and removes the folder.
WATCH = """
import _thread, contextlib, os, shutil, signal, subprocess, sys
folder, *words = sys.argv[1:]
os.nice(19)
with open(os.path.join(folder, "log"), "wb") as log:
    of = dict(stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    build = subprocess.Popen(words, env={**os.environ, "TMPDIR": folder}, **of)
_thread.start_new_thread(lambda: os.write(1, b"%d\\n" % build.wait()), ())
sys.stdin.readline()
with contextlib.suppress(ProcessLookupError):
    os.killpg(build.pid, signal.SIGKILL)
build.wait()
shutil.rmtree(folder, ignore_errors=True)
os._exit(0)
"""


def allowed() -> bool:
    """Return True if builds may run in the background."""
    given = os.environ.get(VARIABLE, "")
    return given not in OFF if given else os.environ.get(SERVICE, "").lower() in OFF


def has_failed(library: pathlib.Path, made_by: str) -> bool:
    """Return True if a library could not be built in the last day by the tools of a line."""
    log = library.with_suffix(".log")
    with contextlib.suppress(OSError):
        return time.time() - log.stat().st_mtime < AGAIN and log.read_bytes().startswith(made_by.encode())
    return False


def build(
    library: pathlib.Path,
    words: "List[str]",
    sources: "Dict[str, str]",
    keep: "Callable[[pathlib.Path, bytes], None]",
    made_by: str,
    ended: "Callable[[bool], None]" = lambda made: None,
) -> None:
    """Build a library, unless another process does; what the compiler says if it fails is kept as a log.

    Args:
        library: its path.
        words: the command, which makes made.so in its folder.
        sources: the texts of the files in that folder.
        keep: writes the library at its path.
        made_by: a line on the tools.
        ended: takes, at the end, whether the library was made.
    """
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(open(library.with_suffix(".lock"), "ab"))
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # an OSError where another process has it
        folder = tempfile.mkdtemp(dir=library.parent)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for name, text in sources.items():
            pathlib.Path(folder, name).write_text(text, encoding="utf-8")
        command = [sys.executable, "-I", "-S", "-c", WATCH, folder, *words]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        # in a session of its own, so that no signal of a terminal ends it
        process = started.start(command, start_new_session=True, **pipes)
        os.register_at_fork(after_in_child=process.stdin.close)  # so that it ends with this process
        outcome = functools.partial(_keep, library, keep, made_by, ended)
        _thread.start_new_thread(_wait, (process, pathlib.Path(folder), lock, outcome))
        stack.pop_all()


def _wait(process: Any, folder: pathlib.Path, lock: Any, outcome: "Callable[..., None]") -> None:
    """Wait for a build, and keep what it made."""
    with lock, process, contextlib.suppress(Exception):
        outcome(folder, process.stdout.readline())
        process.stdin.write(b"\n")


def _keep(
    library: pathlib.Path, keep: Any, made_by: str, ended: Any, folder: pathlib.Path, status: bytes
) -> None:
    """Keep what a build made, or what was said; nothing if it was ended."""
    made = False
    with contextlib.suppress(Exception):
        if status == b"0\n":
            keep(library, (folder / "made.so").read_bytes())
            made = True
        elif status:
            publish(library.with_suffix(".log"), made_by.encode() + (folder / "log").read_bytes())
    ended(made)
