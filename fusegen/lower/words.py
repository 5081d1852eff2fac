"""Kernels that compute in two words what would magnify or lose a rounding.

A function of the table that is `wide` gives a value in two words and takes its argument so; what is added
to such a value, or multiplied with it, is of two words too, and so is the arithmetic in an argument. All
else takes single words. A result rounds once, where it is stored. In float on CUDA, where two words take
longer than a copy, only arguments have them: functions give one (`ops.SINGLES`), and a product that is
added rounds with the sum. In a chain there, what an earlier function gives is an argument of the next. In
float on the CPU functions of a chain are single-word where that is accurate enough (`slack`).

Source: Dekker 1971, A floating-point technique for extending the available precision, Numer. Math. 18.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from fusegen.ir import Call, Const, Device, Expr, Let, Math, Ref, Word, held, parts
from fusegen.lower.border import Border
from fusegen.lower.patterns import erring, gate_and_slope, names_wanted, odd_cubic, unlifted
from fusegen.lower.slack import Slack
from fusegen.lower.tangent import LOST, tangent
from fusegen.ops import DOUBLED, PRODUCTS, ROWS, SINGLES, TRANSCENDENTAL
from fusegen.ops.row import Words
from fusegen.term import Apply, Name, Number, Program, Term, applied, unused
from fusegen.term import Let as Named

EXACT = {"add": "sum", "mul": "product"}  # what gives the same of single words in two
OF_TWO = {op: f"{op}_of_two" for op in ("erf", "tanh", "expm1", "square", "cube")}
IN_DOUBLE = ("times_ndtr",)  # whose second word double computes: not in float on CUDA
OWN = ("erf", "tanh")  # CUDA's own are enough where nothing magnifies them
MOST_ERRING = 2  # factors of a product in one word that err by units
LEAST = 2.0**-140  # of a second word that is worth its place
BITS = {Math.FLOAT: 24, Math.DOUBLE: 53}  # of a word
WHOLE, SHORT = 1, 1 / 2  # a number's first word, and one that is taken off a sum exactly


class Precise(Border):
    """Terms to expressions of single-word and double-word types."""

    def __init__(self, program: Program, device: Device, kind: Math, settled: bool = False) -> None:
        """Take what is computed for every element, and whether double settles how results are rounded."""
        super().__init__(program.params, device, kind)
        lets, results = program.lets, program.results
        self.singles = (device, kind) == (Device.CUDA, Math.FLOAT)  # whether functions give one word
        self.on_cpu = device is Device.CPU
        self.tangents = self.on_cpu and not settled  # whether results are these next to 0
        self.steps = {let.name: let.term for let in lets}
        self.taken = {*program.inputs, *program.params, *self.steps}
        self.slack = Slack(lets, results, settled) if self.on_cpu and kind is Math.FLOAT else Slack((), ())
        self.wanted = names_wanted(lets, results) - self.slack.names
        self.types: dict[str, Word] = {}  # of the steps so far
        used = applied((*(let.term for let in lets), *results))
        self.one_word = self.singles and not used.isdisjoint(SINGLES)

    def let(self, let: Named) -> Let:
        """A named value, in two words where it is one or where an argument wants it so."""
        plain = let.name in self.slack.names
        value = self.single(let.term) if plain else self.expr(let.term, let.name in self.wanted)
        self.types[let.name] = value.word
        return Let(let.name, value)

    def result(self, term: Term) -> tuple[tuple[Let, ...], Expr]:
        """What a result takes first, and its expression, which is one of its tangent next to 0.

        On the CPU a choice of two words is one of single ones.
        """
        if self.tangents and (found := tangent(term, self.steps)):
            x, slope = found
            small = self.call("lt", self.call("abs", self.expr(x)), Const(LOST[self.math]))
            return self.chosen(small, self.scaled(x, slope), self.single(term))
        match term:
            case Apply("where", (Apply(op, args), a, b)) if self.on_cpu and is_double(self.expr(term)):
                return self.chosen(self.call(op, *map(self.single, args)), self.single(a), self.single(b))
        return (), self.expr(term)

    def chosen(self, holds: Expr, then: Expr, otherwise: Expr) -> tuple[tuple[Let, ...], Expr]:
        """A choice between two values; functions are computed before it, so that a loop jumps over none."""
        lets, sides = [], [then, otherwise]
        for k, name in enumerate(("then", "otherwise")):
            if TRANSCENDENTAL.isdisjoint(part.op for part in parts(sides[k]) if isinstance(part, Call)):
                continue
            free = unused(name, self.taken)
            self.taken.add(free)
            lets.append(Let(free, sides[k]))
            sides[k] = Ref(free, sides[k].word)
        return tuple(lets), self.call("where", holds, *sides)

    def single(self, term: Term) -> Expr:
        """The expression of a term in a single word."""
        value = self.expr(term)
        return self.call("narrow", value) if is_double(value) else value

    def expr(self, term: Term, wanted: bool = False) -> Expr:
        """The expression of a term; what stores it adds its words up.

        Args:
            term: what is computed.
            wanted: whether arithmetic of single words is to give two.
        """
        match term:
            case Apply() if wanted and (cubic := odd_cubic(term)):
                return self.odd_cubic(*cubic)
            case Number(number) if wanted:
                return self.number(number)
            case Name(name):
                return Ref(name, self.types.get(name, Word.SINGLE))
            case Apply("neg", (a,)):
                return self.call("neg", self.expr(a, wanted))
            case Apply("add" | "sub" | "mul" | "div", (a, b)):
                return self.arithmetic(term.op, a, b, wanted)
            case Apply("square" | "cube" as op, (a,)):
                value = self.expr(a, wanted or (isinstance(a, Apply) and a.op in OWN))
                return self.call(OF_TWO[op] if is_double(value) or wanted else op, value)
            case Apply("where", (Apply() as condition, a, b)):
                return self.choice(condition, a, b)
            case Apply():
                return self.function(term, wanted)
        return super().expr(term)

    def arithmetic(self, op: str, a: Term, b: Term, wanted: bool) -> Expr:
        """A sum, a difference, a product or a quotient."""
        match op, b:
            case "div", Number(value):
                return self.expr(a * Number(1 / value), wanted)
            case "div", _:
                uniform = isinstance(b, Name) and b.name in self.params  # whose inverse is taken once
                by = "quotient" if self.one_word and uniform else "div"
                return self.call(by, self.single(a), self.single(b))
            case "mul", Apply("lift_back", (argument,)) if self.one_word and (
                bare := unlifted(a, argument)
            ):
                return self.expr(bare, wanted)
            case "mul", Apply("lift_back", (argument,)):
                lifted = self.expr(a, True) if wanted else self.single(a)
                return self.call("mul", lifted, self.called("lift_back", argument))
        if self.one_word and not wanted and op == "mul" and erring(a) + erring(b) > MOST_ERRING:
            return self.call(op, self.expr(a, True), self.single(b))
        if self.one_word and not wanted:
            return self.in_one_word(op, a, b)
        whole = op == "mul"  # a number that multiplies is taken exactly
        left, right = (self.expr(part, wanted or (whole and isinstance(part, Number))) for part in (a, b))
        if not wanted or is_double(left) or is_double(right):
            return self.call(op, left, right)
        return self.call(EXACT.get(op, "sum"), left, self.call("neg", right) if op == "sub" else right)

    def in_one_word(self, op: str, a: Term, b: Term) -> Expr:
        """A sum, a difference or a product that rounds once, also where it is a sum with a product."""
        match op, a, b:
            case "add", _, _ if found := gate_and_slope(a, b):
                return self.gate_slope(*found)
            case "mul", Number(value), other:
                return self.scaled(other, value)
            case "mul", other, Number(value):
                return self.scaled(other, value)
            case "add", c, Apply("mul", (x, y)):
                return self.fma(x, y, c)
            case "add", Apply("mul", (x, y)), c:
                return self.fma(x, y, c)
            case "sub", c, Apply("mul", (x, y)):
                return self.fma(-x, y, c)
        return self.call(op, self.single(a), self.single(b))

    def gate_slope(self, by: Term, t: Term) -> Expr:
        """The sigmoid of t and, times a product that is taken exactly, its slope."""
        match by:
            case Apply("mul", (a, b)):
                factors = self.single(a), self.single(b)
            case _:
                factors = self.single(by), Const(1.0)
        return self.call("gate_slope", *factors, self.expr(t, True))

    def fma(self, a: Term, b: Term, c: Term) -> Expr:
        """The sum of a product and c, which rounds once; of a number c what it rounds to is added last."""
        factors: tuple[Term, ...] = (a, b)
        match a, b:
            case Number(value), Apply("mul", (Number(other), rest)):
                return self.fma(Number(value * other), rest, c)
            case (Apply("mul", (x, y)), z) | (z, Apply("mul", (x, y))):
                factors = (x, y, z)
            case (Apply("square", (x,)), z) | (z, Apply("square", (x,))):
                factors = (x, x, z)
        op = "fma" if len(factors) == 2 else "product_plus"
        values = tuple(map(self.single, factors))
        match self.number(c.value) if isinstance(c, Number) else None:
            case Call("words", (hi, lo)):
                return self.call("add", self.call(op, *values, lo), hi)
        return self.call(op, *values, self.single(c))

    def scaled(self, term: Term, by: Fraction) -> Expr:
        """A term times a number that is taken exactly."""
        match term:
            case Apply("mul", (Number(other), rest)):
                return self.scaled(rest, by * other)
        value, whole = self.single(term), self.number(by)
        if isinstance(whole, Const):
            return self.call("mul", value, whole)
        # cut, so that the rest has its sign: what it multiplies may be infinite, or a zero
        hi = held(float(by) * (1 - 2.0**-24), self.math)
        return self.call("scaled", value, Const(hi), Const(held(float(by - Fraction(hi)), self.math)))

    def odd_cubic(self, x: Term, slope: Fraction, bend: Fraction) -> Expr:
        """The words of slope x + bend x^3, both of one sign, as x times a line in x^2."""
        line = (*self.cut(bend, WHOLE), *self.cut(slope, SHORT))
        square = self.call("square_of_two", self.expr(x, True))
        return self.call("mul", self.expr(x, True), self.call("line_of_two", *map(Const, line), square))

    def cut(self, value: Fraction, share: float) -> tuple[float, float]:
        """A number in two words, the first of which takes a share of a word's bits."""
        bits = int(BITS[self.math] * share)
        mantissa, exponent = math.frexp(value)
        hi = math.ldexp(int(math.ldexp(mantissa, bits)), exponent - bits)
        return hi, held(float(value - Fraction(hi)), self.math)

    def number(self, value: Fraction) -> Expr:
        """A number in as many words as it takes, two at most; one where it is infinite."""
        hi = self.rounded(value)
        if math.isinf(hi):
            return Const(hi)
        lo = held(float(value - Fraction(hi)), self.math)
        if abs(lo) < LEAST:
            return Const(hi)
        return self.call("words", Const(hi), Const(lo))

    def choice(self, condition: Apply, a: Term, b: Term) -> Expr:
        """A choice; both sides are of two words if one is."""
        holds = self.call(condition.op, *map(self.single, condition.args))
        return self.call("where", holds, *self.alike(self.expr(a), self.expr(b)))

    def function(self, term: Apply, wanted: bool) -> Expr:
        """A function: some take two words, and some of these give two."""
        match term:
            case Apply(op, (a, *_)) if not wanted and (link := self.slack.link(term)):
                return self.call(link, self.single(self.slack.given(link, a)))
            case Apply(op, (a,)) if wanted and self.singles and op in DOUBLED:
                return self.called(f"{op}_of_two", a)
            case Apply(op, args) if op in PRODUCTS and (found := self.nested(op, args, wanted)):
                return found
            case Apply("gate", (a, t)):
                return self.call("gate", self.single(a), self.expr(t, True))
            case Apply("exp", (a,)):
                value = self.expr(a, True)
                of_two = is_double(value) or self.singles or self.on_cpu
                return self.call("exp_of_two" if of_two else "exp", value)
            case Apply("expm1" as op, (a,)) if self.on_cpu:
                return self.called(OF_TWO[op], a)
            case Apply("erf" | "tanh" as op, (a,)) if self.on_cpu or wanted:
                return self.called(OF_TWO[op], a)
            case Apply(op, (a,)) if op == "lifted" or ROWS[op].words is Words.DOUBLE:
                return self.called(op, a)
        return self.call(term.op, *map(self.single, term.args))

    def nested(self, op: str, args: Sequence[Term], wanted: bool) -> Expr | None:
        """A function in two words, or of what an earlier one has rounded; nothing where it is neither."""
        parts = [self.expr(arg, True) for arg in args]
        rounded = is_double(parts[0])
        if (wanted and op not in IN_DOUBLE) if self.singles else (wanted or rounded):
            return self.call(f"{op}_of_two", *self.alike(*parts))
        return self.call(f"{op}_at_two", *self.alike(*parts)) if rounded else None

    def called(self, op: str, argument: Term) -> Call:
        """A function of an argument that may be of two words."""
        return self.call(op, self.expr(argument, True))

    def alike(self, *parts: Expr) -> tuple[Expr, ...]:
        """Expressions of two words each, if one of them is."""
        if not any(map(is_double, parts)):
            return parts
        return tuple(part if is_double(part) else self.call("words", part, Const(0.0)) for part in parts)


def is_double(value: Expr) -> bool:
    """Whether a value is of two words."""
    return value.word is Word.DOUBLE
