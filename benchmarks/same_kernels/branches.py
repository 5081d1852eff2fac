"""Branches of C++ that no kernel takes, since the condition is a constant that every kernel has as false.

``if constexpr`` of such a condition makes no code of the statement behind it, nor does it instantiate a
template that is named there.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.same_kernels.tokens import closed

OF_KERNEL = ("F", "::")  # in front of a constant of the kernel that a template is for
CONSTANT = ["static", "constexpr"]
ENDS = (";", "{", "}", "\n")  # of what stands in front of a statement of a block
HEADS = ("if", "for", "while", "switch")


def without_untaken(found: Sequence[str]) -> list[str]:
    """Return the tokens without statements whose condition is false; those behind `else` are kept."""
    off, kept, place = _always_false(found), list[str](), 0
    while place < len(found):
        condition = place + 2
        if list(found[place:condition]) != ["if", "constexpr"] or not _is_off(found, condition, off):
            kept.append(found[place])
            place += 1
            continue
        place = _behind(found, closed(found, condition))
        if found[place : place + 1] == ["else"]:
            place += 1
        elif kept[-1:] and kept[-1] not in ENDS:
            kept.append(";")  # of what a condition or a loop in front has for a statement
    return kept


def _always_false(found: Sequence[str]) -> set[str]:
    """Return the names that are false wherever a constant of a struct is defined."""
    values: dict[str, list[str]] = {}
    for place in range(len(found) - 6):
        if list(found[place : place + 2]) == CONSTANT and found[place + 4] == "=":
            values.setdefault(found[place + 3], []).append(" ".join(found[place + 5 : place + 7]))
    return {name for name, given in values.items() if {*given} == {"false ;"}}


def _is_off(found: Sequence[str], place: int, off: set[str]) -> bool:
    """Return True if a term of the condition in brackets at a place is false, of terms joined by `&&`."""
    inside = list(found[place + 1 : closed(found, place) - 1])
    if "||" in inside or "?" in inside:
        return False
    terms: list[list[str]] = [[]]
    for token in inside:
        if token == "&&":
            terms.append([])
        else:
            terms[-1].append(token)
    return any(len(term) == 3 and tuple(term[:2]) == OF_KERNEL and term[2] in off for term in terms)


def _behind(found: Sequence[str], place: int) -> int:
    """Return the place behind the statement that begins at a place."""
    if found[place] == "{":
        return closed(found, place)
    if found[place] in HEADS:
        place += 1 + (found[place + 1] == "constexpr")
        end = _behind(found, closed(found, place))
        return _behind(found, end + 1) if found[end : end + 1] == ["else"] else end
    while found[place] != ";":
        place = max(closed(found, place), place + 1)
    return place + 1
