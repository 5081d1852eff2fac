"""Rewrites of a program that keep its values, and mend a zero's sign, a lost NaN or an early overflow.

No rule asks for them: `compiler/mended.py` tries a program beside eager's operations, and takes a rewrite
where that leaves fewer results that differ.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

from fusegen.algebra.copied_lets import add_copies
from fusegen.algebra.simplify import simplify
from fusegen.core.interval import Interval
from fusegen.core.term import (
    Apply,
    Let,
    Name,
    Number,
    Program,
    Term,
    call,
    names,
    needed,
    substitute,
    unused,
)

ZERO, ONE = Number(Fraction(0)), Number(Fraction(1))
MOST = 64  # selections that are written out to multiply each of their branches


def incoming_last(program: Program, ranges: dict[str, Interval]) -> Program:
    """Return a gradient that is multiplied by the incoming one last: as it is linear, its value at 1 is.

    Factors in another order may leave the range on the way, so that a gradient of 64 is infinite where 64
    times that of 1 is not. Where nothing is passed on, 0 is not multiplied: it stays 0 beside an infinity.
    """
    grad, *_ = program.inputs
    unit: dict[str, Term] = {grad: ONE}
    lets = tuple(Let(let.name, substitute(let.term, unit)) for let in program.lets)
    results = tuple(substitute(result, unit) for result in program.results)
    slopes, _ = simplify(replace(program, lets=lets, results=results), ranges)
    known = {let.name: let.term for let in slopes.lets}
    left = [MOST]
    return replace(slopes, results=tuple(_times(Name(grad), each, known, left) for each in slopes.results))


def rounded_first(program: Program) -> Program:
    """Return a gradient of one result, times the incoming one, whose slope is rounded before."""
    grad, *_ = program.inputs
    match program.results:
        case (Apply("where", (condition, a, b)),):
            return replace(
                program, results=(call("where", condition, *(_rounded(grad, x) for x in (a, b))),)
            )
        case (result,):
            return replace(program, results=(_rounded(grad, result),))
    return program


def _rounded(grad: str, term: Term) -> Term:
    """Return an incoming gradient times what is rounded; another term as it is."""
    match term:
        case Apply("neg", (inner,)):
            return -_rounded(grad, inner)
        case Apply("mul", (Name(name), Apply() as slope)) if name == grad and grad not in names(slope):
            return Name(name) * call("narrow", slope)
    return term


def _times(grad: Name, slope: Term, known: dict[str, Term], left: list[int]) -> Term:
    """Return the incoming gradient times a slope; in the branches of a selection, where one is 0."""
    seen = known.get(slope.name) if isinstance(slope, Name) else slope
    match seen:
        case Number(value) if not value:
            return slope
        case Apply("neg", (inner,)):
            return -_times(grad, inner, known, left)
        case Apply("where", (condition, *branches)) if _has_zero(seen, known) and left[0]:
            left[0] -= 1
            return call("where", condition, *(_times(grad, each, known, left) for each in branches))
    return grad * slope


def _has_zero(term: Term | None, known: dict[str, Term]) -> bool:
    """Return True if a branch of a selection passes nothing on."""
    match term:
        case Name(name):
            return _has_zero(known.get(name), known)
        case Apply("where", (_, *branches)):
            return any(map(lambda each: _has_zero(each, known), branches))
        case Apply("neg", (inner,)):
            return _has_zero(inner, known)
    return term == ZERO


def with_positive_zero(program: Program, k: int) -> Program:
    """Return a program whose result has no negative zero; of a gradient, times 1."""
    return _changed(program, k, lambda term: term + ZERO)


def with_negative_zero(program: Program, k: int) -> Program:
    """Return a program whose result has no positive zero; of a gradient, times 1."""
    return _changed(program, k, lambda term: -(ZERO - term))


def with_nan(program: Program, k: int, name: str) -> Iterator[Program]:
    """Yield programs whose result is NaN where an input is: in a branch that others choose, in all."""
    x = Name(name)

    def guarded(term: Term) -> Term:
        return call("where", call("eq", x, x), term, x)

    result = program.results[k]
    match result:
        case Apply("where", (condition, chosen, other)) if name not in names(condition):
            yield _result(program, k, call("where", condition, chosen, guarded(other)))
            yield _result(program, k, call("where", condition, guarded(chosen), other))
    yield _result(program, k, guarded(result))


def as_declared(program: Program, k: int, declared: Program) -> Program:
    """Return a pass whose result `k` is as the formula declares it, where its own is NaN."""
    taken = {*program.inputs, *program.params, *(let.name for let in program.lets)}
    value: dict[str, Term] = {name: Name(name) for name in (*declared.inputs, *declared.params)}
    lets: list[Let] = []

    def named(name: str, term: Term) -> str:
        lets.append(Let(unused(f"declared_{name}", taken), term))
        taken.add(lets[-1].name)
        return lets[-1].name

    add_copies(value, needed(declared.lets, (declared.results[k],)), named)
    plain = Let(unused("stable", taken), program.results[k])
    own, other = Name(plain.name), substitute(declared.results[k], value)
    whole = replace(program, lets=(*program.lets, *lets, plain))
    return _result(whole, k, call("where", call("eq", own, own), own, other))


def _changed(program: Program, k: int, change: Callable[[Term], Term]) -> Program:
    """Return a program with the factor of a result changed that is not the incoming gradient."""
    match program.results[k]:
        case Apply("mul", (Name(grad), slope)) if grad == program.inputs[0] and grad not in names(slope):
            return _result(program, k, Name(grad) * change(slope))
        case Apply("neg", (Apply("mul", (Name(grad), slope)),)) if grad == program.inputs[0]:
            return _result(program, k, Name(grad) * change(-slope))
    return _result(program, k, change(program.results[k]))


def _result(program: Program, k: int, term: Term) -> Program:
    results = (*program.results[:k], term, *program.results[k + 1 :])
    return replace(program, results=results)
