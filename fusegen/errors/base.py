"""Places in a user's text, and what the errors there have in common.

An error class is one sentence and one hint, written once, with holes for the particulars. It is raised
with the `Span` it speaks of and prints as

    specs/gate.yaml:4:14: unknown name 'bb'
        formula: x + bb
                     ^
      hint: ...
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

CONTEXT_COLUMNS, COLUMNS_BEHIND = 96, 24  # of a long line: how much is shown, how much after the caret
MAX_PARTICULAR, MAX_TOLD = 400, 20


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a text a user wrote: a file, a line and a column (both from 1), and that line."""

    file: str
    line: int = 0
    column: int = 0
    text: str = ""

    def after(self, characters: int) -> Span:
        """The place so many characters further along the same line."""
        return Span(self.file, self.line, self.column + characters, self.text)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file

    def caret(self) -> str:
        """The line and a caret below the column; nothing when the place is a whole file."""
        if not self.text.strip():
            return ""
        left = max(0, self.column - (CONTEXT_COLUMNS - COLUMNS_BEHIND))
        shown = "".join(c if c.isprintable() else " " for c in self.text[left:][:CONTEXT_COLUMNS])
        indent = len(shown) - len(shown.lstrip())
        return f"    {shown.strip()}\n    {' ' * (self.column - 1 - left - indent)}^\n"


class FusegenError(Exception):
    """A mistake a user can make. A subclass states its sentence and its hint once."""

    sentence = "{detail}"
    hint = ""

    def __init__(self, span: Span, /, **particulars: object) -> None:
        """Place the sentence at `span` and fill its holes."""
        particulars = {name: _short(value) for name, value in particulars.items()}
        self.span = span
        self.message = self.sentence.format(**particulars)
        hint = self.hint.format(**particulars)
        tail = f"  hint: {hint}\n" if hint else ""
        super().__init__(f"{span}: {self.message}\n{span.caret()}{tail}".rstrip("\n"))


class SpecErrors(Exception):
    """Several mistakes in one spec, told at once, in the order of their places."""

    def __init__(self, errors: Iterable[FusegenError]) -> None:
        """Hold `errors` sorted by line and column."""
        self.errors = tuple(sorted(errors, key=lambda e: (e.span.file, e.span.line, e.span.column)))
        told = [str(error) for error in self.errors[:MAX_TOLD]]
        more = len(self.errors) - len(told)
        super().__init__("\n".join([*told, f"and {counted(more, 'more mistake')}"] if more else told))


def _short(value: object) -> object:
    """A particular as a sentence shows it: a very long text by its start."""
    long = isinstance(value, str) and len(value) > MAX_PARTICULAR
    return f"{str(value)[:60]}..." if long else value


def counted(number: int, noun: str) -> str:
    """A number of things in words: ``no tensor``, ``1 tensor``, ``2 tensors``."""
    return f"{number or 'no'} {noun}{'s' if number > 1 else ''}"


def meant(name: str, known: Iterable[str]) -> str:
    """The known word nearest to `name`, or nothing where none is near."""
    return next(iter(difflib.get_close_matches(name[:80], sorted(known), n=1, cutoff=0.6)), "")


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """A hint that names the known word nearest to `name`, or `otherwise`."""
    close = meant(name, known)
    return f"did you mean '{close}'?" if close else otherwise
