"""The gradient of a program, as a program: reverse-mode differentiation of terms.

Every step of the forward program is given a name, the rules of `gradients.GRADIENTS` are applied from the
result back to the inputs, and what is used once goes back to where it is used. What comes out reads grad
(the gradient of the result) and the inputs, or the output alone where that is as good, and computes one
gradient for each input. Parameters are constants.

Source: Griewank and Walther 2008, Evaluating Derivatives, chapter 3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import add

from fusegen.aten import ATEN
from fusegen.gradients import GRADIENTS
from fusegen.ops import OPS, TRANSCENDENTAL
from fusegen.term import (
    Apply,
    Let,
    Name,
    Number,
    Program,
    SpecCall,
    Term,
    applied,
    call,
    names,
    needed,
    rebuild,
    substitute,
    walk,
)

GRAD, OUTPUT = "grad", "output"
ZERO = Number(Fraction(0))
OPPOSITE = {"ge": "lt", "gt": "le", "le": "gt", "lt": "ge"}
EXACT = ("where", "neg", "rounded")  # operations whose result the storage type holds already


def derive(program: Program, eager: bool = False) -> Program:
    """The program of the gradients of a program with one result.

    Args:
        program: what to differentiate.
        eager: whether to compute, and to round, as PyTorch's eager operations do.

    Returns:
        A program that reads the gradient of the result, then what has to be saved: the inputs, or the
        output. It has a result for each input.
    """
    from_output = None if eager else _from_output(program)
    if from_output is not None:
        return from_output
    return _Reverse(program, eager).backward()


def _from_output(program: Program) -> Program | None:
    """The gradient read off the output: only of one primitive, applied to the input itself."""
    match program:
        case Program((x,), params, (), (Apply(op, (Name(name), *_)),)) if name == x:
            rule = GRADIENTS[op].from_value
            if rule is not None:
                grad, output = Name(_free(GRAD, params)), Name(_free(OUTPUT, params))
                return Program((grad.name, output.name), params, (), (rule(grad, output),))
    return None


def aten_gradient(eager: Program) -> Program | None:
    """The gradient as a kernel of PyTorch's computes it, of an eager program that is that kernel alone."""
    match eager:
        case Program(inputs, params, (), (Apply("rounded", (SpecCall(reference, args),)),)):
            if tuple(arg.name for arg in args if isinstance(arg, Name))[: len(inputs)] != inputs:
                return None
            kernel = ATEN[reference]
            grad, output = Name(_free(GRAD, (*inputs, *params))), Name(_free(OUTPUT, params))
            saved = (output,) if kernel.saves == "output" else args[: len(inputs)]
            results = kernel.gradients(grad, saved, args[len(inputs) :])
            names_ = (grad.name, output.name) if kernel.saves == "output" else (grad.name, *inputs)
            return Program(names_, params, (), results)
    return None


def is_arithmetic(*programs: Program) -> bool:
    """Whether nothing in these programs approximates."""
    return not any(applied(program.terms) & TRANSCENDENTAL for program in programs)


def unrounded(program: Program) -> Program:
    """The program without roundings to the storage type on its way."""

    def plain(term: Term) -> Term:
        term = rebuild(term, plain)
        return term.args[0] if isinstance(term, Apply) and term.op == "rounded" else term

    lets = tuple(Let(let.name, plain(let.term)) for let in program.lets)
    return Program(program.inputs, program.params, lets, tuple(map(plain, program.results)))


def _pulled(kernel: SpecCall, g: Term, y: Term) -> tuple[Term | None, ...]:
    """The gradients of the arguments of one of PyTorch's kernels; none for its parameters."""
    row = ATEN[kernel.spec]
    tensors = len(kernel.args) - len(row.params)
    saved = (y,) if row.saves == "output" else kernel.args[:tensors]
    parts = row.gradients(g, saved, kernel.args[tensors:])
    return (*parts, *(None for _ in row.params))


Condition = Term


@dataclass(frozen=True, slots=True)
class _Part:
    """One contribution to an adjoint: it counts where the conditions are as said, outermost first.

    A choice is put off until parts meet, and then made between whole products: masking g to 0 at once
    would give 0 * inf where the slope of the branch not taken overflows.
    """

    term: Term
    where: tuple[tuple[Condition, bool], ...] = ()


