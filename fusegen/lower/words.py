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

from fusegen.ir import Call, Const, Device, Expr, Let, Math, Ref, held, parts
from fusegen.lower.border import Border
from fusegen.lower.slack import Slack, scaled
from fusegen.lower.tangent import LOST, tangent
from fusegen.ops import DOUBLED, PRODUCTS, ROWS, SINGLES, TRANSCENDENTAL
from fusegen.term import Apply, Name, Number, Program, Term, applied, call, infinite, unused
from fusegen.term import Let as Named

EXACT = {"add": "sum", "mul": "product"}  # what gives the same of single words in two
OF_TWO = {op: f"{op}_of_two" for op in ("erf", "tanh", "expm1", "square", "cube")}
IN_DOUBLE = ("times_ndtr",)  # whose second word double computes: not in float on CUDA
OWN = ("erf", "tanh")  # CUDA's own are enough where nothing magnifies them
ARITHMETIC = ("add", "sub", "mul", "neg", "square", "cube")
ARGUMENTS = ("exp", "erf", "tanh", "lifted", "lift_back", *PRODUCTS)  # take two words
MOST_ERRING = 2  # factors of a product in one word that err by units
LEAST = 2.0**-140  # of a second word that is worth its place
LARGE = 2**60
BITS = {Math.FLOAT: 24, Math.DOUBLE: 53}  # of a word
WHOLE, SHORT = 1, 1 / 2  # a number's first word, and one that is taken off a sum exactly

Words = tuple[Expr, bool]  # an expression, and whether it is of two words


