"""The tokens of C++, and what the compiler reads from the headers of the system."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.same_kernels.ptx import nvcc
from fusegen.core.header_files import LITERAL
from fusegen.evidence.certify.reachable import UNWRITTEN

DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*$", re.MULTILINE)
WORD = re.compile(r"[A-Za-z_]\w*")
TOKEN = re.compile(
    rf"\w*(?:{LITERAL})\w*|[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|'?\w|\.)*"  # literals, identifiers, numbers
    r"|<<=|>>=|<=>|->\*?|\.\.\.|\+\+|--|<<|>>|&&|\|\||::|##|[-+*/%&|^=!<>]=|\S"
)
BOUNDS = "__launch_bounds__"  # in front of the name of a kernel, with numbers in brackets
OPENING, CLOSING = ("(", "[", "{"), (")", "]", "}")


def tokens(text: str) -> list[str]:
    """Return the tokens of C++ without comments; a directive stands between two ends of lines."""
    found: list[str] = []
    position = 0
    for directive in DIRECTIVE.finditer(text):
        found += [*TOKEN.findall(text[position : directive.start()]), *_of_directive(directive[0])]
        position = directive.end()
    return [*found, *TOKEN.findall(text[position:])]


def _of_directive(text: str) -> Iterator[str]:
    """Yield an included name is one token, and so is a macro's with the parenthesis of its parameters."""
    line = " ".join(text.replace("\\\n", " ").split())
    head = re.match(r"# ?(?:include.*|define \w+\(?)", line)
    yield "\n"
    if head is None:
        yield from TOKEN.findall(line)
    elif "include" in head[0]:
        yield line
    else:
        yield from ("#define ", *TOKEN.findall(head[0].partition("define ")[2]))
        yield "" if head[0].endswith("(") else " "
        yield from TOKEN.findall(line[head.end() :])
    yield "\n"


