"""Refusals of formulas that no kernel of rows or of channels computes."""

from collections.abc import Collection

from fusegen.algebra.rows.flat import flat, level, levels
from fusegen.core.folds import FINDS, FIRST, Level, is_fold, makes_a_loop
from fusegen.core.row_dimensions import Over
from fusegen.core.scans import is_scan
from fusegen.core.spec import Spec
from fusegen.core.term import Name, Program, walk
from fusegen.errors import (
    NothingReduced,
    NotTheResult,
    NotWithResults,
    NotWithRows,
    OneDimension,
    OneScan,
    ResultIsANumber,
)

IN_TWO = "compute them in two specs"


def check_reductions(
    spec: Spec,  # of the program
    program: Program,  # what it declares
    of_rows: Collection[str] = (),  # the inputs of which a row has one value
) -> None:
    """Refuse what no kernel of rows or channels reduces, scans or finds; see the two below."""
    check_folds(program, of_rows)
    found = flat(program, dict.fromkeys(of_rows, Level.ROW))
    check_extremes(spec, found)
    check_scans(spec, found)


def check_folds(program: Program, of_rows: Collection[str]) -> None:
    """Refuse a program that reduces what is the same for all elements of a row.

    Raises:
        NothingReduced: it does.
    """
    others = dict.fromkeys(of_rows, Level.ROW)
    found = flat(program, others)
    of = levels(found, others)
    for part in (part for term in found.terms for part in walk(term)):
        if makes_a_loop(part) and level(part.args[0], of) < Level.ELEMENT:
            raise NothingReduced(part.span, what=f"what {part.spec} reduces", of="row")


def check_extremes(spec: Spec, found: Program) -> None:
    """Refuse `max` and `min`, in a flat program, of other rows than a dimension, or beside an index.

    Raises:
        OneDimension, NotWithRows: there is such.
    """
    for each in (let.term for let in found.lets if is_fold(let.term) and let.term.spec in FIRST):
        of = spec.over
        if of is None or of.groups or of.of_channel or of.is_part or len(of.of(9)) > 1:
            raise OneDimension(each.span, name=each.spec)
        if spec.indices:
            raise NotWithRows(each.span, what=f"an index beside {each.spec}", remedy=IN_TWO)


def check_scans(spec: Spec, found: Program) -> None:
    """Refuse what no kernel of scans computes, of a flat program.

    Raises:
        NotWithRows, NotWithResults: there is an index beside one, or several results beside a place.
        OneScan: there is another reduction or scan beside one, or beside what finds an element.
        NotTheResult, NotWithRows: a formula, or a reduction, goes on behind the place of an element.
        OneDimension: rows have several dimensions.
    """
    loops = [let.term for let in found.lets if makes_a_loop(let.term)]
    first = next((loop for loop in loops if is_scan(loop) or loop.spec in FINDS), None)
    if first is None:
        return
    assert spec.over is not None
    name, others = first.spec, [loop for loop in loops if loop is not first]
    if spec.indices:
        raise NotWithRows(first.span, what=f"an index beside {name}", remedy=IN_TWO)
    if name in FINDS and spec.results:
        raise NotWithResults(first.span, what=name, remedy="give the place a spec of its own")
    if others:
        raise OneScan(others[0].span, name=name, other=others[0].spec)
    if name in FINDS and (found.lets[-1].term is not first or not isinstance(found.results[0], Name)):
        raise NotTheResult(first.span, name=name)
    if name in FINDS and spec.reduction != "none":
        raise NotWithRows(spec.span, what=f"a reduction of {name}", remedy="leave the reduction out")
    if spec.over.groups or (spec.over != Over(-1) and spec.over.count != 1):
        raise OneDimension(first.span, name=name)


def result_levels(program: Program) -> list[Level]:
    """Return what each result of a program belongs to."""
    of = levels(program)
    return [level(result, of) for result in program.results]


def check_results(spec: Spec, program: Program) -> list[Level]:
    """Return what each result belongs to: elements or rows, if there are several.

    Raises:
        ResultIsANumber: one of several reads no tensor.
    """
    found = result_levels(program)
    for name, own in zip(spec.results, found, strict=False):
        if own is Level.CALL:
            span = next(line.span for line in spec.where if line.name == name)
            raise ResultIsANumber(span, name=name)
    return found
