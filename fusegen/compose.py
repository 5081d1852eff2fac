"""A spec and the specs it names, put together into one `Program`.

A chain's steps are applied one after the other. Whatever a step needs more than once is bound to a name:
the lines of `where` keep theirs, the value of a step `relu` is called `after_relu`. Names taken from
another spec are renamed where they would meet a name already in use.

With ``numerics: eager`` every operation that PyTorch would run as a kernel of its own is followed by
`rounded`, eager's rounding to the storage type. A spec that names a `reference` is one such kernel.
"""

from __future__ import annotations

from collections.abc import Callable

from fusegen.errors import (
    ChainCycle,
    StepHasInputs,
    StepHasLayers,
    StepIgnoresValue,
    TooLarge,
    UnknownArgument,
    UnknownFunction,
    WrongArity,
    nearest,
)
from fusegen.ops import FUNCTIONS, OPS
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

Library = Callable[[str], Spec | None]


def compose(spec: Spec, library: Library, known: tuple[str, ...] = ()) -> Program:
    """The program of a spec; `library` finds other specs by name, `known` are names to suggest.

    Raises:
        UnknownFunction, WrongArity, UnknownArgument, ChainCycle, StepIgnoresValue, StepHasInputs,
        StepHasLayers: a step or a call that does not fit.
    """
    inputs, params = (tuple(v.name for v in values) for values in (spec.inputs, spec.params))
    composer = _Composer(library, known, list(inputs + params))
    values: dict[str, Term] = {name: Name(name) for name in inputs + params}
    result = composer.body(spec, values, (spec.name,), eager=spec.numerics == "eager")
    return Program(inputs, params, needed(composer.lets, result), result)


class _Composer:
    """The lets so far, and the names they may not take."""

    def __init__(self, library: Library, known: tuple[str, ...], taken: list[str]) -> None:
        self.library, self.known, self.taken = library, known, taken
        self.lets: list[Let] = []
        self.calls = 0

    def body(self, spec: Spec, values: dict[str, Term], path: tuple[str, ...], eager: bool) -> Term:
        """The value of a spec, where its inputs and parameters have the given values."""
        eager = eager and not (spec.reference and spec.formula)
        for line in spec.where:
            values[line.name] = self.bind(line.name, self.resolve(line.term, values, path, eager))
        if spec.formula is not None:
            return self.resolve(spec.formula, values, path, eager)
        running = spec.inputs[0].name
        for index, step in enumerate(spec.chain):
            label = f"after_{step.call.spec}" if step.call else f"step{index + 1}"
            value = self.step(spec, step, running, values, path, eager)
            last = index == len(spec.chain) - 1
            values[running] = value if last else self.bind(label, value)
        return values[running]

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
            given = {op.args[0]: current, **dict(keywords)}
            if tuple(given) != op.args:
                count, signature = len(op.args), op.signature
                raise StepHasInputs(step.span, name=name, count=count, signature=signature)
            return _rounded(Apply(name, tuple(given.values()), step.span), eager)
        return self.call(SpecCall(name, (current,), keywords, step.span), path, eager, by_name=True)

    def resolve(self, term: Term, values: dict[str, Term], path: tuple[str, ...], eager: bool) -> Term:
        """A term with names replaced by their values and calls of specs by what those specs say."""
        if isinstance(term, Name):
            return values[term.name]
        term = rebuild(term, lambda part: self.resolve(part, values, path, eager))
        if isinstance(term, SpecCall):
            return self.call(term, path, eager)
        if isinstance(term, Apply):
            return _rounded(term, eager)
        return term

    def call(self, call: SpecCall, path: tuple[str, ...], eager: bool, by_name: bool = False) -> Term:
        """The value of another spec applied to resolved arguments."""
        spec = self.library(call.spec)
        self.calls += 1
        if self.calls > MAX_CALLS:
            size, remedy = f"more than {MAX_CALLS} steps", "split it into several specs"
            raise TooLarge(call.span, what="the chain", size=size, limit=MAX_CALLS, remedy=remedy)
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
            count = len(spec.inputs)
            raise StepHasInputs(call.span, name=call.spec, count=count, signature=_signature(spec))
        values = _bind_arguments(spec, call)
        for name, value in values.items():
            if not isinstance(value, Name | Number) and _mentions(spec, name) > 1:
                values[name] = self.bind(f"{call.spec}_{name}", value)
        return self.body(spec, values, (*path, call.spec), eager)

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
    values: dict[str, Term] = {p.name: Number(p.default, p.span) for p in spec.params}
    values |= zip(arguments, call.args, strict=False)
    given = set(arguments[: len(call.args)])
    for name, value in call.keywords:
        if name not in arguments or name in given:
            raise UnknownArgument(call.span, name=spec.name, argument=name, signature=_signature(spec))
        values[name] = value
        given.add(name)
    missing = [i.name for i in spec.inputs if i.name not in given]
    if missing or len(call.args) > len(arguments):
        count, total = len(spec.inputs), len(call.args) + len(call.keywords)
        expected = f"{count} tensor{'s' if count > 1 else ''} and {len(spec.params)} parameters"
        found = f"{total} {'is' if total == 1 else 'are'}"
        signature = _signature(spec)
        raise WrongArity(call.span, name=spec.name, expected=expected, found=found, signature=signature)
    return values


def _signature(spec: Spec) -> str:
    params = [f"{p.name}={float(p.default):g}" for p in spec.params]
    return f"{spec.name}({', '.join([*(i.name for i in spec.inputs), *params])})"


def _mentions(spec: Spec, name: str) -> int:
    """How often the value of `name` is read when the body of `spec` is written out."""
    terms = [line.term for line in spec.where] + ([spec.formula] if spec.formula else [])
    written = sum(part == Name(name) for term in terms for part in walk(term))
    return written + (2 if spec.chain and name == spec.inputs[0].name else 0)


def _rounded(term: Apply, eager: bool) -> Term:
    """A term as eager stores it: rounded, unless it is a condition or a constant."""
    if not eager or OPS[term.op].boolean or not names(term):
        return term
    return Apply("rounded", (term,), term.span)
