"""C++ in one piece: each header in the place of the first line that includes it."""

from __future__ import annotations

import pathlib
import re

INCLUDE = re.compile(r'^#include "([\w./]+)"\n', re.MULTILINE)


def inlined(text: str, folder: pathlib.Path) -> str:
    """A text with every header of a folder that it reaches, each once, in the order of inclusion."""
    seen: set[str] = set()

    def header(found: re.Match[str]) -> str:
        name = found[1]
        if name in seen:
            return ""
        seen.add(name)
        body = (folder / name).read_text(encoding="utf-8").removeprefix("#pragma once\n")
        return INCLUDE.sub(header, body)

    return INCLUDE.sub(header, text)


def reached(text: str, folder: pathlib.Path) -> tuple[str, ...]:
    """The names of the headers that a text includes, and of those that these do, each once."""
    found: dict[str, None] = {}
    wanted = INCLUDE.findall(text)
    while wanted:
        name = wanted.pop(0)
        if name not in found:
            found[name] = None
            wanted += INCLUDE.findall((folder / name).read_text(encoding="utf-8"))
    return tuple(found)
