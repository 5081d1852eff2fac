"""The line of a user's file that made a node of a graph."""

import functools
import re
import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import fx

from fusegen.errors import Span
from fusegen.models.lift.load import line_span

FRAME = re.compile(r'File "([^"]+)", line (\d+)(?:, in (\S+))?')
LIBRARIES = (str(Path(__file__).parents[2]), str(Path(torch.__file__).parent))
STANDARD = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))


@dataclass(frozen=True)
class Frame:
    """A line of a file that was running, and the function that it is in."""

    file: str
    line: int
    function: str


def frames_of(node: fx.Node) -> list[Frame]:
    """Return the lines of the user's code that were running when a node was made, the innermost last."""
    found = FRAME.findall(node.stack_trace or "")
    return [Frame(file, int(line), function) for file, line, function in found if is_own(file)]


def span_of(node: fx.Node) -> Span:
    """Return the innermost line of the user's code that made a node; an empty place where there is none."""
    return _innermost(frames_of(node))


def span_of_error(error: BaseException) -> Span:
    """The innermost line of the user's code that an exception went through; an empty place without one."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [Frame(each.filename, each.lineno or 0, each.name) for each in frames if is_own(each.filename)]
    return _innermost(own)


def shown(node: fx.Node) -> str:
    """Return the file and the line of a node, in words; nothing where they are unknown."""
    span = span_of(node)
    return f"{Path(span.file).name}:{span.line}" if span.line else ""


def _innermost(own: list[Frame]) -> Span:
    return line_span(Path(own[-1].file), own[-1].line) if own else Span("")


@functools.cache
def is_own(file: str) -> bool:
    """Return True if a file is no library's; packages, as of models, may be installed below Python's."""
    is_standard = file.startswith(STANDARD) and "site-packages" not in file
    return not (is_standard or file.startswith((*LIBRARIES, "<")))