def macros(found: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the macros of a text, each with the tokens behind its name."""
    for place, token in enumerate(found):
        if token == "#define ":
            end = found.index("\n", place)
            yield found[place + 1], list(found[place + 2 : end])


def pasted(found: Sequence[str], names: Collection[str]) -> set[str]:
    """Return those of some names that the preprocessor may paste together from parts."""
    parts = {
        part
        for _, body in macros(found)
        for place, token in enumerate(body)
        if token == "##"
        for part in body[max(place - 1, 0) : place + 2]
        if WORD.fullmatch(part)
    }
    return {name for name in names for part in parts if name.startswith(part) or name.endswith(part)}


def closed(found: Sequence[str], place: int) -> int:
    """The place behind the bracket that closes the one at a place; the place itself where none opens."""
    depth = 0
    for end in range(place, len(found)):
        depth += (found[end] in OPENING) - (found[end] in CLOSING)
        if depth <= 0:
            return end + (end > place)
    return len(found)


def without_uncalled(found: Sequence[str]) -> list[str]:
    """The tokens without templates that nothing else names, or only such ones: no code is made of these."""
    kept = list(found)
    while len(less := _without_unnamed(kept)) < len(kept):
        kept = less
    return kept


def _without_unnamed(found: Sequence[str]) -> list[str]:
    spans: dict[str, list[tuple[int, int]]] = {}
    for place, token in enumerate(found):
        name, end = _template(found, place) if token == "template" else ("", 0)
        if name:
            spans.setdefault(name, []).append((place, end))
    dropped: set[int] = set()
    for name, places in spans.items():
        if name in UNWRITTEN:
            continue
        inside = {k for start, end in places for k in range(start, end)}
        if all(k in inside for k, token in enumerate(found) if token == name):
            dropped |= inside
    return [token for k, token in enumerate(found) if k not in dropped]


def _template(found: Sequence[str], place: int) -> tuple[str, int]:
    """The name of a template at a place, of a function, a struct or a constant, and where it ends."""
    head, depth = place + 1, 0
    # an instantiation, which makes code, or `typename T::template S<M>`; or a specialization
    if found[head : head + 1] != ["<"] or found[head + 1 : head + 2] == [">"]:
        return "", place
    while head < len(found):
        depth += {"<": 1, ">": -1, ">>": -2}.get(found[head], 0)
        head += 1
        if depth <= 0:
            break
    if found[head : head + 1] == ["constexpr"] and found[head + 3 : head + 4] == ["="]:
        end = found.index(";", head)
        return ("", place) if {"{", "\n"} & {*found[head:end]} else (found[head + 2], end + 1)
    if found[head : head + 1] != ["struct"]:
        return _function_template(found, place)
    body = head
    while body < len(found) and found[body] not in ("{", ";", "\n"):
        body += 1
    end = closed(found, body)
    is_whole = found[body : body + 1] == ["{"] and found[end : end + 1] == [";"]
    is_first = found[head + 2] in ("{", ":")  # no specialization, of a template that may be elsewhere
    is_template = is_whole and is_first and not _has_directives(found[place:end])
    return (found[head + 1], end + 1) if is_template else ("", place)


def _function_template(found: Sequence[str], place: int) -> tuple[str, int]:
    """The name of the function template declared at a place, and where it ends; no name for others."""
    head = place + 1
    while head < len(found) and found[head] not in ("(", "{", ";", "}", "=", "operator", "\n"):
        head += 1
        if found[head - 1] == BOUNDS:
            head = closed(found, head)
    body = closed(found, head)
    if found[head : head + 1] != ["("] or found[body : body + 1] not in (["{"], [";"]):
        return "", place
    end = closed(found, body) if found[body] == "{" else body + 1
    name = found[head - 1] if found[head - 2] != "::" else ""  # a member is called by its struct, too
    return (name, end) if WORD.fullmatch(name) and not _has_directives(found[place:end]) else ("", place)


def _has_directives(found: Sequence[str]) -> bool:
    """Return True if tokens have a line for the preprocessor that is no pragma."""
    ends = [place for place, token in enumerate(found) if token == "\n"]
    return any(list(found[place + 1 : place + 3]) != ["#", "pragma"] for place in ends[::2])


def without_residents(found: Sequence[str]) -> list[str]:
    """The tokens without the blocks for which an SM has registers, in the bounds of kernels.

    They decide how many registers a thread has, not what it computes.
    """
    kept, place = list[str](), 0
    while place < len(found):
        kept.append(found[place])
        place += 1
        if kept[-1] == BOUNDS:
            end = closed(found, place)
            kept += _threads_alone(found[place:end])
            place = end
    return kept


def _threads_alone(bounds: Sequence[str]) -> list[str]:
    """Return the bounds of a kernel without the second of two; a third one bounds clusters."""
    commas, depth = list[int](), 0
    for place, token in enumerate(bounds):
        depth += (token in (*OPENING, "<")) - (token in (*CLOSING, ">"))
        commas += [place] * (token == "," and depth == 1)
    if len(commas) != 1 or depth != 0 or "<" in bounds[: commas[0]]:
        return list(bounds)
    return [*bounds[: commas[0]], ")"]


@dataclass(frozen=True)
class SystemNames:
    """The identifiers that the compiler reads from headers."""

    all: frozenset[str]  # every one
    macros: frozenset[str]  # those that a macro has


@cache
def system_names(headers: tuple[str, ...], device: str) -> SystemNames:
    """Return the identifiers of headers.

    Args:
        headers: as they are included.
        device: ``cpu`` or ``cuda``, whose compiler reads them.

    Raises:
        RuntimeError: the preprocessor fails.
    """
    from torch.utils.cpp_extension import include_paths

    text = "".join(f"#if __has_include({name})\n#include {name}\n#endif\n" for name in headers)
    command = ["c++", "-dD"] if device == "cpu" else [str(nvcc()), "-Xcompiler", "-dD", "-arch=sm_90"]
    beside = [str(Path(found).parents[1] / "include") for found in filter(None, [nvcc()])]
    folders = [f"-I{path}" for path in (*include_paths(), *beside)]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / ("a.cpp" if device == "cpu" else "a.cu")
        source.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [*command, "-E", "-std=c++17", *folders, str(source)], capture_output=True, text=True
        )
    if done.returncode:
        raise RuntimeError(f"{command[0]} fails: {(done.stderr.splitlines() or ['it says nothing'])[0]}")
    macro_names = frozenset(re.findall(r"^#define (\w+)", done.stdout, re.MULTILINE))
    return SystemNames(frozenset(WORD.findall(done.stdout)), macro_names)
