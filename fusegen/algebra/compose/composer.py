"""The program of a spec: its steps, and those of the specs that it names, with a name each."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction

from fusegen.algebra.compose.bound_arguments import (
    bound_arguments,
    check_argument,
    check_masks,
    check_number,
    is_condition,
    signature_of,
)
from fusegen.core.constructor import Layer
from fusegen.core.folds import FOLDS, LENGTH, REDUCTIONS, Reduction, signature
from fusegen.core.ops import FUNCTIONS, OPS, argument_count, called
from fusegen.core.poolings import POOLINGS, poolings
from fusegen.core.row_dimensions import Over
from fusegen.core.scans import SCANS
from fusegen.core.spec import Spec, Step
from fusegen.core.term import Apply, Let, Name, Number, SpecCall, Term, names, rebuild, walk
from fusegen.errors import (
    ChainCycle,
    FusegenError,
    NoRows,
    OtherRows,
    SpecErrors,
    StepHasDropout,
    StepHasInputs,
    StepHasLayers,
    StepHasResults,
    StepHasViews,
    StepHasWindows,
    StepIgnoresValue,
    TooMany,
    UnknownFunction,
    WrongArity,
    absent,
    counted,
)

MAX_CALLS = 500
Library = Callable[[str], Spec | None]


def _fits(call: SpecCall, spec: Spec) -> None:
    """Any spec fits within a formula."""


def _stands_inside(call: SpecCall, spec: Spec) -> None:
    """Refuse a call of a spec with layers, views or windows of its own."""
    if spec.front or any(isinstance(item, Layer) for item in spec.layers):
        raise StepHasLayers(call.span, name=call.spec)
    for view in (each.view for each in spec.tensors if each.is_viewed):
        raise StepHasViews(call.span, name=call.spec, view=view)
    others = {StepHasResults: spec.results, StepHasWindows: poolings(spec), StepHasDropout: spec.dropouts}
    for mistake in (each for each, found in others.items() if found):
        raise mistake(call.span, name=call.spec)


def _of_one_tensor(call: SpecCall, spec: Spec) -> None:
    """Refuse a step of a chain, which is given by its name, that takes other tensors than one."""
    if len(spec.tensors) != 1:
        takes = counted(len(spec.tensors), "tensor")
        raise StepHasInputs(call.span, name=call.spec, takes=takes, signature=signature_of(spec))


def _label(step: Step, index: int) -> str:
    """Return the name of a step's value: its own, or one that says where it is from."""
    if step.label:
        return step.label.name
    return f"after_{step.call.spec}" if step.call else f"step{index + 1}"


