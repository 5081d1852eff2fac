"""The line of a user's file that made a node of a graph."""

from __future__ import annotations

import linecache
import re
import sysconfig
import traceback
from pathlib import Path

from torch import fx

from fusegen.errors import Span

FRAME = re.compile(r'File "([^"]+)", line (\d+)')
LIBRARIES = (
    str(Path(__file__).parents[1]),
    *{sysconfig.get_path(key) for key in ("stdlib", "purelib", "platlib")},
)


def span_of(node: fx.Node) -> Span:
    """The innermost line of the user's code that made a node; an empty place where there is none."""
    frames = FRAME.findall(node.stack_trace or "")
    own = [(file, int(line)) for file, line in frames if not file.startswith((*LIBRARIES, "<"))]
    return line_span(*own[-1]) if own else Span("")


def line_span(file: str, line: int) -> Span:
    """The place of a line, at its first character."""
    text = linecache.getline(file, line).rstrip("\n")
    return Span(file, line, len(text) - len(text.lstrip()) + 1, text)


def shown(node: fx.Node) -> str:
    """The file and the line of a node, in words; nothing where they are unknown."""
    span = span_of(node)
    return f"{Path(span.file).name}:{span.line}" if span.line else ""


def span_of_error(error: BaseException) -> Span:
    """The innermost line of the user's code that an exception went through; an empty place without one."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        (frame.filename, frame.lineno or 0)
        for frame in frames
        if not frame.filename.startswith((*LIBRARIES, "<"))
    ]
    return line_span(*own[-1]) if own else Span("")
