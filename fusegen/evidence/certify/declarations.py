"""C++ in pieces: lines of the preprocessor and declarations of namespaces, with the names that reach them.

A piece without names always counts: what matters without being named, and what is not surely understood.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from fusegen.core.header_files import LITERAL, without_comments

TOKEN = re.compile(
    rf'(?:u8|[uUL])?R"([^\s()\\]{{0,16}})\([\s\S]*?\)\1"|{LITERAL}|(?P<line>^[ \t]*#(?:\\\n|[^\n])*)'
    r"|[^\W\d]\w*|\.?\d(?:[eEpP][+-]|'?\w|\.)*|::|->|<=>|<<|[-+*/%&|^=!<>]=|<%|%>|<:|:>|%:|\S",
    re.MULTILINE,
)
DEPTH = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
STRANGE = {"'", '"', "\\", "#", "<%", "%>", "<:", ":>", "%:", "requires", "concept"}
SCOPE = re.compile(r"(?:inline\s+)?namespace\b\s*([\w\s:]*)\{")

# Lines of the preprocessor
KIND = re.compile(r"\s*#\s*(\w*)")
OF_BODY = re.compile(r"\s*#\s*(?:if|el|endif|pragma\s+(?:unroll|GCC\s+(?:ivdep|unroll)))")
MACRO = re.compile(r"\s*#\s*define\s+(\w+)(\((.*?)\))?(.*)")
PASTED = re.compile(r"(?:\w*\s*##\s*)+\w*")
PLAIN = re.compile(  # the text of a macro that may stand in front of a name and declares nothing
    r"(?:[\s()\d]|\b(?:inline|static|constexpr|__device__|__host__|__forceinline__|__noinline__|"
    r"__attribute__|always_inline|noinline|flatten)\b)*"
)

# Declarations, without what their brackets enclose; tokens have a blank between them
UNNAMED = {"asm", "extern", "friend", "namespace", "operator", "template", "thread_local", "typedef"}
EMITTED = {"alias", "constructor", "destructor", "ifunc", "section", "used", "weak"}  # attributes
MEMORY = {"__constant__", "__device__", "__managed__", "__shared__"}
LOCAL = frozenset({"constexpr", "inline", "static"})
TYPES = {"struct", "class", "union", "enum"}
ATTRIBUTE = re.compile(
    r"(?:(?:__align__|__attribute__|__launch_bounds__|alignas|noexcept) |(decltype ))\( \) |\A(?:\[ \] )+"
)
USING = re.compile(r"using (?:(\w+) = [^{}]*|\w+(?: :: \w+)* :: (\w+) );")
TYPE = re.compile(
    r"(?:struct|class|union|enum(?: class| struct)?) (\w+)(?: final)?(?: [:<][^{};=]*)? (?:{ } )?;"
)
FUNCTION = re.compile(
    r"[^(){}\[\];=]*[\w>*&] (\w+) \( \)(?: const| noexcept| -> [\w:<>,*& ]+)? (?:{ }(?: ;)?|;)"
)
CONSTANT = re.compile(r"[^(){}\[\];=]*\bconstexpr [^(){};=]*[=\[{].*;")
OF_TEMPLATE = re.compile(r"[^(){}\[\];=]* [\w>]+ (?:[=\[{].*)?;")  # a variable
OBJECT = re.compile(r"\bstatic\b[\w ]*\binline\b|\binline\b[\w ]*\bstatic\b")  # of a struct
LISTED = re.compile(r"\b([^\W\d]\w*) (?=[=\[{,;}])")
NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Piece:
    """A line of the preprocessor, a declaration, or what opens or closes a namespace."""

    text: str
    names: frozenset[str]  # that reach it
    head: frozenset[str]  # the words of a declaration in front of its body
    words: frozenset[str]  # all, but for those of literals and included files
    pasted: frozenset[str]  # patterns of the names that its macros paste
    macros: frozenset[str]  # that it defines, whose text may declare something


@cache
def pieces(text: str) -> tuple[Piece, ...]:
    """Return the pieces of C++, which are the text without comments when they are joined."""
    bare = f"{without_comments(text)}\n"
    try:
        return tuple(_pieces(bare))
    except ValueError:  # the text is not understood
        return (piece(bare),)


def piece(text: str, names: frozenset[str] = NONE, head: frozenset[str] = NONE) -> Piece:
    """Return a text as one piece."""
    words, pasted, macros = set[str](), set[str](), set[str]()
    for token in TOKEN.finditer(text):
        line = token[0].replace("\\\n", " ")
        if not token["line"]:
            words.add(line)
        elif _kind(line) != "include":
            words |= {part[0] for part in TOKEN.finditer(line.partition("#")[2])}
        if token["line"] and (macro := MACRO.match(line)):
            given = {*re.split(r"[\s,.]+", macro[3] or ""), "__VA_ARGS__", "__VA_OPT__", ""}
            chains = (re.split(r"\s*##\s*", chain) for chain in PASTED.findall(line))
            pasted |= {"".join(r"\w*" if part in given else part for part in chain) for chain in chains}
            pasted |= set() if _is_closed(macro[4]) else {r"\w*"}
            macros |= set() if PLAIN.fullmatch(macro[4]) else {macro[1]}
    known = frozenset(filter(str.isidentifier, words))
    return Piece(text, names, head | names if head else head, known, frozenset(pasted), frozenset(macros))


def _pieces(text: str) -> Iterator[Piece]:
    tokens = [*TOKEN.finditer(text)]
    code = [token[0] for token in tokens]
    scopes, branches = list[str](), list[object]()  # the names of namespaces, one without a name is empty
    begin = at = 0
    if STRANGE.intersection(code):
        raise ValueError
    while at < len(code):
        end, names, head = at + 1, NONE, NONE
        if tokens[at]["line"]:
            _branch(code[at], branches, tuple(scopes))
            names = _name_of_macro(code[at].replace("\\\n", " "))
        elif scope := SCOPE.match(text, tokens[at].start()):
            scopes.append(scope[1].strip())
            end = code.index("{", at) + 1
        elif code[at] != "}":
            end = _end(code, at)
            if "std" not in scopes:  # where templates of the system find what they do not name
                names, head = _names(code[at:end], LOCAL if "" in scopes else NONE)
        elif not scopes or scopes.pop() is None:
            raise ValueError
        stop = tokens[end].start() if end < len(code) else len(text)
        yield piece(text[begin:stop], names, head)
        begin, at = stop, end
    if scopes or branches:
        raise ValueError


def _kind(line: str) -> str:
    return "".join(KIND.findall(line)[:1])


def _is_closed(text: str) -> bool:
    depths = [0, *accumulate(DEPTH.get(token[0], 0) for token in TOKEN.finditer(text))]
    return min(depths) == 0 == depths[-1]


def _name_of_macro(line: str) -> frozenset[str]:
    """Return the name of a macro with arguments of this project: others may change system headers."""
    macro = MACRO.match(line)
    is_own = macro and macro[2] and macro[1].startswith("FUSEGEN_") and _is_closed(macro[4])
    return frozenset({macro[1]}) if macro and is_own else NONE


def _branch(line: str, branches: list[object], state: object) -> None:
    """Follow conditionals: each branch has to begin and to end in one state."""
    kind = _kind(line)
    if kind.startswith(("el", "endif")) and (not branches or branches.pop() != state):
        raise ValueError
    if kind.startswith(("if", "el")):
        branches.append(state)


def _end(code: Sequence[str], at: int) -> int:
    """Return where a declaration ends: behind its body, or behind a semicolon."""
    depth, runs_on, branches = 0, False, list[object]()
    start = _behind_template(code, at)
    for k in range(at, len(code)):
        depth += DEPTH.get(code[k], 0)
        if depth < 0:
            raise ValueError
        if code[k].lstrip().startswith("#"):
            _branch(code[k], branches, depth)
        if depth or k < start:
            continue
        runs_on |= code[k] == "=" or code[k] in TYPES
        has_body = code[k] == "}" and not runs_on and code[k + 1 : k + 2] not in ([";"], [","], ["{"])
        if code[k] == ";" or has_body:
            return k + 1
    raise ValueError


def _behind_template(code: Sequence[str], at: int) -> int:
    """Return the place behind the parameters of a template."""
    while code[at : at + 2] == ["template", "<"]:
        depth = angles = 0
        for k in range(at + 1, len(code)):
            depth += DEPTH.get(code[k], 0)
            angles += {"<": 1, ">": -1}.get(code[k], 0) if depth == 0 else 0
            if angles == 0 or depth < 0 or code[k] == ";":
                break
        if angles:
            return at
        at = k + 1
    return at


def _names(code: Sequence[str], around: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that reach a declaration, none where it always counts, and its head."""
    start = _behind_template(code, 0)
    depths = [*accumulate(DEPTH.get(token, 0) for token in code)]
    outer = [k for k in range(start, len(code)) if depths[k] == max(DEPTH.get(code[k], 0), 0)]
    body = next((k for k in outer if code[k] in ("{", "=")), len(code))
    flat = ATTRIBUTE.sub(r"\1", " ".join(code[k] for k in outer))
    head = frozenset(filter(str.isidentifier, code[:body]))
    emitted = EMITTED.intersection(token.strip("_") for token in code)
    is_odd = bool(UNNAMED.intersection(code[start:body]) or emitted) or "#" in flat
    is_odd = is_odd or any(token.lstrip().startswith("#") and not OF_BODY.match(token) for token in code)
    if is_odd or any(word.startswith("FUSEGEN_") for word in head):
        return NONE, NONE
    is_template = start > 0 and code[2] != ">"
    if found := USING.fullmatch(flat):
        return frozenset(filter(None, found.groups())), head
    if found := TYPE.fullmatch(flat):
        has_objects = not is_template and OBJECT.search(" ".join(code))
        listed = LISTED.findall(" ".join(code[body:])) if flat.startswith("enum") else []
        is_cut = listed and re.search(r"#|\w \(", " ".join(code[body:]))
        return NONE if has_objects or is_cut else frozenset({found[1], *listed}), head
    if found := FUNCTION.fullmatch(flat):
        # the name may stand in brackets: T (f(int)), T (*f(int))
        before = " ".join(code[start:body])
        is_nested = re.search(rf"\b{found[1]} \( (?:[*&(]|\w+ \((?! [*&])|[\w: ]+:: \*)", before)
        is_hidden = LOCAL & (around | head) and "__global__" not in head and "{" in flat
        is_made = not is_template and not is_hidden
        return NONE if is_nested or is_made or found[1].isupper() else frozenset({found[1]}), head
    if is_template and OF_TEMPLATE.fullmatch(flat):
        return frozenset(re.findall(r"(\w+) (?=[=\[{;<])", re.sub("=.*", "=", flat))), head
    if start == 0 and CONSTANT.fullmatch(flat) and not head & MEMORY:
        return frozenset(LISTED.findall(flat)), head
    return NONE, NONE
