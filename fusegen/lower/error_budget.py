"""The error budget of a chain in float on the CPU: where single-word arithmetic is accurate enough.

The next function of a chain multiplies the relative error of its argument x by its condition number,
|x f'(x) / f(x)|. Arguments from NEAR_FROM on have small ones, which CONDITION bounds. A
result may err by RESULT_ULP: its own rounding takes a part, that of its argument another, and so on
inward, until the rest pays for no more. Values further in are double-word, and so is the function that
gives a result, unless its rounding is verified. FUNCTION_ULP is the usual error of a function, not its
largest; the largest ones do not meet: `certify` measures the error of a chain. `core/candidates.py` does
not choose these words: they are the words of one kernel, of which a candidate each would be 2^n kernels.

`Body.NEAR` takes arguments from `NEAR_FROM` on, where nothing is too small for a float and little cancels;
`Body.SINGLE_WORD` takes any, infinities included. Of one float in thirteen the largest errors were 1.5 to
2.2 ulp, and 2.6 and 3.1 of Φ's. All are in float throughout, so that loops over them become vector
instructions of full width.
"""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from fusegen.core.budget import FUNCTION_ULP, RESULT_ULP, ROUNDING_ULP
from fusegen.core.interval import Interval, between, maximum
from fusegen.core.ir import Body
from fusegen.core.ops import TRANSCENDENTAL
from fusegen.core.term import Apply, Let, Name, Number, Term
from fusegen.lower.ranges import Ranges

# the bodies of any argument; tanh and erf are the math library's
ANY_ARGUMENT = {"x_sigmoid": Body.SINGLE_WORD, "times_ndtr": Body.SINGLE_WORD, "tanh": None, "erf": None}
NEAR_FROM = {  # where `Body.NEAR` begins
    "x_sigmoid": Fraction(-12, 10),
    "sigmoid": Fraction(-12, 10),
    "times_tanh_softplus": Fraction(-12, 10),
    "times_ndtr": Fraction(-3, 10),
}
# at most, of a relative error of an argument from NEAR_FROM on, or of any argument
CONDITION = {"x_sigmoid": 1.28, "sigmoid": 0.93, "times_ndtr": 1.3, "times_tanh_softplus": 1.22}
CONDITION_OF_ANY_ARGUMENT = {"tanh": 1.0, "erf": 1.0}
LEAST_VALUE = {  # values are not below
    "x_sigmoid": Fraction(-2785, 10_000),
    "times_ndtr": Fraction(-17, 100),
    "times_tanh_softplus": Fraction(-3089, 10_000),
}
PASSES_ON = (  # operations that return their argument: as it is, scaled exactly, or clamped
    "clamp_to_lowest",
    "clamp_to_highest",
    "clamp",
    "saturate",
    "clamp_min",
    "clamp_max",
    "relu",
    "relu6",
    "prescaled",
)


