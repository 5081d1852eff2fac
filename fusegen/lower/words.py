"""Kernels in double-word arithmetic where single words would magnify or lose a rounding.

Functions whose row has `Words.DOUBLE` take a double-word argument and give a double-word value. Sums and
products of such a value are double-word too, and so is the arithmetic in an argument. All else is
single-word, and a result rounds once, where it is stored. In float on CUDA double-word arithmetic takes
longer than a copy. Only arguments are double-word there: functions give single words
(`ops.SINGLE_WORD_VALUED`); a product that is added rounds with the sum. The value of an earlier function
of a chain is an argument of the next. Float on the CPU has the same form (`Form.ARGUMENTS`), by functions
with the body `SINGLE_RESULT`. In a chain others are single-word there if accurate enough (`error_budget`).

Source: Dekker 1971, A floating-point technique for extending the available precision, Numer. Math. 18.
"""

from collections.abc import Sequence
from enum import Enum
from fractions import Fraction

from fusegen.core.ir import Body, Call, Const, Expr, Let, Math, Ref, Word, parts
from fusegen.core.ops import PRODUCTS, ROWS, TRANSCENDENTAL
from fusegen.core.ops.double_word import CURVE
from fusegen.core.ops.row import Words
from fusegen.core.targets import Device
from fusegen.core.term import Apply, Name, Number, Program, Term, applied, infinite, unused
from fusegen.core.term import Let as Named
from fusegen.lower.error_budget import ErrorBudget
from fusegen.lower.single import SingleWord, cut, is_double
from fusegen.lower.tangent import LOST, tangent
from fusegen.lower.term_patterns import (
    BOUNDS,
    INEXACT,
    bounded,
    inexact_factors,
    names_wanted,
    not_prescaled,
    odd_cubic,
    one_number,
)

IN_DOUBLE = ("times_ndtr",)  # double computes their low word: not in float on CUDA
CUDA_LIBM = ("erf", "tanh")  # CUDA's math library is accurate enough where nothing magnifies its errors
MAX_INEXACT_FACTORS = 2  # of a single-word product: factors that err by several ulp
ALL_BITS, HALF_OF_BITS = 1, 1 / 2  # of the high word of a number; half, so that a sum takes it off exactly


class Form(Enum):
    """The use of double-word values on the CPU, in float."""

    ROUNDED = "for every result, which is rounded once"
    VERIFIED = "where single words would lose the result; its rounding is verified"
    ARGUMENTS = "for arguments only"


