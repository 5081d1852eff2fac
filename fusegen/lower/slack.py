"""Where one word is enough in a chain of functions, in float on the CPU.

What a function has rounded errs by units in the last place, and the next function magnifies a relative
error of its argument x by |x f'(x) / f(x)|. From FROM on that is little in the functions of MAGNIFIED. A
result has PROMISED ulp to spend: on its own rounding, on that of its argument, and so on inward, until what
is left pays for no more; further in, values take two words. What gives a result does, too, unless double
settles how that is rounded. FUNCTION is a usual error of a function, not its largest, and the largest ones
do not meet: `certify` measures the error of a chain.

`Body.NEAR` is of an argument from `FROM` on, where nothing is too small for a float and little cancels;
`Body.SINGLE_WORD` is of any, infinities included. Of one float in thirteen the largest errors were 1.5 to
2.2 ulp, and 2.6 and 3.1 of Φ's. All are in float throughout, so that loops over them become vector
instructions of full width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from fusegen.budget import FUNCTION, PROMISED, ROUNDING
from fusegen.interval import Interval, between, maximum
from fusegen.ir import Body
from fusegen.lower.ranges import Ranges
from fusegen.ops import TRANSCENDENTAL
from fusegen.term import Apply, Let, Name, Number, Term

# the bodies of any argument; tanh and erf are the math library's
SHORT = {"x_sigmoid": Body.SINGLE_WORD, "times_ndtr": Body.SINGLE_WORD, "tanh": None, "erf": None}
FROM = {  # where `Body.NEAR` begins
    "x_sigmoid": Fraction(-12, 10),
    "sigmoid": Fraction(-12, 10),
    "times_tanh_softplus": Fraction(-12, 10),
    "times_ndtr": Fraction(-3, 10),
}
# at most, of a relative error of an argument from FROM on, or of any argument
MAGNIFIED = {"x_sigmoid": 1.28, "sigmoid": 0.93, "times_ndtr": 1.3, "times_tanh_softplus": 1.22}
MAGNIFIED_ANYWHERE = {"tanh": 1.0, "erf": 1.0}
LEAST = {  # values are not below
    "x_sigmoid": Fraction(-2785, 10_000),
    "times_ndtr": Fraction(-17, 100),
    "times_tanh_softplus": Fraction(-3089, 10_000),
}
PASSING = (  # what passes a value on as it is, exactly shifted, or cut off
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


class Slack(Ranges):
    """The parts of a program in single-word arithmetic: their errors are magnified too little to matter."""

    def __init__(self, lets: Sequence[Let], results: Sequence[Term], settled: bool = False) -> None:
        """Take the program's steps in order, and whether double settles how its results are rounded."""
        super().__init__()
        self.steps = {let.name: let.term for let in lets}
        for let in lets:
            self.ranges[Name(let.name)] = self.range(let.term)
        self.left: dict[Term, float] = {}
        for result in results:
            self.spend(result, PROMISED)
        for let in reversed(lets):
            self.spend(let.term, self.left.get(Name(let.name), 0.0))
        taken = {term: found for term in self.left if (found := self.inner(term))}
        last = {found for result in results if settled and (found := self.source(result))}
        self.links = frozenset((*taken, *taken.values(), *last))
        self.names: frozenset[str] = frozenset()
        for let in lets if self.links else ():
            if self.plain(let.term) and self.affords(Name(let.name), let.term):
                self.names |= {let.name}

    def is_linked(self, term: Apply) -> bool:
        """True if a single-word function computes a term: if there is one, and that is enough."""
        argument = term.args[0]
        if term not in self.links or len(set(term.args)) > 1 or not self.plain(argument):
            return False
        return term.op in SHORT or self.near(term.op, argument)

    def body(self, term: Apply) -> Body | None:
        """The body of that function; none of the math library's."""
        return Body.NEAR if self.near(term.op, term.args[0]) else SHORT[term.op]

    def given(self, body: Body | None, argument: Term) -> Term:
        """The argument of a single-word function; infinite where the function clamps it itself."""
        match argument:
            case Name(name) if body is Body.SINGLE_WORD and name in self.steps:
                step = self.steps[name]
                return (
                    step.args[0] if isinstance(step, Apply) and step.op == "clamp_to_lowest" else argument
                )
        return argument

    def spend(self, term: Term, left: float) -> None:
        """Note what a term may err by, and so what is in it."""
        self.left[term] = min(left, self.left.get(term, math.inf))
        for part, share in self.shares(term, left):
            self.spend(part, share)

    def shares(self, term: Term, left: float) -> Iterable[tuple[Term, float]]:
        """The error budgets of the parts of a term, from that of the term."""
        match term:
            case Apply("mul" | "div") if (other := scaled(term)[1]) != term:
                return [(other, left - (0 if exact(scaled(term)[0]) else ROUNDING))]
            case Apply("mul", factors):
                erring = [part for part in factors if self.errs(part)]
                return [(part, left - ROUNDING if len(erring) == 1 else 0.0) for part in erring]
            case Apply(op, args) if op in PASSING:
                return [(arg, left) for arg in args]
            case Apply("where", (_, *chosen)):
                return [(arg, left) for arg in chosen]
            case Apply(op, args) if (by := self.magnifies(op, args)) is not None:
                return [(arg, min(PROMISED, (left - FUNCTION) / by)) for arg in set(args)]
            case Apply(_, args):
                return [(arg, 0.0) for arg in args]
        return []

    def errs(self, factor: Term) -> bool:
        """True if a factor is no number and no input."""
        match factor:
            case Name(name):
                return name in self.steps and self.errs(self.steps[name])
            case Apply("unscale") | Number():
                return False
            case Apply(op, args) if op in PASSING:
                return any(map(self.errs, args))
        return True

    def magnifies(self, op: str, args: Sequence[Term]) -> float | None:
        """The condition number of a function of one argument, if it is known."""
        if len(set(args)) > 1:
            return None
        return MAGNIFIED[op] if self.near(op, args[0]) else MAGNIFIED_ANYWHERE.get(op)

    def near(self, op: str, argument: Term) -> bool:
        """True if an argument is not below what a function's near form begins at."""
        return op in FROM and self.range(argument).low >= FROM[op]

    def inner(self, term: Term) -> Apply | None:
        """The function that one which magnifies little takes in one word."""
        match term:
            case Apply(op, args) if self.magnifies(op, args) is not None:
                found = self.source(args[0])
                return found if found is not None and self.left[found] >= FUNCTION else None
        return None

    def source(self, term: Term) -> Apply | None:
        """The function that a term is a value of, times a number or cut off."""
        match term:
            case Name(name):
                return self.source(self.steps[name]) if name in self.steps else None
            case Apply("mul" | "div") if (other := scaled(term)[1]) != term:
                return self.source(other)
            case Apply(op, (first, *_)) if op in PASSING:
                return self.source(first)
            case Apply("where", (_, chosen, other)):
                return self.source(chosen) or self.source(other)
            case Apply(op) if op in TRANSCENDENTAL:
                return term
        return None

    def affords(self, term: Term, value: Term) -> bool:
        """True if a term may err by as much as computing its value in one word does."""
        left = self.left.get(term, 0.0)
        if value in self.links:
            return left >= FUNCTION
        return left >= (0 if exact(scaled(value)[0]) else ROUNDING)

    def plain(self, term: Term) -> bool:
        """True if one word is all that a term is to be given in."""
        match term:
            case Name(name):
                return name not in self.steps or name in self.names
            case Apply("mul" | "div") if (other := scaled(term)[1]) != term:
                return self.plain(other)
            case Apply(op, args) if op in PASSING:
                return all(map(self.plain, args))
            case Apply("where", (_, *chosen)):
                return all(map(self.plain, chosen))
        return isinstance(term, Number) or term in self.links

    def found_range(self, term: Term) -> Interval:
        """The interval of a term, narrower than its row's where a function has a least value."""
        match term:
            case Apply("tanh", (x,)):  # which is not below a negative x
                return between(max(min(self.range(x).low, 0), -1), 1)
            case Apply(op, args) if op in LEAST and len(set(args)) == 1:
                return maximum(super().found_range(term), between(LEAST[op], LEAST[op]))
        return super().found_range(term)


def scaled(term: Term) -> tuple[Fraction, Term]:
    """A term as a number times another term."""
    match term:
        case Apply("mul", (Number(by), other)) | Apply("mul", (other, Number(by))):
            return by, other
        case Apply("div", (other, Number(by))) if by:
            return 1 / by, other
    return Fraction(1), term


def exact(by: Fraction) -> bool:
    """True if a number times this rounds nothing, underflow aside, as a power of two does."""
    return by.numerator.bit_count() == by.denominator.bit_count() == 1
