"""A large number in place of an input's infinities, wherever a program reads the input.

A guard of each result (`infinite`) repeats the steps between the input and the result. Where the same
number serves all results, the steps are computed once, of the input with that number in place of its
infinities.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from fusegen.finite import limits
from fusegen.finite.tied import sources
from fusegen.finite.tied_limits import Guarded, TiedLimits, near
from fusegen.term import (
    GROWN,
    INFINITY,
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

INFINITE = Number(INFINITY)
SUBSTITUTES = tuple(Fraction(2) ** exponent for exponent in (126, 100, 40))  # numbers for an infinity
Trials = Mapping[str, Sequence[float]]


def kept_finite(program: Program, name: str, trials: Trials, params: Mapping[str, float]) -> Program | None:
    """The program of an input whose infinities are a large number; None where that gives no limit.

    Args:
        program: of any number of results.
        name: of the input.
        trials: values of the other inputs and of the parameters to try it with.
        params: the default values of all parameters.
    """
    known = sources(program)
    limits_of = {
        k: TiedLimits(program, term, name, {n: trials[n] for n in sorted(others - {name})}, params)
        for k, term in enumerate(program.results)
        if name in (others := frozenset[str]().union(*(known[n] for n in names(term))))
    }
    sides = sorted({sign for each in limits_of.values() for sign in each.sides})
    found = (_with(program, name, sides, size, limits_of) for size in SUBSTITUTES) if sides else ()
    return next((new for new in found if _met(new, limits_of)), None)


def substitute_of(variable: Name, sides: Iterable[float], size: Fraction) -> Term:
    """An input, or a number in place of its infinities."""
    taken: Term = variable
    for sign in sides:
        infinite = call("eq", variable, INFINITE if sign > 0 else -INFINITE)
        taken = call("where", infinite, Number(Fraction(sign) * size), taken)
    return taken


def restored(variable: Name, found: Term) -> Term:
    """A value that is infinite where it is huge at an infinity of an input."""
    infinite = call("where", call("gt", call("abs", found), GROWN), found * INFINITE, found)
    return call("where", call("eq", call("abs", variable), INFINITE), infinite, found)


def _with(
    program: Program, name: str, sides: list[float], size: Fraction, limits_of: Mapping[int, TiedLimits]
) -> Program:
    """The program with a number for the infinities, whose results are infinite where they grow."""
    taken = {*program.inputs, *program.params, *(let.name for let in program.lets)}
    finite = Name(unused(f"finite_{name}", taken))
    value: dict[str, Term] = {name: finite}
    lets = [Let(finite.name, substitute_of(Name(name), sides, size))]
    lets += [replace(let, term=substitute(let.term, value)) for let in program.lets]
    results = [substitute(result, value) for result in program.results]
    for k, tied in limits_of.items():
        if tied.grows:
            found = results[k]
            if not isinstance(found, Name):
                found = Name(unused("finite", taken | {let.name for let in lets}))
                lets.append(Let(found.name, results[k]))
            results[k] = restored(Name(name), found)
    return replace(program, lets=needed(lets, results), results=tuple(results))


def _met(program: Program, limits_of: Mapping[int, TiedLimits]) -> bool:
    """True if every result has its limits in the ranges of float and of double."""
    return all(
        near(of.value(Guarded(program.results[k]), of.points[n], sign * limits.INFINITY, largest), value)
        for k, tied in limits_of.items()
        for of in (replace(tied, program=program, term=program.results[k]),)
        for (n, sign), value in tied.expected.items()
        for largest in limits.RANGES
    )