class Precise(Border):
    """Terms to expressions of one word or two."""

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
        self.wanted = _wanted(lets, results) - self.slack.names
        self.wide: set[str] = set()
        used = applied((*(let.term for let in lets), *results))
        self.one_word = self.singles and not used.isdisjoint(SINGLES)

    def let(self, let: Named) -> Let:
        """A named value, in two words where it is one or where an argument wants it so."""
        if let.name in self.slack.names:
            return Let(let.name, self.single(let.term))
        value, wide = self.words(let.term, let.name in self.wanted)
        self.wide |= {let.name} if wide else set()
        return Let(let.name, value, wide)

    def result(self, term: Term) -> tuple[tuple[Let, ...], Expr]:
        """What a result takes first, and its expression, which is one of its tangent next to 0.

        On the CPU a choice of two words is one of single ones.
        """
        if self.tangents and (found := tangent(term, self.steps)):
            x, slope = found
            small = Call("lt", (Call("abs", (self.expr(x),)), Const(LOST[self.math])))
            return self.chosen(small, self.scaled(x, slope), self.single(term))
        match term:
            case Apply("where", (Apply(op, args), a, b)) if self.on_cpu and self.words(term)[1]:
                return self.chosen(Call(op, tuple(map(self.single, args))), self.single(a), self.single(b))
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
            sides[k] = Ref(free)
        return tuple(lets), Call("where", (holds, *sides))

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
            case Apply() if wanted and (cubic := _odd_cubic(term)):
                return self.odd_cubic(*cubic), True
            case Number(number) if wanted and not infinite(term):
                return self.number(number)
            case Name(name):
                return Ref(name), name in self.wide
            case Apply("neg", (a,)):
                value, wide = self.words(a, wanted)
                return Call("neg", (value,)), wide
            case Apply("add" | "sub" | "mul" | "div", (a, b)):
                return self.arithmetic(term.op, a, b, wanted)
            case Apply("square" | "cube" as op, (a,)):
                value, wide = self.words(a, wanted or (isinstance(a, Apply) and a.op in OWN))
                return Call(OF_TWO[op] if wide or wanted else op, (value,)), wide or wanted
            case Apply("where", (Apply() as condition, a, b)):
                return self.choice(condition, a, b)
            case Apply():
                return self.function(term, wanted)
        return super().expr(term), False

    def arithmetic(self, op: str, a: Term, b: Term, wanted: bool) -> Words:
        """A sum, a difference, a product or a quotient."""
        match op, b:
            case "div", Number(value):
                return self.words(a * Number(1 / value), wanted)
            case "div", _:
                uniform = isinstance(b, Name) and b.name in self.params  # whose inverse is taken once
                by = "quotient" if self.one_word and uniform else "div"
                return Call(by, (self.single(a), self.single(b))), False
            case "mul", Apply("lift_back", (argument,)) if self.one_word and (
                unlifted := _unlifted(a, argument)
            ):
                return self.words(unlifted, wanted)
            case "mul", Apply("lift_back", (argument,)):
                lifted, wide = self.words(a, True) if wanted else (self.single(a), False)
                return Call("mul", (lifted, self.called("lift_back", argument))), wide
        if self.one_word and not wanted and op == "mul" and _erring(a) + _erring(b) > MOST_ERRING:
            return Call(op, (self.words(a, True)[0], self.single(b))), True
        if self.one_word and not wanted:
            return self.in_one_word(op, a, b)
        whole = op == "mul"  # a number that multiplies is taken exactly
        (left, first), (right, second) = (
            self.words(part, wanted or (whole and isinstance(part, Number))) for part in (a, b)
        )
        if first or second or not wanted:
            return Call(op, (left, right)), first or second
        return Call(EXACT.get(op, "sum"), (left, Call("neg", (right,)) if op == "sub" else right)), True

    def in_one_word(self, op: str, a: Term, b: Term) -> Words:
        """A sum, a difference or a product that rounds once, also where it is a sum with a product."""
        match op, a, b:
            case "add", _, _ if found := _gate(a, b):
                return self.gate_slope(*found), False
            case "mul", Number(value), other:
                return self.scaled(other, value), False
            case "mul", other, Number(value):
                return self.scaled(other, value), False
            case "add", c, Apply("mul", (x, y)):
                return self.fma(x, y, c), False
            case "add", Apply("mul", (x, y)), c:
                return self.fma(x, y, c), False
            case "sub", c, Apply("mul", (x, y)):
                return self.fma(-x, y, c), False
        return Call(op, (self.single(a), self.single(b))), False

    def gate_slope(self, by: Term, t: Term) -> Expr:
        """The sigmoid of t and, times a product that is taken exactly, its slope."""
        match by:
            case Apply("mul", (a, b)):
                factors = self.single(a), self.single(b)
            case _:
                factors = self.single(by), Const(1.0)
        return Call("gate_slope", (*factors, self.words(t, True)[0]))

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
        match self.number(c.value)[0] if isinstance(c, Number) else None:
            case Call("words", (hi, lo)):
                return Call("add", (Call(op, (*values, lo)), hi))
        return Call(op, (*values, self.single(c)))

    def scaled(self, term: Term, by: Fraction) -> Expr:
        """A term times a number that is taken exactly."""
        match term:
            case Apply("mul", (Number(other), rest)):
                return self.scaled(rest, by * other)
        value, whole = self.single(term), self.number(by)[0]
        if isinstance(whole, Const):
            return Call("mul", (value, whole))
        # cut, so that the rest has its sign: what it multiplies may be infinite, or a zero
        hi = held(float(by) * (1 - 2.0**-24), self.math)
        return Call("scaled", (value, Const(hi), Const(held(float(by - Fraction(hi)), self.math))))

    def odd_cubic(self, x: Term, slope: Fraction, bend: Fraction) -> Expr:
        """The words of slope x + bend x^3, both of one sign, as x times a line in x^2."""
        line = (*self.cut(bend, WHOLE), *self.cut(slope, SHORT))
        square = Call("square_of_two", (self.words(x, True)[0],))
        return Call("mul", (self.words(x, True)[0], Call("line_of_two", (*map(Const, line), square))))

    def cut(self, value: Fraction, share: float) -> tuple[float, float]:
        """A number in two words, the first of which takes a share of a word's bits."""
        bits = int(BITS[self.math] * share)
        mantissa, exponent = math.frexp(value)
        hi = math.ldexp(int(math.ldexp(mantissa, bits)), exponent - bits)
        return hi, held(float(value - Fraction(hi)), self.math)

    def number(self, value: Fraction) -> Words:
        """A number in as many words as it takes, two at most; one where it is infinite."""
        hi = self.rounded(value)
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
        return Call("where", (holds, *_alike([(chosen, first), (other, second)]))), wide

    def function(self, term: Apply, wanted: bool) -> Words:
        """A function: some take two words, and some of these give two."""
        match term:
            case Apply(op, (a, *_)) if not wanted and (link := self.slack.link(term)):
                return Call(link, (self.single(self.slack.given(link, a)),)), False
            case Apply(op, (a,)) if wanted and self.singles and op in DOUBLED:
                return self.called(f"{op}_of_two", a), True
            case Apply(op, args) if op in PRODUCTS and (found := self.nested(op, args, wanted)):
                return found
            case Apply("gate", (a, t)):
                return Call("gate", (self.single(a), self.words(t, True)[0])), False
            case Apply("lifted", (a,)):
                value, wide = self.words(a, True)
                return Call("lifted", (value,)), wide
            case Apply("exp", (a,)):
                value, wide = self.words(a, True)
                of_two = wide or self.singles or self.device is Device.CPU
                return Call("exp_of_two" if of_two else "exp", (value,)), of_two and not self.singles
            case Apply("expm1" as op, (a,)) if self.device is Device.CPU:
                return self.called(OF_TWO[op], a), True
            case Apply("erf" | "tanh" as op, (a,)) if self.device is Device.CPU or wanted:
                return self.called(OF_TWO[op], a), True
            case Apply(op, (a,)) if ROWS[op].wide:
                return self.called(op, a), not (self.singles and op in SINGLES)
        return Call(term.op, tuple(map(self.single, term.args))), False

    def nested(self, op: str, args: Sequence[Term], wanted: bool) -> Words | None:
        """A function in two words, or of what an earlier one has rounded; nothing where it is neither."""
        parts = [self.words(arg, True) for arg in args]
        _, rounded = parts[0]
        if (wanted and op not in IN_DOUBLE) if self.singles else (wanted or rounded):
            return Call(f"{op}_of_two", _alike(parts)), True
        return (Call(f"{op}_at_two", _alike(parts)), False) if rounded else None

    def called(self, op: str, argument: Term) -> Call:
        """A function of an argument that may be of two words."""
        return Call(op, (self.words(argument, True)[0],))


