"""Commands start while no other thread forks."""

import os
import subprocess
import threading
from typing import Any

import pytest
from processes import SERVER

from fusegen.runtime import started

MOMENT = 0.3  # seconds, in which a fork that nothing holds up has long returned


def test_a_command_tells_what_it_printed_and_how_it_ended() -> None:
    done = started.run(["sh", "-c", "echo out; echo err >&2; exit 3"], text=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")


def test_a_command_that_is_missing_leaves_the_turn_to_the_next() -> None:
    with pytest.raises(FileNotFoundError):
        started.run(["/no/such/command"])
    assert started.run(["true"]).returncode == 0


def _forks_beside_a_command(told: Any) -> None:
    """Tell whether a fork returned while a command started, and what the child's own command returned."""
    inside, let_go, forked = threading.Event(), threading.Event(), threading.Event()
    process: Any = subprocess.Popen
    begin = process._execute_child

    def held_up(self: Any, *of: Any) -> None:
        inside.set()
        let_go.wait()
        begin(self, *of)

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(started.run(["sh", "-c", "exit 7"]).returncode)
        forked.set()
        status.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    status: list[int] = []
    process._execute_child = held_up
    command = threading.Thread(target=started.run, args=(["true"],))
    forking = threading.Thread(target=fork)
    command.start()
    inside.wait()
    forking.start()
    early = forked.wait(MOMENT)
    process._execute_child = begin
    let_go.set()
    command.join()
    forking.join()
    told.put((early, status))


def test_a_fork_waits_for_a_command_that_starts() -> None:
    told = SERVER.SimpleQueue()
    process = SERVER.Process(target=_forks_beside_a_command, args=(told,))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert told.get() == (False, [7])
