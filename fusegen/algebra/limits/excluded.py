"""Guards that `assume` excludes: of values that no infinity of an input reaches."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from fractions import Fraction

from fusegen.algebra.limits.numbers import INFINITE
from fusegen.core.interval import REALS, Interval, point
from fusegen.core.ops import OPS
from fusegen.core.term import Apply, Let, Name, Number, Program, Term, needed, rebuild, substitute

FAR = Fraction(2) ** 126  # the bound of a clamp in float; nothing below it overflows when it is rounded
LARGEST = Fraction(2**1024 - 2**970)  # an input is no computed value, so that every number bounds it
Ranges = Mapping[str, Interval]


def without_excluded(program: Program, assume: Ranges) -> Program:
    """Return the program without clamps and selections that the intervals of its inputs make needless."""
    if not assume:
        return program
    ranges = {name: assume.get(name, REALS) for name in (*program.inputs, *program.params)}
    plain, inputs = dict[str, Term](), frozenset(map(Name, program.inputs))
    lets: list[Let] = []
    for let in program.lets:
        term = _pruned(substitute(let.term, plain), ranges, inputs)
        if isinstance(term, Name) and term != let.term:
            plain[let.name] = term
            continue
        lets.append(replace(let, term=term))
        ranges[let.name] = _range(term, ranges)
    results = tuple(_pruned(substitute(result, plain), ranges, inputs) for result in program.results)
    return replace(program, lets=needed(lets, results), results=results)


def _range(term: Term, ranges: Ranges) -> Interval:
    """Return an interval that holds every value of a term."""
    match term:
        case Number(value):
            return point(value)
        case Name(name):
            return ranges[name]
        case Apply(op, args):
            return OPS[op].range(*(_range(arg, ranges) for arg in args))
    raise AssertionError("compose has replaced every call of a spec")


def _inner(term: Term) -> Term:
    """Return the term whose size a guard compares."""
    return term.args[0] if isinstance(term, Apply) and term.op == "abs" else term


def _pruned(term: Term, ranges: Ranges, inputs: Collection[Term]) -> Term:
    """Return a term without guards against values that it does not reach, innermost parts first."""
    term = rebuild(term, lambda part: _pruned(part, ranges, inputs))
    match term:
        case Apply("clamp_to_highest", (a,)) if _range(a, ranges).high <= FAR:
            return a
        case Apply("clamp_to_lowest", (a,)) if _range(a, ranges).low >= -FAR:
            return a
        case Apply("clamp_max", (a, Number(bound))) if _range(a, ranges).high <= bound:
            return a
        case Apply("clamp_min", (a, Number(bound))) if _range(a, ranges).low >= bound:
            return a
        case Apply("where", (_, found, other)) if found == other:
            return found
        case Apply("where", (Apply("eq", (a, end)), found, other)):
            lies, most = _range(a, ranges), LARGEST if _inner(a) in inputs else FAR
            if (end == INFINITE and lies.high <= most) or (end == -INFINITE and lies.low >= -most):
                return other
            return found if a == end and a in inputs else term  # a guard whose number is left out
    return term
