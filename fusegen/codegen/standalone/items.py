"""C++ as a list of items: functions, types, variables and macros, each with the names that it defines."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from fusegen.core.header_files import LITERAL, without_comments

WORD = re.compile(r"[A-Za-z_]\w*")
SCOPE = re.compile(r"\s*(?:namespace\s+(\w*)\s*\{|\}+)")
BLANK = re.compile(r"(?:\s|//[^\n]*\n)*")
NOTE = re.compile(r"(?<=;)[ ]+//(?! namespace)[^\n]*")  # behind an item, on its line
DIRECTIVE = re.compile(r"#\s*(\w+)(?:\\\n|[^\n])*\n?")
PART = re.compile(rf"{LITERAL}|//[^\n]*|[{{}}()\[\];,]|[^\"'/{{}}()\[\];,]+|.", re.DOTALL)
ATTRIBUTE = re.compile(
    r"(?:__launch_bounds__|alignas)\((?:[^()]|\([^()]*\))*\)\s*|__attribute__\(\(\w+\)\)\s*"
)
TEMPLATE = re.compile(r"\s*template\s*<(?:[^<>]|<[^<>]*>)*>\s*")
NAMED = [  # what an item defines, by how it begins
    re.compile(r"#define (\w+)"),
    re.compile(r"FUSEGEN_CURVE\((\w+)"),
    re.compile(r"(?:struct|class)\s+(\w+)"),
    re.compile(r"enum\s+(?:class\s+)?(\w+)"),
    re.compile(r"using\s+(\w+)\s*="),
    re.compile(r"using\s+(?:namespace\s+)?(?:\w+::)*(\w+);"),
    re.compile(r"[^({=]*?\b(operator\s*[^\s\w(]+|operator \w+|\w+)\s*(?:[(\[={;]|<[\w, ]+>\s*[\[;=])"),
]
LIST = re.compile(r"\w+(?=\s*[,=}])")
CONSTANTS = re.compile(r",\s*(\w+)\s*=")


@dataclass(frozen=True)
class Item:
    """A declaration, a definition or a macro."""

    text: str  # with the comments above it
    scope: str = ""  # the name of the namespace inside fusegen's that it lies in; empty for that itself
    names: tuple[str, ...] = field(default=(), compare=False)  # that it defines
    words: frozenset[str] = field(default=frozenset(), compare=False)  # every word of it but for comments


def items(text: str) -> tuple[Item, ...]:
    """Return the items of C++ whose includes were replaced by what they include."""
    return tuple(_items(text))


def _items(text: str) -> Iterator[Item]:
    scopes: list[str] = []
    at = 0
    while at < len(text):
        begin = at
        blank = BLANK.match(text, at)
        assert blank  # it matches nothing, too
        at = blank.end()
        if scope := SCOPE.match(text, at):
            closed = scope[0].count("}")
            scopes = scopes[:-closed] if closed else [*scopes, scope[1] if scope[1] != "fusegen" else ""]
            at = scope.end()
            continue
        at = _end(text, at)
        if note := NOTE.match(text, at):
            at = note.end()
        if whole := _without_blanks(text[begin:at]):
            yield item(whole, next(filter(None, reversed(scopes)), ""))


def item(text: str, scope: str = "") -> Item:
    """Return an item from its text."""
    code = ATTRIBUTE.sub("", without_comments(text))
    return Item(text, scope, tuple(_names(code)), frozenset(WORD.findall(code)))


def _end(text: str, at: int) -> int:
    """Return where an item ends: behind a directive with all until its #endif, a `;`, or a body."""
    depth = 0
    while directive := DIRECTIVE.match(text, at):
        depth += {"if": 1, "ifdef": 1, "ifndef": 1, "endif": -1}.get(directive[1], 0)
        at = directive.end()
        if depth == 0:
            return at
        while depth and (line := re.compile(r"(?!#)[^\n]*\n").match(text, at)):
            at = line.end()
    braces = 0
    for part in PART.finditer(text, at):
        braces += {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(part[0], 0)
        if braces == 0 and (part[0] == ";" or (part[0] == "}" and text[part.end()] not in ";,")):
            return part.end()
    return len(text)


def _without_blanks(text: str) -> str:
    """Return an item without the comments that belong to what is above it."""
    text = re.sub(r"\A\s*// namespace \w+\n|\A\s*// namespace\n", "", text)
    paragraph = text.lstrip("\n").rpartition("\n\n//")
    return (f"//{paragraph[2]}" if paragraph[1] else text).strip()


def _names(code: str) -> Iterator[str]:
    if code.startswith(("#if", "#ifdef")):
        for part in items(re.sub(r"^#(?!define).*\n?", "", code, flags=re.MULTILINE)):
            yield from part.names
        return
    begin = TEMPLATE.match(code)
    body = code[begin.end() :] if begin else code
    found = next(filter(None, (pattern.match(body) for pattern in NAMED)), None)
    if found is None:
        return
    yield re.sub(r"operator\s+(?=\W)", "operator", found[1])
    if body.startswith("enum"):
        yield from LIST.findall(body.partition("{")[2])
    if body.startswith("constexpr"):
        yield from CONSTANTS.findall(body)
