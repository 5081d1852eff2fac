"""Calls of dropout: ``dropout(v, p)`` is ``v * (kept * scale)``, with a mask and a scalar for each call.

A module's function takes p, and whether it is training, in their place. The masks have the order of the
calls in PyTorch, in which they take their numbers from the generator.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import TypeGuard

from fusegen.core.poolings import poolings
from fusegen.core.spec import Dropout, Fill, Input, Named, Param, Spec, Step
from fusegen.core.tensor_shapes import first_shape
from fusegen.core.term import Name, Number, SpecCall, Term, call, names, rebuild, unused, walk
from fusegen.errors import FusegenError, NameTaken, NotADropout, NotWithDropout
from fusegen.language.parse.checks import scalars_of, terms_of

DROPOUT, TRAINING = "dropout", "training"
ARGUMENTS = ("input", "p")
USUAL = Number(Fraction(1, 2))  # the probability of PyTorch's functions where none is given


def with_dropouts(spec: Spec) -> tuple[Spec, list[FusegenError]]:
    """Return the spec with products for its dropouts, with its scalars, and every mistake in them."""
    calls = [part for term in terms_of(spec) for part in walk(term) if _is_dropout(part)]
    steps = [step for step in spec.chain if step.call is not None and _is_dropout(step.call)]
    if not calls and not steps:
        return replace(spec, scalars=scalars_of(spec)), []
    reader = _Reader(spec)
    if TRAINING in reader.taken:
        place = next(iter([*calls, *(step.call for step in steps if step.call)])).span
        reader.errors.append(NameTaken(place, name=TRAINING, holder="the argument of dropout"))
    where = tuple(map(reader.line, spec.where))
    formula = reader.term(spec.formula) if spec.formula else None
    chain = tuple(map(reader.step, spec.chain))
    known = scalars_of(spec)
    found = replace(spec, where=where, formula=formula, chain=chain, dropouts=tuple(reader.found))
    read = {name for term in terms_of(found) for name in names(term)}
    rates = [each for each in known if each.name in reader.rates - read and each.position is None]
    kept = tuple(each for each in scalars_of(found) if each not in rates)
    return replace(found, scalars=kept, rates=tuple(rates)), [*reader.errors, *_refused(found)]


def _is_dropout(term: Term) -> TypeGuard[SpecCall]:
    return isinstance(term, SpecCall) and term.spec == DROPOUT


class _Reader:
    """The dropouts so far, the tensors that each name depends on, and the mistakes."""

    def __init__(self, spec: Spec) -> None:
        self.spec, self.running = spec, spec.inputs[0].name
        self.reads: dict[str, tuple[str, ...]] = {each.name: (each.name,) for each in spec.tensors}
        self.taken = {*self.reads, *(param.name for param in spec.params), spec.name}
        self.taken |= {line.name for line in spec.where}
        self.taken |= {each.symbol for each in spec.init} | {each.attribute for each in spec.layers}
        self.taken |= {step.label.name for step in spec.chain if step.label}
        self.found: list[Dropout] = []
        self.rates: set[str] = set()
        self.errors: list[FusegenError] = []

    def line(self, line: Named) -> Named:
        """Return a named step with products for its dropouts."""
        self.reads[line.name] = self.tensors(line.term)
        return replace(line, term=self.term(line.term))

    def step(self, step: Step) -> Step:
        """Return a step of a chain likewise; the running value depends on what its steps read."""
        if step.call is not None and _is_dropout(step.call):
            running = replace(step.call, args=(Name(self.running, step.span),))
            step = replace(step, call=None, term=running)
        term = step.term or step.call
        assert term is not None
        changed = self.term(term)
        both = (*self.reads[self.running], *self.tensors(term))
        self.reads[self.running] = tuple(dict.fromkeys(both))
        if step.label:
            self.reads[step.label.name] = self.reads[self.running]
        if step.term is not None:
            return replace(step, term=changed)
        return replace(step, call=changed if isinstance(changed, SpecCall) else None)

    def tensors(self, term: Term) -> tuple[str, ...]:
        """Return the tensors that a term depends on, in the order read."""
        return tuple(dict.fromkeys(each for name in names(term) for each in self.reads.get(name, ())))

    def term(self, term: Term) -> Term:
        """Return a term with a product for each dropout, the innermost and leftmost first, as PyTorch."""
        reads = self.tensors(term) if _is_dropout(term) else ()
        term = rebuild(term, self.term)
        return self.product(term, reads) if _is_dropout(term) else term

    def product(self, of: SpecCall, reads: tuple[str, ...]) -> Term:
        """Return the product that a dropout is, and keep its mask and its scalar."""
        given = dict([*zip(ARGUMENTS, of.args, strict=False), *of.keywords])
        rate = self.rate(given.get("p", USUAL))
        if len(given) < len(of.args) + len(of.keywords) or "input" not in given or {*given} - {*ARGUMENTS}:
            return self.refuse(of, "dropout takes a value and a probability")
        if rate is None:
            return self.refuse(of, "the probability of dropout is a number from 0 to 1, or a scalar's name")
        if not reads:
            return self.refuse(of, "dropout draws a number for each element, and this value has none")
        kept, scale = unused("kept", self.taken), unused("scale", self.taken | {"kept"})
        self.taken |= {kept, scale}
        shape, (text, value) = first_shape(self.spec) or self.spec.inputs[0].shape, rate
        factor = Param(scale, 1 / (1 - value) if value < 1 else 1.0, of.span)
        self.found.append(Dropout(Input(kept, shape, Fill("rand"), of.span), factor, text, reads, of.span))
        return call("mul", given["input"], call("mul", call("detach", Name(kept)), Name(scale)))

    def rate(self, term: Term) -> tuple[str, float] | None:
        """Return a probability as a text of Python, and its default; None where it is none."""
        known = {each.name: each.default for each in self.spec.params}
        known |= {each.symbol: each.default for each in self.spec.init if isinstance(each.default, float)}
        match term:
            case Name(name) if name in known and 0 <= known[name] <= 1:
                self.rates.add(name)
                return name, known[name]
            case Number(value) if 0 <= value <= 1:
                return repr(float(value)), float(value)
        return None

    def refuse(self, of: SpecCall, problem: str) -> Term:
        """Keep a mistake; a part of the call stands for what cannot be read."""
        self.errors.append(NotADropout(of.span, problem=problem))
        return next(iter(of.args), USUAL)


def _refused(spec: Spec) -> Iterator[FusegenError]:
    """Yield mistakes of a spec with dropout: what its kernels do not take."""
    first, *_ = spec.dropouts or [None]
    taken: list[tuple[bool, str, str]] = [
        (spec.over is not None, "over", "put one of them under layers, as  - first: {formula: ...}"),
        (any(poolings(spec)), "a pooling", "put one of them under layers, as  - first: {formula: ...}"),
        (spec.numerics == "eager", "numerics: eager", "leave it out"),
        (any(each.split is not None for each in spec.inputs), "split", "declare two inputs"),
        (bool(spec.reference), "a reference", "leave it out"),
    ]
    for is_there, what, remedy in taken:
        if is_there and first is not None:
            yield NotWithDropout(first.span, what=what, remedy=remedy)
