"""The digest of what decides a module's results on one device.

It covers the module's text, masks, launches, layouts, C++ and Python, and the flags of its runtime. It
leaves out comments, docstrings, blank lines, what belongs to the other device alone, and the rest of the
runtime.
Only positions in the text are used, so that it is the same under every version of Python.
"""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterator

from fusegen import cache, runtime_text

# Constants that only the other device's kernels are built from; the host code of CUDA takes CPU_FLAGS.
OTHER = {
    "cpu": {"CUDA_SOURCE", "CUDA_PRELUDE", "CUDA_FLAGS", "LAUNCH_SOURCE"},
    "cuda": {"CPU_SOURCE", "CPU_PRELUDE"},
}
FLAGS = "flags.py"
Place = tuple[int, int]  # a line from 1 and a column in characters from 0


def kernel_digest(module: str, device: str, flags: str = "") -> str:
    """The first 16 hexadecimal digits of the SHA-256 of what decides a module's results on a device.

    Args:
        module: its text.
        device: ``cpu`` or ``cuda``.
        flags: the text of ``flags.py`` in its runtime; if not given, that of today's.
    """
    flags = flags or runtime_text.files("stable")[FLAGS]
    key = cache.key("kernel digest", device, module, flags)
    match cache.recall(key):
        case str(known):
            return known
    deciding = (_deciding(text, device) for text in (module, flags))
    found = hashlib.sha256("\n".join(deciding).encode()).hexdigest()[:16]
    cache.remember(key, found)
    return found


def _deciding(module: str, device: str) -> str:
    """The text without what decides nothing on a device; all of it where it is no Python."""
    try:
        spans = [*_comments(module), *_statements(module, device)]
    except (SyntaxError, tokenize.TokenError, ValueError, RecursionError):
        return module
    lines = module.splitlines(keepends=True)
    for (first, start), (last, end) in sorted(spans, reverse=True):
        head, tail = lines[first - 1][:start], lines[last - 1][end:]
        lines[first - 1 : last] = [head + tail]
    kept = (line.rstrip() for line in "".join(lines).splitlines())
    return "\n".join(line for line in kept if line and not _is_comment(line))


def _is_comment(line: str) -> bool:
    """Whether a line of C++ is a comment that ends with it."""
    return line.lstrip().startswith("//") and not line.endswith("\\")


def _comments(module: str) -> Iterator[tuple[Place, Place]]:
    for token in tokenize.generate_tokens(io.StringIO(module).readline):
        if token.type == tokenize.COMMENT:
            yield token.start, token.end


def _statements(module: str, device: str) -> Iterator[tuple[Place, Place]]:
    """Docstrings, and constants of the other device."""
    tree = ast.parse(module)
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
        if any(isinstance(target, ast.Name) and target.id in OTHER[device] for target in targets):
            yield from _span(statement, lines)


def _span(node: ast.stmt, lines: list[str]) -> Iterator[tuple[Place, Place]]:
    """Where a statement begins and ends; ast counts bytes."""
    if node.end_lineno is not None and node.end_col_offset is not None:
        end = lines[node.end_lineno - 1].encode()[: node.end_col_offset].decode()
        start = lines[node.lineno - 1].encode()[: node.col_offset].decode()
        yield (node.lineno, len(start)), (node.end_lineno, len(end))
