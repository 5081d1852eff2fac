"""The line that tells of builds which take seconds: on a terminal it counts, elsewhere it is printed once.

The environment variable FUSEGEN_PROGRESS, if it is "none", turns it off.
"""

import _thread
import contextlib
import os
import queue
import sys
import time
from typing import Any, List

VARIABLE, NONE = "FUSEGEN_PROGRESS", "none"
SOON = 1.0  # seconds after which a build is reported
STEP = 0.5  # seconds between two states of the line


class Progress:
    """Tells of builds on stderr while they run."""

    def __init__(self, titles: "List[str]") -> None:
        self.titles, self.finished, self.begin = titles, 0, time.monotonic()
        self.ended: "queue.SimpleQueue[None]" = queue.SimpleQueue()
        self.stopped: "queue.SimpleQueue[None]" = queue.SimpleQueue()
        self.runs = False

    def __enter__(self) -> "Progress":
        if sys.stderr is not None and os.environ.get(VARIABLE) != NONE:
            self.runs = True
            _thread.start_new_thread(self._run, ())
        return self

    def __exit__(self, *_: Any) -> None:
        self.ended.put(None)
        if self.runs:
            self.stopped.get()

    def done(self, count: int = 1) -> None:
        """Note that so many more builds have ended."""
        self.finished += count

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
        with contextlib.ExitStack() as stack:
            stack.callback(self.stopped.put, None)
            stack.enter_context(contextlib.suppress(OSError, ValueError))  # the stream may be closed
            if self._go_on(SOON):
                self._tell(sys.stderr)

    def _go_on(self, seconds: float) -> bool:
        """Wait, and return True if the builds have not ended."""
        with contextlib.suppress(queue.Empty):
            self.ended.get(timeout=seconds)
            return False
        return True

    def _tell(self, stream: Any) -> None:
        if not stream.isatty():
            stream.write(self.text() + "\n")
            stream.flush()
            return
        while self._go_on(STEP):
            stream.write(f"\r\x1b[K{self.line(_width())}")
            stream.flush()
        stream.write("\r\x1b[K")
        stream.flush()


def _width() -> int:
    import shutil

    return shutil.get_terminal_size().columns
