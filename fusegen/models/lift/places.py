"""The line of a user's file that made a node of a graph."""

import re
import sysconfig
import traceback
from pathlib import Path

import torch
from torch import fx

from fusegen.errors import Span
from fusegen.models.lift.load import line_span

FRAME = re.compile(r'File "([^"]+)", line (\d+)')
LIBRARIES = (
    str(Path(__file__).parents[2]),
    str(Path(torch.__file__).parent),
)
STANDARD = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))


def span_of(node: fx.Node) -> Span:
    """Return the innermost line of the user's code that made a node; an empty place where there is none."""
    frames = FRAME.findall(node.stack_trace or "")
    return _innermost([(file, int(line)) for file, line in frames])


def span_of_error(error: BaseException) -> Span:
    """The innermost line of the user's code that an exception went through; an empty place without one."""
    frames = traceback.extract_tb(error.__traceback__)
    return _innermost([(frame.filename, frame.lineno or 0) for frame in frames])


def shown(node: fx.Node) -> str:
    """Return the file and the line of a node, in words; nothing where they are unknown."""
    span = span_of(node)
    return f"{Path(span.file).name}:{span.line}" if span.line else ""


def _innermost(frames: list[tuple[str, int]]) -> Span:
    """Return the last of some files and lines that is no library's."""
    own = [
        frame for frame in frames if not (_is_standard(frame[0]) or frame[0].startswith((*LIBRARIES, "<")))
    ]
    return line_span(Path(own[-1][0]), own[-1][1]) if own else Span("")


def _is_standard(file: str) -> bool:
    """True if a file is the standard library's; packages, as of models, may be installed below it."""
    return file.startswith(STANDARD) and "site-packages" not in file
