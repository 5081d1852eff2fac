"""The limit of a function of one tensor at an infinity, where IEEE arithmetic gives NaN.

The guards of `algebra/limits` hold for every value of the other names. Where none does, it is enough here
that each scalar has about the size of its default, and its sign: the guard was tried with these. Beside
others, and beside other tensors, the result stays what IEEE arithmetic makes of it, as eager does.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from fusegen.algebra.copied_lets import add_copies
from fusegen.algebra.limits.evaluation import Evaluation
from fusegen.algebra.limits.numbers import number
from fusegen.compiler.special_trial import Trial
from fusegen.compiler.trial_faults import Fault
from fusegen.core.interval import Point
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

SIZES = (*(Fraction(2) ** k for k in (100, 62, 40, 20, 6)), Fraction(0))  # in place of an infinity
FACTORS = tuple(map(Fraction, (2**10, 2**3, 1.25)))  # by which others may differ from a default, or 1
NEAR, FLOAT = 2.0**-40, 2.0**128  # how near to the limit a number must lead; where floats end


def limits_selected(trial: Trial, program: Program, k: int, fault: Fault) -> Iterator[Program]:
    """Yield passes whose result `k` has the limit at infinity that the fault misses, the safest first."""
    if len(trial.names) > 1:
        return
    name, end = next((name, x) for name, x in fault.at.items() if math.isinf(x))
    for factor in FACTORS:
        end_of = _End(trial, program, k, fault.output, name, end, factor)
        if any(limit is None for limit in end_of.limits):
            continue
        for term, lets in end_of.ways():
            yield end_of.program_with(term, lets)


@dataclass(frozen=True)
class _End:
    trial: Trial  # of the formula
    program: Program  # a pass
    # place, output: of the result, among the results and as a trial counts
    place: int
    output: int
    # name, end: of the input, and the infinity
    name: str
    end: float
    factor: Fraction  # by which scalars may differ from their defaults

    @cached_property
    def points(self) -> list[Point]:
        """Values of the scalars: one changes, or all do."""
        base = dict(self.trial.formula.params)
        many = float(self.factor)
        found: list[Point] = [base]
        for name, own in base.items():
            found += [{**base, name: own * by} for by in (many, 1 / many, 0.7)]
        for signs in itertools.islice(itertools.product((many, 1 / many), repeat=len(base)), 8):
            found.append({name: own * by for (name, own), by in zip(base.items(), signs, strict=True)})
        return found

    @cached_property
    def limits(self) -> list[float | None]:
        """The limits at these points."""
        return [self.trial.limits.at(self.output, self.name, self.end, point) for point in self.points]

    def ways(self) -> Iterator[tuple[Term, list[Let]]]:
        """Yield terms that have the limits: one number, or the result with a number for the infinity."""
        first = self.limits[0]
        assert first is not None
        if all(limit == first for limit in self.limits):
            yield self._times(number(first)), []
        for size in SIZES:
            term, lets = self.substituted(Number(size if self.end > 0 else -size))
            pairs = zip(self.points, self.limits, strict=True)
            if all(self.leads(term, lets, point, limit) for point, limit in pairs):
                yield term, lets

    def _times(self, limit: Term) -> Term:
        return Name(self.program.inputs[0]) * limit if self.output else limit

    def leads(self, term: Term, lets: list[Let], point: Point, limit: float | None) -> bool:
        """Return True if a term is near to a limit, computed in the range of float."""
        given = {**point, self.name: self.end}
        given = {name: given.get(name, 1.0) for name in (*self.program.inputs, *self.program.params)}
        found = Evaluation(given, FLOAT).last((*self.program.lets, *lets, Let("", term)))
        return limit is not None and math.isclose(found, limit, rel_tol=NEAR, abs_tol=2.0**-100)

    def substituted(self, large: Term) -> tuple[Term, list[Let]]:
        """Return the result with a number for the input, and the steps that it needs."""
        value: dict[str, Term] = {self.name: large}
        lets: list[Let] = []
        plain, _ = self.unguarded

        def named(name: str, term: Term) -> str:
            lets.append(Let(self.free(f"limit_{name}", lets), term))
            return lets[-1].name

        add_copies(value, needed(self.program.lets, (plain,)), named)
        return substitute(plain, value), lets

    @property
    def unguarded(self) -> tuple[Term, Term]:
        """The result without the guard of another infinity, and what is chosen where it is NaN."""
        match self.program.results[self.place]:
            case Apply("where", (Apply("eq", (a, b)), plain, chosen)) if a == b == plain:
                return plain, chosen
        return self.program.results[self.place], self.program.results[self.place]

    def free(self, like: str, lets: list[Let]) -> str:
        """Return a name that nothing has."""
        known = (*self.program.lets, *lets)
        return unused(like, {*self.program.inputs, *self.program.params, *(let.name for let in known)})

    def program_with(self, limit: Term, lets: list[Let]) -> Program:
        """Return the program with the limit at the infinity, where the result is NaN."""
        plain, otherwise = self.unguarded
        named = [] if isinstance(plain, Name) else [Let(self.free("unguarded", lets), plain)]
        own = Name(named[0].name) if named else plain
        infinite = call("eq", Name(self.name), number(self.end))
        chosen = call("where", infinite, self.among(limit, own), own if named else otherwise)
        results = list(self.program.results)
        results[self.place] = call("where", call("eq", own, own), own, chosen)
        every = needed((*self.program.lets, *lets, *named), results)
        return replace(self.program, lets=every, results=tuple(results))

    def among(self, limit: Term, own: Term) -> Term:
        """Return the limit where all scalars have sizes that it was tried with, else the result."""
        read = {name for term in self.program.terms for name in names(term)}
        for name, default in self.points[0].items():
            if name not in read:
                continue
            x = Name(name)
            if default:
                low, high = sorted((Fraction(default) / self.factor, Fraction(default) * self.factor))
                limit = call("where", x >= low, call("where", x <= high, limit, own), own)
            else:
                limit = call("where", call("eq", x, 0), limit, own)
        return limit
