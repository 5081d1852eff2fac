"""Items as text: each behind what it names, short ones on one line, those of a device apart."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from fusegen.codegen.standalone.items import Item
from fusegen.codegen.standalone.needed import Uses

WIDTH = 120  # of a line
HEAD = re.compile(r"(template <(?:[^<>\n]|<[^<>\n]*>)*>)\n *")
BODY = re.compile(r"^([^\n]*[)\w] ?)\{\n +([^\n{}]+;)\n *\}(;?)$", re.MULTILINE)
LOOP = re.compile(r"( +)#pragma unroll\n +")
DECLARED = re.compile(r"(?://[^\n]*\n)*(?:template <.*>\s)?struct \w+;$")
BOTH, CUDA, CPU = "both", "cuda", "cpu"
BEGIN = {BOTH: "", CUDA: "#ifdef ON_CUDA\n", CPU: "#ifndef ON_CUDA\n"}
END = "#endif\n"


def laid(cuda: Uses, cpu: Uses) -> dict[str, str]:
    """Return the text of the items of two devices: of both, and behind these, of each."""
    runs = [(kind, [*several]) for kind, several in groupby(_ordered(cuda, cpu), lambda pair: pair[0])]
    last = max((i for i, (kind, _) in enumerate(runs) if kind == BOTH), default=-1)
    texts = {BOTH: "", CUDA: "", CPU: ""}
    for i, (kind, several) in enumerate(runs):
        text = _printed(item for _, item in several)
        if i > last:
            texts[kind] += text
        elif kind == CPU and i and runs[i - 1][0] == CUDA:
            texts[BOTH] = texts[BOTH].removesuffix(END) + f"#else\n{text}{END}"
        else:
            texts[BOTH] += BEGIN[kind] + text + END * bool(BEGIN[kind])
    return texts


def _ordered(cuda: Uses, cpu: Uses) -> list[tuple[str, Item]]:
    """Return items behind those that they name, with the devices that they are for; few changes of these."""
    union: Uses = {
        item: [*_behind(cuda.get(item, [])), *_behind(cpu.get(item, []))] for item in (*cuda, *cpu)
    }
    kinds = {item: BOTH if item in cuda and item in cpu else CUDA if item in cuda else CPU for item in union}
    order = {item: place for place, item in enumerate(_depth_first(union))}
    left, made, kind = [*order], [], BOTH
    while left:
        ready = [item for item in left if not any(order.get(o, -1) < order[item] and o in left for o in union[item])]
        chosen = min(ready, key=lambda item: (kinds[item] != BOTH, kinds[item] != kind))
        kind = kinds[chosen]
        made.append((kind, chosen))
        left.remove(chosen)
    return made


def _behind(named: list[Item]) -> list[Item]:
    """Return what has to come before what names some items: of a type that is declared, the declaration."""
    declared = {name for item in named for name in item.names if DECLARED.match(item.text)}
    return [item for item in named if DECLARED.match(item.text) or declared.isdisjoint(item.names)]


def _depth_first(uses: Uses) -> list[Item]:
    """Return items behind those that they name, but for cycles."""
    made: dict[Item, None] = {}
    begun: set[Item] = set()

    def follow(item: Item) -> None:
        if item not in begun:
            begun.add(item)
            for other in uses[item]:
                follow(other)
            made[item] = None

    for item in uses:
        follow(item)
    return [*made]


def _printed(items: Iterable[Item]) -> str:
    """Return the text of items, those of an inner namespace inside it."""
    parts = []
    for scope, several in groupby(items, lambda item: item.scope):
        text = "".join(f"{short(item.text)}\n" for item in several)
        parts.append(f"namespace {scope} {{\n{text}}}  // namespace {scope}\n" if scope else text)
    return "".join(parts)


def short(text: str) -> str:
    """Return an item whose head, and body of one statement, are on the line of its name where they fit."""
    text = LOOP.sub(r"\1UNROLL ", text)
    text = re.sub(r"\{\n\};", "{};", text)
    for pattern, form in ((HEAD, r"\1 "), (BODY, r"\1{ \2 }\3")):
        text = pattern.sub(lambda found, form=form: _fitting(found, form), text)  # type: ignore[misc]
    return text


def _fitting(found: re.Match[str], form: str) -> str:
    joined = found.expand(form)
    rest = found.string[found.end() :].partition("\n")[0]
    return joined if len(joined + rest) <= WIDTH else found[0]
