"""The declarations of headers that a text can reach by names, directly or by other such declarations."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache

from fusegen.core.header_files import without_comments
from fusegen.evidence.certify.declarations import Piece, piece, pieces

# macros that the Python of the runtime writes
BINDING = frozenset({r"FUSEGEN_REGISTER\w*", "FUSEGEN_FIND", "FUSEGEN_MULTIPLIED"})
# names that it writes, and those that C++ looks up without a word of the text
UNWRITTEN = frozenset("names Dtypes AllDtypes begin end get swap tuple_size tuple_element".split())
ROOT = Piece("", frozenset(), frozenset(), UNWRITTEN, BINDING, frozenset())


def reachable(text: str, headers: Mapping[str, str], others: Iterable[str]) -> dict[str, str]:
    """Return headers without comments, and with empty lines for what no name reaches.

    Args:
        text: C++ that includes the headers.
        headers: their texts, by name.
        others: C++ that is compiled with these, whose names count, too.
    """
    split = {name: pieces(header) for name, header in headers.items()}
    every = [each for found in split.values() for each in found]
    roots = [ROOT, *map(_root, (text, *others))]
    macros = frozenset[str]().union(*(each.macros for each in (*roots, *every)))
    named: dict[str, list[Piece]] = defaultdict(list)
    waiting = roots
    for each in every:
        if each.names and each.head.isdisjoint(macros):
            for name in each.names:
                named[name].append(each)
        else:
            waiting.append(each)
    counted: set[Piece] = set()
    while waiting:
        each = waiting.pop()
        if each not in counted:
            counted.add(each)
            met = (name for part in each.pasted for name in named if re.fullmatch(part, name))
            for name in {*each.words & named.keys(), *met}:
                waiting += named.pop(name)
    left_out = {each: "\n" * each.text.count("\n") for each in every if each not in counted}
    return {name: "".join(left_out.get(each, each.text) for each in found) for name, found in split.items()}


@cache
def _root(text: str) -> Piece:
    return piece(without_comments(text))
