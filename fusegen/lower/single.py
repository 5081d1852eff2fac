"""Single-word arithmetic that rounds once: sums, products, and numbers that are taken exactly."""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from fusegen.core.ir import Body, Call, Const, Expr, Math, Word, round_to
from fusegen.core.term import Apply, Name, Number, Term, names
from fusegen.lower.lowering import Lowering
from fusegen.lower.term_patterns import gate_and_slope, product

NEAR = 140.0  # the slope of a sigmoid is 0 beyond
LEAST = 2.0**-140  # of a low word that is worth its place
BITS = {Math.FLOAT: 24, Math.DOUBLE: 53}  # of a word


class SingleWord(Lowering):
    """Terms to expressions of single words.

    Attributes:
        steps: the terms of the program's names.
        known: the expressions of the terms so far.
        single_result: whether functions take double-word values and give single words.
        emits_double_word: whether every function may give a double-word value.
    """

    steps: Mapping[str, Term]
    known: dict[tuple[Term, bool], Expr]
    single_result: bool
    emits_double_word: bool

    def expr(self, term: Term, wanted: bool = False) -> Expr:
        """Return the expression of a term; arithmetic gives a double-word value where one is wanted."""
        if (term, wanted) not in self.known:  # a sum asks twice for each operand
            self.known[term, wanted] = self.found(term, wanted)
        return self.known[term, wanted]

    def found(self, term: Term, wanted: bool) -> Expr:
        """Compute the expression of a term, which `expr` keeps."""
        return super().expr(term)

    def single(self, term: Term) -> Expr:
        """Return the expression of a term in a single word."""
        value = self.expr(term)
        return self.call("narrow", value) if is_double(value) else value

    def doubled(self, op: str, *args: Expr) -> Expr:
        """Return an operation that gives a double-word value, of single words, too."""
        value = self.call(op, *args)
        return value if is_double(value) else self.call(op, *args, body=Body.DOUBLE_WORD)

    def is_tail(self, term: Term) -> bool:
        """Return True if a term is a double-word product that is prescaled on the way."""
        match term:
            case Apply("neg", (inner,)):
                return self.is_tail(inner)
            case Apply("mul", (product, Apply("unscale"))):
                return self.emits_double_word and is_double(self.expr(product))
        return False

    def unrounded(self, term: Term, value: Expr) -> Expr:
        """Return the double-word value of a number, arithmetic or a gate; the value itself of all else."""
        match term:
            case Number() | Apply("add" | "sub" | "mul" | "square" | "cube" | "x_sigmoid"):
                return self.expr(term, True)
        return value

    def rounded_once(self, op: str, a: Term, b: Term) -> Expr:
        """A sum, a difference or a product that rounds once, also where it is a sum with a product."""
        match op, a, b:
            case "add", _, _ if found := gate_and_slope(a, b, self.steps):
                return self.gate_sum(*found)
            case "mul", _, _ if gated := self.gate(a, b):
                return gated
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
        return self.call(op, *map(self.summand if op in ("add", "sub") else self.single, (a, b)))

    def summand(self, term: Term) -> Expr:
        """Return a part of a sum, which may cancel: a gate in the form that rounds once."""
        match term:
            case Apply("x_sigmoid", (x, t)) if self.single_result:
                near, unscale = (self.call(op, self.expr(t, True)) for op in ("prescaled", "unscale"))
                return self.call("mul", self.call("times_sigmoid", self.single(x), near), unscale)
        return self.single(term)

    def gate(self, a: Term, b: Term) -> Expr | None:
        """The product of a term and a sigmoid that rounds once; None of any other product.

        On the CPU any sigmoid is taken whole: where it is all but constant, as in a tail, one rounded error
        of it would misround products at most inputs.
        """
        for x, other in ((a, b), (b, a)):
            match self.steps.get(other.name) if isinstance(other, Name) else other:
                case Apply("sigmoid", (Apply("prescaled") as t,)):
                    return self.call("times_sigmoid", self.single(x), self.expr(t, True))
                case Apply("sigmoid", (t,)) if self.single_result:
                    return self.call("times_sigmoid", self.single(x), self.expr(t, True))
        return None

    def gate_sum(self, common: Sequence[Term], by: Sequence[Term], t: Term) -> Expr:
        """Return the sigmoid of t and, times a product of which two factors are taken exactly, its slope.

        Args:
            common: the factors of the whole sum.
            by: those of the slope alone.
            t: the argument.
        """
        first, last = product(by[:-1]), product(by[-1:])
        pair = (last, first) if len(by) < 2 else (first, last)
        a, b, argument = *map(self.single, pair), self.expr(t, True)
        if all(map(names, pair)) and len(set(map(frozenset, map(names, pair)))) > 1:  # a b may overflow
            near = self.call("lt", self.call("abs", self.single(t)), Const(NEAR))
            a = self.call("where", near, a, Const(0.0))
        whole = self.call("x_sigmoid_slope", a, b, argument)
        return self.call("mul", self.single(product(common)), whole) if common else whole

    def fma(self, a: Term, b: Term, c: Term) -> Expr:
        """Return the sum of a product and c, rounded once; the high word of a constant c is added last."""
        factors: tuple[Term, ...] = (a, b)
        match a, b:
            case Number(value), Apply("mul", (Number(other), rest)):
                return self.fma(Number(value * other), rest, c)
            case (Apply("mul", (x, y)), z) | (z, Apply("mul", (x, y))):
                factors = (x, y, z)
            case (Apply("square", (x,)), z) | (z, Apply("square", (x,))):
                factors = (x, x, z)
        values = tuple(map(self.single, factors))
        if len(values) == 3 and not self.device.single_words:  # product_plus is NaN where a b is infinite
            values = (self.call("mul", *values[:2]), values[2])
        op = "fma" if len(values) == 2 else "product_plus"
        match self.number(c.value) if isinstance(c, Number) else None:
            case Call("words", (hi, lo)):
                return self.call("add", self.call(op, *values, lo), hi)
        return self.call(op, *values, self.single(c))

    def scaled(self, term: Term, by: Fraction) -> Expr:
        """Return a term times a number that is taken exactly."""
        match term:
            case Apply("mul", (Number(other), rest)):
                return self.scaled(rest, by * other)
        value, whole = self.single(term), self.number(by)
        if isinstance(whole, Const):
            return self.call("mul", value, whole)
        # cut, so that the rest has its sign: what it multiplies may be infinite, or a zero
        hi = round_to(float(by) * (1 - 2.0**-24), self.math)
        return self.call("scaled", value, Const(hi), Const(round_to(float(by - Fraction(hi)), self.math)))

    def number(self, value: Fraction) -> Expr:
        """Return a number in as many words as it takes, two at most; one where it is infinite."""
        hi = self.rounded(value)
        if math.isinf(hi):
            return Const(hi)
        lo = round_to(float(value - Fraction(hi)), self.math)
        if abs(lo) < LEAST:
            return Const(hi)
        return self.call("words", Const(hi), Const(lo))

    def alike(self, *parts: Expr) -> tuple[Expr, ...]:
        """Return the same expressions, all double-word if one is."""
        if not any(map(is_double, parts)):
            return parts
        return tuple(part if is_double(part) else self.call("words", part, Const(0.0)) for part in parts)


def is_double(value: Expr) -> bool:
    """Return True if a value is double-word."""
    return value.word is Word.DOUBLE


def cut(value: Fraction, share: float, kind: Math) -> tuple[float, float]:
    """Return a number as high and low word; the high word has a share of a word's bits."""
    bits = int(BITS[kind] * share)
    mantissa, exponent = math.frexp(value)
    hi = math.ldexp(int(math.ldexp(mantissa, bits)), exponent - bits)
    return hi, round_to(float(value - Fraction(hi)), kind)
