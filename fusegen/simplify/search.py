"""The best stable form within reach: a search over rewrites that the error estimate guides.

Every row of `stable` is tried at every place of a program, and so is the program with all steps written
out, since a row may need to see through their names. The best variant is taken while the estimate falls,
for at most `MOST` estimates.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from fusegen.simplify.forms import formed
from fusegen.simplify.stable import OPTIONAL, SOMETIMES_SPLIT, stable, uses
from fusegen.term import (
    Apply,
    Let,
    Name,
    Program,
    Rewrite,
    Term,
    children,
    needed,
    rebuild,
    substitute,
    unused,
    walk,
)

MOST = 24  # estimates
LARGEST = 400  # nodes of a program that is written out
LOST = 64.0  # ulp; with larger errors digits are lost that another form may keep

Score = tuple[int, float]  # how many results have an error above LOST, and the largest error
Found = tuple[Program, tuple[Rewrite, ...]]


def improved(
    program: Program, score: Callable[[Program], Score], enough: Callable[[], float] = lambda: math.inf
) -> Found:
    """The program of the least estimated error that the search reaches, and the rewrites that led there.

    Args:
        program: in the forms that `stable` takes always.
        score: estimates a program.
        enough: the largest error that the contract allows, in ulp; asked for if digits are lost only.
    """
    best = program
    taken: tuple[Rewrite, ...] = ()
    least, left = score(program), MOST
    while least[0] and left > 0:
        tried = [(score(found), found, way) for found, way in _some(_variants(best), left)]
        left -= len(tried)
        least_tried = min(tried, key=lambda each: each[0], default=None)
        if least_tried is None or not _better(least_tried[0], least, enough()):
            break
        least, best, way = least_tried
        taken = (*taken, *way)
    return best, taken


def _better(score: Score, than: Score, enough: float) -> bool:
    """True if fewer results lose digits, or the largest error halves or is small enough now.

    Less is the estimate's own error.
    """
    return score[0] < than[0] or (
        score[0] == than[0] and (score[1] < than[1] / 2 or score[1] <= enough < than[1])
    )


def _some(variants: Iterator[Found], most: int) -> Iterator[Found]:
    """The different variants, at most as many as there are estimates left."""
    seen: set[Program] = set()
    for found in variants:
        if found[0] not in seen and len(seen) < most:
            seen.add(found[0])
            yield found


def _variants(program: Program) -> Iterator[Found]:
    """The program after one row more at one place, in all forms that follow; then without steps."""
    yield _formed(program)
    whole = written_out(program)
    different = whole is not None and whole != program
    if whole is not None and different:
        yield _shared(_formed(whole))
    yield from _one_row_more(program)
    if whole is not None and different:
        yield from map(_shared, _one_row_more(whole))


def _one_row_more(program: Program) -> Iterator[Found]:
    terms = program.terms
    for k, term in enumerate(terms):
        for rewrite in _at_places(term):
            changed = [*terms[:k], rewrite.after, *terms[k + 1 :]]
            found, way = _formed(_with(program, changed))
            yield found, (rewrite, *way)


def _shared(found: Found) -> Found:
    program, way = found
    return shared(program), way


def _formed(program: Program) -> Found:
    found, first = stable(program)
    found, second = formed(found)
    return found, (*first, *second)


def _with(program: Program, terms: list[Term]) -> Program:
    count = len(program.lets)
    lets = tuple(Let(let.name, term) for let, term in zip(program.lets, terms[:count], strict=True))
    results = tuple(terms[count:])
    return replace(program, lets=needed(lets, results), results=results)


def _at_places(term: Term) -> Iterator[Rewrite]:
    """One use of a row at one place of a term; `after` is the whole term."""
    for place in uses(term, OPTIONAL, SOMETIMES_SPLIT):
        yield Rewrite(place.name, term, place.after)
    if not isinstance(term, Apply):
        return
    for k, part in enumerate(term.args):
        for inner in _at_places(part):
            args = (*term.args[:k], inner.after, *term.args[k + 1 :])
            yield Rewrite(inner.rule, term, Apply(term.op, args, term.span))


def written_out(program: Program) -> Program | None:
    """The program without steps; None where it would be too large."""
    values: dict[str, Term] = {}
    for let in program.lets:
        values[let.name] = substitute(let.term, values)
        if _size(values[let.name]) > LARGEST:
            return None
    results = tuple(substitute(result, values) for result in program.results)
    return None if sum(map(_size, results)) > LARGEST else replace(program, lets=(), results=results)


def _size(term: Term) -> int:
    return sum(1 for _ in walk(term))


def shared(program: Program) -> Program:
    """The program with a step for every part that occurs more than once."""
    taken = {*program.inputs, *program.params, *(let.name for let in program.lets)}
    lets = list(program.lets)
    results = program.results
    while repeated := _repeated((*(let.term for let in lets), *results)):
        name = unused("t", taken)
        taken.add(name)

        def named(term: Term, part: Term = repeated, name: str = name) -> Term:
            return Name(name) if term == part else rebuild(term, named)

        place = next((k for k, let in enumerate(lets) if repeated in walk(let.term)), len(lets))
        lets = [Let(let.name, named(let.term)) for let in lets]
        lets.insert(place, Let(name, repeated))
        results = tuple(map(named, results))
    return replace(program, lets=tuple(lets), results=results)


def _repeated(terms: tuple[Term, ...]) -> Term | None:
    """The largest part that occurs more than once and is worth a step; see `_is_step`."""
    count = Counter(part for term in terms for part in walk(term) if _is_step(part))
    several = [part for part, times in count.items() if times > 1]
    return max(several, key=_size, default=None)


def _is_step(term: Term) -> bool:
    if not isinstance(term, Apply) or term.op in ("neg", "lt", "le", "gt", "ge", "eq", "ne"):
        return False
    return any(isinstance(part, Name) for part in walk(term)) and bool(children(term))