class _Reverse:
    """The steps forward, and the parts of the adjoint of each value so far."""

    def __init__(self, program: Program, eager: bool) -> None:
        self.program, self.eager = program, eager
        self.written = {let.name for let in program.lets}
        self.taken = {*program.inputs, *program.params, *self.written}
        self.constants = set(program.params)
        self.steps: list[Let] = []
        self.adjoints: dict[str, list[_Part]] = {}
        self.back: list[Let] = []

    def backward(self) -> Program:
        grad = self.fresh(GRAD)
        for let in self.program.lets:
            if set(names(let.term)) <= self.constants:
                self.constants.add(let.name)
            self.steps.append(Let(let.name, self.flat(let.term)))
        result = self.named(self.program.results[0], "t")
        self.add(result, _Part(Name(grad)))
        for step in reversed(self.steps):
            if step.name in self.adjoints:
                self.step(step, self.adjoints[step.name])
        results = tuple(self.total(self.adjoints.get(name, [])) for name in self.program.inputs)
        inputs = (grad, *self.program.inputs)
        lets = needed([*self.steps, *self.back], results)
        return inlined(Program(inputs, self.program.params, lets, results), self.written)

    def step(self, step: Let, adjoint: list[_Part]) -> None:
        """Pass the adjoint of one step on to its arguments."""
        operation = _operation(step.term)
        part = adjoint[0] if len(adjoint) == 1 else _Part(self.total(adjoint))
        if not isinstance(operation, Apply | SpecCall):
            self.add(operation, part)
            return
        g = self.bound(f"{GRAD}_{step.name}", part.term)
        for arg, term in zip(operation.args, self.parts(operation, g, Name(step.name)), strict=True):
            if term is not None:
                self.add(arg, _Part(term, part.where))

    def parts(self, operation: Apply | SpecCall, g: Term, y: Term) -> tuple[Term | None, ...]:
        """The gradients of an operation's arguments."""
        if isinstance(operation, SpecCall):
            return tuple(part and call("rounded", part) for part in _pulled(operation, g, y))
        row = GRADIENTS[operation.op]
        rule = row.eager or row.rule if self.eager else row.rule
        parts = rule(g, y, *operation.args)
        return tuple(part and _as_eager(part) for part in parts) if self.eager else parts

    def add(self, arg: Term, part: _Part) -> None:
        """Add to the adjoint of an argument, unless it is a constant."""
        if isinstance(arg, Name) and arg.name not in self.constants:
            self.adjoints.setdefault(arg.name, []).append(part if self.eager else _deferred(part))

    def total(self, parts: list[_Part]) -> Term:
        """The sum of the parts of an adjoint, choices made."""
        if self.eager:
            whole = [part.term for part in parts]
            return reduce(lambda a, b: call("rounded", a + b), whole) if whole else ZERO
        terms: list[Term] = []
        while parts:
            where, group = parts[0].where[:1], parts
            parts = [part for part in group if _condition(part) != _condition(group[0])]
            group = [part for part in group if _condition(part) == _condition(group[0])]
            if not where:
                terms += [part.term for part in group]
                continue
            inner = [
                [_Part(p.term, p.where[1:]) for p in group if p.where[0][1] is side]
                for side in (True, False)
            ]
            terms.append(self.choice(where[0][0], *(self.total(side) for side in inner)))
        return reduce(add, terms) if terms else ZERO

    def choice(self, condition: Condition, chosen: Term, other: Term) -> Term:
        """One of two products; by the opposite condition where NaN would choose 0 over what is NaN then."""
        match condition:
            case Apply(op, args) if op in OPPOSITE and other == ZERO and self.reads(chosen):
                return call("where", call(OPPOSITE[op], *args), other, chosen)
        return call("where", condition, chosen, other)

    def reads(self, product: Term) -> bool:
        """Whether a product has other factors than the incoming gradient; conditions are none."""
        if isinstance(product, Apply):
            return any(map(self.reads, product.args[product.op == "where" :]))
        if not isinstance(product, Name):
            return False
        back = next((let.term for let in self.back if let.name == product.name), None)
        forward = product.name in self.program.inputs or any(s.name == product.name for s in self.steps)
        return forward or (back is not None and self.reads(back))

    def flat(self, term: Term) -> Term:
        """A term whose arguments are names, numbers, conditions on those, or constant."""
        if isinstance(term, Apply) and term.op == "rounded":
            return rebuild(term, self.flat)
        return rebuild(term, lambda part: self.named(part, "t"))

    def named(self, term: Term, like: str) -> Term:
        """The name of a new step with this value; what is a leaf already stays."""
        if not isinstance(term, Apply | SpecCall) or set(names(term)) <= self.constants:
            return term
        flat = self.flat(term)
        if isinstance(term, Apply) and OPS[term.op].boolean:
            return flat
        known = next((let.name for let in self.steps if let.term == flat), None)
        if known is None:
            known = self.fresh(like)
            self.steps.append(Let(known, flat))
        return Name(known)

    def bound(self, name: str, value: Term) -> Term:
        """The name of a step back with this value."""
        if isinstance(value, Name | Number):
            return value
        self.back.append(Let(self.fresh(name), value))
        return Name(self.back[-1].name)

    def fresh(self, name: str) -> str:
        free = _free(name, self.taken)
        self.taken.add(free)
        return free


def _deferred(part: _Part) -> _Part:
    """The part without the choices that its term begins with, where one side is 0; they are put off."""
    term, where = part.term, part.where
    while isinstance(term, Apply) and term.op == "where" and ZERO in term.args[1:]:
        condition, chosen, other = term.args
        taken = other == ZERO
        term, where = (chosen if taken else other), (*where, (condition, taken))
    return _Part(term, where)


def _condition(part: _Part) -> Condition | None:
    return part.where[0][0] if part.where else None


def _operation(term: Term) -> Term:
    """A step without eager's rounding, through which a gradient passes as it is."""
    return term.args[0] if isinstance(term, Apply) and term.op == "rounded" else term


def _as_eager(term: Term) -> Term:
    """A term with eager's rounding after each operation that computes."""
    term = rebuild(term, _as_eager)
    if not isinstance(term, Apply) or term.op in EXACT or OPS[term.op].boolean or not names(term):
        return term
    return call("rounded", term)


def inlined(program: Program, written: set[str]) -> Program:
    """The program with each step that is used once put where it is used; the author's names stay."""
    count = Counter(_used((*(let.term for let in program.lets), *program.results)))
    lets: list[Let] = []
    once: dict[str, Term] = {}
    for let in program.lets:
        term = substitute(let.term, once)
        if count[let.name] == 1 and let.name not in written:
            once[let.name] = term
        else:
            lets.append(Let(let.name, term))
    results = tuple(substitute(result, once) for result in program.results)
    return Program(program.inputs, program.params, tuple(lets), results)


def _used(terms: Iterable[Term]) -> Iterable[str]:
    return (part.name for term in terms for part in walk(term) if isinstance(part, Name))


def _free(name: str, taken: Iterable[str]) -> str:
    """The first of name, name2, name3, ... that is neither taken nor an operation."""
    taken, free, count = set(taken), name, 1
    while free in taken or free in OPS:
        count += 1
        free = f"{name}{count}"
    return free
