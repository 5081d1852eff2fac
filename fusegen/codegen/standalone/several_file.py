"""A file of several kernels: each is printed as in a file of its own, under names of its own."""

import ast
import hashlib
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fusegen.codegen.render import fill
from fusegen.codegen.render.python import filled
from fusegen.codegen.standalone import file_parts

F_STRING = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Statement:
    """A statement of Python.

    Attributes:
        text: with what stands behind it, up to the next one.
        name: that it defines.
        words: the names in it, of arguments and members, too.
    """

    text: str
    name: str
    words: frozenset[str]


def context(contexts: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what the template of a file names, from what that of each kernel does, by the name."""
    owners, last = [*contexts], [*contexts.values()][-1]
    printed = ["\n\n".join([_part(name, one), *one["helpers"]]) for name, one in contexts.items()]
    several = [[*_statements(f"{one}\n")] for one in printed]
    shared, parts = _shared(several), []
    for k, (owner, statements, one) in enumerate(zip(owners, several, contexts.values(), strict=True)):
        names = {s.name: _renamed(owner.upper(), s.name) for s in statements if s.name not in shared}
        kept = "".join(s.text for s in statements if shared.get(s.name, k) == k)
        if owner:
            kept = f"{kept}\n{one['functions']}"
        parts.append(_with_names(kept, names).strip("\n"))
    return last | {
        "body": fill("standalone/several.py.j2", _library(contexts) | {"parts": parts}).rstrip("\n"),
        "helpers": [],
        "several": True,
        "given_up": file_parts.given_up(*(one["given_up"] for one in contexts.values())),
    }


def _part(name: str, context: dict[str, Any]) -> str:
    """Return a kernel of a library, whose functions begin with its name."""
    return file_parts.part(context | {"built": "", "prefix": _prefix(name)})


def _prefix(name: str) -> str:
    return f"{name}_" if name else ""  # of the last kernel


def _library(contexts: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what the template names of the library: its name, and the C++ of each kernel by its file."""
    digest = hashlib.sha256(repr([one["library"] for one in contexts.values()]).encode()).hexdigest()[:8]
    files = [
        line
        for end, text in (("cpp", "CPU"), ("cu", "CUDA"))
        for line in filled(
            [f'"{_prefix(name)}kernel.{end}": {_renamed(name.upper(), text)}' for name in contexts],
            file_parts.WIDTH - 4,
        )
    ]
    library = f"{[*contexts.values()][-1]['name']}_{digest}"
    return {"flags": file_parts.flags(), "library": library, "files": files}


def _statements(python: str) -> Iterator[Statement]:
    """Yield the statements of a text that has no comments between them."""
    lines, nodes = python.splitlines(keepends=True), ast.parse(python).body
    begins = [
        min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]) for node in nodes
    ]
    for node, begin, end in zip(nodes, begins, [*begins[1:], len(lines) + 1], strict=True):
        statement = "".join(lines[begin - 1 : end - 1])
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        name = ast.unparse(target) if target else getattr(node, "name", ast.unparse(node))
        yield Statement(statement, name, frozenset(word for word, *_ in _words(statement)))


def _shared(several: Sequence[list[Statement]]) -> dict[str, int]:
    """Return the names whose statements all kernels with them have alike, and the first such kernel."""
    texts: dict[str, dict[int, Statement]] = {}
    for k, statements in enumerate(several):
        for one in statements:
            texts.setdefault(one.name, {})[k] = one
    alike = {
        name
        for name, found in texts.items()
        if len(found) > 1 and len({s.text.rstrip() for s in found.values()}) == 1
    }
    while True:
        own = texts.keys() - alike
        new = {name for name in alike if all(own.isdisjoint(s.words) for s in texts[name].values())}
        if new == alike:
            return {name: min(texts[name]) for name in alike}
        alike = new


def _renamed(owner: str, name: str) -> str:
    """Return the name that a kernel's own statement has in a file."""
    if not owner or not name.isidentifier():
        return name
    if name.isupper():
        return f"{owner}_{name}"
    return f"{owner.title().replace('_', '')}{name}" if name[0].isupper() else f"{owner.lower()}_{name}"


def _words(python: str) -> Iterator[tuple[str, int, int, int]]:
    """Yield the names in a text but those of members and of arguments, each with its line and its place."""
    before, depth, tokens = "", 0, [*tokenize.generate_tokens(io.StringIO(python).readline)]
    for token, behind in pairwise(tokens):
        (line, begin), (_, end) = token.start, token.end
        depth += {"(": 1, ")": -1}.get(token.string, 0)
        is_named = before != "." and not (depth and behind.string == "=")
        if token.type == tokenize.NAME and is_named:
            yield token.string, line, begin, end
        elif token.type == tokenize.STRING and token.string.startswith("f"):  # until Python 3.12
            for found in F_STRING.finditer(token.string):
                yield found[1], line, begin + found.start(1), begin + found.end(1)
        before = token.string


def _with_names(python: str, names: Mapping[str, str]) -> str:
    """Return a text with other names."""
    lines = python.splitlines(keepends=True)
    for word, line, begin, end in reversed([*_words(python)]):
        if word in names:
            lines[line - 1] = f"{lines[line - 1][:begin]}{names[word]}{lines[line - 1][end:]}"
    return "".join(lines)
