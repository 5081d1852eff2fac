"""The gradient of a program with folds.

A value of the row is read by all of its elements, so that its adjoint is the sum of what they pass on; a
fold passes its adjoint, a value of the row, on to each element. So the gradient is a program with folds.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from fusegen.algebra.derive.inline import free_name
from fusegen.algebra.derive.reverse import GRAD, ZERO, Part, Reverse
from fusegen.algebra.rows.flat import flat, level, levels
from fusegen.core.folds import AMAX, AMIN, FINDS, FIRST, LENGTH, PLACE, SHARE, SUM, Level, fold, is_fold
from fusegen.core.scans import CUMPROD, FACTORS, SCANS, SLOPE, Scan, is_scan
from fusegen.core.term import Apply, Let, Name, Number, Program, SpecCall, Term, call, children, rebuild

ONE = Number(Fraction(1))


def derive_rows(
    program: Program, stored: Sequence[Level], results: Sequence[str] = (), of_rows: Collection[str] = ()
) -> Program:
    """Return the program of the gradients of a program with folds, which reads the inputs.

    Args:
        program: with folds.
        stored: what each of its results belongs to, and so the gradient of it.
        results: their names, where there are several.
        of_rows: the inputs of which a row has one value.
    """
    others = dict.fromkeys(of_rows, Level.ROW)
    program = flat(_rebuilt(program, _with_squares), others)
    grads = [f"{GRAD}_{name}" for name in results] or [GRAD]
    gradients = _rebuilt(_RowReverse(program, stored, grads, others).backward(), _with_products)
    return linear(gradients, {**others, **dict(zip(gradients.inputs, stored, strict=False))})


def _rebuilt(program: Program, change: Callable[[Term], Term]) -> Program:
    lets = tuple(Let(let.name, change(let.term)) for let in program.lets)
    return replace(program, lets=lets, results=tuple(map(change, program.results)))


def _with_squares(term: Term) -> Term:
    """Return a term whose powers of 2 are squares, the gradients of which are linear in what is squared."""
    term = rebuild(term, _with_squares)
    match term:
        case Apply("pow", (base, Number(2)), span):
            return Apply("square", (base,), span)
    return term


def _with_products(term: Term) -> Term:
    """Return a term whose products of elements are those of the elements before, times their own."""
    term = rebuild(term, _with_products)
    if not is_scan(term) or SCANS[term.spec].kind != CUMPROD:
        return term
    scan, before = SCANS[term.spec], _before(SCANS[term.spec], *term.args)
    return before if scan.exclusive else call("mul", before, *term.args)


def _before(scan: Scan, element: Term) -> SpecCall:
    return SpecCall(Scan(FACTORS, scan.reverse, exclusive=True).name, (element,))


class _RowReverse(Reverse):
    """The steps forward and back, and what their values belong to."""

    def __init__(
        self, program: Program, stored: Sequence[Level], grads: Sequence[str], others: Mapping[str, Level]
    ) -> None:
        super().__init__(program, grads)
        of_grads = {free_name(name, self.taken): of for name, of in zip(grads, stored, strict=True)}
        self.known = levels(program, others) | of_grads

    def level(self, term: Term) -> Level:
        """Return what the value of a term belongs to."""
        for step in (*self.steps, *self.back):
            if step.name not in self.known:
                self.known[step.name] = level(step.term, self.known)
        return level(term, self.known)

    def add(self, arg: Term, part: Part) -> None:
        """Add to the adjoint of an argument; to that of a value of the row the sum along it."""
        if isinstance(arg, Name) and arg.name not in self.constants and self.level(arg) < self.passed(part):
            part = Part(fold(SUM, self.total([self.part(part)])))
        super().add(arg, part)

    def passed(self, part: Part) -> Level:
        """Return what a contribution belongs to."""
        return max(self.level(term) for term in (part.term, *(condition for condition, _ in part.where)))

    def parts(self, operation: Apply | SpecCall, g: Term, y: Term) -> tuple[Term | None, ...]:
        """Return the gradients of an operation's arguments, or of the elements of a fold."""
        match operation:
            case SpecCall(SUM.name):
                return (g,)
            case SpecCall(name) if name in FINDS:
                return (None,)
            case SpecCall(name, (element,)) if name in SCANS:
                return (self.scanned(SCANS[name], element, g),)
            case SpecCall(AMAX.name | AMIN.name, (element,)):  # shared evenly, as in PyTorch
                equal = call("eq", element, y)
                count = fold(SUM, Apply("where", (equal, ONE, ZERO)))
                return (call("div", Apply("where", (equal, g, ZERO)), count),)  # NaN, where none is equal
            case SpecCall(name, (element,)) if name in FIRST:  # of equal elements, and of NaN
                place = Name(PLACE)
                of_nan = Apply("where", (call("eq", element, element), Name(LENGTH), place))
                first = fold(AMIN, Apply("where", (call("eq", element, y), place, of_nan)))
                return (Apply("where", (call("eq", place, first), g, ZERO)),)
        return super().parts(operation, g, y)

    def scanned(self, scan: Scan, element: Term, g: Term) -> Term:
        """Return the gradient of what is scanned: a scan the other way."""
        back = replace(scan, reverse=not scan.reverse)
        if scan.kind != CUMPROD:
            return SpecCall(back.name, (g,))
        before = self.named(_before(scan, element), "before")
        return SpecCall(replace(back, kind=SLOPE).name, (g, element, before))

    def named(self, term: Term, like: str) -> Term:
        """Return the name of a step with this value; a fold is a step."""
        if not is_fold(term):
            return super().named(term, like)
        found = rebuild(term, lambda part: self.named(part, "t"))
        self.steps.append(Let(self.fresh(like), found))
        return Name(self.steps[-1].name)


