"""The start of a forked process; it imports nothing, so that the process has no more than torch."""

import os
import sys
from types import ModuleType


def run(code: str, environment: dict[str, str], outputs: tuple[str, str]) -> None:
    """Runs some Python as `python -c` does, in a session of its own.

    Args:
        code: the text to run.
        environment: all variables that it sees.
        outputs: the paths of the files that take its output and its complaints.
    """
    os.setsid()
    for number, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = ["", *environment["PYTHONPATH"].split(os.pathsep), *installed()]
    sys.argv[:] = ["-c"]
    main = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(code, "<string>", "exec"), vars(main))


def installed() -> list[str]:
    """The folders of the standard library and of installed packages."""
    return [path for path in sys.path if path.startswith((sys.base_prefix, sys.prefix))]
