"""A file of several kernels: each is printed as in a file of its own, under names of its own."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import indent
from typing import Any

from fusegen.codegen.standalone import file_parts

REGISTERED = re.compile(r"^(\w+)_KERNELS = \w+\(", re.MULTILINE)  # all kernels but the last one
SOURCES = "KERNELS|SHARED_SOURCE|CUDA_SOURCE|CPU_SOURCE"
CHECKED = re.compile(
    r"^ +\w+_KERNELS\.of\((?:[^()]|\([^()]*\))*\)\n", re.MULTILINE
)  # numbers, which a call checks, too
EXAMPLES = ("get_inputs", "get_init_inputs")  # functions
F_STRING = re.compile(r"\{(\w+)\}")
OF_NAME = "  # of the library and of the operator's namespace"
CALL = "LIBRARY = built(NAME, CPU, CUDA)"
BUILT = '''def built(name, cpu, cuda):
    """Return the library of a kernel."""
'''


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


def modules(module: str) -> list[str]:
    """Return the texts of modules of one kernel each; the last one has the model."""
    found = REGISTERED.findall(module)
    if not found:
        return [module]
    nodes, lines = ast.parse(module).body, module.splitlines(keepends=True)
    begin = next(node.lineno for node in nodes if isinstance(node, ast.Assign))
    own: dict[str, list[str]] = {owner: ["".join(lines[: begin - 1])] for owner in (*found, "")}
    for node in nodes:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        if first >= begin:
            statement = "".join(lines[first - 1 : node.end_lineno])
            for owner in _owners(node, statement, found):
                own[owner].append(statement)
    return [_of_one("\n".join(parts), owner) for owner, parts in own.items()]


def _owners(node: ast.stmt, statement: str, found: Sequence[str]) -> list[str]:
    """Return the kernels that a statement is of; the last one has no name."""
    name = getattr(node, "name", "")
    if name in EXAMPLES:
        return [*found, ""]
    if isinstance(node, ast.ClassDef):
        return [""]
    named = [one for one in found if name.startswith(f"{one.lower()}_eager")]
    return named or [one for one in found if re.search(rf"\b{one}_(?:{SOURCES})\b", statement)] or [""]


def _of_one(module: str, owner: str) -> str:
    """Return the text of a module of one kernel, whose names are those of the only one."""
    if owner:
        module = re.sub(rf"\b{owner}_({SOURCES})\b", r"\1", module)
        return re.sub(rf"\b{owner.lower()}_(eager(?:_gradient)?)\b", r"\1", module)
    layers = re.sub(r"\b(\w+)_KERNELS\.layer\(", lambda m: f"{m[1].lower()}_layer(", module)
    return re.sub(r"\b\w+_KERNELS\.", "KERNELS.", CHECKED.sub("", layers))


def context(module: str, contexts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what the template of a file names, from what it names of files of one kernel each."""
    owners, last = [*REGISTERED.findall(module), ""], contexts[-1]
    printed = ["\n\n".join([file_parts.part(one | {"built": CALL}), *one["helpers"]]) for one in contexts]
    several = [[*_statements(f"{one}\n")] for one in printed]
    built = indent(file_parts.library("return ", "name", "cpu", "cuda"), "    ")
    shared, body = _shared(several), [f"{BUILT}{built}"]
    for k, (owner, statements, one) in enumerate(zip(owners, several, contexts, strict=True)):
        names = {s.name: _renamed(owner, s.name) for s in statements if s.name not in shared}
        kept = "".join(s.text for s in statements if shared.get(s.name, k) == k)
        if owner:
            kept = f"{kept.replace(OF_NAME, '')}\n{one['functions']}"
        body += ["", _with_names(kept, names).rstrip("\n")]
    return last | {
        "body": "\n".join(body),
        "helpers": [],
        "given_up": file_parts.given_up(*(one["given_up"] for one in contexts)),
    }


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
