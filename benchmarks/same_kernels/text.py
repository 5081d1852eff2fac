"""The text of modules in parts: C++ without comments, what the host of CUDA decides, and Python."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from fusegen.core.header_files import LITERAL, without_comments
from fusegen.evidence.certify.declarations import Piece, pieces
from fusegen.evidence.certify.digest import is_source

Recipe = dict[str, Any]  # what load_inline was called with
Recipes = Mapping[str, Recipe]

# C++

TOKENS = re.compile(rf"{LITERAL}|[(){{}};]")
ON_DEVICE = r"__device__|__global__|__constant__"
CLOSES = {"(": 1, "{": 1, ")": -1, "}": -1}
DEFINITION, CALL = ("}", ";"), (")",)  # how they end
SYMBOL = re.compile(r"kernel_[0-9a-f]{16}")  # of a library, by the digest of its text
FUNCTION = re.compile(  # one that is defined, perhaps of a template
    r"\s*(?:template\s*<[^{}();]*>\s*)?(?!struct\b|class\b|union\b|enum\b|using\b)[\w:<>,*&\s]+\("
)
LAMBDA = {"__device__", "__global__"}  # in the body of a function, of what it gives to a kernel
MACRO = re.compile(r"^#define (\w+)\(.*?\)((?:.*\\\n)*.*)$", re.MULTILINE)  # one with arguments


def bare(recipe: Recipe) -> str:
    """Return the text of a recipe: its sources without comments, and all else in it."""
    sources = {key: without_comments("\n".join(recipe[key])) for key in recipe if key.endswith("_sources")}
    return json.dumps({**recipe, **sources}, sort_keys=True)


def host_part(text: str) -> str:
    """CUDA text, free of comments, without the definitions that are compiled for the device alone.

    What is marked ``__host__`` too, types, constants and directives of the preprocessor stay. A macro whose
    text is such a definition is one where it is called.
    """
    names = re.findall(rf"^#define (\w+) (?!.*__host__).*(?:{ON_DEVICE})", text, re.MULTILINE)
    marks = dict.fromkeys((*ON_DEVICE.split("|"), *names), DEFINITION)
    bodies = ((macro[1], macro[2].replace("\\\n", "\n")) for macro in MACRO.finditer(text))
    calls = [name for name, body in bodies if body.strip() and not _without(body, marks).strip()]
    return _without(text, marks | dict.fromkeys(calls, CALL))


def device_part(text: str) -> str:
    """Return CUDA text without comments and without the functions that run on the host alone.

    A change of these leaves each kernel as it is; it may launch another one, or otherwise.
    """
    defined = re.findall(rf"^#define (\w+)\b.*(?:{ON_DEVICE}|__host__)", text, re.MULTILINE)
    marks = {*ON_DEVICE.split("|"), "__host__", "constexpr", *defined}
    ended = f"{text}\n;"  # a macro at the end has no semicolon
    kept = "".join(each.text for each in pieces(ended) if not _is_of_host(each, marks))
    return SYMBOL.sub("kernel", kept)


def _is_of_host(each: Piece, marks: set[str]) -> bool:
    """Return True if a declaration is surely a function that no device runs."""
    is_function = each.names and FUNCTION.match(each.text) and each.text.rstrip().endswith("}")
    return bool(is_function) and marks.isdisjoint(each.head) and LAMBDA.isdisjoint(each.words)


def _without(text: str, marks: Mapping[str, tuple[str, ...]]) -> str:
    """Return a text without the definitions in which there is a mark; how each ends is said of each."""
    kept, position = [], 0
    for mark in re.finditer(rf"{LITERAL}|^#.*$|\b(?:{'|'.join(marks)})\b", text, re.MULTILINE):
        if mark.start() < position or mark[0][0] in "\"'#":
            continue
        begin = max([position, *_starts(text[position : mark.start()], position)])
        end = _end(text, mark.end(), marks[mark[0]])
        if "__host__" not in text[begin : mark.end() + len(" __host__")]:
            kept.append(text[position:begin])
            position = end
    return "".join([*kept, text[position:]])


def _starts(text: str, offset: int) -> Iterator[int]:
    """Where a definition at the end of a text may begin: after another, a brace or a directive."""
    yield from (offset + found.end() for found in re.finditer(r"[;{}]|^#.*$", text, re.MULTILINE))


def _end(text: str, position: int, ends: tuple[str, ...]) -> int:
    """Where a definition ends: after its body, at its semicolon, or after the arguments of a macro."""
    depth = 0
    for token in TOKENS.finditer(text, position):
        depth += CLOSES.get(token[0], 0)
        if depth == 0 and token[0] in ends:
            return token.end()
    return len(text)


# Python

OF_CUDA = re.compile(r"(?<![.\w])\w*mask|LARGE|in_vectors|is_cuda", re.IGNORECASE)


def python_of(module: str) -> str:
    """Return the Python of a module without comments, docstrings and the constants that hold its C++."""
    tree = ast.parse(module)
    tree.body = [statement for statement in tree.body if not is_source(statement)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            node.body = [*node.body[1:], ast.Pass()]
    return ast.unparse(tree)


def python_of_cuda(module: str) -> str:
    """Return the Python that only tensors on CUDA reach: masks, and what asks for the device."""
    found = []
    for node in ast.walk(ast.parse(python_of(module))):
        named = isinstance(node, ast.ClassDef | ast.FunctionDef) and OF_CUDA.search(node.name)
        asks = isinstance(node, ast.If) and OF_CUDA.search(ast.unparse(node.test))
        plain = isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Return)
        if named or asks or (plain and OF_CUDA.search(ast.unparse(node))):
            found.append(ast.unparse(node))
    return "\n".join(found)


def host_texts(module: str, recipes: Recipes) -> dict[str, str]:
    """Return the decisions of the host of CUDA, by name.

    Args:
        module: its text.
        recipes: how it has its kernels for CUDA built.
    """
    binding, device = (
        SYMBOL.sub(
            "kernel", without_comments("\n".join(text for one in recipes.values() for text in one[kind]))
        )
        for kind in ("cpp_sources", "cuda_sources")
    )
    flags = [[one.get(key) for key in one if key.endswith("flags")] for one in recipes.values()]
    return {
        "binding": binding,
        "launch code": host_part(device),
        "flags": repr(flags),
        "Python of CUDA": python_of_cuda(module),
        "build": repr([bare(one | _nothing(one)) for one in recipes.values()]),
    }


def moved(old: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of what the host of CUDA decides otherwise; the build is what has no other name."""
    found = [part for part in now if old[part] != now[part]]
    return tuple(part for part in found if part != "build" or found == ["build"])


def _nothing(recipe: Recipe) -> Recipe:
    """Return a recipe without sources and flags."""
    return {key: [] for key in recipe if key.endswith(("flags", "_sources"))}
