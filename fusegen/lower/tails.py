"""Products of something large with what is too small for a float.

sigmoid(x) falls like e^x, so that at -90 it has lost most of its digits, and x sigmoid(x) would lose them
too. Such a factor is computed e^37 times as large (`prescaled`), and the whole product is multiplied by one
factor that undoes it (`unscale`).
"""

from fractions import Fraction

from fusegen.core.term import Apply, Let, Name, Number, Program, Term, call, names, needed, rebuild, unused
from fusegen.lower.ranges import Ranges

# what is c e^x (1 + o(2^-40)) for an x of at most -27
TAILED = frozenset(
    ("exp", "sigmoid", "sigmoid_slope", "softplus", "tanh_softplus", "tanh_softplus_slope", "tanh_of_exp",
     "tanh_of_exp_slope")
)  # fmt: skip
# what is c x (1 + o(2^-24)), and what is c (1 + o(2^-24)), for an x of at most e^-27
LINEAR, LEVEL = frozenset(("erf", "tanh", "expm1", "log1p")), frozenset(("gauss",))
PRESCALED = "_prescaled"  # behind the name of a step
LEAST = -64  # where prescaling begins in float; in double it is further down


def rescale_underflowing_products(program: Program, incoming: str | None = None) -> Program:
    """Return the program with each product of such a tail prescaled, but one with the incoming gradient."""
    run = _Prescaling(program, incoming)
    for let in program.lets:
        run.step(let)
    results = tuple(map(run.whole, program.results))
    lets = needed(run.lets, results)
    there = {let.name for let in lets}
    lets = tuple(Let(let.name, run.unscaled(let, there)) for let in lets)
    return Program(program.inputs, program.params, lets, results)


