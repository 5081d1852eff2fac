"""A spec and the specs it names, put together into one `Program`.

A chain's steps are applied one after the other. Whatever a step needs more than once is bound to a name:
the lines of `where` keep theirs, the value of a step `relu` is called `after_relu`. Names taken from
another spec are renamed where they would meet a name already in use.

An eager program is one of the operations that PyTorch would run, each followed by `rounded`, eager's
rounding to the storage type. A spec whose `reference` is one of the kernels of `aten.ATEN` is one such
operation, and stays a call of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction

from fusegen.aten import ATEN
from fusegen.errors import (
    ChainCycle,
    FusegenError,
    RepeatedArgument,
    SpecErrors,
    StepHasInputs,
    StepHasLayers,
    StepIgnoresValue,
    TooMany,
    UnknownArgument,
    UnknownFunction,
    WrongArity,
    counted,
    nearest,
)
from fusegen.ops import FUNCTIONS, OPS, argument_count, called
from fusegen.signatures import argument_named
from fusegen.spec import Spec, Step
from fusegen.term import (
    Apply,
    Let,
    Name,
    Number,
    Program,
    SpecCall,
    Term,
    names,
    needed,
    rebuild,
    walk,
)

MAX_CALLS = 500
READ_TWICE = ("cube",)  # operations that eager runs as several, of which two read the argument
EAGER_KERNELS: dict[str, tuple[str, tuple[int, ...]]] = {  # and the arguments that the operation fixes
    "relu": ("torch.nn.functional.relu", ()),
    "relu6": ("torch.nn.functional.relu6", ()),
    "saturate": ("torch.nn.functional.hardtanh", ()),
    "sigmoid": ("torch.sigmoid", ()),
    "tanh": ("torch.tanh", ()),
    "softplus": ("torch.nn.functional.softplus", (1, 20)),
}

Library = Callable[[str], Spec | None]


def compose(spec: Spec, library: Library, known: tuple[str, ...] = (), eager: bool = False) -> Program:
    """The program of a spec; `library` finds other specs by name, `known` are names to suggest.

    With `eager`, the program of PyTorch's own operations, rounded after each.

    Raises:
        SpecErrors: every step and call that does not fit.
    """
    inputs, params = (tuple(v.name for v in values) for values in (spec.inputs, spec.params))
    composer = _Composer(library, known, list(inputs + params))
    values: dict[str, Term] = {name: Name(name) for name in inputs + params}
    result = composer.value(spec, values, (spec.name,), eager)
    if composer.errors:
        raise SpecErrors(composer.errors)
    return Program(inputs, params, needed(composer.lets, [result]), (result,))


def fused_call(spec: Spec, values: Mapping[str, Term]) -> SpecCall | None:
    """A call of the one kernel of PyTorch's that a spec is, on its inputs and parameters; or nothing."""
    kernel = ATEN.get(spec.reference)
    if kernel is None or not set(kernel.params) <= {p.name for p in spec.params}:
        return None
    args = (*(i.name for i in spec.inputs), *kernel.params)
    return SpecCall(spec.reference, tuple(values[name] for name in args))


def expanded(program: Program) -> Program:
    """The program with each call of one of PyTorch's kernels replaced by what that kernel computes."""

    def expand(term: Term) -> Term:
        term = rebuild(term, expand)
        return ATEN[term.spec].forward(*term.args) if isinstance(term, SpecCall) else term

    lets = tuple(Let(let.name, expand(let.term)) for let in program.lets)
    return Program(program.inputs, program.params, lets, tuple(map(expand, program.results)))


