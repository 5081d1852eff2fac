"""Terms as a function of one name times factors that this name does not decide.

grad · y · f(x) is f(x) times a monomial, whose atoms are grad and y. A limit of f is one for all values of
the atoms, so that f is evaluated with each atom at 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from fusegen.core.term import Apply, Let, Name, Number, Program, Term, names

Monomial = frozenset[tuple[Term, int]]  # atoms with their exponents
ONE = Number(Fraction(1))
UNIT: Monomial = frozenset()
ZERO: Monomial = frozenset({(Number(Fraction(0)), 1)})  # of the number 0, which is one of every monomial


@dataclass(frozen=True)
class Split:
    """A term as a function of one name, its atoms being 1, and the monomial that it is multiplied by."""

    unit: Term
    monomial: Monomial


class Factored:
    """The terms of a program as functions of one name, where they are such a function times a monomial."""

    def __init__(self, program: Program, name: str) -> None:
        """Split the lets of a program by a name: an input, or a let."""
        self.name = name
        self.dependent = {name}
        self.splits: dict[str, Split | None] = {name: Split(Name(name), UNIT)}
        self.units: list[Let] = []
        self.known: dict[Term, Split | None] = {}  # of terms, whose names are all defined before
        for let in program.lets:
            if let.name != name:
                found = self.split(let.term)
                if self.depends(let.term):
                    self.dependent.add(let.name)
                elif found == _atom(let.term):
                    found = _atom(Name(let.name))
                if found is not None and found.unit != ONE:
                    self.units.append(Let(let.name, found.unit))
                    found = replace(found, unit=Name(let.name))
                self.splits[let.name] = found

    def depends(self, term: Term) -> bool:
        """Return True if the name decides a term."""
        return not self.dependent.isdisjoint(names(term))

    def split(self, term: Term) -> Split | None:
        """Return a term as such a product; a term that the name does not decide is an atom at least."""
        if term not in self.known:
            found = self._split(term)
            self.known[term] = _atom(term) if found is None and not self.depends(term) else found
        return self.known[term]

    def _split(self, term: Term) -> Split | None:
        match term:
            case Number(number):
                return Split(term, UNIT if number else ZERO)
            case Name(name):
                return self.splits.get(name, _atom(term))
            case Apply(op, args):
                parts = [part for arg in args if (part := self.split(arg))]
                rule = RULES.get(op, _functions)
                monomial = rule([part.monomial for part in parts]) if len(parts) == len(args) else None
                return (
                    Split(Apply(op, tuple(part.unit for part in parts)), monomial)
                    if monomial is not None
                    else None
                )
        return None


def power(monomial: Monomial, factor: Term) -> Term:
    """Return a monomial times a factor, in an order that is always the same."""
    for atom, exponent in sorted(monomial, key=repr, reverse=True):
        for _ in range(abs(exponent)):
            factor = atom * factor if exponent > 0 else factor / atom
    return factor


def _atom(term: Term) -> Split:
    return Split(ONE, frozenset({(term, 1)}))


def _alike(monomials: Sequence[Monomial]) -> Monomial | None:
    """Return the one monomial of a sum's addends."""
    found = {monomial for monomial in monomials if monomial != ZERO} or {ZERO}
    return found.pop() if len(found) == 1 else None


def _functions(monomials: Sequence[Monomial]) -> Monomial | None:
    """Return the monomial 1 of a function whose arguments have no other; else None."""
    return UNIT if all(monomial in (UNIT, ZERO) for monomial in monomials) else None


def _chosen(monomials: Sequence[Monomial]) -> Monomial | None:
    return _alike(monomials[1:]) if _functions(monomials[:1]) is not None else None


def _product(monomials: Sequence[Monomial], sign: int = 1) -> Monomial | None:
    if ZERO in monomials:
        return ZERO if sign > 0 or monomials[1] != ZERO else None
    exponents = Counter(dict(monomials[0]))
    for atom, exponent in monomials[1]:
        exponents[atom] += sign * exponent
    return frozenset((atom, exponent) for atom, exponent in exponents.items() if exponent)


def _quotient(monomials: Sequence[Monomial]) -> Monomial | None:
    return _product(monomials, -1)


RULES: dict[str, Callable[[Sequence[Monomial]], Monomial | None]] = {
    "add": _alike, "sub": _alike, "neg": _alike, "where": _chosen, "mul": _product, "div": _quotient,
}  # fmt: skip
