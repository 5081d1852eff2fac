"""YAML text as a tree of located values; the only file that knows PyYAML.

The subset is small on purpose: maps, lists and scalars. Anchors, aliases, tags and several documents are
refused before anything is built from them, so no text can explode, recurse or construct objects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fusegen.errors import (
    DuplicateKey,
    NotYaml,
    Span,
    TooLarge,
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
    """The text of a spec's file.

    Raises:
        Unreadable: the file is missing, a folder, empty or not UTF-8.
        TooLarge: it has more than 64 KiB.
    """
    span = Span(shown)
    try:
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


def read_document(text: str, file: str) -> Mapping:
    """The map that a YAML text holds.

    Raises:
        NotYaml, YamlFeature, TooLarge, DuplicateKey, WrongType: what the text is instead.
    """
    lines = text.split("\n")

    def place(mark: Any, shift: int = 0) -> Span:
        line = lines[mark.line] if mark.line < len(lines) else ""
        return Span(file, mark.line + 1, mark.column + 1 + shift, line.rstrip("\r"))

    try:
        _refuse_features(text, place)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", "unreadable")
        raise NotYaml(place(mark) if mark else Span(file), problem=problem) from None
    node = _convert(root, text, place) if root else None
    if not isinstance(node, Mapping):
        example = "name: hardsigmoid"
        raise WrongType(Span(file, 1, 1, lines[0]), key="a spec", expected="a map", example=example)
    return node


def _refuse_features(text: str, place: Callable[..., Span]) -> None:
    depth = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        refused = ""
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            refused = "several documents" if documents > 1 else ""
        elif isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            refused = "anchors and aliases"
        elif getattr(event, "tag", None):
            refused = "tags"
        if refused:
            raise YamlFeature(place(event.start_mark), feature=refused)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            remedy = "a spec nests three or four levels"
            size, limit = f"more than {MAX_DEPTH} levels of nesting", MAX_DEPTH
            where = place(event.start_mark)
            raise TooLarge(where, what="the spec", size=size, limit=limit, remedy=remedy)


def _convert(node: Any, text: str, place: Callable[..., Span]) -> Node:
    span = place(node.start_mark)
    if isinstance(node, yaml.MappingNode):
        return Mapping(_entries(node, text, place), span)
    if isinstance(node, yaml.SequenceNode):
        return Sequence(tuple(_convert(item, text, place) for item in node.value), span)
    quote = 1 if node.style in ("'", '"') else 0
    begin = node.start_mark.index + quote
    verbatim = text[begin : begin + len(node.value)] == node.value

    def at(index: int) -> Span:
        return place(node.start_mark, quote + index) if verbatim else span

    return Scalar(node.value, node.style is not None, span, at)


def _entries(
    node: yaml.MappingNode, text: str, place: Callable[..., Span]
) -> tuple[tuple[str, Span, Node], ...]:
    entries: list[tuple[str, Span, Node]] = []
    first: dict[str, Span] = {}
    for key, value in node.value:
        span = place(key.start_mark)
        if not isinstance(key, yaml.ScalarNode):
            raise WrongType(span, key="a key", expected="a word", example="name: relu")
        if key.value in first:
            raise DuplicateKey(span, key=key.value, first=first[key.value].line)
        first[key.value] = span
        entries.append((key.value, span, _convert(value, text, place)))
    return tuple(entries)
