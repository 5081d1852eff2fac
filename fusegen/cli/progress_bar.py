"""The bar that long runs show on a terminal."""

import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


def bar(console: Console | None = None) -> Progress:
    """Return a bar with a title and the time left; nothing where there is no terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not sys.stdout.isatty(),
    )