class _Composer:
    """The lets so far, and the names they may not take."""

    def __init__(self, library: Library, known: tuple[str, ...], taken: list[str]) -> None:
        self.library, self.known, self.taken = library, known, taken
        self.lets: list[Let] = []
        self.errors: list[FusegenError] = []
        self.calls = 0

    def value(self, spec: Spec, values: dict[str, Term], path: tuple[str, ...], eager: bool) -> Term:
        """The value of a spec, where its inputs and parameters have the given values."""
        fused = fused_call(spec, values) if eager else None
        if fused is None:
            return self.body(spec, values, path, eager)
        args = (
            self.bind(f"{spec.name}_{i.name}", arg) for i, arg in zip(spec.inputs, fused.args, strict=False)
        )
        return Apply("rounded", (SpecCall(fused.spec, (*args, *fused.args[len(spec.inputs) :])),))

    def body(self, spec: Spec, values: dict[str, Term], path: tuple[str, ...], eager: bool) -> Term:
        """The value of a spec written out."""
        for line in spec.where:
            values[line.name] = line.term
            with self.collecting(path):
                values[line.name] = self.bind(line.name, self.resolve(line.term, values, path, eager))
        if spec.formula is not None:
            with self.collecting(path):
                return self.resolve(spec.formula, values, path, eager)
            return spec.formula
        running = spec.inputs[0].name
        for index, step in enumerate(spec.chain):
            label = f"after_{step.call.spec}" if step.call else f"step{index + 1}"
            with self.collecting(path):
                value = self.step(spec, step, running, values, path, eager)
                last = index == len(spec.chain) - 1
                values[running] = value if last else self.bind(label, value)
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
        self, spec: Spec, step: Step, running: str, values: dict[str, Term], path: tuple[str, ...],
        eager: bool,
    ) -> Term:  # fmt: skip
        """The value after one step of a chain."""
        if step.term is not None:
            if running not in names(step.term):
                raise StepIgnoresValue(step.span, running=running)
            return self.resolve(step.term, values, path, eager)
        assert step.call is not None
        name, current = step.call.spec, values[running]
        keywords = tuple(
            (key, self.resolve(value, values, path, eager)) for key, value in step.call.keywords
        )
        if self.library(name) is None and name in FUNCTIONS:
            op = FUNCTIONS[name]
            given: dict[str, Term] = {op.args[0]: current}
            for key, value in keywords:
                _check_argument(step.call, key, op.args, given, op.signature)
                given[key] = value
            row = called(op, given)
            if row is None:
                takes, signature = argument_count(op), op.signature
                raise StepHasInputs(step.span, name=name, takes=takes, signature=signature)
            applied = Apply(row.name, tuple(given[arg] for arg in row.args), step.span)
            return self.eager_step(applied) if eager else applied
        return self.call(SpecCall(name, (current,), keywords, step.span), path, eager, by_name=True)

    def resolve(self, term: Term, values: dict[str, Term], path: tuple[str, ...], eager: bool) -> Term:
        """A term with names replaced by their values and calls of specs by what those specs say."""
        if isinstance(term, Name):
            return values[term.name]
        term = rebuild(term, lambda part: self.resolve(part, values, path, eager))
        if isinstance(term, SpecCall):
            return self.call(term, path, eager)
        if isinstance(term, Apply):
            return self.eager_step(term) if eager else term
        return term

    def eager_step(self, step: Apply) -> Term:
        """One operation as eager runs it: by a kernel of `aten.ATEN` if it has one, and rounded."""
        if step.op in READ_TWICE:
            step = Apply(step.op, tuple(self.bind(f"{step.op}_x", arg) for arg in step.args), step.span)
        if step.op not in EAGER_KERNELS or not names(step):
            return _rounded(step)
        kernel, further = EAGER_KERNELS[step.op]
        inputs = len(ATEN[kernel].inputs)
        args = [self.bind(f"{step.op}_x", arg) for arg in step.args[:inputs]]
        numbers = tuple(Number(Fraction(value)) for value in further)
        return Apply("rounded", (SpecCall(kernel, (*args, *step.args[inputs:], *numbers)),))

    def call(self, call: SpecCall, path: tuple[str, ...], eager: bool, by_name: bool = False) -> Term:
        """The value of another spec applied to resolved arguments."""
        spec = self.library(call.spec)
        self.calls += 1
        if self.calls > MAX_CALLS:
            remedy = "split it into several specs"
            raise TooMany(call.span, what="the chain", limit=MAX_CALLS, parts="steps", remedy=remedy)
        if spec is None:
            known = [*self.known, *FUNCTIONS]
            near = nearest(call.spec, known, "'fusegen list' shows the specs")
            raise UnknownFunction(call.span, name=call.spec, near=near)
        if call.spec in path:
            cycle = " -> ".join([*path[path.index(call.spec) :], call.spec])
            raise ChainCycle(call.span, cycle=cycle, running=spec.inputs[0].name)
        if spec.layers:
            raise StepHasLayers(call.span, name=call.spec)
        if by_name and len(spec.inputs) != 1:
            takes = counted(len(spec.inputs), "tensor")
            raise StepHasInputs(call.span, name=call.spec, takes=takes, signature=_signature(spec))
        values = _bind_arguments(spec, call)
        for name, value in values.items():
            if not isinstance(value, Name | Number) and _mentions(spec, name) > 1:
                values[name] = self.bind(f"{call.spec}_{name}", value)
        return self.value(spec, values, (*path, call.spec), eager)

    def bind(self, name: str, value: Term) -> Term:
        """A new let, under the first free name like `name`; a plain name or number needs none."""
        if isinstance(value, Name | Number):
            return value
        free, count = name, 1
        while free in self.taken or free in OPS:
            count += 1
            free = f"{name}{count}"
        self.taken.append(free)
        self.lets.append(Let(free, value))
        return Name(free)


