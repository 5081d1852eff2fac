"""Limits at infinite inputs of terms in which several names are tied up, as in x / sqrt(x² + y²).

No finite input is touched: where a limit is reached depends on the other names. At the infinity itself, the
limit is selected where it is one for all values of the others; else the term takes a large number instead,
and a result that is huge there is infinite, as of x sigmoid(beta x). A guard is kept only if it gives the
limit with every trial value of the others (`tied_limits`). It leaves NaN where there is no limit, or where
another name is NaN.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from fusegen.algebra.copied_lets import add_copies
from fusegen.algebra.limits.everywhere import (
    SUBSTITUTES,
    Beside,
    Large,
    Trials,
    guards,
    kept_finite,
    ordinary,
)
from fusegen.algebra.limits.factored import Factored
from fusegen.algebra.limits.groups import FLATTENED, ZERO, leaves, regrown
from fusegen.algebra.limits.numbers import INFINITE, infinity, number
from fusegen.algebra.limits.tied import input_sums, results_named, sources, tied_to
from fusegen.algebra.limits.tied_limits import Guarded, TiedLimits, Work, near
from fusegen.algebra.limits.trial_values import INCOMING, OTHERS
from fusegen.core.term import Apply, Let, Name, Program, Term, call, names, needed, substitute, unused

Sources = Mapping[str, frozenset[str]]


def selected_at_infinity(
    program: Program,  # of any number of inputs and results
    inputs: tuple[str, ...],  # the names of those whose infinities have limits
    params: Mapping[str, float],  # the default values of its parameters, with which infinity gives NaN
) -> Program:
    """Return the program with the limits selected that several names decide."""
    sums = input_sums(program, inputs)
    added = frozenset[str]().union(*(names(let.term) for let in sums))
    own = (*(name for name in inputs if name not in added), *(let.name for let in sums))
    free = (*(name for name in program.inputs if name not in added), *(let.name for let in sums))
    cut = replace(program, inputs=free, lets=tuple(let for let in program.lets if let not in sums))
    work = Work()
    for name in own:
        cut = _with_limits(cut, name, own, params, work)
    cut = results_named(cut)
    return replace(cut, inputs=program.inputs, lets=needed((*sums, *cut.lets), cut.results))


def _with_limits(
    program: Program, name: str, inputs: tuple[str, ...], params: Mapping[str, float], work: Work
) -> Program:
    """The program with the limits at the infinities of one input, by the guards that take fewer steps."""
    whole = program
    for k in range(len(program.results)):
        program = _Selected(program, name, inputs, params, work).result(k)
    if program == whole:
        return whole
    trials = _trials(whole, inputs, params)
    by_number = kept_finite(whole, name, trials, params, work)
    return by_number if by_number and len(by_number.lets) < len(program.lets) else program


def _trials(program: Program, inputs: tuple[str, ...], params: Mapping[str, float]) -> Trials:
    """Trial values of inputs and parameters."""
    return {
        other: OTHERS if other in (*inputs, *params) else INCOMING for other in (*program.inputs, *params)
    }


class _Selected:
    """A program with limits selected at the infinities of one input."""

    def __init__(
        self, program: Program, name: str, inputs: tuple[str, ...], params: Mapping[str, float], work: Work
    ) -> None:
        self.whole, self.name, self.params, self.work = program, name, params, work
        self.trials = _trials(program, inputs, params)
        self.sources = sources(program)
        self.factored = Factored(program, name)
        self.lets: list[Let] = []
        self.taken = {*program.inputs, *program.params, *(let.name for let in program.lets)}

    def result(self, k: int) -> Program:
        """Return the program with the limits of one result selected."""
        results = list(self.whole.results)
        results[k] = self.selected(results[k])
        if results[k] == self.whole.results[k]:
            return self.whole
        return replace(
            self.whole, lets=needed((*self.whole.lets, *self.lets), results), results=tuple(results)
        )

    def selected(self, term: Term) -> Term:
        """Return a term with limits selected in the part that the input is tied to."""
        match term:
            case Apply("where", parts) if sum(map(self.factored.depends, parts)) == 1:
                return call("where", *map(self.selected, parts))
            case Apply("neg", (part,)):
                return -self.selected(part)
        if not self.factored.depends(term):
            return term
        inner = self.inner(term)
        if inner is not None:
            part, put = inner
            return put(self.selected(part))
        others = _of(term, self.sources) - {self.name}
        if self.factored.split(term) or not others:
            return term
        trials = {other: self.trials[other] for other in sorted(others)}
        tied = TiedLimits(self.whole, term, self.name, trials, self.params, self.work)
        guarded = _Guards(tied, self.taken).first() if tied.sides else Guarded(term)
        self.lets += guarded.lets
        self.taken |= {let.name for let in guarded.lets}
        return guarded.term

    def inner(self, term: Term) -> tuple[Term, Callable[[Term], Term]] | None:
        """Return the one addend or factor that the input and the names tied to it decide, and its place."""
        match term:
            case Apply(op, _) if op in FLATTENED:
                ops = FLATTENED[op]
                parts = [leaf for _, leaf in leaves(term, ops)]
                own = [_of(part, self.sources) for part in parts]
                members = [n for n, names in enumerate(own) if names & tied_to(self.name, own)]
                if len(members) == 1:
                    [at] = members
                    return parts[at], lambda new: regrown(
                        term, ops, iter([*parts[:at], new, *parts[at + 1 :]])
                    )
        return None


def _of(term: Term, known: Sources) -> frozenset[str]:
    return frozenset[str]().union(*(known[name] for name in names(term)))


class _Guards:
    """The ways to guard a term at the infinities of an input."""

    def __init__(self, tied: TiedLimits, taken: set[str]) -> None:
        self.tied, self.variable, self.taken = tied, Name(tied.name), taken
        self.lets: list[Let] = []
        self.size = call("abs", self.variable)

    def first(self) -> Guarded:
        """Return the first guard that is right; the term without one if none is."""
        others, met, safe = tuple(self.tied.others), self.tied.met, self.tied.safe
        found = (guards(ways, others, met, safe) for ways in (self.ways(), self.where_undefined()))
        return next(itertools.chain.from_iterable(found), Guarded(self.tied.term))

    def ways(self) -> Iterator[Callable[[Beside], Guarded]]:
        """Yield all guards, the cheapest first, each for names that must have an ordinary size."""
        values = {sign: self.tied.expected_at(sign) for sign in self.tied.sides}
        constant = all(near(value, several[0]) for several in values.values() for value in several)
        if constant:
            yield functools.partial(self.constant, {sign: several[0] for sign, several in values.items()})
        yield from (functools.partial(self.substituted, size) for size in SUBSTITUTES)

    def where_undefined(self) -> Iterator[Callable[[Beside], Guarded]]:
        """Return the same guards, where the term is NaN: elsewhere it is what IEEE arithmetic gives."""
        return (functools.partial(self.beside_term, way) for way in self.ways())

    def beside_term(self, way: Callable[[Beside], Guarded], beside: Beside) -> Guarded:
        """Return the term, or where it is NaN a guarded one; both are computed."""
        guarded, own = way(beside), self.tied.term
        self.lets = list(guarded.lets)
        plain = own if isinstance(own, Name) else Name(self.let("unguarded", own))
        return Guarded(call("where", call("eq", plain, plain), plain, guarded.term), tuple(self.lets))

    def at(self, sign: float) -> Term:
        """Return True if the input is an infinity."""
        return call("eq", self.variable, infinity(sign))

    def constant(self, limits: Mapping[float, float], beside: Beside) -> Guarded:
        """Return the term with limits selected that are the same for all values of the other names."""
        below, above, term = limits.get(-1.0), limits.get(1.0), self.tied.term
        if above is not None and below in (above, -above):
            both = number(above) if below == above else self.odd(above)
            limit = ordinary(beside, self.carrying(both), term)
            return Guarded(call("where", call("eq", self.size, INFINITE), limit, term))
        for sign, reached in limits.items():
            limit = ordinary(beside, self.carrying(number(reached)), self.tied.term)
            term = call("where", self.at(sign), limit, term)
        return Guarded(term)

    def carrying(self, limit: Term) -> Term:
        """Return a limit, or NaN where another name is NaN or infinite."""
        carried: list[Term] = [0 * Name(other) for other in self.tied.others]
        addends = carried if limit == ZERO else [limit, *carried]
        return functools.reduce(lambda a, b: a + b, addends)

    def odd(self, above: float) -> Term:
        """Return a limit that has the sign of the input, or the other one."""
        if math.isinf(above):
            return self.variable if above > 0 else -self.variable
        sign = call("sign", self.variable)
        return sign if above == 1 else -sign if above == -1 else Fraction(above) * sign

    def substituted(self, size: Fraction, beside: Beside) -> Guarded:
        """The term with a large number for an infinite input; infinite where it is huge, if it grows."""
        self.lets.clear()
        large = Large(self.variable, size, tuple(self.tied.sides), beside)
        finite = Name(self.let(f"finite_{self.tied.name}", large.term))
        value: dict[str, Term] = {self.tied.name: finite}
        lets = needed(self.tied.program.lets, (self.tied.term,))
        add_copies(value, lets, lambda name, term: self.let(f"finite_{name}", term))
        found = substitute(self.tied.term, value)
        if not self.tied.grows:
            return Guarded(found, tuple(self.lets))
        named = found if isinstance(found, Name) else Name(self.let("finite", found))
        return Guarded(large.restored(finite, named), tuple(self.lets))

    def let(self, like: str, term: Term) -> str:
        """Return the name of a let for a term, a new one if there is none."""
        lets = (*self.tied.program.lets, *self.lets)
        name = next((let.name for let in lets if let.term == term), None)
        if name is None:
            name = unused(like, self.taken | {let.name for let in self.lets})
            self.lets.append(Let(name, term))
        return name
