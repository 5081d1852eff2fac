"""Branches of C++ that no kernel takes, since the condition is a constant that is false of every type.

``if constexpr`` of such a condition makes no code of the statement behind it, nor does it instantiate a
template that is named there. A constant is one of each kernel, or a template of a type.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.same_kernels.tokens import CLOSING, OPENING, closed, pasted

OF_KERNEL = ("F", "::")  # in front of a constant of the kernel that a template is for
CONSTANT, FALSE = ["static", "constexpr", "bool"], ["=", "false", ";"]
OTHERWISE = {"||", "?", "and", "or", "not", ",", ";"}
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
    """Return the names that are false wherever a struct may define them."""
    places: dict[str, list[int]] = {}
    for place, token in enumerate(found):
        places.setdefault(token, []).append(place)
    defined = {found[k + 3] for k in range(len(found) - 6) if _defines(found, k + 3)}
    of_types = {found[k + 2] for k in range(2, len(found) - 5) if _is_template(found, k + 2)}
    of_types -= pasted(found, of_types)
    read = _conditions(found)
    return {name for name in defined if all(_is_known(found, k) for k in places[name])} | {
        name for name in of_types if all(k in read or _is_template(found, k) for k in places[name])
    }


def _conditions(found: Sequence[str]) -> set[int]:
    """Return the places in conditions of `if constexpr`, where a constant is read."""
    begins = (k + 2 for k in range(len(found) - 2) if list(found[k : k + 2]) == ["if", "constexpr"])
    return {place for begin in begins for place in range(begin, closed(found, begin))}


def _is_template(found: Sequence[str], place: int) -> bool:
    """Return True if the name at a place is that of a constant of any type, which is false."""
    before = list(found[max(place - 7, 0) : place])
    is_of_type = before[:3] == ["template", "<", "class"] and before[4:] == [">", *CONSTANT[1:]]
    return is_of_type and list(found[place + 1 : place + 4]) == FALSE


def _defines(found: Sequence[str], place: int) -> bool:
    """Return True if the name at a place is that of a constant of a struct, which is false."""
    return list(found[place - 3 : place]) == CONSTANT and list(found[place + 1 : place + 4]) == FALSE


def _is_known(found: Sequence[str], place: int) -> bool:
    """Return True if the name at a place is defined there as false, or if nothing can be defined there.

    A constant of a function is no member: it has no `static` in front.
    """
    before = list(found[max(place - 3, 0) : place])
    is_local = before[-2:-1] == ["constexpr"] and before[:1] in (["{"], [";"], ["}"])
    is_operand = before[-1:] in (["~"], ["!"]) or before[-2:] in (["if", "("], ["constexpr", "("])
    return _defines(found, place) or tuple(before[-2:]) == OF_KERNEL or is_local or is_operand


def _is_off(found: Sequence[str], place: int, off: set[str]) -> bool:
    """Return True if a term of the condition in brackets at a place is false, of terms joined by `&&`."""
    inside = list(found[place + 1 : closed(found, place) - 1])
    if OTHERWISE.intersection(inside):
        return False
    terms: list[list[str]] = [[]]
    depth = 0
    for token in inside:
        depth += (token in OPENING) - (token in CLOSING)
        if token == "&&" and depth == 0:
            terms.append([])
        else:
            terms[-1].append(token)
    return any(_is_named(term, off) for term in terms)


def _is_named(term: Sequence[str], off: set[str]) -> bool:
    """Return True if a term is one of these constants, of the kernel or of a type."""
    if len(term) == 4 and term[1] == "<" and term[3] == ">":
        return term[0] in off
    return len(term) == 3 and tuple(term[:2]) == OF_KERNEL and term[2] in off


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
