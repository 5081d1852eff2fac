"""Programs with a name for each fold and scan, and for each value of a row that elements read."""

from collections.abc import Mapping

from fusegen.core.folds import FOLDS, LENGTH, PLACE, SHARE, Level, is_fold, makes_a_loop
from fusegen.core.ops import OPS
from fusegen.core.scans import SCANS
from fusegen.core.term import (
    Apply,
    Let,
    Name,
    Number,
    Program,
    Term,
    call,
    children,
    names,
    rebuild,
    substitute,
    unused,
)


def levels(program: Program, others: Mapping[str, Level] | None = None) -> dict[str, Level]:
    """Return what each name of a program belongs to.

    Args:
        program: of which the inputs vary from element to element.
        others: inputs that do not.
    """
    found = dict.fromkeys(program.inputs, Level.ELEMENT) | dict.fromkeys(program.params, Level.CALL)
    found |= others or {}
    for let in program.lets:
        found[let.name] = level(let.term, found)
    return found


def level(term: Term, known: Mapping[str, Level]) -> Level:
    """Return what the value of a term belongs to."""
    if is_fold(term):
        return Level.ROW
    if isinstance(term, Name):
        return Level.ELEMENT if term.name == PLACE else known[term.name]
    return max((level(part, known) for part in children(term)), default=Level.CALL)


def flat(program: Program, others: Mapping[str, Level] | None = None) -> Program:
    """Return the program with a let for each fold, and for each part of an element that is one of its row.

    A quotient by a value of the row, or by a scalar, is a product by its reciprocal. Lets of scalars are
    put where they are read, and of equal lets there is one.
    """
    namer, scalars = Namer(program, others), dict[str, Term]()
    for let in program.lets:
        term = substitute(let.term, scalars)
        if isinstance(term, Name) or level(term, namer.of) is Level.CALL:
            scalars[let.name] = term
            continue
        term = namer.parts(term)
        same = namer.known(term)
        if same is None:
            namer.add(let.name, term)
        else:
            scalars[let.name] = same
    results = tuple(namer.result(substitute(result, scalars)) for result in program.results)
    params = dict.fromkeys((*program.params, SHARE))
    return Program(program.inputs, tuple(params), tuple(namer.lets), results)


class Namer:
    """The lets so far, and what each name belongs to."""

    def __init__(self, program: Program, others: Mapping[str, Level] | None) -> None:
        self.lets: list[Let] = []
        self.of = levels(Program(program.inputs, (*program.params, SHARE), (), ()), others)
        self.taken = {*program.inputs, *program.params, *(let.name for let in program.lets)}

    def add(self, name: str, term: Term) -> None:
        """Add a let with a name that nothing has."""
        self.lets.append(Let(name, term))
        self.of[name] = level(term, self.of)

    def named(self, term: Term, like: str) -> Name:
        """Return the name of a let with this value."""
        same = self.known(term)
        if same is None:
            same = Name(unused(like, self.taken | OPS.keys() | FOLDS.keys() | SCANS.keys()))
            self.taken.add(same.name)
            self.add(same.name, term)
        return same

    def known(self, term: Term) -> Name | None:
        """Return the name of a value that a let has already."""
        return next((Name(let.name) for let in self.lets if let.term == term), None)

    def placed(self, term: Term) -> Term:
        """Return a term whose folds and values of the row have names."""
        term = self.parts(term)
        return self.named(term, f"row_{term.spec}") if makes_a_loop(term) else term

    def result(self, term: Term) -> Term:
        """Return a result; of a row it is a name."""
        term = self.placed(term)
        return self.named(term, "of_row") if self.is_of_row(term) else term

    def parts(self, term: Term) -> Term:
        """Return a term with its parts in their places."""
        term = rebuild(term, self.placed)
        match term:
            case Apply("sub", (Name(name), Number(value=0))) if name == LENGTH:
                return Name(LENGTH)  # of a variance without a correction
            case Apply("div", (part, Name(name)), span) if name == LENGTH:
                term = Apply("mul", (part, Name(SHARE)), span)
            case Apply("div", (part, divisor), span) if (
                names(divisor) and level(divisor, self.of) < level(part, self.of) is Level.ELEMENT
            ):
                term = Apply("mul", (part, call("reciprocal", divisor)), span)
        if level(term, self.of) is Level.ELEMENT or is_fold(term):
            return rebuild(term, lambda part: self.named(part, "of_row") if self.is_of_row(part) else part)
        return term

    def is_of_row(self, term: Term) -> bool:
        """Return True if a term is a value of the row that has no name yet."""
        computed = isinstance(term, Apply) and not OPS[term.op].boolean
        return computed and level(term, self.of) is Level.ROW
