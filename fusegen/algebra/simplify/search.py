"""The best stable form within reach: a search over rewrites that the error estimate guides.

Every row of `stable` is tried at every place of a program, and so is the program with all steps written
out, since a row may need to see through their names. A row that matches almost anything is tried only at
the sums that lose the digits, and at what these are part of. The best variant is taken while the estimate
falls, for at most `MOST` estimates. `core/candidates.py` does not choose it: a step has to halve the error,
which is an estimate, and the next step starts from it.
"""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from fusegen.algebra.nan_propagation import keeps_nan
from fusegen.algebra.simplify.identities import Row
from fusegen.algebra.simplify.rewrites import formed
from fusegen.algebra.simplify.stable import OPTIONAL, SOMETIMES_SPLIT, stable, uses
from fusegen.algebra.simplify.written import shared, written_out
from fusegen.core.term import Apply, Let, Program, Rewrite, Term, needed, size, substitute, walk

MOST = 24  # estimates of a step, and of a search without rows for blamed terms
MOST_BLAMED = 72  # estimates of a search with them
MOST_NODES = 8192  # operations and operands that a search estimates: a formula may be as long as it likes
SMALL = 4.0  # ulp
LOST = 64.0  # ulp; with larger errors digits are lost that another form may keep

# how many results have an error above LOST, how many over- or underflow on the way, the largest error
Score = tuple[int, int, float, int]  # lost digits, lost beyond the range, largest error, NaN
Found = tuple[Program, tuple[Rewrite, ...]]


def everything(program: Program) -> Collection[Term]:
    """Return every term of a program."""
    return program.terms


def improved(
    program: Program,  # in the forms that `stable` takes always
    score: Callable[[Program], Score],  # estimates a program
    # the largest error that the contract allows, in ulp; asked for if digits are lost only
    enough: Callable[[], float] = lambda: math.inf,
    # tried at the blamed terms of a program, and at the terms that these are part of
    rows: tuple[Row, ...] = (),
    # the terms of a program in which digits are lost
    blamed: Callable[[Program], Collection[Term]] = everything,
) -> Found:
    """The program of the least estimated error that the search reaches, and the rewrites that led there."""
    best = program
    taken: tuple[Rewrite, ...] = ()
    nodes = sum(map(size, program.terms))
    least, left = score(program), min(MOST_BLAMED if rows else MOST, max(MOST_NODES // nodes, 1))
    first = least
    while any(least[:2]) and left > 0:
        tried = [
            (score(found), found, way)
            for found, way in _some(_variants(best, rows, blamed), min(left, MOST))
        ]
        left -= len(tried)
        least_tried = min(tried, key=lambda each: _rank(each[0]), default=None)
        if least_tried is None or not _better(least_tried[0], least, enough()):
            break
        least, best, way = least_tried
        taken = (*taken, *way)
    if not {row.name for row in rows}.isdisjoint(way.rule for way in taken) and not _gains(least, first):
        return improved(program, score, enough)
    return best, taken


def _rank(score: Score) -> tuple[int, int, float]:
    """Return a score in which small errors are equal, so that the simplest form is taken."""
    return (*score[:2], max(score[2], SMALL))


def _gains(score: Score, than: Score) -> bool:
    """True if a quarter of the results that lose digits keep them; else, half of those beyond the range."""
    if than[0]:
        return 4 * score[0] <= 3 * than[0]
    return not score[0] and 2 * score[1] <= than[1]


def _better(score: Score, than: Score, enough: float) -> bool:
    """Return True if fewer results lose digits, or the largest error halves or is small enough now.

    Less is the estimate's own error.
    """
    if (
        score[3] - than[3] > than[0] - score[0]
    ):  # over a common denominator t, x / t + b is NaN where t overflows
        return False
    return score[:2] < than[:2] or (
        score[:2] == than[:2] and (score[2] < than[2] / 2 or score[2] <= enough < than[2])
    )


def _some(variants: Iterator[Found], most: int) -> Iterator[Found]:
    """Yield the different variants, at most as many as there are estimates left."""
    seen: set[Program] = set()
    for found in variants:
        if found[0] not in seen:
            seen.add(found[0])
            yield found
        if len(seen) == most:
            return


def _variants(
    program: Program, rows: tuple[Row, ...], blamed: Callable[[Program], Collection[Term]]
) -> Iterator[Found]:
    """Yield the program after one row more at one place, in all forms that follow; then without steps."""
    yield _formed(program)
    whole = written_out(program)
    different = whole is not None and whole != program
    if whole is not None and different:
        yield _shared(_formed(whole))
    if whole is not None and rows:
        suspects = _Suspects(program, rows, blamed(whole))
        yield from map(_shared, _one_row_more(whole, suspects.rewritten))
        if different:
            yield from map(_shared, _one_row_more(program, suspects.rewritten))
    yield from _one_row_more(program, _anywhere)
    if whole is not None and different:
        yield from map(_shared, _one_row_more(whole, _anywhere))


class _Suspects:
    """The places of a program that hold a term in which digits are lost, and the rows tried there."""

    def __init__(self, program: Program, rows: tuple[Row, ...], blamed: Collection[Term]) -> None:
        self.rows, self.blamed = rows, frozenset(blamed)
        self.steps: dict[str, Term] = {}
        for let in program.lets:
            self.steps[let.name] = substitute(let.term, self.steps)

    def rewritten(self, term: Term) -> Iterator[Rewrite]:
        """Yield every form of a term as a whole, if it is such a place."""
        if isinstance(term, Apply) and not self.blamed.isdisjoint(walk(substitute(term, self.steps))):
            for row in self.rows:
                for after in row.forms(term):
                    if after != term and keeps_nan(term, after):
                        yield Rewrite(row.name, term, after)


def _anywhere(term: Term) -> Iterator[Rewrite]:
    """Yield every use on a term as a whole of the rows that match little."""
    for place in uses(term, OPTIONAL, SOMETIMES_SPLIT):
        yield Rewrite(place.name, term, place.after)


def _one_row_more(program: Program, forms: Callable[[Term], Iterator[Rewrite]]) -> Iterator[Found]:
    terms = program.terms
    for k, term in enumerate(terms):
        for rewrite in _at_places(term, forms):
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


def _at_places(term: Term, forms: Callable[[Term], Iterator[Rewrite]]) -> Iterator[Rewrite]:
    """Yield one use of a row at one place of a term; `after` is the whole term."""
    yield from forms(term)
    if not isinstance(term, Apply):
        return
    for k, part in enumerate(term.args):
        for inner in _at_places(part, forms):
            args = (*term.args[:k], inner.after, *term.args[k + 1 :])
            yield Rewrite(inner.rule, term, Apply(term.op, args, term.span))
