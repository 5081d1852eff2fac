"""Renamed identifiers: C++ that is the same token for token, but for names, has the same kernels.

A rename is ``OLD=NEW``, at each place in the text, or ``FUNCTION.OLD=NEW``, of a parameter or a local
variable. Names must stay apart. So a NEW is refused if the old text has it and does not give it up.
Names that the headers of the system have are refused, and names that the preprocessor pastes or makes
strings of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.same_kernels.branches import without_untaken
from benchmarks.same_kernels.tokens import (
    CLOSING,
    OPENING,
    closed,
    macros,
    pasted,
    system_names,
    tokens,
    without_residents,
    without_uncalled,
)

SYSTEM = re.compile(r"^[ \t]*#[ \t]*include[ \t]*(<[^>\n]+>)", re.MULTILINE)
MEMBER = (".", "->", "::")  # in front of a name that no declaration hides


class Unproved(ValueError):
    """A rename after which kernels may differ; its text says why."""


@dataclass(frozen=True)
class Renames:
    """Names and what stands for them."""

    everywhere: Mapping[str, str]  # by the name in the old text
    # the same for parameters and local variables, by the function and the name
    inside: Mapping[tuple[str, str], str]

    @classmethod
    def of(cls, given: Sequence[str]) -> Renames:
        """Return the renames that options give.

        Raises:
            ValueError: one is written otherwise, or a name is given twice.
        """
        found: list[tuple[tuple[str, str], str]] = []
        for text in given:
            match = re.fullmatch(r"(?:([A-Za-z_]\w*)\.)?([A-Za-z_]\w*)=([A-Za-z_]\w*)", text)
            if match is None:
                raise ValueError(f"{text!r} is not OLD=NEW or FUNCTION.OLD=NEW")
            found.append(((match[1] or "", match[2]), match[3]))
        if len(dict(found)) < len(found):
            raise ValueError("a name is replaced twice")
        everywhere = {name: new for (function, name), new in found if not function}
        return cls(everywhere, {place: new for place, new in found if place[0]})

    def applied(self, text: str) -> list[str]:
        """Return the tokens of a text without comments, renamed.

        Raises:
            Unproved: a name of the text may be captured.
        """
        found = tokens(text)
        everywhere = {old: new for old, new in self.everywhere.items() if old in found}
        new = [*everywhere.values(), *{*self.inside.values()}]
        taken = {*everywhere.values()} & {*found} - {*everywhere} | {
            name for name in new if new.count(name) > 1
        }
        if taken := taken | {*self.inside.values()} & {*everywhere, *dict(macros(found))}:
            raise Unproved(f"the old text has {', '.join(sorted(taken))}")
        _check_macros(found, {*everywhere, *everywhere.values()})
        for (function, name), local in self.inside.items():
            found = _renamed_local(found, function, name, local)
        return [everywhere.get(token, token) for token in found]


NONE = Renames({}, {})


def same_but_for(renames: Renames, old: str, new: str, device: str) -> bool:
    """Return True if two texts are the same but for names, comments, and what no code is made of.

    Args:
        renames: names of the old text.
        old: C++ in one piece.
        new: the same.
        device: ``cpu`` or ``cuda``, whose compiler knows names of its own.

    Raises:
        Unproved: a name may be captured.
    """
    now = tokens(new)
    both = (without_residents(each) for each in (renames.applied(old), now))
    before, after = (without_uncalled(without_untaken(each)) for each in both)
    if before != after:
        return False
    if renames == NONE:
        return True
    system = system_names(tuple(sorted({*SYSTEM.findall(new)})), device)
    names = {*renames.everywhere, *renames.everywhere.values()} & {*tokens(old), *now}
    foreign = sorted(names & system.all | {*renames.inside.values()} & system.macros)
    if foreign:
        raise Unproved(f"a header of the system has {', '.join(foreign)}")
    return True


def _check_macros(found: Sequence[str], names: set[str]) -> None:
    """Refuse names that the preprocessor makes texts or parts of names of.

    Raises:
        Unproved: it may do so of one.
    """
    making = _macros_with(found, {"#", "##"})
    calls = (
        place for place, token in enumerate(found) if token in making and found[place - 1] != "#define "
    )
    given = {token for place in calls for token in found[place + 1 : closed(found, place + 1)]}
    if refused := sorted(pasted(found, names) | names & (given | making)):
        raise Unproved(f"the preprocessor may write {', '.join(refused)} into another text")


def _macros_with(found: Sequence[str], any_of: set[str]) -> set[str]:
    """Return the macros whose texts have one of some tokens, themselves or by other macros."""
    bodies, having = dict(macros(found)), {*any_of}
    while added := {name for name, body in bodies.items() if having & {*body}} - having:
        having |= added
    return having & {*bodies}


def _renamed_local(found: list[str], function: str, name: str, new: str) -> list[str]:
    """The tokens with a parameter or a local variable renamed where definitions of a function have it.

    Raises:
        Unproved: in one, either name may be another's.
    """
    result, macro = list(found), _macros_with(found, {name, new, "#", "##"})
    for place, token in enumerate(found):
        body = closed(found, place + 1) if token == function else place
        if found[body : body + 1] != ["{"] or found[place + 1] != "(":
            continue
        end = closed(found, body)
        uses = [k for k in range(place + 2, end) if found[k] == name]
        if not uses:
            continue
        first = uses[0]
        parameter = first < body and found[first + 1] in (",", ")")
        hides = parameter or (first > body and _declares(found, first) and _block(found, first) >= uses[-1])
        others = (macro | {new}) & {*found[place:end]}
        if others or not hides or any(found[k - 1] in MEMBER for k in uses):
            raise Unproved(f"{name} or {new} in {function} may be another's")
        for k in uses:
            result[k] = new
    return result


def _declares(found: Sequence[str], place: int) -> bool:
    """Return True if a statement like ``const T a = 1, b = 2;`` declares the name at a place."""
    start, depth = place, 0
    while found[start - 1] not in (";", "{", "}", "\n") or depth > 0:
        start -= 1
        depth += (found[start] in CLOSING) - (found[start] in OPENING)
        if depth < 0:
            return False
    return found[start] in ("const", "constexpr") and found[place + 1] == "=" != found[place - 1]


def _block(found: Sequence[str], place: int) -> int:
    """Return the place where the innermost block around a place ends."""
    depth = 1
    while depth > 0 and place < len(found) - 1:
        place += 1
        depth += (found[place] in OPENING) - (found[place] in CLOSING)
    return place
