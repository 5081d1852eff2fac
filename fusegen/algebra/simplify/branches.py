"""Sums apart for either sign of a part: where x > 0, relu(x) is x, and terms of the sum may cancel."""

from collections.abc import Iterator, Mapping

from fusegen.algebra.nan_propagation import becomes_nan
from fusegen.algebra.simplify.differences import over_common_factor
from fusegen.algebra.simplify.monomials import ZERO, negated
from fusegen.core.term import Apply, Term, call, names, rebuild, walk

OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


def by_sign(term: Term) -> Iterator[Term]:
    """Yield a sum as a selection of two by a condition in it, where that lets terms of one cancel.

    Where a comparison is false its operand may be NaN, so that only what gives NaN then is taken.
    """
    if not (isinstance(term, Apply) and term.op in ("add", "sub")):
        return
    parts, conditions = set(walk(term)), tuple(_conditions(term))
    for condition in conditions:
        holds, fails = _values(condition, holds=True), _values(condition, holds=False)
        opposite = call(OPPOSITE[condition.op], *condition.args)
        otherwise = {condition: False}
        if parts.isdisjoint(holds):
            if opposite not in conditions or not _is_nan_with(term, condition):
                continue
            otherwise[opposite] = True
        sides = (_known(term, {condition: True, opposite: False}, holds), _known(term, otherwise, fails))
        shorter = [over_common_factor(side) for side in sides]
        if any(shorter):
            yield call("where", condition, *(new or old for new, old in zip(shorter, sides, strict=True)))


def within_choices(term: Term) -> Term | None:
    """Return a selection at a single number without those of its branches by the same condition.

    `where(x == 0, 1, sin(x) / where(x == 0, 1, x))` is how authors keep a gradient from 0 / 0; the divisor
    hides that the sine is divided by its argument. Other conditions share a function of a selection.
    """
    match term:
        case Apply("where", (Apply("eq" | "ne") as condition, a, b)):
            holds, fails = ({condition: truth} for truth in (True, False))
            found = call("where", condition, _known(a, holds, {}), _known(b, fails, {}))
            return None if found == term else found
    return None


def _conditions(term: Term) -> Iterator[Apply]:
    """Yield the comparisons with 0 of the selections in a term, each once."""
    seen = set()
    for part in walk(term):
        match part:
            case Apply("where", (Apply(op, (_, b)) as condition, _, _)) if op in OPPOSITE and b == ZERO:
                if condition not in seen:
                    seen.add(condition)
                    yield condition


def _is_nan_with(term: Term, condition: Apply) -> bool:
    """Return True if a term is NaN where a name of a condition is, of which neither side holds then."""
    return all(becomes_nan(term, {name}) for name in names(condition))


def _values(condition: Apply, *, holds: bool) -> dict[Term, Term]:
    """Return the values of functions of what a condition compares with 0, where it holds or not."""
    a = condition.args[0]
    if (condition.op in ("gt", "ge")) is holds:
        return {call("relu", a): a, call("abs", a): a}
    below: dict[Term, Term] = {call("abs", a): negated(a)}
    return below | {call("relu", a): ZERO} if holds else below


def _known(term: Term, truths: Mapping[Apply, bool], values: Mapping[Term, Term]) -> Term:
    """Return a term with known values in place of functions, and known branches of selections."""
    if term in values:
        return values[term]
    match term:
        case Apply("where", (condition, a, b)) if isinstance(condition, Apply) and condition in truths:
            return _known(a if truths[condition] else b, truths, values)
    return rebuild(term, lambda part: _known(part, truths, values))
