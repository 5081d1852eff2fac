"""The digest of what decides a module's results on one device.

It covers the module's text, flags, masks, launches, layouts, C++ and Python, and the headers that it
reaches. It leaves out comments, docstrings, blank lines, and what belongs to the other device alone. Only
positions in the text are used, so that it is the same under every version of Python.
"""

from __future__ import annotations

import ast
import hashlib
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from fusegen import cache
from fusegen.runtime.headers import inlined

# Constants that only the other device's kernels are built from; the host code of CUDA takes CPU_FLAGS.
OTHER = {"cpu": {"CUDA_SOURCE", "CUDA_FLAGS"}, "cuda": {"CPU_SOURCE"}}
CPP = ("_SOURCE", "_PRELUDE")  # how the names of constants that hold C++ end
HEADERS = Path(__file__).parents[1] / "runtime" / "include"
LITERALS = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
TOKENS = re.compile(rf"{LITERALS}|//(?:\\\n|[^\n])*|/\*.*?\*/", re.DOTALL)
Place = tuple[int, int]  # a line from 1 and a column in characters from 0


def kernel_digest(module: str, device: str, headers: Path = HEADERS) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of what decides a module's results on a device.

    Args:
        module: its text.
        device: "cpu" or "cuda".
        headers: the folder of what it includes.
    """
    key = cache.key("kernel digest with headers", device, inlined(module, headers))
    match cache.recall(key):
        case str(known):
            return known
    found = hashlib.sha256(_deciding(module, device, headers).encode()).hexdigest()[:16]
    cache.remember(key, found)
    return found


def _deciding(module: str, device: str, headers: Path) -> str:
    """The text without what decides nothing on a device; all of it where it is no Python."""
    try:
        sources = dict(_sources(ast.parse(module)))
        spans = [*_comments(module), *_statements(module, device)]
    except (SyntaxError, tokenize.TokenError, ValueError, RecursionError):
        return module
    own = [
        f"{name} {bare(inlined(text, headers))}"
        for name, text in sources.items()
        if name not in OTHER[device]
    ]
    lines = module.splitlines(keepends=True)
    for (first, start), (last, end) in sorted(spans, reverse=True):
        head, tail = lines[first - 1][:start], lines[last - 1][end:]
        lines[first - 1 : last] = [head + tail]
    kept = (line.rstrip() for line in "".join(lines).splitlines())
    return "\n".join([*filter(None, kept), *own])


def bare(text: str) -> str:
    """C++ without comments, blank lines and blanks at the ends of lines."""
    text = TOKENS.sub(lambda token: " " if token[0][0] == "/" else token[0], text)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def _sources(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The constants that hold C++, and their texts."""
    for statement in tree.body:
        match statement:
            case ast.Assign([ast.Name(name)], ast.Constant(str(text))) if name.endswith(CPP):
                yield name, text


def _comments(module: str) -> Iterator[tuple[Place, Place]]:
    for token in tokenize.generate_tokens(io.StringIO(module).readline):
        if token.type == tokenize.COMMENT:
            yield token.start, token.end


def _statements(module: str, device: str) -> Iterator[tuple[Place, Place]]:
    """Docstrings, constants of the other device, and those that hold C++."""
    tree = ast.parse(module)
    sources = [
        s for s in tree.body if isinstance(s, ast.Assign) and next(_sources(ast.Module([s], [])), None)
    ]
    lines = module.splitlines(keepends=True)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield from _span(first, lines)
    for statement in tree.body:
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign | ast.AugAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        named = {target.id for target in targets if isinstance(target, ast.Name)}
        if not named.isdisjoint(OTHER[device]) or statement in sources:
            yield from _span(statement, lines)


def _span(node: ast.stmt, lines: list[str]) -> Iterator[tuple[Place, Place]]:
    """Where a statement begins and ends; ast counts bytes."""
    if node.end_lineno is not None and node.end_col_offset is not None:
        end = lines[node.end_lineno - 1].encode()[: node.end_col_offset].decode()
        start = lines[node.lineno - 1].encode()[: node.col_offset].decode()
        yield (node.lineno, len(start)), (node.end_lineno, len(end))
