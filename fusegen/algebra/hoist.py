"""Terms of parameters alone, named: the host computes them once a call instead of once an element."""

from collections.abc import Callable
from itertools import count

from fusegen.core.ops import on_host
from fusegen.core.term import Apply, Let, Name, Program, Term, call, names, rebuild, walk

# powers that kernels have functions for, in what the host has
PLAIN: dict[str, Callable[[Term], Term]] = {
    "square": lambda x: call("pow", x, 2),
    "cube": lambda x: call("pow", x, 3),
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / call("sqrt", x),
}
CLAMPS = frozenset({"clamp", "clamp_min", "clamp_max", "saturate"})


def hoisted(programs: tuple[Program, ...]) -> tuple[Program, ...]:
    """The programs with every part that only parameters decide named, so that it is computed once a call.

    What stays: a parameter's negative, being free, and what the host has no function for.
    """
    taken = {name for p in programs for name in (*p.inputs, *p.params, *(let.name for let in p.lets))}
    found: dict[Term, str] = {}
    return tuple(_Hoist(program, found, taken).program() for program in programs)


def bounds(program: Program) -> tuple[str, ...]:
    """Return the parameters that decide a bound of a clamp, in the order of the program's."""
    decided = {name: {name} for name in program.params}
    found: set[str] = set()
    for let in (*program.lets, *(Let("", result) for result in program.results)):
        for part in walk(let.term):
            if isinstance(part, Apply) and part.op in CLAMPS:
                found |= {
                    p for bound in part.args[1:] for name in names(bound) for p in decided.get(name, ())
                }
        if all(name in decided for name in names(let.term)):
            decided[let.name] = {p for name in names(let.term) for p in decided[name]}
    return tuple(name for name in program.params if name in found)


class _Hoist:
    """One program's parts, and the names that those of all programs have."""

    def __init__(self, program: Program, found: dict[Term, str], taken: set[str]) -> None:
        self.whole, self.found, self.taken = program, found, taken
        self.constants = set(program.params)
        self.lets: dict[str, Let] = {}

    def program(self) -> Program:
        lets: list[Let] = []
        for let in self.whole.lets:
            if self.constant(let.term):
                self.constants.add(let.name)
                self.found.setdefault(_plain(let.term), let.name)
                lets.append(Let(let.name, _plain(let.term)))
            else:
                lets.append(Let(let.name, self.named(let.term)))
        results = tuple(map(self.named, self.whole.results))
        constant = [let for let in lets if let.name in self.constants]
        others = [let for let in lets if let.name not in self.constants]
        ordered = (*constant, *self.lets.values(), *others)
        return Program(self.whole.inputs, self.whole.params, ordered, results)

    def constant(self, term: Term) -> bool:
        """Return True if the host can compute a term."""
        return set(names(term)) <= self.constants and on_host(_plain(term))

    def named(self, term: Term) -> Term:
        """Return a term with its constant parts named."""
        free = isinstance(term, Apply) and term.op == "neg" and isinstance(term.args[0], Name)
        if not isinstance(term, Apply) or free or not names(term) or not self.constant(term):
            return rebuild(term, self.named)
        term = _plain(term)
        if term not in self.found:
            self.found[term] = next(
                name for name in (f"scalar{k}" for k in count(1)) if name not in self.taken
            )
            self.taken.add(self.found[term])
        name = self.found[term]
        if name not in self.constants:  # a step of the program
            self.lets.setdefault(name, Let(name, term))
        return Name(name)


def _plain(term: Term) -> Term:
    """Return a term in the operations that the host has, where it has them."""
    term = rebuild(term, _plain)
    return PLAIN[term.op](*term.args) if isinstance(term, Apply) and term.op in PLAIN else term
