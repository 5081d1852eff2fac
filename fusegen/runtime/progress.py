"""The line that tells of builds which take seconds: on a terminal it counts, elsewhere it is printed once.

The environment variable FUSEGEN_PROGRESS, if it is "none", turns it off.
"""

import contextlib
import os
import sys
import threading
import time
from typing import Any, List

VARIABLE, NONE = "FUSEGEN_PROGRESS", "none"
SOON = 2.0  # seconds after which a build is told of
STEP = 0.5  # seconds between two states of the line


class Progress:
    """Tells of builds on stderr while they run."""

    def __init__(self, titles: "List[str]") -> None:
        self.titles, self.finished, self.begin = titles, 0, time.monotonic()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Progress":
        if sys.stderr is not None and os.environ.get(VARIABLE) != NONE:
            self.thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.ended.set()
        if self.thread.is_alive():
            self.thread.join()

    def done(self) -> None:
        """Note that one more build has ended."""
        self.finished += 1

    def text(self) -> str:
        """Name what is built."""
        count = len(self.titles)
        what = self.titles[0] if count == 1 else f"{count} kernels ({', '.join(self.titles)})"
        return f"fusegen: building {what}"

    def line(self, width: int) -> str:
        """Return the text with what has been done, of a width at most."""
        state = f", {time.monotonic() - self.begin:.0f} s"
        if len(self.titles) > 1:
            state = f": {self.finished} of {len(self.titles)}{state}"
        text = self.text()
        return (text if len(text) + len(state) < width else text[: width - len(state) - 4] + "...") + state

    def _run(self) -> None:
        if self.ended.wait(SOON):
            return
        with contextlib.suppress(OSError, ValueError):  # it may be closed
            self._tell(sys.stderr)

    def _tell(self, stream: Any) -> None:
        if not stream.isatty():
            stream.write(self.text() + "\n")
            stream.flush()
            return
        while not self.ended.wait(STEP):
            stream.write(f"\r\x1b[K{self.line(_width())}")
            stream.flush()
        stream.write("\r\x1b[K")
        stream.flush()


def _width() -> int:
    import shutil

    return shutil.get_terminal_size().columns
