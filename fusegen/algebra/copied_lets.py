"""Copies of steps in which some names have other values."""

from collections.abc import Callable, Iterable

from fusegen.core.term import Let, Name, Term, names, substitute


def add_copies(
    values: dict[str, Term],  # by the names whose place they take
    lets: Iterable[Let],  # the steps, in their order
    # returns the name of a step, by the name of the one that it is a copy of and its term
    named: Callable[[str, Term], str],
) -> None:
    """Add to some values the names of copies of the steps that read one of them."""
    for let in lets:
        if values.keys() & names(let.term):
            values[let.name] = Name(named(let.name, substitute(let.term, values)))
