"""Statements of C++ on several lines, broken at spaces and, in long runs of calls, behind parentheses."""

import re
from collections.abc import Iterator
from textwrap import TextWrapper

WIDTH = 116  # of a line
FIRST, NEXT = "  ", "      "  # indents
PIECE = re.compile(r"[^(]*\(|[^(]+")


def broken(line: str) -> str:
    """Return a statement on lines of at most `WIDTH` characters, but for a name that is longer."""
    text = " ".join(part for word in line.split() for part in _parts(word))
    wrapper = TextWrapper(
        WIDTH, initial_indent=FIRST, subsequent_indent=NEXT, break_on_hyphens=False, break_long_words=False
    )
    return wrapper.fill(text)


def _parts(word: str) -> Iterator[str]:
    """Yield a text without spaces in as few parts as lines hold, each but the last up to a parenthesis."""
    part = ""
    for piece in PIECE.findall(word):
        if part and len(part) + len(piece) > WIDTH - len(NEXT):
            yield part
            part = ""
        part += piece
    yield part
