"""The groups of a program: its largest terms that are a function of one name, times a monomial.

A group is a term, or addends of a sum, or factors of a product, wherever they stand in it: of x + y +
sin(x) the addends x and sin(x). Each part has a mark in the program until what becomes of it is known.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from fusegen.algebra.limits.factored import ONE, UNIT, Factored, Monomial
from fusegen.core.term import Apply, Let, Name, Number, Program, Term, call, rebuild

SUMS, PRODUCTS = ("add", "sub"), ("mul", "div")
FLATTENED = {"add": SUMS, "sub": SUMS, "mul": PRODUCTS, "div": PRODUCTS}
ZERO = Number(Fraction(0))
NEUTRAL = {SUMS: ZERO, PRODUCTS: ONE}
Operations = tuple[str, str]


@dataclass(frozen=True)
class Group:
    """Terms that together are a function of one name, which is the unit, times a monomial."""

    parts: tuple[Term, ...]  # the terms
    unit: Term  # the function
    monomial: Monomial  # its factor
    units: tuple[Term, ...] = ()  # the functions of addends or factors between which other terms may stand
    ops: tuple[str, ...] = ()  # the operations that join the parts; none of a single term


class Groups:
    """The groups of a program by one name."""

    def __init__(self, program: Program, name: str) -> None:
        """Find them, and mark their parts in the program."""
        self.factored = Factored(program, name)
        self.found: list[Group] = []
        self.lets = tuple(
            let if self.factored.splits[let.name] else replace(let, term=self.marked(let.term))
            for let in program.lets
        )
        self.results = tuple(map(self.marked, program.results))

    def whole(self, let: Let) -> bool:
        """Return True if a let is part of the groups that read it."""
        return self.factored.splits[let.name] is not None

    def marked(self, term: Term) -> Term:
        """Return a term with a mark for each part of a group."""
        if not self.factored.depends(term):
            return term
        if split := self.factored.split(term):
            return self.marks(Group((term,), split.unit, split.monomial))[0]
        match term:
            case Apply(op, _) if op in FLATTENED:
                return self.flattened(term, FLATTENED[op])
        return rebuild(term, self.marked)

    def flattened(self, term: Term, ops: Operations) -> Term:
        """Return a sum or a product with a mark for each part of a group."""
        all_leaves = list(leaves(term, ops))
        units: dict[Monomial, Term] = {}
        members: dict[Monomial, list[int]] = {}
        own: dict[int, Term] = {}
        for k, (op, leaf) in enumerate(all_leaves):
            split = self.factored.split(leaf) if self.factored.depends(leaf) else None
            if split is not None:
                monomial = split.monomial if ops == SUMS else UNIT
                units[monomial] = call(op, units.get(monomial, NEUTRAL[ops]), split.unit)
                members.setdefault(monomial, []).append(k)
                own[k] = split.unit
        marks: dict[int, Term] = {}
        for monomial, several in members.items():
            parts = tuple(all_leaves[k][1] for k in several)
            group = Group(parts, units[monomial], monomial, tuple(own[k] for k in several), ops)
            marks |= zip(several, self.marks(group), strict=True)
        kept = [marks.get(k) or self.marked(leaf) for k, (_, leaf) in enumerate(all_leaves)]
        return regrown(term, ops, iter(kept))

    def marks(self, group: Group) -> list[Term]:
        """Return the marks of a new group's parts."""
        self.found.append(group)
        return [Name(mark(len(self.found) - 1, part)) for part in range(len(group.parts))]


def mark(group: int, part: int) -> str:
    """Return the name that stands for a part of a group."""
    return f"@{group}.{part}"


def leaves(term: Term, ops: Operations, op: str = "") -> Iterator[tuple[str, Term]]:
    """Yield the addends or factors of a term in order, each with the operation that takes it in."""
    direct, inverse = ops
    op = op or direct
    match term:
        case Apply(own, (left, right)) if own in ops:
            yield from leaves(left, ops, op)
            yield from leaves(right, ops, direct if own == op else inverse)
        case _:
            yield op, term


def regrown(term: Term, ops: Operations, parts: Iterator[Term]) -> Term:
    """Return a term with other addends or factors."""
    match term:
        case Apply(own, _) if own in ops:
            return rebuild(term, lambda part: regrown(part, ops, parts))
    return next(parts)
