"""Fewer operations, the same function: the rules of `rules.RULES`, run to a fixed point.

Facts are read off intervals that start from `assume` and from what each operation can give, never from the
data a spec happens to be tested on. A rule is used only if sympy proves it.
"""

from collections import Counter
from collections.abc import Mapping

from fusegen.algebra.simplify.constants import folded
from fusegen.algebra.simplify.infinities import RULE, unbounded
from fusegen.algebra.simplify.rules import EMPTY, FIXED, RULES, Rule, matched, proved
from fusegen.algebra.simplify.term_ranges import Ranges
from fusegen.core.interval import REALS, Interval
from fusegen.core.term import (
    Apply,
    Let,
    Name,
    Number,
    Program,
    Rewrite,
    Term,
    needed,
    rebuild,
    substitute,
    walk,
)
from fusegen.errors import Undefined

MAX_STEPS = 1000
LEAST = {"log": 0, "log2": 0, "log1p": -1, "sqrt": 0, "rsqrt": 0}  # arguments that have a value


def simplify(program: Program, assume: dict[str, Interval]) -> tuple[Program, tuple[Rewrite, ...]]:
    """Return the program in fewer operations where inputs lie as assumed, and every rewrite, in order.

    Raises:
        Undefined: a part has no real value, whatever the inputs are.
        NumberOutOfRange: a constant part has no finite value.
    """
    ranges = {name: assume.get(name, REALS) for name in (*program.inputs, *program.params)}
    uses = Counter(part.name for term in program.terms for part in walk(term) if isinstance(part, Name))
    run = _Run(ranges, uses)
    lets: list[Let] = []
    plain: dict[str, Term] = {}
    for let in program.lets:
        term = run.simplest(substitute(let.term, plain))
        if isinstance(term, Name | Number):
            plain[let.name] = term
            run.rename(term)
        else:
            lets.append(Let(let.name, term))
            run.name(let.name, term)
    results = tuple(run.simplest(substitute(result, plain)) for result in program.results)
    kept = needed(lets, results)
    return Program(program.inputs, program.params, kept, results), tuple(run.rewrites)


class _Run:
    """The ranges of the names so far, and the rewrites done."""

    def __init__(self, ranges: dict[str, Interval], uses: Mapping[str, int]) -> None:
        self.ranges = Ranges(ranges)
        self.range = self.ranges.range
        self.uses = uses
        self.once: dict[str, Term] = {}
        self.rewrites: list[Rewrite] = []

    def name(self, step: str, term: Term) -> None:
        """Names a term; rules look through a name that is used once."""
        self.ranges.name(step, term)
        if self.uses[step] == 1:
            self.once[step] = term

    def rename(self, term: Name | Number) -> None:
        """Let a step be another one, which may be used more often than its own name is."""
        if isinstance(term, Name):
            self.once.pop(term.name, None)

    def simplest(self, term: Term) -> Term:
        """Return the term after all rules, innermost parts first."""
        term = self.real(folded(rebuild(term, self.simplest)))
        bound = unbounded(term)
        if bound is not None:
            self.rewrites.append(Rewrite(RULE, term, bound))
            return self.simplest(bound)
        for rule in RULES:
            if len(self.rewrites) >= MAX_STEPS:
                break
            found = matched(rule.left, term, {}, self.once if rule.looks_through else EMPTY)
            if found is None or not self.granted(rule, found) or not proved(rule):
                continue
            after = substitute(rule.right, found)
            self.rewrites.append(Rewrite(rule.name, term, after, *self.reason(rule, found)))
            return self.simplest(after)
        return term

    def real(self, term: Term) -> Term:
        """Return a term, unless its argument lies where it has no value at all."""
        match term:
            case Apply(op, (argument,)) if op in LEAST and (lies := self.range(argument)).high < LEAST[op]:
                what = f"{op} of what lies in {lies}"
                raise Undefined(term.span, what=what, remedy="change its argument")
        return term

    def granted(self, rule: Rule, found: dict[str, Term]) -> bool:
        ranges = {k: self.range(v) for k, v in (FIXED | found).items()} if rule.facts else {}
        return all(fact.holds(ranges) for fact in rule.facts)

    def reason(self, rule: Rule, found: dict[str, Term]) -> tuple[()] | tuple[Term, Interval]:
        if not rule.facts:
            return ()
        subject = (FIXED | found)[rule.facts[0].left]
        return () if isinstance(subject, Number) else (subject, self.range(subject))
