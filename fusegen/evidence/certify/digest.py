"""The digest of what decides a module's results on one device.

It covers the module's text, masks, launches, C++ and Python, the flags of the runtime, and what names reach
of the headers of the kernels and the binding (`reachable.py`), with the layouts in them. It leaves out
comments, docstrings, blank lines, what belongs to the other device alone, and the rest of the runtime. Only
positions in the text are used, so that it is the same under every version of Python.
"""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping

from fusegen.codegen import runtime_text
from fusegen.codegen.standalone.reading import joined
from fusegen.core.digest import digest
from fusegen.core.header_files import inlined, reached, without_comments
from fusegen.evidence.certify.reachable import reachable
from fusegen.project import compile_cache

# Constants that only the other device's kernels are built from; the host code of CUDA takes CPU_FLAGS.
OTHER = {"cpu": {"CUDA_SOURCE", "CUDA_FLAGS", "CONVOLUTION_SOURCE"}, "cuda": {"CPU_SOURCE"}}
SOURCES = {"SHARED_SOURCE", "CUDA_SOURCE", "CPU_SOURCE"}
SHARED = "SHARED_SOURCE"  # a part of the others
# other headers, which are compiled for the other device, apart, or in front of all
APART = {
    "cpu": ("cuda/", "nvrtc/", "compiled_call/"),
    "cuda": ("cpu/", "nvrtc/standard.h", "compiled_call/"),
}
BEHIND = re.compile(r'^\w*CONVOLUTION_SOURCE = r"""(.*?)"""', re.MULTILINE | re.DOTALL)  # the kernels
FLAGS = "flags.py"
NAMED = re.compile(r"^ModelNew = (\w+)$", re.MULTILINE)
Place = tuple[int, int]  # a line from 1 and a column in characters from 0


def kernel_digest(
    module: str,  # its text
    device: str,  # ``cpu`` or ``cuda``
    runtime: Mapping[str, str] | None = None,  # the files of its runtime, by path; if not given, today's
) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of what decides a module's results on a device."""
    files = runtime_text.files("stable") if runtime is None else runtime
    _, headers, others = _texts(module, device, files)
    whole = (*(text for each in headers.items() for text in each), *others)
    key = compile_cache.key("kernel digest of reached names", device, module, files[FLAGS], *whole)
    match compile_cache.recall(key):
        case str(known):
            return known
    found = digest("\n".join(deciding(module, device, files)), 16)
    compile_cache.remember(key, found)
    return found


def deciding(module: str, device: str, runtime: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the Python of a module that decides its results, the flags, and the C++, uncommented."""
    python, flags = (_deciding(text, device) for text in (module, runtime[FLAGS]))
    headers = reached_headers(module, device, runtime)
    code = (inlined(text, headers.__getitem__) for text in _compiled(module, device))
    return python, flags, without_comments("\n".join(code))


def reached_headers(module: str, device: str, runtime: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that the C++ of a device includes, of each what the names reach."""
    return reachable(*_texts(module, device, runtime))


def _texts(module: str, device: str, files: Mapping[str, str]) -> tuple[str, dict[str, str], list[str]]:
    """Return the C++ of a device, the headers that it includes, and what else is compiled with these."""
    own = "\n".join(_compiled(module, device))
    every = defaultdict(str, files)
    names = reached(own, lambda name: files[f"include/{name}"])
    built = runtime_text.headers(module, "stable", every)
    beside = (name for name in built if name not in names and not name.startswith(APART[device]))
    headers, others = ({name: every[f"include/{name}"] for name in each} for each in (names, beside))
    behind = BEHIND.findall(module) if device == "cuda" else []
    return own, headers, [*others.values(), *behind]


def _compiled(module: str, device: str) -> Iterator[str]:
    yield from (text for name, text in sources(module).items() if name not in {SHARED, *OTHER[device]})
    marks = (mark for mark in runtime_text.FORMS if mark in module)
    [header, *_] = runtime_text.BINDINGS[next(marks, "CPU_SOURCE")]
    yield f'#include "{header}"\n'


def _deciding(module: str, device: str) -> str:
    """The text without its C++ and what decides nothing on a device; all of it where it is no Python."""
    try:
        spans = [*_comments(module), *_statements(module, device)]
    except (SyntaxError, tokenize.TokenError, ValueError, RecursionError):
        return module
    lines = module.splitlines(keepends=True)
    for (first, start), (last, end) in sorted(spans, reverse=True):
        head, tail = lines[first - 1][:start], lines[last - 1][end:]
        lines[first - 1 : last] = [head + tail]
    kept = (line.rstrip() for line in "".join(lines).splitlines())
    text = "\n".join(filter(None, kept))
    # the class is named ModelNew; of its two names either may come first
    if not (found := NAMED.search(text)):
        return text
    name = found[1]
    return NAMED.sub(f"{name} = ModelNew", text).replace(f"\nclass {name}(", "\nclass ModelNew(")


def sources(module: str) -> dict[str, str]:
    """Return the constants of a module that hold C++, by name; none where it is no Python."""
    try:
        tree = ast.parse(module)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[str, str] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign([ast.Name(name)], value) if is_source(statement):
                found[name] = joined(value, {SHARED: "", **found}) or ""
    return found


def is_source(statement: ast.stmt) -> bool:
    """Return True if a statement sets a constant that holds C++: texts that are joined, some by name."""
    match statement:
        case ast.Assign([ast.Name(name)], value) if name in SOURCES:
            return joined(value, {SHARED: ""}) is not None
    return False


def _comments(module: str) -> Iterator[tuple[Place, Place]]:
    for token in tokenize.generate_tokens(io.StringIO(module).readline):
        if token.type == tokenize.COMMENT:
            yield token.start, token.end


def _statements(module: str, device: str) -> Iterator[tuple[Place, Place]]:
    """Yield docstrings, constants of the other device, and those that hold C++."""
    tree = ast.parse(module)
    sources = [*filter(is_source, tree.body)]
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
    """Yield the begin and the end of a statement; ast counts bytes."""
    if node.end_lineno is not None and node.end_col_offset is not None:
        end = lines[node.end_lineno - 1].encode()[: node.end_col_offset].decode()
        start = lines[node.lineno - 1].encode()[: node.col_offset].decode()
        yield (node.lineno, len(start)), (node.end_lineno, len(end))
