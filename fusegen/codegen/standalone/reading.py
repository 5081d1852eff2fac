"""A module's text in parts: its C++, and what its Python says of the kernels."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from fusegen.codegen.runtime_text import header
from fusegen.codegen.standalone.items import Item, item, items
from fusegen.core.header_files import INCLUDE, inlined

WIDTH = 120  # of a line
OWN = ("call.h", "launcher.h")  # headers in whose place a standalone file has other text
REDUCE = re.compile(
    r"  template <class F, typename T>\n  static cudaError_t reduce\(.*?\n  \}\n", re.DOTALL
)
GUARD = re.compile(r"\A#ifndef \w+_H\n#define \w+_H\n(.*)\n#endif\n\Z", re.DOTALL)
STORED = "store_rounded(made.at[e], out[0])", "store(made.at[e], decltype(load(T()))(out[0]))"
DEFAULT = "  using Methods = ByWidth<Formula<float>, Formula<float>, Formula<double>>;\n"
BASE = re.compile(r"struct (Forward|Backward) : \w+<(\d+), (\d+)")


@dataclass(frozen=True)
class Source:
    """The C++ of a module for a device."""

    own: tuple[Item, ...]  # the items of the module
    headers: tuple[Item, ...]  # those of the headers that it includes


class Module:
    """A module as its text has it."""

    def __init__(self, text: str) -> None:
        self.text, self.tree = text, ast.parse(text)
        self.strings: dict[str, str] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and (value := joined(node.value, self.strings)) is not None:
                self.strings[ast.unparse(node.targets[0])] = value
        registration = next(node for node in self.tree.body if _assigns(node, "KERNELS"))
        assert isinstance(registration, ast.Assign)
        call = registration.value
        assert isinstance(call, ast.Call)
        self.name = ast.literal_eval(call.args[0])
        self.given = {w.arg: w.value for w in call.keywords if w.arg}

    def words(self, key: str) -> tuple[str, ...]:
        """Return the strings or numbers of an argument of the registration; none where it is not given."""
        return tuple(map(str, ast.literal_eval(self.given[key]))) if key in self.given else ()

    def signature(self, kernel: str) -> dict[str, str]:
        """Return the types of a kernel's arguments, by their names."""
        parts = (part.split() for part in ast.literal_eval(self.given[kernel]).split(", "))
        return {name: type for type, name in parts}

    def source(self, device: str) -> Source:
        """Return the C++ of a device."""
        text = self.strings[f"{device.upper()}_SOURCE"]
        includes = "".join(f'#include "{name}"\n' for name in INCLUDE.findall(text))
        without = re.sub(r"^FUSEGEN_(?!CURVE)\w+\(.*\)\n", "", INCLUDE.sub("", text), flags=re.MULTILINE)
        without = without.replace(DEFAULT, "")
        own = items(re.sub(r"^(FUSEGEN_CURVE\(.*\))$", r"\1;", without, flags=re.MULTILINE))
        headers = (one for one in items(inlined(includes, _read)) if "Tensors<" not in one.text)
        return Source(tuple(_with_few_comments(one) for one in own), tuple(headers))

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of inputs and outputs of each kernel, by its type."""
        return {name: (int(i), int(o)) for name, i, o in BASE.findall(self.strings["CUDA_SOURCE"])}


def joined(node: ast.expr, known: Mapping[str, str]) -> str | None:
    """Return a text that is made of literals and known texts; None of what is no such text."""
    match node:
        case ast.Constant(str(value)):
            return value
        case ast.Name(name):
            return known.get(name)
        case ast.BinOp(left, ast.Add(), right):
            parts = joined(left, known), joined(right, known)
            return None if None in parts else "".join(part or "" for part in parts)
    return None


def _with_few_comments(one: Item) -> Item:
    """Return an item of a module with the first comment of a function, and with none of a type."""
    notes = re.match(r"(?://[^\n]*\n)*", one.text)
    assert notes
    text, first = one.text[notes.end() :], notes[0].partition("\n")[0]
    kept = first if len(first) <= WIDTH and not text.startswith("struct") else ""
    return item(f"{kept}\n{text}".lstrip(), one.scope)


def _read(name: str) -> str:
    """Return the text of a header; of those that a standalone file has in a form of its own nothing."""
    text = (
        ""
        if name in OWN or name.startswith("cuda/thin_group_")
        else REDUCE.sub("", GUARD.sub(r"\1", header(name)))
    )
    return text.replace("CallOf<F>", "ThinCall").replace(*STORED) if name.startswith("cuda/thin_") else text


def _assigns(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