def linear(program: Program, others: Mapping[str, Level]) -> Program:
    """Return a program in which factors of the row stand before sums along it.

    A sum of terms is cut into sums where these run in earlier loops: of the gradient of a layer norm, two
    loops are left of three.

    Args:
        program: of gradients.
        others: what the incoming gradients, and the inputs of which a row has one value, belong to.
    """
    sums = _Linear(program, others)
    lets = []
    for let in program.lets:
        lets.append(Let(let.name, sums.rebuilt(let.term)))
        sums.take(lets[-1])
    return Program(program.inputs, program.params, tuple(lets), tuple(map(sums.rebuilt, program.results)))


def _without_zeros(term: Term) -> Term:
    """Return a term without sums and products of 0."""
    term = rebuild(term, _without_zeros)
    match term:
        case Apply("mul", (_, zero)) | Apply("mul", (zero, _)) if zero == ZERO:
            return ZERO
        case Apply("add" | "sub", (other, zero)) | Apply("add", (zero, other)) if zero == ZERO:
            return other
    return term


class _Linear:
    """The lets so far, what they belong to, and how many loops have to end before they are known."""

    def __init__(self, program: Program, others: Mapping[str, Level]) -> None:
        self.terms: dict[str, Term] = {}
        self.of: dict[str, Level] = levels(Program(program.inputs, program.params, (), ()), others)
        self.loops: dict[str, int] = dict.fromkeys((*self.of, PLACE), 0)

    def take(self, let: Let) -> None:
        """Keep a let."""
        self.terms[let.name], self.of[let.name] = let.term, level(let.term, self.of)
        self.loops[let.name] = self.depth(let.term)

    def depth(self, term: Term) -> int:
        """Return how many loops have to end before a value is known."""
        if isinstance(term, Name):
            return self.loops[term.name]
        return max(map(self.depth, children(term)), default=0) + is_fold(term)

    def rebuilt(self, term: Term) -> Term:
        """Return a term whose sums are linear."""
        term = rebuild(term, self.rebuilt)
        if not (isinstance(term, SpecCall) and term.spec == SUM.name):
            return term
        found = _without_zeros(self.summed(term.args[0]))
        return found if self.depth(found) < self.depth(term) else self.factored(term.args[0])

    def factored(self, term: Term) -> Term:
        """Return the sum of a term along its row, without the factors of the row."""
        match term:
            case Apply("neg", (part,)):
                return call("neg", self.factored(part))
            case Apply("mul", (a, b)) if level(a, self.of) < Level.ELEMENT:
                return call("mul", a, self.factored(b))
            case Apply("mul" | "div" as op, (a, b)) if level(b, self.of) < Level.ELEMENT:
                return call(op, self.factored(a), b)
        return fold(SUM, term)

    def summed(self, term: Term) -> Term:
        """Return the sum of a term along its row, cut into the sums of its terms."""
        match term:
            case Name(name) if name in self.terms and self._is_linear(self.terms[name]):
                return self.summed(self.terms[name])
            case Apply("sub", (a, Name(name))) if self._is_mean(name, a):
                return ZERO
            case Apply("add" | "sub" as op, (a, b)):
                return call(op, self.summed(a), self.summed(b))
            case Apply("neg", (part,)):
                return call("neg", self.summed(part))
            case Apply("mul", (a, b)) if level(a, self.of) < Level.ELEMENT:
                return call("mul", a, self.summed(b))
            case Apply("mul" | "div" as op, (a, b)) if level(b, self.of) < Level.ELEMENT:
                return call(op, self.summed(a), b)
        if level(term, self.of) < Level.ELEMENT:
            return call("mul", term, Name(LENGTH))
        return fold(SUM, term)

    def _is_mean(self, name: str, of: Term) -> bool:
        """Return True if a value of the row is the mean of a term."""
        match self.terms.get(name):
            case Apply("mul", (Name(total), Name(share))):
                return share == SHARE and self.terms.get(total) == fold(SUM, of)
        return False

    def _is_linear(self, term: Term) -> bool:
        if not isinstance(term, Apply) or level(term, self.of) < Level.ELEMENT:
            return False
        return term.op in ("add", "sub", "neg", "div") or (
            term.op == "mul" and any(level(part, self.of) < Level.ELEMENT for part in term.args)
        )
