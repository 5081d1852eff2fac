"""Places in a user's text, and what the errors there have in common.

A `Sentence` is what an error says and its hint, written once, with holes for the particulars. An error that
is caught by name is a class with both. Either is raised with the `Span` it speaks of and prints as

    specs/gate.yaml:4:14: unknown name 'bb'
        formula: x + bb
                     ^
      hint: ...
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

CONTEXT_COLUMNS, COLUMNS_BEHIND = 96, 24  # of a long line: how much is shown, how much after the caret
MAX_PARTICULAR, MAX_TOLD = 400, 20
MAX_SPELLED, MAX_SIMILAR = 80, 3  # letters of a name that are compared, and names that may be meant


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a text a user wrote: a file, a line and a column (both from 1), and that line."""

    file: str
    line: int = 0
    column: int = 0
    text: str = ""

    def after(self, characters: int) -> Span:
        """Return the place so many characters further along the same line."""
        return Span(self.file, self.line, self.column + characters, self.text)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file

    def caret(self) -> str:
        """Return the line and a caret below the column; nothing when the place is a whole file."""
        if not self.text.strip():
            return ""
        left = max(0, self.column - (CONTEXT_COLUMNS - COLUMNS_BEHIND))
        shown = "".join(c if c.isprintable() else " " for c in self.text[left:][:CONTEXT_COLUMNS])
        indent = len(shown) - len(shown.lstrip())
        return f"    {shown.strip()}\n    {' ' * (self.column - 1 - left - indent)}^\n"


def toml_place(file: str, message: str, text: str = "") -> tuple[Span, str]:
    """Return the place that a message of tomllib ends with, or the whole file, and the message's rest."""
    found = re.search(r" \(at line (\d+), column (\d+)\)$", message)
    if not found:
        return Span(file), message
    line, column = map(int, found.groups())
    shown = text.split("\n")[line - 1] if text else ""
    return Span(file, line, column, shown), message[: found.start()]


class FusegenError(Exception):
    """A mistake a user can make, at a place."""

    sentence = "{detail}"
    hint = ""

    def __init__(self, span: Span, told: Sentence | None = None, /, **particulars: object) -> None:
        """Place a sentence at `span`, of which the class has one if none is given, and fill its holes."""
        particulars = {name: _short(value) for name, value in particulars.items()}
        sentence, hint = (told.sentence, told.hint) if told else (self.sentence, self.hint)
        self.span = span
        self.message, self.hinted = sentence.format(**particulars), hint.format(**particulars)
        tail = f"  hint: {self.hinted}\n" if self.hinted else ""
        super().__init__(f"{span}: {self.message}\n{span.caret()}{tail}".rstrip("\n"))


@dataclass(frozen=True, slots=True)
class Sentence:
    """A message and its hint, of errors of one kind."""

    sentence: str
    hint: str

    def __call__(self, span: Span, /, **particulars: object) -> FusegenError:
        """Return the error at a place."""
        return FusegenError(span, self, **particulars)


class SpecErrors(Exception):
    """Several mistakes in one spec, told at once, in the order of their places."""

    def __init__(self, errors: Iterable[FusegenError]) -> None:
        """Hold `errors` sorted by line and column."""
        self.errors = tuple(sorted(errors, key=lambda e: (e.span.file, e.span.line, e.span.column)))
        told = [str(error) for error in self.errors[:MAX_TOLD]]
        more = len(self.errors) - len(told)
        super().__init__("\n".join([*told, f"and {counted(more, 'more mistake')}"] if more else told))


def _short(value: object) -> object:
    """Return a particular as a sentence shows it: a very long text by its start."""
    long = isinstance(value, str) and len(value) > MAX_PARTICULAR
    return f"{str(value)[:60]}..." if long else value


def counted(number: int, noun: str) -> str:
    """Return a number of things in words: ``no tensor``, ``1 tensor``, ``2 tensors``."""
    return f"{number or 'no'} {noun}{'s' if number > 1 else ''}"


def meant(name: str, known: Iterable[str]) -> str:
    """Return the known name that `name` misspells, or nothing where none is that close.

    Names that differ in case and underscores only are the same; else a quarter of the letters, or one, may
    be wrong, missing, added or exchanged with the next.
    """
    every, spelled = sorted(known), name[:MAX_SPELLED]
    same = [each for each in every if _plain(each) == _plain(name)]
    similar = difflib.get_close_matches(spelled, every, n=MAX_SIMILAR, cutoff=0.6)
    close = [each for each in similar if distance(spelled, each) <= max(1, len(spelled) // 4)]
    return next(iter([*same, *close]), "")


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def distance(left: str, right: str) -> int:
    """Return the edit distance of two names, in substitutions, insertions, deletions and transpositions.

    Source: Damerau 1964, in the restricted form (optimal string alignment).
    """
    rows = [list(range(len(right) + 1))]
    for i, letter in enumerate(left, 1):
        rows.append([i])
        for j, other in enumerate(right, 1):
            best = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (letter != other))
            if i > 1 and j > 1 and (letter, left[i - 2]) == (right[j - 2], other):
                best = min(best, rows[i - 2][j - 2] + 1)
            rows[i].append(best)
    return rows[-1][-1]


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return a hint that names the known word nearest to `name`, or `otherwise`."""
    close = meant(name, known)
    return f"did you mean '{close}'?" if close else otherwise
