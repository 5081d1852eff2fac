"""YAML text as a tree of located values; the only file that knows PyYAML.

The subset is small on purpose: maps, lists and scalars. Anchors, aliases, tags and several documents are
refused before anything is built from them, so no text can explode, recurse or construct objects.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import yaml

from fusegen.errors import (
    DuplicateKey,
    FusegenError,
    NotYaml,
    Span,
    TooLarge,
    TooMany,
    Unreadable,
    WrongType,
    YamlFeature,
)

MAX_BYTES = 64 * 1024
MAX_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number, word or text, as written; `at` finds the place of its k-th character."""

    text: str
    quoted: bool
    span: Span
    at: Callable[[int], Span]


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    items: tuple[Node, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Mapping:
    """A map in the order written, each key with its place."""

    entries: tuple[tuple[str, Span, Node], ...]
    span: Span


Node = Scalar | Sequence | Mapping


def read_text(path: Path, shown: str) -> str:
    """Return the text of a spec's file.

    Raises:
        Unreadable: the file is missing, a folder, empty or not UTF-8.
        TooLarge: it has more than 64 KiB.
    """
    span = Span(shown)
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            why = "this is not a regular file"
            raise Unreadable(span, why=why, remedy="name a file, such as relu.yaml")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
            size = file.seek(0, 2)
    except FileNotFoundError:
        raise Unreadable(span, why="there is no such file", remedy="check the path") from None
    except IsADirectoryError:
        remedy = "name a file in it, such as relu.yaml"
        raise Unreadable(span, why="this is a folder", remedy=remedy) from None
    except OSError as error:
        why = f"the file cannot be read: {(error.strerror or 'unknown error').lower()}"
        raise Unreadable(span, why=why, remedy="check its permissions") from None
    if size > MAX_BYTES:
        found, limit = f"{size:,} bytes", f"{MAX_BYTES:,}"
        remedy = "a spec is a page of text"
        raise TooLarge(span, what="the spec", size=found, limit=limit, remedy=remedy)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        why = f"the file is not UTF-8 text (byte {error.start})"
        raise Unreadable(span, why=why, remedy="save it as UTF-8") from None
    if not text.strip():
        remedy = "'fusegen new NAME' writes one to start from"
        raise Unreadable(span, why="the file is empty", remedy=remedy)
    return text


def read_document(text: str, file: str, errors: list[FusegenError]) -> Mapping:
    """Return the map that a YAML text holds; repeated keys are noted in `errors` and left out.

    Raises:
        NotYaml, YamlFeature, TooMany, WrongType: what the text is instead.
    """
    source = _Source(text, file, errors)
    try:
        root = _composed(source)
    except yaml.reader.ReaderError as error:
        problem = f"the character U+{ord(text[error.position]):04X} is not allowed in it"
        raise NotYaml(source.place(error.position), problem=problem, remedy="remove it") from None
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(error, source) from None
    node = _convert(root, source) if root else None
    if not isinstance(node, Mapping):
        example = "name: hardsigmoid"
        raise WrongType(source.place(0), key="a spec", expected="a map", example=example)
    return node


class _Source:
    """A text, the places in it, and the mistakes that do not end the reading of it."""

    def __init__(self, text: str, file: str, errors: list[FusegenError]) -> None:
        self.text, self.file, self.errors = text, file, errors
        self.lines = text.split("\n")
        self.starts = [0, *accumulate(len(line) + 1 for line in self.lines[:-1])]

    def place(self, index: int) -> Span:
        """Return the place of a character; lines end where editors end them, at a line feed."""
        line = bisect_right(self.starts, index) - 1
        return Span(self.file, line + 1, index - self.starts[line] + 1, self.lines[line].rstrip("\r"))

    def places(self, node: yaml.ScalarNode) -> Callable[[int], Span]:
        """Return the place of each character of a scalar; its start, where escapes hide them."""
        begin, end = node.start_mark.index, node.end_mark.index
        written = begin
        if node.style in ("|", ">"):
            written = max(begin, self.text.find("\n", begin))
        elif node.style:
            written += 1
        indices = []
        for character in node.value:
            if not character.isspace():  # a fold turns a line break and its indent into one space
                while written < end and self.text[written].isspace():
                    written += 1
            if written >= end or (self.text[written] != character and not character.isspace()):
                return lambda _: self.place(begin)
            indices.append(written)
            written += self.text[written] == character
        return lambda index: self.place(indices[index] if index < len(indices) else written)


def _not_yaml(error: yaml.MarkedYAMLError, source: _Source) -> FusegenError:
    problem, mark = error.problem or "unreadable", error.problem_mark
    remedy = "quote a text that holds ': ' or starts with a special character"
    opened = error.context_mark
    if mark and opened and mark.index >= len(source.text.rstrip()):
        problem, mark = f"what begins here has no end ({error.context})", opened
        remedy = "close the bracket or the quote"
    elif "\\t" in problem:
        remedy = "indent with spaces"
    return NotYaml(source.place(mark.index if mark else 0), problem=problem, remedy=remedy)


class _Loader(yaml.SafeLoader):
    """Composes the nodes of a text, and refuses what a spec may not have as soon as its event comes."""

    def __init__(self, source: _Source) -> None:
        super().__init__(source.text)
        self.source, self.depth, self.documents = source, 0, 0

    def get_event(self) -> yaml.Event:
        following: Callable[[], yaml.Event] = super().get_event
        event = following()
        refused = ""
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            refused = "several documents" if self.documents > 1 else ""
        elif isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            refused = "anchors and aliases"
        elif getattr(event, "tag", None):
            refused = "tags"
        where = self.source.place(event.start_mark.index if event.start_mark else 0)
        if refused:
            remedy = "keep one" if self.documents > 1 else "write the value out in full"
            raise YamlFeature(where, feature=refused, remedy=remedy)
        self.depth += isinstance(event, yaml.CollectionStartEvent)
        self.depth -= isinstance(event, yaml.CollectionEndEvent)
        if self.depth > MAX_DEPTH:
            parts, remedy = "levels of nesting", "three or four are enough"
            raise TooMany(where, what="the spec", limit=MAX_DEPTH, parts=parts, remedy=remedy)
        return event


def _composed(source: _Source) -> yaml.Node | None:
    """Return the root of a text; PyYAML converts numbers in escapes and directives without a check."""
    loader = _Loader(source)
    try:
        return loader.get_single_node()
    except (OverflowError, ValueError):
        escape = source.text[loader.index - 2 : loader.index - 1] == "\\"
        problem = "this escape stands for no character" if escape else "this number is too large"
        place = source.place(loader.index - 2 if escape else loader.index)
        remedy = "write the character itself" if escape else "leave it out"
        raise NotYaml(place, problem=problem, remedy=remedy) from None


def _checked(node: yaml.ScalarNode, source: _Source) -> str:
    """Return the text of a scalar, which is one that UTF-8 can hold."""
    if any("\ud800" <= character <= "\udfff" for character in node.value):
        problem = "an escape in this text stands for no character"
        where = source.place(node.start_mark.index)
        raise NotYaml(where, problem=problem, remedy="write the character itself")
    return str(node.value)


def _convert(node: yaml.Node, source: _Source) -> Node:
    span = source.place(node.start_mark.index)
    if isinstance(node, yaml.MappingNode):
        return Mapping(_entries(node, source), span)
    if isinstance(node, yaml.SequenceNode):
        return Sequence(tuple(_convert(item, source) for item in node.value), span)
    assert isinstance(node, yaml.ScalarNode)
    return Scalar(_checked(node, source), node.style is not None, span, source.places(node))


def _entries(node: yaml.MappingNode, source: _Source) -> tuple[tuple[str, Span, Node], ...]:
    entries: list[tuple[str, Span, Node]] = []
    first: dict[str, Span] = {}
    for key, value in node.value:
        span = source.place(key.start_mark.index)
        if not isinstance(key, yaml.ScalarNode):
            raise WrongType(span, key="a key", expected="a word", example="name: relu")
        name = _checked(key, source)
        if name in first:
            source.errors.append(DuplicateKey(span, key=name, first=first[name].line))
            continue
        first[name] = span
        entries.append((name, span, _convert(value, source)))
    return tuple(entries)
