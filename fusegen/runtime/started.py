"""Commands, which start while no other thread forks.

The child of a fork would keep the ends of pipes that `subprocess` closes once a command runs: this process
would wait for what the child holds, and the child for the lock of this process's build.
"""

import contextlib
import os
import queue
import subprocess
from typing import Any, List

_TURN: "queue.SimpleQueue[None]" = queue.SimpleQueue()
_TURN.put(None)


def _give_back() -> None:
    _TURN.put(None)


os.register_at_fork(before=_TURN.get, after_in_parent=_give_back, after_in_child=_give_back)


def start(command: "List[str]", **ways: Any) -> Any:
    """Return the process of a command, as `subprocess.Popen` does of these arguments."""
    with contextlib.ExitStack() as stack:
        stack.callback(_TURN.put, _TURN.get())
        return subprocess.Popen(command, **ways)


def run(command: "List[str]", **ways: Any) -> Any:
    """Return a command that has ended, with all that it printed, as `subprocess.run` does."""
    with start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **ways) as process:
        printed = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, *printed)
