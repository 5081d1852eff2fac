"""What only parameters decide, named: the host computes it once a call instead of once an element."""

from __future__ import annotations

from fusegen.ops import OPS
from fusegen.term import Apply, Let, Name, Program, Term, names, rebuild, walk


def hoisted(programs: tuple[Program, ...]) -> tuple[Program, ...]:
    """The programs with every part that only parameters decide named, so that it is computed once a call.

    A parameter's negative stays where it is, being free.
    """
    found: dict[Term, str] = {}
    return tuple(_Hoist(program, found).program() for program in programs)


class _Hoist:
    """One program's parts, and the names that those of all programs have."""

    def __init__(self, program: Program, found: dict[Term, str]) -> None:
        self.whole, self.found = program, found
        self.constants = set(program.params)
        self.lets: dict[str, Let] = {}

    def program(self) -> Program:
        lets: list[Let] = []
        for let in self.whole.lets:
            if set(names(let.term)) <= self.constants:
                self.constants.add(let.name)
                self.found.setdefault(let.term, let.name)
                lets.append(let)
            else:
                lets.append(Let(let.name, self.named(let.term)))
        results = tuple(map(self.named, self.whole.results))
        constant = [let for let in lets if let.name in self.constants]
        others = [let for let in lets if let.name not in self.constants]
        ordered = (*constant, *self.lets.values(), *others)
        return Program(self.whole.inputs, self.whole.params, ordered, results)

    def named(self, term: Term) -> Term:
        """A term with its constant parts named; the rounding to a tensor's type is not the host's to do."""
        read = set(names(term))
        if any(isinstance(part, Apply) and part.op == "rounded" for part in walk(term)):
            return rebuild(term, self.named)
        free = isinstance(term, Apply) and term.op == "neg" and isinstance(term.args[0], Name)
        if (
            not isinstance(term, Apply)
            or free
            or OPS[term.op].boolean
            or not read
            or not read <= self.constants
        ):
            return rebuild(term, self.named)
        name = self.found.setdefault(term, f"scalar{len(self.found) + 1}")
        self.lets.setdefault(name, Let(name, term))
        return Name(name)