def _erring(term: Term) -> int:
    """How many factors of a product err by units."""
    match term:
        case Apply("mul", factors):
            return sum(map(_erring, factors))
    return not applied((term,)).isdisjoint(SINGLES)


def _alike(parts: Sequence[Words]) -> tuple[Expr, ...]:
    """Expressions of two words each, if one of them is."""
    if not any(wide for _, wide in parts):
        return tuple(value for value, _ in parts)
    return tuple(value if wide else Call("words", (value, Const(0.0))) for value, wide in parts)


def _odd_cubic(term: Term) -> tuple[Term, Fraction, Fraction] | None:
    """The x, slope and bend of slope x + bend x^3, where both are of one sign and of ordinary size."""
    slope, whole = scaled(term)
    match whole:
        case Apply("add", (x, bent)):
            bend, cube = scaled(bent)
            ordinary = all(1 / LARGE < size < LARGE for size in (abs(slope), abs(slope) * bend))
            return (x, slope, slope * bend) if ordinary and cube == call("cube", x) else None
    return None


def _gate(a: Term, b: Term) -> tuple[Term, Term] | None:
    """Of the sum of a sigmoid and a product with its slope, the other factors and the argument."""
    match a:
        case Apply("sigmoid", (t,)) if by := _without(b, call("sigmoid_slope", t)):
            return by, t
    return None


def _unlifted(product: Term, argument: Term) -> Term | None:
    """A product with a gate's slope that is lifted, with that as it is: in one word it needs no lifting."""
    match product:
        case Apply("add", (a, b)) if (found := _gate(a, b)) and found[1] == call("lifted", argument):
            return call("sigmoid", argument) + found[0] * call("sigmoid_slope", argument)
        case Apply("mul", (a, b)) if (whole := _unlifted(a, argument)) is not None:
            return whole * b
        case Apply("mul", (a, b)) if (whole := _unlifted(b, argument)) is not None:
            return a * whole
    return None


def _without(product: Term, factor: Term) -> Term | None:
    """A product's other factors, if it has this one."""
    match product:
        case Apply("mul", (a, b)) if factor in (a, b):
            return b if a == factor else a
        case Apply("mul", (a, b)) if (rest := _without(a, factor)) is not None:
            return rest * b
    return None


def _wanted(lets: Sequence[Named], results: Sequence[Term]) -> set[str]:
    """The names that arguments in two words are computed from."""
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
