"""Lowering of each operation of a term to single-word arithmetic."""

import math
from fractions import Fraction

from fusegen.core import op_types
from fusegen.core.ir import Body, Call, Const, Expr, Let, Math, Ref, Word, round_to
from fusegen.core.targets import Device
from fusegen.core.term import Apply, Name, Number, Term
from fusegen.core.term import Let as Named


class Lowering:
    """Terms to expressions, for a device and a math type."""

    def __init__(self, params: tuple[str, ...], device: Device, kind: Math) -> None:
        """Take the names of what is the same for every element."""
        self.params, self.device, self.math = params, device, kind

    def call(self, op: str, *args: Expr, body: Body | None = None) -> Call:
        """Return a call of an operation, with its type."""
        return op_types.call(op, args, self.device, self.math, body)

    def let(self, let: Named) -> Let:
        """Return a named value."""
        return Let(let.name, self.expr(let.term))

    def result(self, term: Term) -> tuple[tuple[Let, ...], Expr]:
        """Return the lets that precede a result, and its expression."""
        return (), self.expr(term)

    def expr(self, term: Term) -> Expr:
        """Return the expression of a term."""
        match term:
            case Number(value):
                return Const(self.rounded(value))
            case Name(name):
                return Ref(name)
            case Apply("narrow", (rounded,)):  # of single words, as they are
                return self.expr(rounded)
            case Apply("select_by_width", (_, wide)) if not self.device.steps_of_16_bits:
                return self.expr(wide)
            case Apply("round_to_storage", (Apply() as step,)):
                found = self.eager_step(step)
                whole = self.call("narrow", found) if found.word is Word.DOUBLE else found
                return self.call("round_to_storage", whole)
            case Apply("div", (left, Number(value))) if self.device.reciprocals:
                return self.call("mul", self.expr(left), Const(round_to(1.0 / float(value), self.math)))
            case Apply("div", (left, Name(name))) if self.device.reciprocals and name in self.params:
                return self.call("mul", self.expr(left), self.call("reciprocal", Ref(name)))
            case Apply(op, args):
                return self.call(op, *map(self.expr, args))
            case _:
                raise AssertionError("compose has replaced every call of a spec")

    def rounded(self, value: Fraction) -> float:
        """Return a number as the math type holds it, infinite beyond its range."""
        try:
            return round_to(float(value), self.math)
        except OverflowError:
            return math.inf if value > 0 else -math.inf

    def eager_step(self, step: Apply) -> Expr:
        """Return one operation as eager runs it, where that is not what the operation says.

        On the CPU, a number added to a 16-bit tensor is first rounded to that type (ATen's add_kernel).
        """
        match step:
            case Apply("cube", (base,)) if (
                self.device.steps_of_16_bits
            ):  # pow_scalar_tensor_impl rounds b * b
                return self.call(
                    "mul",
                    self.call("round_to_storage", self.call("square", self.expr(base))),
                    self.expr(base),
                )
            case Apply("reciprocal", (Apply("square") as square,)) if self.device.steps_of_16_bits:
                return self.call("reciprocal", self.call("round_to_storage", self.expr(square)))
            case Apply("add" | "sub" as op, args) if self.device.rounds_numbers:
                return self.call(op, *map(self.stored, args))
            case _:
                return self.expr(step)

    def stored(self, term: Term) -> Expr:
        """Return a term that eager rounds where it is a number."""
        value = self.expr(term)
        return self.call("round_to_storage", value) if self.is_scalar(term) else value

    def is_scalar(self, term: Term) -> bool:
        """Return True if a term is a Python number to eager."""
        return isinstance(term, Number) or (isinstance(term, Name) and term.name in self.params)
