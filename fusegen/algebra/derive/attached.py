"""A program after differentiation, when nothing asks any more where a gradient ends."""

from fusegen.core.term import Apply, Let, Program, Rewrite, Term, rebuild, walk

RULE = "stopped gradient"


def attached(program: Program) -> Program:
    """Return the program in which ``detach(u)`` is u; a gradient stays the one that was derived before."""
    lets = tuple(Let(let.name, _attached(let.term)) for let in program.lets)
    return Program(program.inputs, program.params, lets, tuple(map(_attached, program.results)))


def stops(program: Program) -> tuple[Rewrite, ...]:
    """Return the rewrites of `attached`, each once."""
    parts = (part for term in program.terms for part in walk(term))
    found = dict.fromkeys(part for part in parts if isinstance(part, Apply) and part.op == "detach")
    return tuple(Rewrite(RULE, part, _attached(part)) for part in found)


def _attached(term: Term) -> Term:
    term = rebuild(term, _attached)
    return term.args[0] if isinstance(term, Apply) and term.op == "detach" else term
