"""Kernels that compute in two words what would magnify or lose a rounding.

A function of the table that is `wide` gives a value in two words and takes its argument so; what is added
to such a value, or multiplied with it, is of two words too, and so is the arithmetic in an argument. All
else takes single words. A result rounds once, where it is stored.

Source: Dekker 1971, A floating-point technique for extending the available precision, Numer. Math. 18.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from fusegen.ir import Call, Const, Device, Expr, Let, Math, Ref, held
from fusegen.lower.border import Border
from fusegen.ops import ROWS
from fusegen.term import Apply, Name, Number, Term
from fusegen.term import Let as Named

EXACT = {"add": "sum", "mul": "product"}  # what gives the same of single words in two
OF_TWO = {
    "exp": "exp_of_two", "erf": "erf_of_two", "tanh": "tanh_of_two", "square": "square_of_two",
    "cube": "cube_of_two",
}  # fmt: skip
ARITHMETIC = ("add", "sub", "mul", "neg", "square", "cube")
ARGUMENTS = ("exp", "erf", "tanh", "lifted", "lift_back", "gate")  # take two words
LEAST = 2.0**-140  # of a second word that is worth its place

Words = tuple[Expr, bool]  # an expression, and whether it is of two words


class Precise(Border):
    """Terms to expressions of one word or two."""

    def __init__(
        self,
        params: tuple[str, ...],
        device: Device,
        kind: Math,
        lets: Sequence[Named],
        results: Sequence[Term],
    ) -> None:
        """Take the names of what is the same for every element, and the program's steps in order."""
        super().__init__(params, device, kind)
        self.wanted = _wanted(lets, results)
        self.wide: set[str] = set()

    def let(self, let: Named) -> Let:
        """A named value, in two words where it is one or where an argument wants it so."""
        value, wide = self.words(let.term, let.name in self.wanted)
        self.wide |= {let.name} if wide else set()
        return Let(let.name, value, wide)

    def expr(self, term: Term) -> Expr:
        """The expression of a term; what stores it adds its words up."""
        return self.words(term)[0]

    def single(self, term: Term) -> Expr:
        """The expression of a term in a single word."""
        value, wide = self.words(term)
        return Call("narrow", (value,)) if wide else value

    def words(self, term: Term, wanted: bool = False) -> Words:
        """The expression of a term, and whether it is of two words.

        Args:
            term: what is computed.
            wanted: whether arithmetic of single words is to give two.
        """
        match term:
            case Number(number) if wanted:
                return self.number(number)
            case Name(name):
                return Ref(name), name in self.wide
            case Apply("neg", (a,)):
                value, wide = self.words(a, wanted)
                return Call("neg", (value,)), wide
            case Apply("add" | "sub" | "mul" | "div", (a, b)):
                return self.arithmetic(term.op, a, b, wanted)
            case Apply("square" | "cube" as op, (a,)):
                value, wide = self.words(a, wanted)
                return Call(OF_TWO[op] if wide or wanted else op, (value,)), wide or wanted
            case Apply("where", (Apply() as condition, a, b)):
                return self.choice(condition, a, b)
            case Apply():
                return self.function(term)
        return super().expr(term), False

    def arithmetic(self, op: str, a: Term, b: Term, wanted: bool) -> Words:
        """A sum, a difference, a product or a quotient."""
        match op, b:
            case "div", Number(value):
                return self.words(a * Number(1 / value), wanted)
            case "div", _:
                return Call("div", (self.single(a), self.single(b))), False
            case "mul", Apply("lift_back", (argument,)):
                return Call("mul", (self.single(a), self.called("lift_back", argument))), False
        whole = op == "mul"  # a number that multiplies is taken exactly
        (left, first), (right, second) = (
            self.words(part, wanted or (whole and isinstance(part, Number))) for part in (a, b)
        )
        if first or second or not wanted:
            return Call(op, (left, right)), first or second
        return Call(EXACT.get(op, "sum"), (left, Call("neg", (right,)) if op == "sub" else right)), True

    def number(self, value: Fraction) -> Words:
        """A number in as many words as it takes, two at most; one where it is infinite."""
        try:
            hi = held(float(value), self.math)
        except OverflowError:
            hi = math.inf if value > 0 else -math.inf
        if math.isinf(hi):
            return Const(hi), False
        lo = held(float(value - Fraction(hi)), self.math)
        if abs(lo) < LEAST:
            return Const(hi), False
        return Call("words", (Const(hi), Const(lo))), True

    def choice(self, condition: Apply, a: Term, b: Term) -> Words:
        """A choice; both sides are of two words if one is."""
        holds = Call(condition.op, tuple(map(self.single, condition.args)))
        (chosen, first), (other, second) = self.words(a), self.words(b)
        wide = first or second
        if wide and not first:
            chosen = Call("words", (chosen, Const(0.0)))
        if wide and not second:
            other = Call("words", (other, Const(0.0)))
        return Call("where", (holds, chosen, other)), wide

    def function(self, term: Apply) -> Words:
        """A function: some take two words, and some of these give two."""
        match term:
            case Apply("gate", (a, t)):
                return Call("gate", (self.single(a), self.words(t, True)[0])), False
            case Apply("lifted" | "exp" as op, (a,)):
                value, wide = self.words(a, True)
                return Call(OF_TWO[op] if wide and op == "exp" else op, (value,)), wide
            case Apply("erf" | "tanh" as op, (a,)) if self.device is Device.CPU:  # CUDA's own are enough
                return self.called(OF_TWO[op], a), True
            case Apply(op, (a,)) if ROWS[op].wide:
                return self.called(op, a), True
        return Call(term.op, tuple(map(self.single, term.args))), False

    def called(self, op: str, argument: Term) -> Call:
        """A function of an argument that may be of two words."""
        return Call(op, (self.words(argument, True)[0],))


def _wanted(lets: Sequence[Named], results: Sequence[Term]) -> set[str]:
    """The names that arguments of wide functions are computed from by arithmetic."""
    found: set[str] = set()

    def seek(term: Term, inside: bool) -> None:
        if isinstance(term, Name) and inside:
            found.add(term.name)
        if isinstance(term, Apply):
            deeper = term.op in ARGUMENTS or ROWS[term.op].wide or (inside and term.op in ARITHMETIC)
            for arg in term.args:
                seek(arg, deeper)

    for result in results:
        seek(result, False)
    for let in reversed(lets):
        seek(let.term, let.name in found)
    return found
