"""Items as text: each behind what it names, short ones on one line, those of a device apart."""

import re
from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby

from fusegen.codegen.standalone.compact import compact
from fusegen.codegen.standalone.items import Item
from fusegen.codegen.standalone.needed import Uses

Decide = Callable[[Item, str], bool | None]
DECLARED = re.compile(r"(?://[^\n]*\n)*(?:template <.*>\s)?struct \w+;$")
BOTH, CUDA, CPU = "both", "cuda", "cpu"
BEGIN = {BOTH: "", CUDA: "#ifdef ON_CUDA\n", CPU: "#ifndef ON_CUDA\n"}
END = "#endif\n"


def laid(cuda: Uses, cpu: Uses, decide: Decide) -> dict[str, str]:
    """Return the text of the items of both devices, then of each; `decide` knows conditions in items."""
    runs = [(kind, [*several]) for kind, several in groupby(_ordered(cuda, cpu), lambda pair: pair[0])]
    last = max((i for i, (kind, _) in enumerate(runs) if kind == BOTH), default=-1)
    texts = {BOTH: "", CUDA: "", CPU: ""}
    for i, (kind, several) in enumerate(runs):
        text = _printed((item for _, item in several), decide)
        if i > last:
            texts[kind] += text
        elif kind == CPU and i and runs[i - 1][0] == CUDA:
            texts[BOTH] = texts[BOTH].removesuffix(END) + f"#else\n{text}{END}"
        else:
            texts[BOTH] += BEGIN[kind] + text + END * bool(BEGIN[kind])
    return texts


def _ordered(cuda: Uses, cpu: Uses) -> list[tuple[str, Item]]:
    """Return items behind those that they name, with their devices, which change rarely."""
    union: Uses = {
        item: [*_behind(cuda.get(item, [])), *_behind(cpu.get(item, []))] for item in (*cuda, *cpu)
    }
    kinds = {
        item: BOTH if item in cuda and item in cpu else CUDA if item in cuda else CPU for item in union
    }
    order = {item: place for place, item in enumerate(_depth_first(union))}
    left, made, kind = [*order], [], BOTH
    while left:
        ready = [
            item
            for item in left
            if not any(order.get(o, -1) < order[item] and o in left for o in union[item])
        ]
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


def _printed(items: Iterable[Item], decide: Decide) -> str:
    parts = []
    for scope, several in groupby(items, lambda item: item.scope):
        text = "".join(f"{compact(item.text, partial(decide, item))}\n" for item in several)
        parts.append(f"namespace {scope} {{\n{text}}}  // namespace {scope}\n" if scope else text)
    return "".join(parts)