class Composer:
    """The lets so far, and the names they may not take."""

    def __init__(
        self, library: Library, known: tuple[str, ...], taken: list[str], over: Over | None = None
    ) -> None:
        self.library, self.known, self.taken, self.over = library, known, taken, over
        self.lets: list[Let] = []
        self.errors: list[FusegenError] = []
        self.calls = 0

    def value(self, spec: Spec, values: dict[str, Term], path: tuple[str, ...]) -> Term:
        """Return the value of a spec, where its inputs and parameters have the given values."""
        for line in spec.where:
            values[line.name] = line.term
            with self.collecting(path):
                values[line.name] = self.bind(line.name, self.resolve(line.term, values, path))
        if spec.formula is not None:
            with self.collecting(path):
                return self.resolve(spec.formula, values, path)
            return spec.formula
        running = spec.inputs[0].name
        for index, step in enumerate(spec.chain):
            with self.collecting(path):
                value = self.step(spec, step, running, values, path)
                last = index == len(spec.chain) - 1
                values[running] = value if last else self.bind(_label(step, index), value)
            if step.label:
                values[step.label.name] = values[running]
        return values[running]

    @contextmanager
    def collecting(self, path: tuple[str, ...]) -> Iterator[None]:
        """Note a mistake of the spec itself and go on behind the block; one inside a call ends the call."""
        try:
            yield
        except FusegenError as error:
            if len(path) > 1:
                raise
            self.errors.append(error)
            if isinstance(error, TooMany):
                raise SpecErrors(self.errors) from None

    def step(
        self, spec: Spec, step: Step, running: str, values: dict[str, Term], path: tuple[str, ...]
    ) -> Term:  # fmt: skip
        """Return the value after one step of a chain."""
        if step.term is not None:
            if all(values.get(name) != values[running] for name in names(step.term)):
                raise StepIgnoresValue(step.span, running=running)
            return self.resolve(step.term, values, path)
        assert step.call is not None
        name, current = step.call.spec, values[running]
        if name in POOLINGS:
            return self.pooling(replace(step.call, args=(current,)))
        keywords = tuple((key, self.resolve(value, values, path)) for key, value in step.call.keywords)
        if self.library(name) is None and name in FUNCTIONS:
            op = FUNCTIONS[name]
            given: dict[str, Term] = {op.args[0]: current}
            for key, value in keywords:
                check_argument(step.call, key, op.args, given, op.signature)
                check_number(step.call, key, value)
                given[key] = value
            row = called(op, given)
            if row is None:
                takes, signature = argument_count(op), op.signature
                raise StepHasInputs(step.span, name=name, takes=takes, signature=signature)
            applied = Apply(row.name, tuple(given[arg] for arg in row.args), step.span)
            return self.operation(applied)
        return self.call(SpecCall(name, (current,), keywords, step.span), path, _of_one_tensor)

    def resolve(self, term: Term, values: dict[str, Term], path: tuple[str, ...]) -> Term:
        """Return a term with names replaced by their values and calls of specs by what those specs say."""
        if isinstance(term, Name):
            return values[term.name]
        if isinstance(term, SpecCall) and term.spec in POOLINGS:
            args = tuple(self.resolve(arg, values, path) for arg in term.args)
            return self.pooling(replace(term, args=args))
        term = rebuild(term, lambda part: self.resolve(part, values, path))
        if isinstance(term, SpecCall):
            return self.call(term, path)
        if isinstance(term, Apply):
            return self.operation(term)
        return term

    def operation(self, step: Apply) -> Term:
        """Return one operation."""
        return step

    def call(
        self, call: SpecCall, path: tuple[str, ...], fits: Callable[[SpecCall, Spec], None] = _fits
    ) -> Term:
        """The value of another spec applied to resolved arguments, if it fits the place of the call."""
        spec = self.library(call.spec)
        self.calls += 1
        if self.calls > MAX_CALLS:
            remedy = "split it into several specs"
            raise TooMany(call.span, what="the chain", limit=MAX_CALLS, parts="steps", remedy=remedy)
        if call.spec in REDUCTIONS and (spec is None or self.over is not None):
            return self.reduction(call, REDUCTIONS[call.spec], path)
        if spec is None:
            return self.unknown(call, path)
        if spec.over not in (None, self.over) and not spec.results:
            raise OtherRows(call.span, name=call.spec, over=str(spec.over))
        if call.spec in path:
            cycle = " -> ".join([*path[path.index(call.spec) :], call.spec])
            raise ChainCycle(call.span, cycle=cycle, running=spec.inputs[0].name)
        _stands_inside(call, spec)
        fits(call, spec)
        values = bound_arguments(spec, call)
        check_masks(spec, call, values)
        for name, value in values.items():
            if not isinstance(value, Name | Number) and _mentions(spec, name) > 1:
                values[name] = self.bind(f"{call.spec}_{name}", value)
        return self.value(spec, values, (*path, call.spec))

    def reduction(self, call: SpecCall, row: Reduction, path: tuple[str, ...]) -> Term:
        """Return a reduction of the rows of the spec: a fold as it is, another one as the formula it is."""
        if self.over is None or not self.over.is_declared:
            if call.spec in absent.INSTEAD and len(call.args) > len(row.args):  # as max(a, b)
                return self.unknown(call, path)
            with self.collecting(path):
                raise NoRows(call.span, name=call.spec)
            return next(iter(call.args), Number(Fraction(0)))
        values: dict[str, Term] = dict(zip(row.args, call.args, strict=False))
        shown = signature(call.spec)
        for key, value in call.keywords:
            check_argument(call, key, row.args, values, shown)
            values[key] = value
        if len(call.args) > len(row.args) or len(values) < len(row.args):
            total = len(call.args) + len(call.keywords)
            found, takes = f"{total or 'none'} {'is' if total < 2 else 'are'}", len(row.args)
            own = {"expected": counted(takes, "argument"), "found": found, "signature": shown}
            raise WrongArity(call.span, name=call.spec, **own)
        if call.spec in FOLDS or call.spec in SCANS:
            return self.fold(SpecCall(call.spec, tuple(values.values()), (), call.span))
        values = {key: self.bind(f"{call.spec}_{key}", value) for key, value in values.items()}
        formula = row.value(*map(Name, row.args))
        return self.resolve(formula, {**values, LENGTH: Name(LENGTH)}, path)

    def pooling(self, call: SpecCall) -> Term:
        """Return a pooling as a formula of its fold."""
        return POOLINGS[call.spec].value(call.args[0])

    def fold(self, fold: SpecCall) -> Term:
        """Return one reduction."""
        return fold

    def unknown(self, call: SpecCall, path: tuple[str, ...]) -> Term:
        """Record an unknown function and continue with its arguments, so that one error names all."""
        near = absent.remedy(call.spec, {*self.known, *FUNCTIONS}.difference(path))
        with self.collecting(path):
            raise UnknownFunction(call.span, name=call.spec, lack=absent.lack(call.spec), near=near)
        return next(iter(call.args), Number(Fraction(0)))

    def bind(self, name: str, value: Term) -> Term:
        """A new let, under the first free name like `name`; a name, a number or a condition needs none."""
        if isinstance(value, Name | Number) or is_condition(value):
            return value
        free, count = name, 1
        while free in self.taken or free in OPS:
            count += 1
            free = f"{name}{count}"
        self.taken.append(free)
        self.lets.append(Let(free, value))
        return Name(free)


def _mentions(spec: Spec, name: str) -> int:
    """Return the number of times that the body of `spec`, written out, reads the value of `name`."""
    terms = [line.term for line in spec.where] + ([spec.formula] if spec.formula else [])
    written = sum(part == Name(name) for term in terms for part in walk(term))
    return written + (2 if spec.chain and name == spec.inputs[0].name else 0)
