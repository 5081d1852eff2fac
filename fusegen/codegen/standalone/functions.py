"""Functions as items define them: their types, parameters and bodies."""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

from fusegen.codegen.standalone.items import TEMPLATE, Item
from fusegen.core.header_files import without_comments

ANY = "?"  # a type that is not known
SIZES = {"float": 4, "double": 8, "FastFloat": 4, "PlainDouble": 8}
SCALAR = ("int", "float", "double", "PlainDouble", "FastFloat")  # in the order of conversions
SIGNATURE = re.compile(
    r"(?P<result>[^(]*?)\b(?P<name>operator\s*[^\s\w(]+|\w+)\((?P<parameters>(?:[^()]|\([^()]*\))*)\)\s*\{"
)
ATTRIBUTES = re.compile(
    r"\b(?:HOST_DEVICE_NOINLINE|HOST_DEVICE|ALWAYS_INLINE|INLINES_ALL|__device__|__noinline__|__forceinline__"
    r"|__global__|inline|constexpr|static|friend|const)\b|\[\[\w+\]\]|[&]"
)
Resolved = Callable[[str, dict[str, str]], str]  # a type without names of templates


def single(kind: str) -> str:
    """Return the type of a word."""
    return kind[11:-1] if kind.startswith("DoubleWord<") else kind


def sized(kind: str) -> int:
    """Return the bytes of a type; 0 where that is not known."""
    return SIZES.get(kind, 2 if kind == "half" else 0)


def common(*kinds: str) -> str:
    """Return the type of an operation on values of some types."""
    wide = [kind for kind in kinds if kind.startswith("DoubleWord")]
    if wide or ANY in kinds:
        return wide[0] if wide and ANY not in kinds else ANY
    ranks = [SCALAR.index(kind) for kind in kinds if kind in SCALAR]
    return SCALAR[max(ranks)] if len(ranks) == len(kinds) else kinds[0] if kinds else ANY


@dataclass(frozen=True)
class Function:
    """A function."""

    item: Item  # that defines it
    template: tuple[tuple[str, str, str], ...]  # the kinds and names of the parameters of its template
    result: str  # its type
    parameters: tuple[tuple[str, str], ...]  # the types and names
    body: str  # the statements

    def bound(self, types: dict[str, str], resolved: Resolved) -> dict[str, str]:
        """Return what names stand for in the body, where the parameters of the template are such types."""
        unknown = {name: ANY for _, name, _ in self.template}
        types = unknown | types
        arguments = {f"{name} ": resolved(kind, types) for kind, name in self.parameters if name}
        values = {f"{name} ": "int" for kind, name, _ in self.template if kind in ("int", "bool", "Body")}
        return {**types, **values, **arguments}


@functools.lru_cache(maxsize=8192)  # an item is asked some forty times in a file; a file has a few hundred
def function(item: Item) -> Function | None:
    """Return the function that an item defines, if it is one."""
    code = without_comments(item.text)
    head = TEMPLATE.match(code)
    found = SIGNATURE.match(code, head.end() if head else 0)
    if not found or code.startswith("#") or re.match(r"\s*(struct|class|enum|using)\b", found["result"]):
        return None
    template = []
    for part in parts(head[0].strip()[len("template") :].strip()[1:-1]) if head else []:
        words = re.findall(r"\w+", part.partition("=")[0])
        template.append((words[0], words[1] if len(words) > 1 else "", part.partition("=")[2].strip()))
    result = ATTRIBUTES.sub("", found["result"]).strip()
    return Function(
        item,
        tuple(template),
        result,
        tuple(map(_parameter, parts(found["parameters"]))),
        code[found.end() : code.rindex("}")],
    )


def _parameter(text: str) -> tuple[str, str]:
    text = ATTRIBUTES.sub("", text.partition("=")[0]).strip()
    if array := re.match(r"(.+?)\s*(?:\(\s*(\w+)\)|\b(\w+))\s*\[", text):
        return f"array<{array[1].strip()}>", array[2] or array[3]
    found = re.match(r"(.+?[\s*>])\s*(\w+)$", text)
    kind, name = (found[1].strip(), found[2]) if found else (text, "")
    return (f"array<{kind[:-1].strip()}>" if kind.endswith("*") else kind), name


def parts(text: str, opening: str = "<([", closing: str = ">)]") -> list[str]:
    """Return what commas outside parentheses divide: in C++ outside of angles, too."""
    depth, found = 0, [""]
    for char in text:
        depth += (char in opening) - (char in closing)
        if char == "," and depth == 0:
            found.append("")
        else:
            found[-1] += char
    return [part.strip() for part in found if part.strip()]
