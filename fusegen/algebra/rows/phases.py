"""Programs with folds, cut into phases: loops over the elements of a row, and what is between them.

Each phase is an ordinary program of an element, whose parameters are the scalars of the call and the values
of the row so far. Its results are folded, or, in the last phase, stored. So the stages below take a phase
as they take any program.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fusegen.algebra.derive.inline import inlined
from fusegen.core.folds import FOLDS, LENGTH, SHARE, SUM, Fold, Level, is_fold
from fusegen.core.ops import OPS
from fusegen.core.term import (
    Apply,
    Let,
    Name,
    Number,
    Program,
    SpecCall,
    Term,
    call,
    children,
    names,
    needed,
    rebuild,
    substitute,
    unused,
)

NOTHING = Program((), (), (), ())


@dataclass(frozen=True, slots=True)
class Phase:
    """A loop over the elements of a row, and what follows from its folds.

    Attributes:
        elements: the program of an element, with a result for each fold, or for each output.
        folds: how its results are folded; none in the last phase, which stores them.
        folded: the names of the values of the row that the folds make.
        row: the program of what is computed once a row behind the loop, from values of the row and scalars.
        values: the names of its results.
        picks: whether it is no loop: what it reduces is 0 but for the element that an index picks.
    """

    elements: Program
    folds: tuple[Fold, ...]
    folded: tuple[str, ...]
    row: Program
    values: tuple[str, ...]
    picks: bool = False


@dataclass(frozen=True, slots=True)
class Schedule:
    """The phases of a program, in order.

    Attributes:
        inputs: the tensors, in the order of the spec.
        params: the scalars of the call.
        phases: the last one stores.
        stored: whether results are of elements or of rows.
    """

    inputs: tuple[str, ...]
    params: tuple[str, ...]
    phases: tuple[Phase, ...]
    stored: Level

    @property
    def values(self) -> tuple[str, ...]:
        """The scalars of the call and the values of the row that any phase reads."""
        made = [name for phase in self.phases for name in (*phase.folded, *phase.values)]
        read = {name for phase in self.phases for name in (*phase.elements.params, *phase.row.inputs)}
        return tuple(name for name in (*self.params, *made) if name in read)


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
        return known[term.name]
    return max((level(part, known) for part in children(term)), default=Level.CALL)


def schedule(program: Program, indices: Collection[str] = ()) -> Schedule:
    """Return the phases of a program: a fold runs as soon as the values of the row that it reads exist.

    Args:
        program: with folds.
        indices: the inputs that pick an element of each row.
    """
    program = flat(program)
    of, depth = levels(program), dict.fromkeys((*program.inputs, *program.params), 0)
    for let in program.lets:
        depth[let.name] = max((depth[name] for name in names(let.term)), default=0) + is_fold(let.term)
    folds = [(let.name, let.term) for let in program.lets if is_fold(let.term)]
    row = [let for let in program.lets if of[let.name] is Level.ROW and not is_fold(let.term)]
    phases = []
    for k in range(1, 1 + max((depth[name] for name, _ in folds), default=0)):
        own = [(name, fold) for name, fold in folds if depth[name] == k]
        behind = [let for let in row if depth[let.name] == k]
        read = {name for let in program.lets if let not in behind for name in names(let.term)}
        read |= {name for result in program.results for name in names(result)}
        made = tuple(let.name for let in behind if let.name in read)
        split = [[each for each in own if _is_pick(each[1], indices) is picks] for picks in (True, False)]
        for some in filter(None, split):
            last = some is split[1] or not split[1]
            phases.append(
                Phase(
                    _part(program, of, [fold.args[0] for _, fold in some]),
                    tuple(FOLDS[fold.spec] for _, fold in some),
                    tuple(name for name, _ in some),
                    _behind(program, made, behind) if last else NOTHING,
                    made if last else (),
                    some is split[0],
                )
            )
    stored = max(level(result, of) for result in program.results)
    stores = _part(program, of, program.results)
    phases.append(Phase(stores, (), (), NOTHING, ()))
    return Schedule(program.inputs, program.params, tuple(phases), stored)


def _is_pick(fold: SpecCall, indices: Collection[str]) -> bool:
    """Return True if a fold is a sum of 0 but for the element that an index picks."""
    match fold:
        case SpecCall(SUM.name, (Apply("where", (Apply("ne", (Name(name), _)), _, Number(0))),)):
            return name in indices
    return False


def _part(program: Program, of: Mapping[str, Level], results: Iterable[Term]) -> Program:
    """Return the program of some results of elements; values of the row are parameters."""
    results = tuple(results)
    lets = needed([let for let in program.lets if of[let.name] is not Level.ROW], results)
    read = _read(lets, results)
    inputs = tuple(name for name in program.inputs if name in read)
    return Program(inputs, tuple(name for name in read if name not in inputs), lets, results)


def _behind(program: Program, made: Sequence[str], row: Sequence[Let]) -> Program:
    """Return the program of some lets of the row, of what it reads."""
    results = tuple(map(Name, made))
    lets = needed(row, results)
    return inlined(Program(_read(lets, results), (), lets, results), set())


def _read(lets: Sequence[Let], results: Sequence[Term]) -> tuple[str, ...]:
    """Return the names that are read and are no lets."""
    read = dict.fromkeys(name for term in (*(let.term for let in lets), *results) for name in names(term))
    inside = {let.name for let in lets}
    return tuple(name for name in read if name not in inside)


def flat(program: Program) -> Program:
    """Return the program with a let for each fold, and for each part of an element that is one of its row.

    A quotient by a value of the row is a product by its reciprocal. Lets of scalars are put where they are
    read.
    """
    namer, scalars = _Namer(program), dict[str, Term]()
    for let in program.lets:
        term = substitute(let.term, scalars)
        if isinstance(term, Name) or level(term, namer.of) is Level.CALL:
            scalars[let.name] = term
        else:
            namer.add(let.name, namer.parts(term))
    results = tuple(namer.result(substitute(result, scalars)) for result in program.results)
    params = dict.fromkeys((*program.params, SHARE))
    return Program(program.inputs, tuple(params), tuple(namer.lets), results)


class _Namer:
    """The lets so far, and what each name belongs to."""

    def __init__(self, program: Program) -> None:
        self.lets: list[Let] = []
        self.of = levels(Program(program.inputs, (*program.params, SHARE), (), ()))
        self.taken = {*program.inputs, *program.params, *(let.name for let in program.lets)}

    def add(self, name: str, term: Term) -> None:
        self.lets.append(Let(name, term))
        self.of[name] = level(term, self.of)

    def named(self, term: Term, like: str) -> Name:
        """Return the name of a let with this value."""
        same = next((let.name for let in self.lets if let.term == term), None)
        if same is None:
            same = unused(like, self.taken | OPS.keys() | FOLDS.keys())
            self.taken.add(same)
            self.add(same, term)
        return Name(same)

    def placed(self, term: Term) -> Term:
        """Return a term whose folds and values of the row have names."""
        term = self.parts(term)
        return self.named(term, f"row_{term.spec}") if is_fold(term) else term

    def result(self, term: Term) -> Term:
        """Return a result; of a row it is a name."""
        term = self.placed(term)
        return self.named(term, "of_row") if self.is_of_row(term) else term

    def parts(self, term: Term) -> Term:
        """Return a term with its parts in their places."""
        term = rebuild(term, self.placed)
        match term:
            case Apply("div", (part, Name(name)), span) if name == LENGTH:
                term = Apply("mul", (part, Name(SHARE)), span)
            case Apply("div", (part, divisor), span) if (
                level(divisor, self.of) is Level.ROW and level(part, self.of) is Level.ELEMENT
            ):
                term = Apply("mul", (part, call("reciprocal", divisor)), span)
        if level(term, self.of) is Level.ELEMENT or is_fold(term):
            return rebuild(term, lambda part: self.named(part, "of_row") if self.is_of_row(part) else part)
        return term

    def is_of_row(self, term: Term) -> bool:
        """Return True if a term is a value of the row that has no name yet."""
        computed = isinstance(term, Apply) and not OPS[term.op].boolean
        return computed and level(term, self.of) is Level.ROW