class ErrorBudget(Ranges):
    """The parts of a program in single-word arithmetic: their errors are magnified too little to matter."""

    def __init__(self, lets: Sequence[Let], results: Sequence[Term], verified: bool = False) -> None:
        """Take the program's steps in order, and whether the rounding of its results is verified."""
        super().__init__()
        self.steps = {let.name: let.term for let in lets}
        for let in lets:
            self.ranges[Name(let.name)] = self.range(let.term)
        self.remaining_ulp: dict[Term, float] = {}
        for result in results:
            self.allocate(result, RESULT_ULP)
        for let in reversed(lets):
            self.allocate(let.term, self.remaining_ulp.get(Name(let.name), 0.0))
        taken = {term: found for term in self.remaining_ulp if (found := self.inner(term))}
        last = {found for result in results if verified and (found := self.source(result))}
        self.single_word = frozenset((*taken, *taken.values(), *last))
        self.names: frozenset[str] = frozenset()
        for let in lets if self.single_word else ():
            if self.is_single_word(let.term) and self.can_pay(Name(let.name), let.term):
                self.names |= {let.name}

    def takes_single_word(self, term: Apply) -> bool:
        """Return True if a single-word function computes a term: if there is one, and that is enough."""
        argument = term.args[0]
        if term not in self.single_word or len(set(term.args)) > 1 or not self.is_single_word(argument):
            return False
        return term.op in ANY_ARGUMENT or self.takes_near_form(term.op, argument)

    def body(self, term: Apply) -> Body | None:
        """Return the body of that function; none of the math library's."""
        return Body.NEAR if self.takes_near_form(term.op, term.args[0]) else ANY_ARGUMENT[term.op]

    def argument(self, body: Body | None, argument: Term) -> Term:
        """Return the argument of a single-word function; infinite where the function clamps it itself."""
        match argument:
            case Name(name) if body is Body.SINGLE_WORD and name in self.steps:
                step = self.steps[name]
                return (
                    step.args[0] if isinstance(step, Apply) and step.op == "clamp_to_lowest" else argument
                )
        return argument

    def allocate(self, term: Term, remaining_ulp: float) -> None:
        """Note the budget of a term, and those of its parts."""
        self.remaining_ulp[term] = min(remaining_ulp, self.remaining_ulp.get(term, math.inf))
        for part, ulp in self.split(term, remaining_ulp):
            self.allocate(part, ulp)

    def split(self, term: Term, remaining_ulp: float) -> Iterable[tuple[Term, float]]:
        """Return the error budgets of the parts of a term, from that of the term."""
        match term:
            case Apply("mul" | "div") if (other := scaled(term)[1]) != term:
                return [(other, remaining_ulp - (0 if exact(scaled(term)[0]) else ROUNDING_ULP))]
            case Apply("mul", factors):
                inexact = [part for part in factors if self.is_inexact(part)]
                return [
                    (part, remaining_ulp - ROUNDING_ULP if len(inexact) == 1 else 0.0) for part in inexact
                ]
            case Apply(op, args) if op in PASSES_ON:
                return [(arg, remaining_ulp) for arg in args]
            case Apply("where", (_, *chosen)):
                return [(arg, remaining_ulp) for arg in chosen]
            case Apply(op, args) if (by := self.condition_number(op, args)) is not None:
                return [(arg, min(RESULT_ULP, (remaining_ulp - FUNCTION_ULP) / by)) for arg in set(args)]
            case Apply(_, args):
                return [(arg, 0.0) for arg in args]
        return []

    def is_inexact(self, factor: Term) -> bool:
        """Return True if a factor is no number and no input."""
        match factor:
            case Name(name):
                return name in self.steps and self.is_inexact(self.steps[name])
            case Apply("unscale") | Number():
                return False
            case Apply(op, args) if op in PASSES_ON:
                return any(map(self.is_inexact, args))
        return True

    def condition_number(self, op: str, args: Sequence[Term]) -> float | None:
        """Return the condition number of a function of one argument, if it is known."""
        if len(set(args)) > 1:
            return None
        return CONDITION[op] if self.takes_near_form(op, args[0]) else CONDITION_OF_ANY_ARGUMENT.get(op)

    def takes_near_form(self, op: str, argument: Term) -> bool:
        """Return True if an argument is not below the first of a function's near form."""
        return op in NEAR_FROM and self.range(argument).low >= NEAR_FROM[op]

    def inner(self, term: Term) -> Apply | None:
        """The function in the argument of a well-conditioned one, if a single word is enough for it."""
        match term:
            case Apply(op, args) if self.condition_number(op, args) is not None:
                found = self.source(args[0])
                return found if found is not None and self.remaining_ulp[found] >= FUNCTION_ULP else None
        return None

    def source(self, term: Term) -> Apply | None:
        """Return the function that a term is a value of, times a number or cut off."""
        match term:
            case Name(name):
                return self.source(self.steps[name]) if name in self.steps else None
            case Apply("mul" | "div") if (other := scaled(term)[1]) != term:
                return self.source(other)
            case Apply(op, (first, *_)) if op in PASSES_ON:
                return self.source(first)
            case Apply("where", (_, chosen, other)):
                return self.source(chosen) or self.source(other)
            case Apply(op) if op in TRANSCENDENTAL:
                return term
        return None

    def can_pay(self, term: Term, value: Term) -> bool:
        """Return True if the budget of a term pays for computing its value in single-word arithmetic."""
        remaining_ulp = self.remaining_ulp.get(term, 0.0)
        if value in self.single_word:
            return remaining_ulp >= FUNCTION_ULP
        return remaining_ulp >= (0 if exact(scaled(value)[0]) else ROUNDING_ULP)

    def is_single_word(self, term: Term) -> bool:
        """Return True if a term is a single word."""
        match term:
            case Name(name):
                return name not in self.steps or name in self.names
            case Apply("mul" | "div") if (other := scaled(term)[1]) != term:
                return self.is_single_word(other)
            case Apply(op, args) if op in PASSES_ON:
                return all(map(self.is_single_word, args))
            case Apply("where", (_, *chosen)):
                return all(map(self.is_single_word, chosen))
        return isinstance(term, Number) or term in self.single_word

    def found_range(self, term: Term) -> Interval:
        """Return the interval of a term, narrower than its row's where a function has a least value."""
        match term:
            case Apply("tanh", (x,)):  # which is not below a negative x
                return between(max(min(self.range(x).low, 0), -1), 1)
            case Apply(op, args) if op in LEAST_VALUE and len(set(args)) == 1:
                return maximum(super().found_range(term), between(LEAST_VALUE[op], LEAST_VALUE[op]))
        return super().found_range(term)


def scaled(term: Term) -> tuple[Fraction, Term]:
    """Return a term as a number times another term."""
    match term:
        case Apply("mul", (Number(by), other)) | Apply("mul", (other, Number(by))):
            return by, other
        case Apply("div", (other, Number(by))) if by:
            return 1 / by, other
    return Fraction(1), term


def exact(by: Fraction) -> bool:
    """Return True if a number times this rounds nothing, underflow aside, as a power of two does."""
    return by.numerator.bit_count() == by.denominator.bit_count() == 1
