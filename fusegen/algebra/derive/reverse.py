"""Reverse-mode differentiation of a program: the adjoint of every step, from the result back."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import add

from fusegen.algebra.derive.inline import free_name, inlined
from fusegen.algebra.nan_propagation import becomes_nan
from fusegen.core.aten import ATEN
from fusegen.core.gradients import GRADIENTS
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
    names,
    needed,
    rebuild,
)

GRAD = "grad"
ZERO = Number(Fraction(0))
OPPOSITE = {"ge": "lt", "gt": "le", "le": "gt", "lt": "ge"}
Condition = Term


@dataclass(frozen=True, slots=True)
class Part:
    """One contribution to an adjoint: it counts where the conditions are as said, outermost first.

    A choice is put off until parts meet, and then made between whole products: masking g to 0 at once
    would give 0 * inf where the slope of the branch not taken overflows.
    """

    term: Term
    where: tuple[tuple[Condition, bool], ...] = ()


class Reverse:
    """The steps forward, and the parts of the adjoint of each value so far."""

    def __init__(self, program: Program, grads: Sequence[str] = (GRAD,)) -> None:
        """Take a program, and the names that the gradients of its results get, if they are free."""
        self.program, self.grads = program, grads
        self.written = {let.name for let in program.lets}
        self.taken = {*program.inputs, *program.params, *self.written}
        self.constants = set(program.params)
        self.steps: list[Let] = []
        self.adjoints: dict[str, list[Part]] = {}
        self.back: list[Let] = []

    def backward(self) -> Program:
        """Return the program of the gradients."""
        grads = tuple(map(self.fresh, self.grads))
        for let in self.program.lets:
            if set(names(let.term)) <= self.constants:
                self.constants.add(let.name)
            self.steps.append(Let(let.name, self.flat(let.term)))
        for result, grad in zip(self.program.results, grads, strict=True):
            self.add(self.named(result, "t"), Part(Name(grad)))
        for step in reversed(self.steps):
            if step.name in self.adjoints:
                self.step(step, self.adjoints[step.name])
        results = tuple(self.total(self.adjoints.get(name, [])) for name in self.program.inputs)
        inputs = (*grads, *self.program.inputs)
        lets = needed([*self.steps, *self.back], results)
        return inlined(Program(inputs, self.program.params, lets, results), self.written)

    def step(self, step: Let, adjoint: list[Part]) -> None:
        """Pass the adjoint of one step on to its arguments."""
        operation = _operation(step.term)
        part = adjoint[0] if len(adjoint) == 1 else Part(self.total(adjoint))
        if not isinstance(operation, Apply | SpecCall):
            self.add(operation, part)
            return
        g = self.bound(f"{GRAD}_{step.name}", part.term)
        for arg, term in zip(operation.args, self.parts(operation, g, Name(step.name)), strict=True):
            if term is not None:
                self.add(arg, Part(term, part.where))

    def parts(self, operation: Apply | SpecCall, g: Term, y: Term) -> tuple[Term | None, ...]:
        """Return the gradients of an operation's arguments."""
        if isinstance(operation, SpecCall):
            return tuple(part and call("round_to_storage", part) for part in pulled(operation, g, y))
        return self.rule(operation, g, y)

    def rule(self, operation: Apply, g: Term, y: Term) -> tuple[Term | None, ...]:
        """Return the gradients of the arguments of an operation of our own."""
        return GRADIENTS[operation.op].rule(g, y, *operation.args)

    def add(self, arg: Term, part: Part) -> None:
        """Add to the adjoint of an argument, unless it is a constant."""
        if isinstance(arg, Name) and arg.name not in self.constants:
            self.adjoints.setdefault(arg.name, []).append(self.part(part))

    def part(self, part: Part) -> Part:
        """Return a part as it is kept: choices are put off until parts meet."""
        term, where = part.term, part.where
        while isinstance(term, Apply) and term.op == "where" and ZERO in term.args[1:]:
            condition, chosen, other = term.args
            taken = other == ZERO
            term, where = (chosen if taken else other), (*where, (condition, taken))
        return Part(term, where)

    def total(self, parts: list[Part]) -> Term:
        """Return the sum of the parts of an adjoint, choices made."""
        terms: list[Term] = []
        while parts:
            where, group = parts[0].where[:1], parts
            parts = [part for part in group if _condition(part) != _condition(group[0])]
            group = [part for part in group if _condition(part) == _condition(group[0])]
            if not where:
                terms += [part.term for part in group]
                continue
            inner = [
                [Part(p.term, p.where[1:]) for p in group if p.where[0][1] is side]
                for side in (True, False)
            ]
            terms.append(self.choice(where[0][0], *(self.total(side) for side in inner)))
        return reduce(add, terms) if terms else ZERO

    def choice(self, condition: Condition, chosen: Term, other: Term) -> Term:
        """One of two products; by the opposite condition where NaN would choose 0 over what is NaN then."""
        match condition:
            case Apply(op, args) if op in OPPOSITE and other == ZERO and self.carries(chosen, args):
                return call("where", call(OPPOSITE[op], *args), other, chosen)
        return call("where", condition, chosen, other)

    def carries(self, product: Term, compared: tuple[Term, ...]) -> bool:
        """True if a product reads forward values and is NaN for each input that makes what is compared NaN.

        Else NaN in x, of `where(x > 1, y, 0)`, would choose a slope that is a number.
        """
        steps = {let.name: let.term for let in (*self.steps, *self.back)}
        inputs = (frozenset({name}) for name in self.program.inputs)
        causes = [name for name in inputs if any(becomes_nan(term, name, steps) for term in compared)]
        return self.reads(product) and all(becomes_nan(product, name, steps) for name in causes)

    def reads(self, product: Term) -> bool:
        """Return True if a product has other factors than the incoming gradient; conditions are none."""
        if isinstance(product, Apply):
            return any(map(self.reads, product.args[product.op == "where" :]))
        if not isinstance(product, Name):
            return False
        back = next((let.term for let in self.back if let.name == product.name), None)
        forward = product.name in self.program.inputs or any(s.name == product.name for s in self.steps)
        return forward or (back is not None and self.reads(back))

    def flat(self, term: Term) -> Term:
        """Return a term whose arguments are names, numbers, conditions on those, or constant."""
        if isinstance(term, Apply) and term.op == "round_to_storage":
            return rebuild(term, self.flat)
        return rebuild(term, lambda part: self.named(part, "t"))

    def named(self, term: Term, like: str) -> Term:
        """Return the name of a new step with this value; what is a leaf already stays."""
        if not isinstance(term, Apply | SpecCall) or set(names(term)) <= self.constants:
            return term
        flat = self.flat(term)
        if isinstance(term, Apply) and OPS[term.op].boolean:
            return flat
        known = self.step_of(flat)
        if known is None:
            known = self.fresh(like)
            self.steps.append(Let(known, flat))
        return Name(known)

    def step_of(self, flat: Term) -> str | None:
        """Return the step that has a value already."""
        return next((let.name for let in self.steps if let.term == flat), None)

    def bound(self, name: str, value: Term) -> Term:
        """Return the name of a step back with this value."""
        if isinstance(value, Name | Number):
            return value
        self.back.append(Let(self.fresh(name), value))
        return Name(self.back[-1].name)

    def fresh(self, name: str) -> str:
        """Return the first free name like one, which it takes."""
        free = free_name(name, self.taken)
        self.taken.add(free)
        return free


def _condition(part: Part) -> Condition | None:
    return part.where[0][0] if part.where else None


def _operation(term: Term) -> Term:
    """Return a step without eager's rounding, through which a gradient passes as it is."""
    return term.args[0] if isinstance(term, Apply) and term.op == "round_to_storage" else term


def pulled(kernel: SpecCall, g: Term, y: Term) -> tuple[Term | None, ...]:
    """Return the gradients of the arguments of one of PyTorch's kernels; none for its parameters."""
    row = ATEN[kernel.spec]
    tensors = len(kernel.args) - len(row.params)
    saved = (y,) if row.saves == "output" else kernel.args[:tensors]
    parts = row.gradients(g, saved, kernel.args[tensors:])
    return (*parts, *(None for _ in row.params))
