"""C++ on few lines: what the types decide is decided, and what fits on one line stands on one."""

import re
from collections.abc import Callable
from textwrap import wrap

WIDTH = 120  # of a line
Decide = Callable[[str], bool | None]  # whether a condition of `if constexpr` holds, if that is known

FITTED = re.compile(r"^ *// From .*: python -m benchmarks\.coefficients .*\n", re.MULTILINE)
HEAD = re.compile(r"(template <(?:[^<>\n]|<[^<>\n]*>)*>)\n *")
LOOP = re.compile(r"^(?:#pragma unroll|( *)UNROLL)\n( +)", re.MULTILINE)
NUMBERS = re.compile(r"^( *)([^\n{}]*= *\{)((?:[-\w.(), ]|\n)+?)\}", re.MULTILINE)
BLOCK = re.compile(r"^([^\n]*\{)\n((?:[^\n#]*[^\n#{]\n)+?) *(\}[^\n{}]*)$", re.MULTILINE)
CONDITION = re.compile(r"( *)(?P<before>else )?if constexpr \((?P<condition>(?:[^()]|\([^()]*\))*)\) ")
COMMENT = re.compile(r"\A(?:// [^\n]*\n){2,}")
DECLARED = re.compile(r"^( +(?:const )?[\w<>]+ \w+(?:, \w+)*;)\n +(?=\S[^\n{}]*;$)", re.MULTILINE)
CONSTANTS = re.compile(
    r"^( +const ([\w<>]+) (?![^\n]*//)[^\n{}]*);\n +const \2 (?=[^\n{}]*;$)", re.MULTILINE
)
EMPTY = re.compile(r"^#if[^\n]*\n#endif\n", re.MULTILINE)
MOST_STATEMENTS = 2  # on a line


def compact(text: str, decide: Decide) -> str:
    """Return an item on fewer lines; `decide` says what its conditions are."""
    text = HEAD.sub(
        _joined_head, LOOP.sub(_unrolled, FITTED.sub("", EMPTY.sub("", _decided(text, decide))))
    )
    text = NUMBERS.sub(_filled, COMMENT.sub(_first_sentence, text))
    for pattern in (DECLARED, CONSTANTS):
        while (shorter := pattern.sub(_fitting, text)) != text:
            text = shorter
    while (shorter := BLOCK.sub(_joined, text)) != text:
        text = shorter
    return "\n".join(line if len(line) <= WIDTH else _broken(line) for line in text.split("\n"))


def _unrolled(found: re.Match[str]) -> str:
    return f"{found[2] if found[1] is None else found[1]}UNROLL "


def _broken(line: str) -> str:
    at = max(line.rfind(part, 0, WIDTH - 1) for part in (") ", ", "))
    margin = line[: len(line) - len(line.lstrip())]
    rest = f"{margin}    {line[at + 2 :]}"
    return (
        f"{line[: at + 1]}\n{_broken(rest) if len(rest) > WIDTH else rest}"
        if at > len(margin) + 4
        else line
    )


def _joined_head(found: re.Match[str]) -> str:
    rest = found.string[found.end() :].partition("\n")[0]
    return f"{found[1]} " if len(f"{found[1]} {rest}") <= WIDTH else found[0]


def _first_sentence(found: re.Match[str]) -> str:
    """Return the first sentence of the comment above an item, if that fits on a line."""
    words = " ".join(line.removeprefix("// ") for line in found[0].splitlines())
    first = "// " + re.split(r"(?<=[\w)^|\]])[.:;](?= [A-Z]|$)", words)[0] + ".\n"
    return first if len(first) <= WIDTH else found[0]


def _fitting(found: re.Match[str]) -> str:
    """Return two statements on one line, if they fit: constants of one type as one statement."""
    rest = found.string[found.end() :].partition("\n")[0]
    joined = f"{found[1]}, " if found.re is CONSTANTS else f"{found[1]} "
    return joined if len(joined + rest) <= WIDTH else found[0]


def _filled(found: re.Match[str]) -> str:
    margin, begin = found[1], found[2]
    if "\n" not in found[3]:
        return found[0]
    text, inner = begin + " ".join(found[3].split()), f"{margin}    "
    lines = wrap(text, WIDTH - 2, initial_indent=margin, subsequent_indent=inner, break_on_hyphens=False)
    return "\n".join(lines) + "}"


def _joined(found: re.Match[str]) -> str:
    lines = [line.strip() for line in found[2].splitlines()]
    inside = " ".join(filter(None, lines))
    plain = "//" not in found[0] and inside.count("{") == inside.count("}")
    few = inside.count(";") <= MOST_STATEMENTS or re.search(r"\bstruct \w+(<.*>)? \{$", found[1])
    joined = f"{found[1]} {inside} {found[3]}"
    return joined if plain and few and len(joined) <= WIDTH else found[0]


def _decided(text: str, decide: Decide) -> str:
    """Return the text with what is compiled of each condition that is known."""
    at = 0
    while found := CONDITION.search(text, at):
        value = decide(found["condition"])
        if value is None:
            at = found.end()
            continue
        end = _statement(text, found.end())
        then, rest = text[found.end() : end], text[end:]
        if other := re.match(r"\s*else ", rest):
            last = end + _statement(text[end:], other.end())
            otherwise, rest = text[end + other.end() : last], text[last:]
        else:
            otherwise = ""
        taken = then if value else otherwise
        if value and not other and taken.lstrip().startswith("return"):  # what follows is not reached
            rest = text[text.rindex("\n}") :] if "\n}" in text else rest
        inside = re.match(r"\{\n(.*)\n *\}$", taken, re.DOTALL)
        taken = re.sub(r"^  ", "", inside[1], flags=re.MULTILINE)[len(found[1]) :] if inside else taken
        begin = text[: found.start()]
        text = (
            begin + found[1] + (found["before"] or "") + taken + rest
            if taken
            else begin.rstrip(" ").removesuffix("else") + rest.lstrip("\n")
        )
        at = found.start()
    return text


def _statement(text: str, at: int) -> int:
    depth = 0
    for part in re.compile(r"[{}();]").finditer(text, at):
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(part[0], 0)
        if depth == 0 and part[0] in ";}":
            return part.end()
        if depth < 0:  # of a macro's argument
            return part.start()
    return len(text)