class DoubleWordLowering(SingleWord):
    """Terms to expressions of single-word and double-word types."""

    def __init__(self, program: Program, device: Device, kind: Math, form: Form = Form.ROUNDED) -> None:
        """Take what is computed for every element, and the use of double-word values on the CPU."""
        super().__init__(program.params, device, kind)
        lets, results = program.lets, program.results
        self.gives_words = not device.single_words
        self.single_result = self.gives_words and form is Form.ARGUMENTS  # functions have that body
        # functions give single words
        self.emits_single_word = self.single_result or (device.single_words and kind is Math.FLOAT)
        self.emits_double_word = self.gives_words and not self.single_result  # every function may
        self.linear_near_zero = self.emits_double_word and form is Form.ROUNDED
        self.steps = {let.name: let.term for let in lets}
        self.given = set(map(Name, (*program.inputs, *program.params)))
        self.taken = {*program.inputs, *program.params, *self.steps}
        chained = self.emits_double_word and kind is Math.FLOAT
        self.budget = ErrorBudget(lets, results, form is Form.VERIFIED) if chained else ErrorBudget((), ())
        self.wanted = names_wanted(lets, results) - self.budget.names
        self.types: dict[str, Word] = {}  # of the steps so far
        self.known = {}
        used = applied((*(let.term for let in lets), *results))
        self.fuses_rounding = self.single_result or (
            self.emits_single_word and not used.isdisjoint(INEXACT)
        )

    def call(self, op: str, *args: Expr, body: Body | None = None) -> Call:
        """Return a call of an operation, with its type."""
        if self.single_result and body is None and Body.SINGLE_RESULT in ROWS[op].bodies:
            return super().call(op, *args, body=Body.SINGLE_RESULT)
        return super().call(op, *args, body=body)

    def let(self, let: Named) -> Let:
        """Return a named value, double-word where its term is or where an argument needs it."""
        plain = let.name in self.budget.names
        value = self.single(let.term) if plain else self.expr(let.term, let.name in self.wanted)
        self.types[let.name] = value.word
        return Let(let.name, value)

    def result(self, term: Term) -> tuple[tuple[Let, ...], Expr]:
        """Return the lets that precede a result, and its expression; near zero the linear term.

        On the CPU a choice of double-word values is one of single words.
        """
        if self.linear_near_zero and (found := tangent(term, self.steps)):
            x, slope = found
            small = self.call("lt", self.call("abs", self.expr(x)), Const(LOST[self.math]))
            return self.chosen(small, self.scaled(x, slope), self.single(term))
        match term:
            case Apply("where", (Apply(op, args), a, b)) if self.gives_words and (
                self.single_result or is_double(self.expr(term))
            ):
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

    def found(self, term: Term, wanted: bool) -> Expr:
        """Return the expression of a term; storing it adds the words up.

        With `wanted`, arithmetic of single words gives a double-word value.
        """
        match term:
            case Apply() if wanted and (cubic := odd_cubic(term)):
                return self.odd_cubic(*cubic)
            case Number(number) if wanted and not infinite(term):
                return self.number(number)
            case Name(name):
                return Ref(name, self.types.get(name, Word.SINGLE))
            case Apply("neg", (a,)):
                return self.call("neg", self.expr(a, wanted))
            case Apply("narrow", (a,)):
                return self.single(a)
            case Apply("add" | "sub" | "mul" | "div", (a, b)):
                return self.arithmetic(term.op, a, b, wanted)
            case Apply("square" | "cube" as op, (a,)):
                value = self.expr(a, wanted or (isinstance(a, Apply) and a.op in CUDA_LIBM))
                return self.doubled(op, value) if wanted else self.call(op, value)
            case Apply("where", (Apply() as condition, a, b)):
                return self.choice(condition, a, b)
            case Apply():
                return self.function(term, wanted)
        return super().found(term, wanted)

    def arithmetic(self, op: str, a: Term, b: Term, wanted: bool) -> Expr:
        """Return a sum, a difference, a product or a quotient."""
        match op, b:
            case _ if merged := one_number(op, a, b):
                return self.expr(merged, wanted)
            case "div", _:
                return self.quotient(a, b, wanted)
            case "mul", Apply("unscale", (argument,)) if self.fuses_rounding and (
                bare := not_prescaled(a, argument)
            ):
                return self.expr(bare, wanted)
            case "mul", Apply("unscale", (argument,)):
                prescaled = self.expr(a, True) if wanted else self.single(a)
                return self.call("mul", prescaled, self.call("unscale", self.expr(argument, True)))
        if (
            self.fuses_rounding
            and not wanted
            and op == "mul"
            and inexact_factors(a) + inexact_factors(b) > MAX_INEXACT_FACTORS
        ):
            return self.call(op, self.expr(a, True), self.single(b))
        if self.fuses_rounding and not wanted:
            return self.rounded_once(op, a, b)
        whole = op == "mul"  # a number that multiplies is taken exactly
        left, right = (self.expr(part, wanted or (whole and isinstance(part, Number))) for part in (a, b))
        wide = is_double(left) or is_double(right) or self.is_tail(a) or self.is_tail(b)
        if op in ("add", "sub") and not wanted and wide:  # may cancel
            left, right = self.unrounded(a, left), self.unrounded(b, right)
        if not wanted or is_double(left) or is_double(right):
            return self.call(op, left, right)
        if op == "sub":
            return self.doubled("add", left, self.call("neg", right))
        return self.doubled(op, left, right)

    def quotient(self, a: Term, b: Term, wanted: bool) -> Expr:
        """Return a quotient; that of two inputs is double-word where one is wanted."""
        if wanted and {a, b} <= self.given:
            return self.doubled("div", self.single(a), self.single(b))
        uniform = isinstance(b, Name) and b.name in self.params  # whose inverse is taken once
        by = "quotient" if self.fuses_rounding and uniform else "div"
        return self.call(by, self.single(a), self.single(b))

    def odd_cubic(self, x: Term, slope: Fraction, bend: Fraction) -> Expr:
        """Return the words of slope x + bend x^3, both of one sign."""
        line = (*cut(bend, ALL_BITS, self.math), *cut(slope, HALF_OF_BITS, self.math))
        square = self.doubled("square", self.expr(x, True))
        return self.call("mul", self.expr(x, True), self.call("linear", *map(Const, line), square))

    def choice(self, condition: Apply, a: Term, b: Term) -> Expr:
        """Return a choice; both sides are double-word if one is."""
        holds = self.call(condition.op, *map(self.single, condition.args))
        return self.call("where", holds, *self.alike(self.expr(a), self.expr(b)))

    def function(self, term: Apply, wanted: bool) -> Expr:
        """Return a function; the row says which words it takes and gives."""
        match term:
            case Apply(op, args) if not wanted and self.budget.takes_single_word(term):
                body = self.budget.body(term)
                return self.call(op, *(self.single(self.budget.argument(body, a)) for a in args), body=body)
            case Apply(op, args) if op in PRODUCTS and (found := self.nested(op, args, wanted)):
                return found
            case Apply(op, (a,)) if op in BOUNDS and bounded(a) in self.wanted:
                return self.call(op, self.expr(a))
            case Apply("x_sigmoid", (a, t)):
                return self.call("x_sigmoid", self.single(a), self.expr(t, True))
            case Apply(op, (a, k)) if op == CURVE:
                return self.call(op, self.expr(a, True), self.expr(k))
            case Apply("exp", (a,)):
                return self.exponential(self.expr(a, True), wanted)
            case Apply("expm1", (a,)) if self.emits_double_word:
                return self.doubled("expm1", self.expr(a, True))
            case Apply("erf" | "tanh" as op, (a,)) if self.emits_double_word or wanted:
                return self.doubled(op, self.expr(a, True))
            case Apply(op, (a,)) if op == "prescaled" or ROWS[op].words is Words.DOUBLE:
                give = self.doubled if wanted and Body.DOUBLE_WORD in ROWS[op].bodies else self.call
                return give(op, self.expr(a, True))
        return self.call(term.op, *map(self.single, term.args))

    def exponential(self, value: Expr, wanted: bool) -> Expr:
        """Return an exponential, which is the math library's on CUDA only in double, of a single word.

        Of -infinity with a low word of NaN, as of a product that overflows, it is 0 with such a low word.
        Storing it ignores that, but a function of it does not: its argument is kept finite.
        """
        if wanted and is_double(value) and not self.emits_single_word:
            value = self.call("clamp_to_lowest", value)
        if self.emits_double_word:
            return self.doubled("exp", value)
        libm = not self.single_result and self.emits_single_word and not is_double(value)
        return self.call("exp", value, body=Body.SINGLE_WORD if libm else None)

    def nested(self, op: str, args: Sequence[Term], wanted: bool) -> Expr | None:
        """Return a double-word function, or one of a double-word argument; None where it is neither."""
        parts = [self.expr(arg, True) for arg in args]
        rounded = is_double(parts[0])
        if (wanted and op not in IN_DOUBLE) if self.emits_single_word else (wanted or rounded):
            return self.doubled(op, *self.alike(*parts))
        return self.call(op, *self.alike(*parts)) if rounded else None
