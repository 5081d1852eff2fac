"""C++ in one piece: each header in the place of the first line that includes it.

The compiler uses this file, and the runtime beside generated modules has a copy of it.
"""

import functools
import re
from collections.abc import Callable

INCLUDE = re.compile(r'^#include "([\w./]+)"\n', re.MULTILINE)
LITERAL = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
TOKEN = re.compile(rf"{LITERAL}|//(?:\\\n|[^\n])*|/\*.*?\*/", re.DOTALL)


def inlined(text: str, read: "Callable[[str], str]") -> str:
    """Return a text with every header that it reaches, each once, in the order of inclusion.

    Args:
        text: C++ or CUDA.
        read: the text of a header by its name.
    """
    seen: set[str] = set()

    def header(found: "re.Match[str]") -> str:
        name = found.group(1)
        if name in seen:
            return ""
        seen.add(name)
        return INCLUDE.sub(header, read(name).replace("#pragma once\n", "", 1))

    return INCLUDE.sub(header, text)


def reached(text: str, read: "Callable[[str], str]") -> "tuple[str, ...]":
    """Return the names of the headers that a text includes, and of those that these do, each once."""
    found: dict[str, None] = {}
    wanted = INCLUDE.findall(text)
    while wanted:
        name = wanted.pop(0)
        if name not in found:
            found[name] = None
            wanted += INCLUDE.findall(read(name))
    return tuple(found)


@functools.lru_cache(maxsize=256)  # most modules include the same headers
def without_comments(text: str) -> str:
    """C++ without comments, blank lines and blanks at the ends of lines."""
    text = TOKEN.sub(lambda token: " " if token.group(0)[0] == "/" else token.group(0), text)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())
