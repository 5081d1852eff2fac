"""Renamed identifiers: C++ that is the same token for token, but for names, has the same kernels.

A rename is ``OLD=NEW``, at each place in the text, or ``FUNCTION.OLD=NEW``, of a parameter: inside that
function alone. Names must stay apart. So a NEW is refused if the old text has it and does not give it up.
Names that the headers of the system have are refused, and names that the preprocessor pastes or makes
strings of.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.same_kernels.ptx import nvcc
from fusegen.headers import LITERAL

DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*$", re.MULTILINE)
SYSTEM = re.compile(r"^[ \t]*#[ \t]*include[ \t]*(<[^>\n]+>)", re.MULTILINE)
WORD = re.compile(r"[A-Za-z_]\w*")
TOKEN = re.compile(
    rf"\w*(?:{LITERAL})\w*|[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|'?\w|\.)*"  # literals, identifiers, numbers
    r"|<<=|>>=|<=>|->\*?|\.\.\.|\+\+|--|<<|>>|&&|\|\||::|##|[-+*/%&|^=!<>]=|\S"
)
OPENING, CLOSING = ("(", "[", "{"), (")", "]", "}")
MEMBER = (".", "->", "::")  # in front of a name that no parameter hides


class Unproved(ValueError):
    """A rename after which kernels may differ; its text says why."""


@dataclass(frozen=True)
class Renames:
    """Names and what stands for them.

    Attributes:
        everywhere: by the name in the old text.
        inside: the same for parameters, by the function and its parameter.
    """

    everywhere: Mapping[str, str]
    inside: Mapping[tuple[str, str], str]

    @classmethod
    def of(cls, given: Sequence[str]) -> Renames:
        """The renames that options give.

        Raises:
            ValueError: one is written otherwise, or a name is given twice.
        """
        found: list[tuple[tuple[str, str], str]] = []
        for text in given:
            match = re.fullmatch(r"(?:([A-Za-z_]\w*)\.)?([A-Za-z_]\w*)=([A-Za-z_]\w*)", text)
            if match is None:
                raise ValueError(f"{text!r} is not OLD=NEW or FUNCTION.OLD=NEW")
            found.append(((match[1] or "", match[2]), match[3]))
        if len(dict(found)) < len(found):
            raise ValueError("a name is replaced twice")
        everywhere = {name: new for (function, name), new in found if not function}
        return cls(everywhere, {place: new for place, new in found if place[0]})

    @property
    def names(self) -> set[str]:
        """The names that go and those that come, without parameters that go."""
        return {*self.everywhere, *self.everywhere.values(), *self.inside.values()}

    def applied(self, text: str) -> list[str]:
        """The tokens of a text without comments, renamed.

        Raises:
            Unproved: a name of the text may be captured.
        """
        found = tokens(text)
        everywhere = {old: new for old, new in self.everywhere.items() if old in found}
        inside = {place: new for place, new in self.inside.items() if {*place} <= {*found}}
        new_names = [*everywhere.values(), *inside.values()]
        free = {*everywhere} - {*inside.values()}
        if (
            taken := {name for name in new_names if new_names.count(name) > 1}
            | {*new_names} & {*found} - free
        ):
            raise Unproved(f"the old text has {', '.join(sorted(taken))}")
        _check_macros(found, {*everywhere, *new_names, *(name for _, name in inside)})
        for (function, name), new in inside.items():
            found = _renamed_parameter(found, function, name, new)
        return [everywhere.get(token, token) for token in found]


NONE = Renames({}, {})


def same_but_for(renames: Renames, old: str, new: str, device: str) -> bool:
    """True if one text without comments is another whose names are replaced.

    Args:
        renames: names of the old text.
        old: C++ in one piece.
        new: the same.
        device: ``cpu`` or ``cuda``, whose compiler knows names of its own.

    Raises:
        Unproved: a name may be captured.
    """
    now = tokens(new)
    if renames.applied(old) != now:
        return False
    names = renames.names & {*tokens(old), *now}
    foreign = sorted(names & system_names(tuple(sorted({*SYSTEM.findall(new)})), device))
    if foreign:
        raise Unproved(f"a header of the system has {', '.join(foreign)}")
    return True


def tokens(text: str) -> list[str]:
    """The tokens of C++ without comments; a directive stands between two ends of lines."""
    found: list[str] = []
    position = 0
    for directive in DIRECTIVE.finditer(text):
        found += [*TOKEN.findall(text[position : directive.start()]), *_of_directive(directive[0])]
        position = directive.end()
    return [*found, *TOKEN.findall(text[position:])]


def _of_directive(text: str) -> Iterator[str]:
    """An included name is one token, and so is a macro's with the parenthesis of its parameters."""
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


def _check_macros(found: Sequence[str], names: set[str]) -> None:
    """Refuses names that the preprocessor makes texts or parts of names of.

    Raises:
        Unproved: it may do so of one.
    """
    bodies = dict(_macros(found))
    making = {name for name, body in bodies.items() if "#" in body or "##" in body}
    while added := {name for name, body in bodies.items() if making & {*body}} - making:
        making |= added
    parts = {
        part
        for body in bodies.values()
        for place, token in enumerate(body)
        if token == "##"
        for part in body[max(place - 1, 0) : place + 2]
        if WORD.fullmatch(part)
    }
    pasted = {name for name in names for part in parts if name.startswith(part) or name.endswith(part)}
    calls = (
        place for place, token in enumerate(found) if token in making and found[place - 1] != "#define "
    )
    given = {token for place in calls for token in found[place + 1 : _closed(found, place + 1)]}
    if refused := sorted(pasted | names & (given | making)):
        raise Unproved(f"the preprocessor may write {', '.join(refused)} into another text")


def _macros(found: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """The macros of a text, each with the tokens behind its name."""
    for place, token in enumerate(found):
        if token == "#define ":
            end = found.index("\n", place)
            yield found[place + 1], list(found[place + 2 : end])


def _closed(found: Sequence[str], place: int) -> int:
    """The place behind the bracket that closes the one at a place; the place itself where none opens."""
    depth = 0
    for end in range(place, len(found)):
        depth += (found[end] in OPENING) - (found[end] in CLOSING)
        if depth <= 0:
            return end + (end > place)
    return len(found)


def _renamed_parameter(found: list[str], function: str, name: str, new: str) -> list[str]:
    """The tokens with a parameter renamed in each definition of a function that has it.

    Raises:
        Unproved: no definition has it, or a name in one may be another's.
    """
    result, count = list(found), 0
    for place, token in enumerate(found):
        body = _closed(found, place + 1)
        if token != function or found[place + 1] != "(" or found[body : body + 1] != ["{"]:
            continue
        ends = [k for k in range(place + 2, body) if found[k] == name and found[k + 1] in (",", ")")]
        uses = [k for k in range(place + 2, _closed(found, body)) if found[k] == name]
        if len(ends) != 1:
            continue
        if uses[0] != ends[0] or any(found[k - 1] in MEMBER for k in uses):
            raise Unproved(f"{name} in {function} may be another's")
        count += 1
        for k in uses:
            result[k] = new
    if count == 0:
        raise Unproved(f"no definition of {function} has a parameter {name}")
    return result


@cache
def system_names(headers: tuple[str, ...], device: str) -> frozenset[str]:
    """The identifiers that the compiler reads from headers, with the names of macros.

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
    return frozenset(WORD.findall(done.stdout))
