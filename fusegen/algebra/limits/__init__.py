"""Guards that give the limit at an infinite input, where IEEE arithmetic would give NaN.

silu(-inf) is -inf times 0, but x sigmoid(x) tends to 0. The groups of a name, which is an input, or a let
of several names, are functions of it alone, times what it does not decide (`groups`). Each is tried at both
infinities by what IEEE arithmetic gives (`limits`). Where it is NaN there and constant from a large number
on, the name is clamped, whatever the other names are: at 2^126 in float, at 2^1022 in double, or at 2^40 if
a cube overflows. Where it grows, as x + sin(x) does, a sine or a cosine takes its argument finite. Where it
grows or falls on and on, as x² / x³ does, its limit is selected. Where several names are tied up, finite
numbers stay as they are (`infinite`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

from fusegen.algebra.limits import clamps
from fusegen.algebra.limits.evaluation import Evaluation
from fusegen.algebra.limits.excluded import without_excluded
from fusegen.algebra.limits.factored import power
from fusegen.algebra.limits.finite_names import renamed
from fusegen.algebra.limits.groups import SUMS, Group, Groups, mark
from fusegen.algebra.limits.infinite import selected_at_infinity
from fusegen.algebra.limits.numbers import INFINITE, infinity, number
from fusegen.algebra.limits.tied import named, tied, unnamed
from fusegen.core.interval import Interval
from fusegen.core.ops import OPS
from fusegen.core.term import (
    Apply,
    Let,
    Name,
    Program,
    Term,
    call,
    needed,
    rebuild,
    substitute,
    unused,
    walk,
)

NOTHING: Mapping[str, Interval] = MappingProxyType({})
OWN = "@"  # stands for the name with a group's own clamps
MOST = 2.0**8  # times a limit: what its addends and factors may be without a loss of digits
LARGEST = 1000  # nodes of a term that is written out
OPERATIONS = {-1.0: ("clamp_to_lowest", "clamp_min"), 1.0: ("clamp_to_highest", "clamp_max")}


def finite(
    program: Program,  # of any number of inputs and results
    inputs: tuple[str, ...],  # the names of those to keep finite; an incoming gradient is not among them
    params: Mapping[str, float],  # the values of its parameters to try it with
    # intervals that inputs are promised to lie in; where they end, no guard is needed
    assume: Mapping[str, Interval] = NOTHING,
) -> Program:
    """Return the program with inputs kept finite where infinity would give NaN instead of a limit."""
    given = tuple(filter(program.inputs.__contains__, inputs))
    known = {let.name for let in program.lets}
    for name in given:
        program = _Clamped(program, name).program()
    program, new = named(program)
    kept = set[str]()
    for name in reversed(tied(program)):
        before, program = program, _Clamped(program, name).program()
        kept |= {name} if program != before else set()
    found = selected_at_infinity(unnamed(program, new, frozenset(kept)), given, params)
    return renamed(without_excluded(found, assume), known)


class _Clamped:
    """A program with one name clamped in each group as the group needs."""

    def __init__(self, program: Program, name: str) -> None:
        self.whole, self.name = program, name
        self.groups = Groups(program, name)
        self.taken = {*program.inputs, *program.params, *(let.name for let in program.lets)}
        self.clamps: dict[Term, str] = {}
        self.evaluations: dict[tuple[float, float], Evaluation] = {}
        self.common = clamps.NONE
        units = [self.function(group.unit, clamps.NONE) for group in self.groups.found]
        self.needless = not any(
            math.isnan(f(sign * math.inf, math.inf)[0]) for f in units for sign in clamps.SIDES
        )
        self.trials = [] if self.needless else list(map(self.trial, self.groups.found, units))
        self.common = clamps.shared(self.trials)
        self.base = self.clamped(Name(name), self.common)

    def program(self) -> Program:
        """Return the program with clamps; unchanged where no infinity gives NaN."""
        if self.needless:
            return self.whole
        parts = {mark(k, n): part for k in range(len(self.trials)) for n, part in enumerate(self.final(k))}
        base = {self.name: self.base}
        lets = [
            replace(let, term=substitute(let.term, base if self.groups.whole(let) else parts))
            for let in self.groups.lets
        ]
        own = next((k for k, let in enumerate(lets, 1) if let.name == self.name), 0)
        lets[:own] = self.whole.lets[:own]
        lets[own:own] = [Let(name, term) for term, name in self.clamps.items()]
        results = tuple(substitute(result, parts) for result in self.groups.results)
        return replace(self.whole, lets=needed(lets, results), results=results)

    def trial(self, group: Group, unit: clamps.Function) -> clamps.Trial:
        """Return the clamps of a group; none where its parts cancel at the clamp.

        Of (m - n) + (x - m) the clamped m would absorb n and x before it is subtracted.
        """
        found = clamps.trial(unit)
        parts = [self.function(part, clamps.NONE) for part in group.units] if len(group.units) > 1 else []
        for sign, kinds, limit in zip(clamps.SIDES, found.accepted, found.limits, strict=True):
            if kinds[0] and limit is not None and (group.ops == SUMS or limit):
                at = clamps.CLAMPS[kinds[0]].bound[clamps.FLOAT]
                if any(abs(f(sign * at, clamps.FLOAT)[0]) > MOST * (1 + abs(limit)) for f in parts):
                    return clamps.UNTRIED
        return found

    def clamped(self, term: Term, kinds: clamps.Kinds) -> Term:
        """Return a let's name for a term with clamps, or the term if there are none."""
        found = term
        for sign, kind in zip(clamps.SIDES, kinds, strict=True):
            found = _clamp(found, sign, kind) if kind else found
        if found == term:
            return term
        if found not in self.clamps:
            self.clamps[found] = unused(f"finite_{self.name}", self.taken)
            self.taken.add(self.clamps[found])
        return Name(self.clamps[found])

    def final(self, k: int) -> list[Term]:
        """A group's parts with the name clamped, waves bounded and limits selected, as the group needs."""
        group, trial = self.groups.found[k], self.trials[k]
        own = trial.own(self.common)
        units = self.forms(group.unit, self.groups.factored.units)
        functions = [self.function(unit, own) for unit in units]
        best = max(range(len(functions)), key=lambda n: trial.met(functions[n]))
        lets = tuple(filter(self.groups.whole, self.whole.lets))
        values = {OWN: self.clamped(self.base, own), self.name: self.base}
        found = [substitute(self.forms(part, lets)[best], values) for part in group.parts]
        return [self.selected(group, functions[best], found[0])] if len(found) == 1 else found

    def forms(self, term: Term, lets: Sequence[Let]) -> tuple[Term, ...]:
        """The ways to clamp a term, the cheapest first: outside functions, everywhere, in lets, waves."""
        inlined = self.inlined(term, lets)
        outer = self.outer(term)
        return (
            outer,
            *(self.owned(each) for each in (term, inlined, self.bounded(term), self.bounded(inlined))),
        )

    def owned(self, term: Term) -> Term:
        """Return a term of the group's own clamped name."""
        return substitute(term, {self.name: Name(OWN)})

    def outer(self, term: Term) -> Term:
        """Return a term of the group's own clamped name, but for the arguments of functions."""
        match term:
            case Name(name):
                return Name(OWN) if name == self.name else term
            case Apply(op, _) if OPS[op].infix:
                return rebuild(term, self.outer)
        return term

    def defined(self, at: float, largest: float) -> Evaluation:
        """Return the values of all lets of units where the name has a value; the same for every unit."""
        if (at, largest) not in self.evaluations:
            lets = self.groups.factored.units
            self.evaluations[at, largest] = Evaluation({self.name: at}, largest).define(lets)
        return self.evaluations[at, largest]

    def function(self, unit: Term, own: clamps.Kinds) -> clamps.Function:
        """Return a unit as a function of the name, with the clamps that all groups share and its own."""

        def f(at: float, largest: float) -> tuple[float, bool]:
            shared = clamps.clamped(at, self.common, largest)
            defined = self.defined(shared, largest)
            known = {**defined.known, OWN: clamps.clamped(shared, own, largest)}
            evaluation = Evaluation(known, largest, defined.overflowed)
            return evaluation(unit), evaluation.overflowed

        return f

    def inlined(self, term: Term, lets: Sequence[Let]) -> Term:
        """A term with the lets written out that the name decides; as it is if that would be large."""
        decided = [let for let in lets if let.name in self.groups.factored.dependent - {self.name}]
        if _written_out(term, decided) > LARGEST:
            return term
        for let in reversed(decided):
            term = substitute(term, {let.name: let.term})
        return term

    def bounded(self, term: Term) -> Term:
        """Return a term in which arguments of sines and cosines that depend on the name are finite."""
        term = rebuild(term, self.bounded)
        match term:
            case Apply("sin" | "cos" | "sinpi" | "cospi" as op, (argument,)) if (
                self.groups.factored.depends(argument)
            ):
                infinite = call("eq", call("abs", argument), INFINITE)
                return call(op, call("where", infinite, 0, argument))  # no finite number is another one
        return term

    def selected(self, group: Group, f: clamps.Function, term: Term) -> Term:
        """Return a term with the limits selected that it never reaches."""
        variable = Name(self.name)
        for sign in clamps.SIDES:
            end, _ = f(sign * math.inf, math.inf)
            limit = clamps.tendency(f, sign) if math.isnan(end) else None
            if limit is not None:
                infinite = variable if limit * sign > 0 else -variable
                reached = infinite if math.isinf(limit) else number(limit)
                at = call("eq", variable, infinity(sign))
                term = call("where", at, power(group.monomial, reached), term)
        return term


def _written_out(term: Term, lets: Sequence[Let]) -> int:
    """Return the nodes of a term with some lets written out, which come in their order."""
    sizes: dict[str, int] = {}

    def size(whole: Term) -> int:
        return sum(sizes.get(part.name, 1) if isinstance(part, Name) else 1 for part in walk(whole))

    for let in lets:
        sizes[let.name] = size(let.term)
    return size(term)


def _clamp(term: Term, sign: float, kind: str) -> Term:
    finite, clamp = OPERATIONS[sign]
    bound = clamps.CLAMPS[kind].bound
    return call(finite, term) if kind == "far" else call(clamp, term, Fraction(sign * bound[math.inf]))
