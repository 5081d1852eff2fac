"""Programs with folds, cut into phases: loops over the elements of a row, and what is between them.

Each phase is an ordinary program of an element, whose parameters are the scalars of the call and the values
of the row so far. Its results are folded, or, in the last phase, stored. So the stages below take a phase
as they take any program.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fusegen.algebra.derive.inline import inlined
from fusegen.algebra.rows.flat import flat, level, levels
from fusegen.core.folds import FOLDS, PLACE, SUM, Fold, Level, is_fold, makes_a_loop
from fusegen.core.scans import SCANS, Scan, is_scan
from fusegen.core.term import Apply, Let, Name, Number, Program, SpecCall, Term, names, needed

NOTHING = Program((), (), (), ())


@dataclass(frozen=True, slots=True)
class Phase:
    """A loop over the elements of a row, and what follows from its folds.

    Attributes:
        elements: the program of an element, with a result for each fold, or for each output.
        folds: how its results are folded, or scanned; none in the last phase, which stores them.
        folded: the names of the values of the row that the folds make, or of elements that a scan makes.
        row: the program of what is computed once a row behind the loop, from values of the row and scalars.
        values: the names of its results.
        picks: whether it is no loop: what it reduces is 0 but for the element that an index picks.
    """

    elements: Program
    folds: tuple[Fold | Scan, ...]
    folded: tuple[str, ...]
    row: Program
    values: tuple[str, ...]
    picks: bool = False

    @property
    def loads(self) -> bool:
        """True if it is no loop: it reads inputs of which a row has one value."""
        return not self.elements.results

    @property
    def scan(self) -> Scan | None:
        """The scan of its results, if it has one."""
        return next((fold for fold in self.folds if isinstance(fold, Scan)), None)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The phases of a program, in order.

    Attributes:
        inputs: the tensors, in the order of the spec.
        params: the scalars of the call.
        phases: the last one stores.
        stored: whether results are of elements or of rows.
        sums: the values of the row that are results beside those of elements.
    """

    inputs: tuple[str, ...]
    params: tuple[str, ...]
    phases: tuple[Phase, ...]
    stored: Level
    sums: tuple[str, ...] = ()

    @property
    def scanned(self) -> tuple[str, ...]:
        """The names of the elements that scans make."""
        return tuple(name for phase in self.phases if phase.scan for name in phase.folded)

    @property
    def loads(self) -> bool:
        """True if the first phase reads inputs of which a row has one value, before any loop."""
        return self.phases[0].loads

    @property
    def is_placed(self) -> bool:
        """True if a phase reads the places of elements in their row."""
        return any(PLACE in phase.elements.inputs for phase in self.phases)

    @property
    def values(self) -> tuple[str, ...]:
        """The scalars of the call and the values of the row that any phase reads."""
        made = [name for phase in self.phases for name in (*phase.folded, *phase.values)]
        read = {name for phase in self.phases for name in (*phase.elements.params, *phase.row.inputs)}
        read |= {*self.sums}
        return tuple(name for name in (*self.params, *made) if name in read)


def schedule(
    program: Program, indices: Collection[str] = (), of_rows: Collection[str] = (), sums: int = 0
) -> Schedule:
    """Return the phases of a program: a fold runs as soon as the values of the row that it reads exist.

    Args:
        program: with folds.
        indices: the inputs that pick an element of each row.
        of_rows: the inputs of which a row has one value; the first phase has what follows from these alone.
        sums: how many of the results, the last ones, are values of the row beside those of elements.
    """
    known = dict.fromkeys(of_rows, Level.ROW)
    program = flat(program, known)
    of, depth = levels(program, known), dict.fromkeys((*program.inputs, *program.params, PLACE), 0)
    for let in program.lets:
        depth[let.name] = max((depth[name] for name in names(let.term)), default=0) + makes_a_loop(let.term)
    folds = [(let.name, let.term) for let in program.lets if makes_a_loop(let.term)]
    row = [let for let in program.lets if of[let.name] is Level.ROW and not is_fold(let.term)]
    phases = []
    for k in range(not of_rows, 1 + max((depth[name] for name, _ in folds), default=0)):
        own = [(name, fold) for name, fold in folds if depth[name] == k]
        behind = [let for let in row if depth[let.name] == k]
        read = {name for let in program.lets if let not in behind for name in names(let.term)}
        read |= {name for result in program.results for name in names(result)}
        made = tuple(let.name for let in behind if let.name in read)
        picked = [each for each in own if _is_pick(each[1], indices)]
        scanned = [[each] for each in own if is_scan(each[1])]
        rest = [each for each in own if each not in picked and [each] not in scanned]
        for some in [some for some in (picked, *scanned, rest) if some] or [[]]:
            picks = bool(picked) and some is picked
            phases.append(Phase(*_reduced(program, of, some), NOTHING, (), picks))
        phases[-1] = replace(phases[-1], row=_behind(program, made, behind), values=made)
    stored = max(level(result, of) for result in program.results)
    count = len(program.results) - sums
    stores = part_of(program, of, program.results[:count])
    phases.append(Phase(stores, (), (), NOTHING, ()))
    others = tuple(name for result in program.results[count:] for name in names(result))
    return Schedule(program.inputs, program.params, tuple(phases), stored, others)


def _reduced(
    program: Program, of: Mapping[str, Level], folds: Sequence[tuple[str, SpecCall]]
) -> tuple[Program, tuple[Fold | Scan, ...], tuple[str, ...]]:
    """Return what folds or scans take of an element, how they do, and their names."""
    elements = part_of(program, of, [arg for _, fold in folds for arg in fold.args])
    by = tuple(FOLDS.get(fold.spec) or SCANS[fold.spec] for _, fold in folds)
    return elements, by, tuple(name for name, _ in folds)


def _is_pick(fold: SpecCall, indices: Collection[str]) -> bool:
    """Return True if a fold is a sum of 0 but for the element that an index picks."""
    match fold:
        case SpecCall(SUM.name, (Apply("where", (Apply("ne", (Name(name), _)), _, Number(0))),)):
            return name in indices
    return False


def part_of(program: Program, of: Mapping[str, Level], results: Iterable[Term]) -> Program:
    """Return the program of some results of elements; values of the row are parameters."""
    results = tuple(results)
    scanned = [let.name for let in program.lets if is_scan(let.term)]
    own = [let for let in program.lets if of[let.name] is not Level.ROW and let.name not in scanned]
    lets = needed(own, results)
    read = _read(lets, results)
    elements = [name for name in program.inputs if of[name] is Level.ELEMENT]
    inputs = tuple(name for name in (*elements, *scanned, PLACE) if name in read)
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