class _Prescaling(Ranges):
    """The program's steps so far, what their values may be, and those of them that exist prescaled."""

    def __init__(self, program: Program, incoming: str | None) -> None:
        super().__init__()
        given = (*program.inputs, *program.params)
        self.varying = set(program.inputs)  # names that vary from element to element
        self.incoming = incoming
        self.tails: dict[Term, tuple[Term, Term] | None] = {}  # each found once
        self.wholes: dict[Term, Term] = {}
        self.taken = {*given, *(let.name for let in program.lets)}
        self.lets: list[Let] = []
        self.prescaled: dict[str, tuple[Name, Term]] = {}  # and the argument of the tail

    def step(self, let: Let) -> None:
        """Add a step, after the same step prescaled if it is a tail."""
        self.ranges[Name(let.name)] = self.range(let.term)
        if self.varying & set(names(let.term)):
            self.varying.add(let.name)
        found = self.tail(let.term)
        if found is not None:
            prescaled = self.fresh(f"{let.name}{PRESCALED}")
            self.ranges[prescaled] = self.range(found[0])  # until it is unscaled, which it always is
            self.lets.append(Let(prescaled.name, found[0]))
            self.prescaled[let.name] = prescaled, found[1]
        self.lets.append(Let(let.name, self.whole(let.term)))

    def unscaled(self, let: Let, there: set[str]) -> Term:
        """A step's term; a gate that exists prescaled is that, unscaled, so that it is computed once."""
        match let.term, self.prescaled.get(let.name):
            case Apply("x_sigmoid"), (prescaled, argument) if prescaled.name in there:
                return prescaled * call("unscale", argument)
        return let.term

    def argument(self, term: Term) -> Name:
        """Return the name of a tail's argument, which is needed twice."""
        term = self.whole(term)
        if isinstance(term, Name):
            return term
        known = next((let.name for let in self.lets if let.term == term), None)
        if known is not None:
            return Name(known)
        name = self.fresh("t")
        self.ranges[name] = self.range(term)
        self.varying.add(name.name)
        self.lets.append(Let(name.name, term))
        return name

    def fresh(self, like: str) -> Name:
        """Return a name that nothing has."""
        free = unused(like, self.taken)
        self.taken.add(free)
        return Name(free)

    def whole(self, term: Term) -> Term:
        """Return a term with every product with a tail prescaled, and unscaled as late as possible."""
        if term not in self.wholes:
            self.wholes[term] = self.made_whole(term)
        return self.wholes[term]

    def made_whole(self, term: Term) -> Term:
        """Return the same, found again."""
        match term:
            case Apply("mul", (a, Apply("sigmoid", (t,)))) | Apply("mul", (Apply("sigmoid", (t,)), a)) if (
                self.gates(a, t)
            ):
                return call("x_sigmoid", self.whole(a), self.argument(t))
        found = self.tail(term) if isinstance(term, Apply) and self.multiplies(term) else None
        return found[0] * call("unscale", found[1]) if found else rebuild(term, self.whole)

    def gates(self, term: Term, argument: Term) -> bool:
        """Return True if the product of a term with a sigmoid is one to compute as a whole."""
        return self.large(term) and self.reaches(argument)

    def multiplies(self, term: Term) -> bool:
        """True if a product in a term has two factors, what is uniform and the incoming gradient aside."""
        match term:
            case Apply("mul" | "div" as op, (a, b)):
                counted = self.large(b) and (op == "div" or self.large(a))
                return counted or self.multiplies(a) or self.multiplies(b)
            case Apply("neg" | "add" | "sub", args) | Apply("where", (_, *args)):
                return any(map(self.multiplies, args))
        return False

    def large(self, term: Term) -> bool:
        """True if a factor differs from element to element, and not as the incoming gradient does."""
        return term != Name(self.incoming or "") and bool(self.varying & set(names(term)))

    def tail(self, term: Term) -> tuple[Term, Term] | None:
        r"""The prescaled term and the exponent's argument, if the term decays like e\^x; else None."""
        if term not in self.tails:
            self.tails[term] = self.found_tail(term)
        return self.tails[term]

    def found_tail(self, term: Term) -> tuple[Term, Term] | None:
        """Return the same, found again."""
        match term:
            case Name(name) if name in self.prescaled:
                return self.prescaled[name]
            case Apply(op, (x,)) if op in TAILED and self.reaches(x):
                argument = self.argument(x)
                return call(op, call("prescaled", argument)), argument
            case Apply(op, (x,)) if op in LINEAR or op == "neg":
                found = self.tail(x)
                return found and (call(op, found[0]), found[1])
            case Apply("mul", (a, b)):
                if (found := self.tail(a)) is not None:
                    return self.times(found[0], b, found[1]), found[1]
                if (found := self.tail(b)) is not None:
                    return self.along(a, found[1]) * found[0], found[1]
            case Apply("div", (a, b)) if (found := self.tail(a)) is not None:
                return found[0] / self.whole(b), found[1]
            case Apply("where", (condition, a, Number(Fraction(numerator=0)) as zero)):
                found = self.tail(a)
                return found and (call("where", self.whole(condition), found[0], zero), found[1])
            case Apply("add" | "sub" as op, (a, b)):
                return self.tail_of_sum(op, a, b)
        return None

    def times(self, prescaled: Term, term: Term, argument: Term) -> Term:
        """A prescaled tail times a factor; a gate that decays with another argument is taken whole."""
        match term:
            case Apply("mul", (a, Apply("sigmoid", (t,)))) if (
                self.gates(a, t) and self.argument(t) != argument
            ):
                return call("x_sigmoid", prescaled * self.whole(a), self.argument(t))
        return prescaled * self.along(term, argument)

    def tail_of_sum(self, op: str, a: Term, b: Term) -> tuple[Term, Term] | None:
        """Return a prescaled sum or difference, if both parts decay with one argument; else None."""
        first, second = self.tail(a), self.tail(b)
        if first is None or second is None or first[1] != second[1]:
            return None
        return call(op, first[0], second[0]), first[1]

    def reaches(self, term: Term) -> bool:
        """Return True if the argument of a tail differs from element to element and reaches down to it."""
        return bool(self.varying & set(names(term))) and self.range(term).low < LEAST

    def along(self, term: Term, argument: Term) -> Term:
        """Another factor of a prescaled product: a level function of the same tail takes it prescaled."""
        match term:
            case Apply("mul", (a, b)):
                return self.along(a, argument) * self.along(b, argument)
            case Apply(op, (x,)) if op in LEVEL:
                found = self.tail(x)
                if found is not None and found[1] == argument:
                    return call(op, found[0])
        return self.whole(term)
