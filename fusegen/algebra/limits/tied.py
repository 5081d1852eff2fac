"""Lets that depend on several names, so that they can be kept finite as an input is."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from fusegen.algebra.limits.groups import SUMS
from fusegen.core.interval import REALS, point
from fusegen.core.ops import OPS
from fusegen.core.term import (
    Apply,
    Let,
    Name,
    Number,
    Program,
    Term,
    children,
    names,
    rebuild,
    size,
    substitute,
    unused,
    walk,
)


def sources(program: Program) -> dict[str, frozenset[str]]:
    """Return the inputs and parameters that each name depends on."""
    found = {name: frozenset({name}) for name in (*program.inputs, *program.params)}
    for let in program.lets:
        found[let.name] = frozenset[str]().union(*(found[name] for name in names(let.term)))
    return found


def _ties(term: Term, sources: Mapping[str, frozenset[str]]) -> bool:
    return len(frozenset[str]().union(*(sources[name] for name in names(term)))) > 1


def tied_to(name: str, sets: list[frozenset[str]]) -> frozenset[str]:
    """Return the names that are in a set with a name, or with a name that is tied to it."""
    found, before = frozenset({name}), frozenset[str]()
    while found != before:
        before, found = found, found.union(*(each for each in sets if each & found))
    return found


def tied(program: Program) -> tuple[str, ...]:
    """Return the lets that depend on several inputs or parameters and may be infinite."""
    known = sources(program)
    return tuple(let.name for let in program.lets if len(known[let.name]) > 1 and not is_bounded(let.term))


def is_bounded(term: Term) -> bool:
    """Return True if a function has finite values whatever it is of, as tanh."""
    if not isinstance(term, Apply):
        return False
    parts = (point(part.value) if isinstance(part, Number) else REALS for part in term.args)
    found = OPS[term.op].range(*parts)
    return -math.inf < found.low and found.high < math.inf


def input_sums(program: Program, inputs: tuple[str, ...]) -> tuple[Let, ...]:
    """The lets that are sums of inputs which nothing else reads: their infinities are those of the sum."""
    reads = Counter(part.name for term in program.terms for part in walk(term) if isinstance(part, Name))
    return tuple(
        let
        for let in program.lets
        if all(part == let.term or isinstance(part, Name) for part in walk(let.term))
        and isinstance(let.term, Apply)
        and let.term.op in SUMS
        and all(name in inputs and reads[name] == 1 for name in names(let.term))
    )


def named(program: Program) -> tuple[Program, frozenset[str]]:
    """The program with a let for each such term that is an argument or occurs twice, and their names."""
    known = sources(program)
    taken, new = set(known), set[str]()
    while (term := next(_unnamed_terms(program, known), None)) is not None:
        name = unused("t", taken)
        taken.add(name)
        new.add(name)
        program = _with(program, Let(name, term))
        known[name] = frozenset[str]().union(*(known[other] for other in names(term)))
    return program, frozenset(new)


def _unnamed_terms(program: Program, known: Mapping[str, frozenset[str]]) -> Iterator[Term]:
    """Yield the terms that need a let, the innermost first."""
    parts = [part for term in program.terms for part in walk(term)]
    count = Counter(part for part in parts if isinstance(part, Apply) and _ties(part, known))
    arguments = {
        arg
        for part in parts
        if isinstance(part, Apply) and not OPS[part.op].infix and part.op != "where"
        for arg in children(part)
    }
    own = {let.term for let in program.lets}
    found = (part for part in count if part in arguments or count[part] > 1)
    yield from sorted((part for part in found if part not in own), key=size)


def _with(program: Program, new: Let) -> Program:
    """Return the program with a let in front of the first term that holds what it names."""

    def replaced(term: Term) -> Term:
        return Name(new.name) if term == new.term else rebuild(term, replaced)

    lets = [replace(let, term=replaced(let.term)) for let in program.lets]
    at = next((k for k, (a, b) in enumerate(zip(lets, program.lets, strict=True)) if a != b), len(lets))
    lets[at:at] = [new]
    return replace(program, lets=tuple(lets), results=tuple(map(replaced, program.results)))


def unnamed(program: Program, new: frozenset[str], kept: frozenset[str]) -> Program:
    """Return the program without the new lets, but for those to keep that are read twice."""
    for let in reversed(program.lets):
        reads = sum(part == Name(let.name) for term in program.terms for part in walk(term))
        if let.name in new and (reads <= 1 or let.name not in kept):
            program = _without(program, let)
    return program


def _without(program: Program, gone: Let) -> Program:
    value = {gone.name: gone.term}
    lets = (replace(let, term=substitute(let.term, value)) for let in program.lets if let != gone)
    return replace(program, lets=tuple(lets), results=tuple(substitute(r, value) for r in program.results))


def results_named(program: Program) -> Program:
    """Return the program with a name for each result that occurs twice."""
    taken = {*program.inputs, *program.params, *(let.name for let in program.lets)}
    again = [term for term, count in Counter(program.results).items() if count > 1]
    terms = [term for term in again if not isinstance(term, Name | Number)]
    named: dict[Term, Term] = {
        term: Name(unused(f"gradient{k}" if k else "gradient", taken)) for k, term in enumerate(terms)
    }
    lets = tuple(Let(name.name, term) for term, name in named.items() if isinstance(name, Name))
    results = tuple(named.get(result, result) for result in program.results)
    return replace(program, lets=(*program.lets, *lets), results=results)
