"""The unary segments of a program: the largest subexpressions that are functions of one value.

The value is an input, or what is computed from several: gelu(x + b) is a function of x + b. A subexpression
is a function of each of its dominators: the values that all paths from it to the inputs pass through.

Source: Cooper, Harvey and Kennedy 2001, A Simple, Fast Dominance Algorithm.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import mul

from fusegen.core.ops.double_word import CURVE
from fusegen.core.term import Apply, Let, Name, Number, Program, Term, children, needed, rebuild, unused

ONE = Number(Fraction(1))
VALUE = "u"  # that a segment is a function of, unless a step has the name
Chain = tuple[Term, ...]  # the dominators of a term, itself first


@dataclass(frozen=True, slots=True)
class Segments:
    """A program whose segments are calls of curves."""

    outer: Program  # the program; `curve(u, k)` is the k-th curve at u
    curves: tuple[Program, ...]  # the segments, each a program of one input and one result


def segments(program: Program, pays: Callable[[Program], bool]) -> Segments:
    """Return a program without parameters with the largest unary segments that pay as curves."""
    found = _Segments(program, pays)
    results = tuple(map(found.cover, program.results))
    lets = [Let(let.name, found.cover(let.term)) for let in program.lets]
    outer = Program(program.inputs, (), needed(lets, results), results)
    return _only_used(outer, found.curves)


class _Segments:
    """The dominators of the terms of a program, and the segments so far."""

    def __init__(self, program: Program, pays: Callable[[Program], bool]) -> None:
        self.program, self.pays = program, pays
        self.terms = {let.name: let.term for let in program.lets}
        self.chains: dict[Term, Chain] = {}
        self.curves: list[Program] = []
        self.known: dict[Program, bool] = {}  # which segments pay

    def chain(self, term: Term) -> Chain:
        """Return the dominators of a term, the furthest last; none of a number."""
        if term not in self.chains:
            self.chains[term] = self._chain(term)
        return self.chains[term]

    def _chain(self, term: Term) -> Chain:
        if isinstance(term, Name):
            inner = self.chain(self.terms[term.name]) if term.name in self.terms else ()
            return (term, *inner[1:])
        moving = [chain for chain in map(self.chain, children(term)) if chain]
        return (term, *_common_end(moving)) if moving else ()

    def cover(self, term: Term) -> Term:
        """Return a term with its segments as curves; a name stays one, as its own term is covered."""
        if not isinstance(term, Apply):
            return term
        term = self.grouped(term)
        of = self.value(term)
        if of != term and self.is_curve(term, of):
            segment = self.segment(term, of)
            self.curves += [] if segment in self.curves else [segment]
            place = Number(Fraction(self.curves.index(segment)))
            return Apply(CURVE, (self.cover(of), place))
        return rebuild(term, self.cover)

    def value(self, term: Term) -> Term:
        """Return the value that a term is a function of; the term itself if it has several, or none."""
        *_, of = self.chain(term) or (term,)
        return of

    def is_curve(self, term: Term, of: Term) -> bool:
        """Return True if a function of a value pays as a curve."""
        segment = self.segment(term, of)
        if segment not in self.known:
            self.known[segment] = self.pays(segment)
        return self.known[segment]

    def grouped(self, term: Term) -> Term:
        """Return a product in which functions of one value stand together, if they pay as one curve.

        So grad * f(u) * g(u) is grad times a function of u.
        """
        factors, groups = _factors(term), dict[Term, list[Term]]()
        for factor in factors:
            groups.setdefault(self.value(factor), []).append(factor)
        if len(groups) == 1:
            return term
        together: list[Term] = []
        for of, group in groups.items():
            product = reduce(mul, group)
            is_one = len(group) > 1 and self.is_curve(product, of)
            together += [product] if is_one else group
        return reduce(mul, together) if len(together) < len(factors) else term

    def segment(self, term: Term, of: Term) -> Program:
        """Return a term as a program of the value that it is a function of."""
        own = of.name if isinstance(of, Name) else None
        lets = needed([let for let in self.program.lets if let.name != own], (_replaced(term, of, ONE),))
        value = unused(VALUE, [let.name for let in lets])
        lets = tuple(Let(let.name, _replaced(let.term, of, Name(value))) for let in lets)
        result = _replaced(term, of, Name(value))
        return Program((value,), (), needed(lets, (result,)), (result,))


def _factors(term: Term) -> list[Term]:
    """Return the factors of a product, in order; of another term, itself."""
    if isinstance(term, Apply) and term.op == "mul":
        return [factor for part in term.args for factor in _factors(part)]
    return [term]


def _common_end(chains: list[Chain]) -> Chain:
    """Return the longest end that all of some chains have."""
    found: list[Term] = []
    for several in zip(*(reversed(chain) for chain in chains), strict=False):
        if any(term != several[0] for term in several):
            break
        found.append(several[0])
    return tuple(reversed(found))


def _replaced(term: Term, old: Term, new: Term) -> Term:
    """Return a term in which another one is replaced wherever it occurs."""
    return new if term == old else rebuild(term, lambda part: _replaced(part, old, new))


def _only_used(outer: Program, curves: list[Program]) -> Segments:
    """Return the curves that a program still calls, numbered again."""
    used = sorted({place for term in outer.terms for place in _places(term)})
    new = {old: k for k, old in enumerate(used)}

    def renumbered(term: Term) -> Term:
        if isinstance(term, Apply) and term.op == CURVE:
            value, place = term.args
            assert isinstance(place, Number)
            return Apply(CURVE, (renumbered(value), Number(Fraction(new[int(place.value)]))))
        return rebuild(term, renumbered)

    lets = tuple(Let(let.name, renumbered(let.term)) for let in outer.lets)
    program = Program(outer.inputs, (), lets, tuple(map(renumbered, outer.results)))
    return Segments(program, tuple(curves[old] for old in used))


def _places(term: Term) -> Iterator[int]:
    """Yield the curves that a term calls."""
    if isinstance(term, Apply) and term.op == CURVE and isinstance(term.args[1], Number):
        yield int(term.args[1].value)
    for child in children(term):
        yield from _places(child)
