"""Where a rising line has a level, so that a comparison of the line is one of its argument."""

from collections.abc import Mapping
from fractions import Fraction

from fusegen.core.term import Apply, Name, Number, Term, call


def at_the_kink(term: Term, steps: Mapping[str, Term]) -> Term:
    """A comparison of a rising line with a number as one of its argument, before which nothing rounds."""
    match term:
        case Apply("lt" | "le" | "gt" | "ge" as op, (line, Number(level))):
            return call(op, *_solved(line, level, steps))
    return term


def _solved(line: Term, level: Fraction, steps: Mapping[str, Term]) -> tuple[Term, Number]:
    """Return the argument of a rising line, and where the line has a level."""
    match line:
        case Name(name) if name in steps:
            solved = _solved(steps[name], level, steps)
            return (line, Number(level)) if solved[0] == steps[name] else solved
        case Apply("add", (a, Number(k))) | Apply("add", (Number(k), a)):
            return _solved(a, level - k, steps)
        case Apply("sub", (a, Number(k))):
            return _solved(a, level + k, steps)
        case Apply("mul", (a, Number(k))) | Apply("mul", (Number(k), a)) if k > 0:
            return _solved(a, level / k, steps)
        case Apply("div", (a, Number(k))) if k > 0:
            return _solved(a, level * k, steps)
    return line, Number(level)