def _bind_arguments(spec: Spec, call: SpecCall) -> dict[str, Term]:
    """The value of every input and parameter of `spec` in a call of it."""
    arguments = [*(i.name for i in spec.inputs), *(p.name for p in spec.params)]
    values: dict[str, Term] = {p.name: Number(Fraction(repr(p.default)), p.span) for p in spec.params}
    values |= zip(arguments, call.args, strict=False)
    given = set(arguments[: len(call.args)])
    for written, value in call.keywords:
        tensors = arguments[: len(spec.inputs)]
        name = written if written in arguments else argument_named(written, tensors)
        _check_argument(call, name, arguments, given, _signature(spec))
        values[name] = value
        given.add(name)
    missing = [i.name for i in spec.inputs if i.name not in given]
    if missing or len(call.args) > len(arguments):
        total = len(call.args) + len(call.keywords)
        expected = counted(len(spec.inputs), "tensor")
        expected += f" and {counted(len(spec.params), 'parameter')}" if spec.params else ""
        found = f"{total or 'none'} {'is' if total < 2 else 'are'}"
        signature = _signature(spec)
        raise WrongArity(call.span, name=spec.name, expected=expected, found=found, signature=signature)
    return values


def _check_argument(
    call: SpecCall, name: str, known: Collection[str], given: Collection[str], signature: str
) -> None:
    """Refuse a keyword argument that is unknown or already given."""
    if name in given:
        raise RepeatedArgument(call.span, name=call.spec, argument=name, signature=signature)
    if name not in known:
        raise UnknownArgument(call.span, name=call.spec, argument=name, signature=signature)


def _signature(spec: Spec) -> str:
    params = [f"{p.name}={p.default:g}" for p in spec.params]
    return f"{spec.name}({', '.join([*(i.name for i in spec.inputs), *params])})"


def _mentions(spec: Spec, name: str) -> int:
    """How often the value of `name` is read when the body of `spec` is written out."""
    terms = [line.term for line in spec.where] + ([spec.formula] if spec.formula else [])
    written = sum(part == Name(name) for term in terms for part in walk(term))
    return written + (2 if spec.chain and name == spec.inputs[0].name else 0)


def _rounded(term: Apply) -> Term:
    """A term as eager stores it: rounded, unless it is a condition or a constant."""
    return Apply("rounded", (term,), term.span) if names(term) and not OPS[term.op].boolean else term
