"""A large number in place of an input's infinities, wherever a program reads the input.

A guard of each result (`infinite`) repeats the steps between the input and the result. Where the same
number serves all results, the steps are computed once, of the input with that number in place of its
infinities.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

from fusegen.algebra.limits.numbers import INFINITE, infinity
from fusegen.algebra.limits.tied import sources
from fusegen.algebra.limits.tied_limits import Guarded, TiedLimits, Work
from fusegen.core.term import (
    GROWN,
    ORDINARY,
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

SUBSTITUTES = tuple(Fraction(2) ** exponent for exponent in (126, 100, 40))  # numbers for an infinity
Beside = tuple[str, ...]  # names that must be 0 or of an ordinary size
Guard = TypeVar("Guard")
Trials = Mapping[str, Sequence[float]]


def kept_finite(
    program: Program, name: str, trials: Trials, params: Mapping[str, float], work: Work
) -> Program | None:
    """Return the program of an input whose infinities are a large number; None where that gives no limit.

    Args:
        program: of any number of results.
        name: of the input.
        trials: values of the other inputs and of the parameters to try it with.
        params: the default values of all parameters.
        work: what the trials take from.
    """
    known = sources(program)
    limits_of = {
        k: TiedLimits(program, term, name, {n: trials[n] for n in sorted(others - {name})}, params, work)
        for k, term in enumerate(program.results)
        if name in (others := frozenset[str]().union(*(known[n] for n in names(term))))
    }
    sides = sorted({sign for each in limits_of.values() for sign in each.sides})
    if not sides:
        return None
    rest = sorted({other for each in limits_of.values() for other in each.others})

    def way(size: Fraction) -> Callable[[Beside], Program]:
        return lambda beside: _with(program, Large(Name(name), size, tuple(sides), beside), limits_of)

    def tells(test: Callable[[TiedLimits, Guarded], bool]) -> Callable[[Program], bool]:
        return lambda new: all(
            test(tied, Guarded(new.results[k], new.lets)) for k, tied in limits_of.items()
        )

    return next(guards(map(way, SUBSTITUTES), rest, tells(TiedLimits.met), tells(TiedLimits.safe)), None)


def guards(
    ways: Iterable[Callable[[Beside], Guard]],
    others: Sequence[str],
    met: Callable[[Guard], bool],
    safe: Callable[[Guard], bool],
) -> Iterator[Guard]:
    """Yield the guards that are right, each with as few conditions on the sizes of other names as it needs.

    Args:
        ways: from these names to a guard.
        others: all names that it may need.
        met: whether a guard gives the limits that it was made for.
        safe: whether it is right, or NaN, beside further values of the other names, too.
    """
    for way in ways:
        if met(way(())):
            tried = map(way, ((), *((name,) for name in others if len(others) > 1), tuple(others)))
            yield from (guard for guard in tried if safe(guard) and met(guard))


@dataclass(frozen=True)
class Large:
    """A number in place of an input's infinities, where other names have ordinary sizes.

    Beside a y of 1e-38 no float stands for an infinite x in y x: what is computed of it is a wrong number.
    """

    variable: Name  # the input
    size: Fraction  # the number
    sides: tuple[float, ...]  # the signs of the infinities
    beside: Beside = ()  # the other names that must be 0, or of a size that the guard was tried with

    @property
    def term(self) -> Term:
        """The input, or the number."""
        taken: Term = self.variable
        for sign in self.sides:
            infinite = call("eq", self.variable, infinity(sign))
            taken = call("where", infinite, Number(Fraction(sign) * self.size), taken)
        return ordinary(self.beside, taken, self.variable)

    def restored(self, large: Term, found: Term) -> Term:
        """Return a value that is infinite where it is huge because of the number."""
        infinite = call("where", call("gt", call("abs", found), GROWN), found * INFINITE, found)
        if self.beside:
            return call("where", call("eq", large, self.variable), found, infinite)
        return call("where", call("eq", call("abs", self.variable), INFINITE), infinite, found)


def ordinary(beside: Iterable[str], then: Term, otherwise: Term) -> Term:
    """Return one term where some names are 0 or of ordinary size, else the other one; NaN has no size."""
    for name in beside:
        size = call("abs", Name(name))
        clamped = call("where", call("eq", size, 0), 0, call("clamp", size, *ORDINARY))
        then = call("where", call("eq", size, clamped), then, otherwise)
    return then


def _with(program: Program, large: Large, limits_of: Mapping[int, TiedLimits]) -> Program:
    """Return the program with a number for the infinities, whose results are infinite where they grow."""
    taken = {*program.inputs, *program.params, *(let.name for let in program.lets)}
    name = large.variable.name
    finite = Name(unused(f"finite_{name}", taken))
    value: dict[str, Term] = {name: finite}
    lets = [Let(finite.name, large.term)]
    lets += [replace(let, term=substitute(let.term, value)) for let in program.lets]
    results = [substitute(result, value) for result in program.results]
    for k, tied in limits_of.items():
        if tied.grows:
            found = results[k]
            if not isinstance(found, Name):
                found = Name(unused("finite", taken | {let.name for let in lets}))
                lets.append(Let(found.name, results[k]))
            results[k] = large.restored(finite, found)
    return replace(program, lets=needed(lets, results), results=tuple(results))
