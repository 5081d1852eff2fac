"""Terms: a formula as its author wrote it, over the real numbers.

    Term    = Number | Name | Apply | SpecCall
    Let     = name := Term
    Program = inputs, parameters, lets in order, and the results

Terms keep the author's order and grouping, since in floating point (x + 3) / 6 is not x / 6 + 1 / 2.
They are values: equality and hash, which is kept, look at the formula, never at where it was written. The
tables of the ground write them with Python's own operators: ``g * y``, ``call("exp", x)``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import count
from operator import is_
from typing import Any

from fusegen.core.interval import REALS, Interval
from fusegen.errors import Span

NO_SPAN = Span("")
KEPT = 65536  # answers about terms


def _compared(op: str) -> Callable[[Any, Operand], Apply]:
    return lambda self, other: call(op, self, other)


class TermOperators:
    """Lets a term be written with operators: ``x + 3``, ``-x``, ``1 / x``."""

    __slots__ = ()

    def __add__(self, other: Operand) -> Apply:
        return call("add", self, other)

    def __sub__(self, other: Operand) -> Apply:
        return call("sub", self, other)

    def __mul__(self, other: Operand) -> Apply:
        return call("mul", self, other)

    def __truediv__(self, other: Operand) -> Apply:
        return call("div", self, other)

    def __radd__(self, other: Operand) -> Apply:
        return call("add", other, self)

    def __rsub__(self, other: Operand) -> Apply:
        return call("sub", other, self)

    def __rmul__(self, other: Operand) -> Apply:
        return call("mul", other, self)

    def __rtruediv__(self, other: Operand) -> Apply:
        return call("div", other, self)

    def __neg__(self) -> Apply:
        return call("neg", self)

    __lt__, __le__, __gt__, __ge__ = map(_compared, ("lt", "le", "gt", "ge"))


@dataclass(frozen=True, slots=True)
class Number(TermOperators):
    """An exact rational number."""

    value: Fraction
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Name(TermOperators):
    """An input, a parameter or a let."""

    name: str
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Apply(TermOperators):
    """A primitive, one row of `ops.OPS`, applied to its arguments."""

    op: str
    args: tuple[Term, ...]
    span: Span = field(default=NO_SPAN, compare=False, repr=False)
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.op, self.args)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:  # another process hashes names otherwise
        return Apply, (self.op, self.args, self.span)


@dataclass(frozen=True, slots=True)
class SpecCall(TermOperators):
    """Another spec used as a function; `compose` replaces it by what that spec says."""

    spec: str
    args: tuple[Term, ...]
    keywords: tuple[tuple[str, Term], ...] = ()
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


Term = Number | Name | Apply | SpecCall
INFINITY = Fraction(2**1024)  # no double is as large, so that what is lowered is an infinity
ORDINARY = Fraction(1, 2**40), Fraction(2**40)  # sizes of other names beside which a guard is right
GROWN = Fraction(2) ** 64  # a result for a large number in place of an infinity is infinite from here on
Operand = TermOperators | int | float | Fraction


def call(op: str, *args: Operand) -> Apply:
    """Return a primitive applied to terms; a Python number stands for its exact value."""
    return Apply(op, tuple(_operand(arg) for arg in args))


def _operand(value: Operand) -> Term:
    if isinstance(value, Number | Name | Apply | SpecCall):
        return value
    assert isinstance(value, int | float | Fraction)
    return Number(Fraction(value))


@dataclass(frozen=True, slots=True)
class Let:
    """A named intermediate value."""

    name: str
    term: Term


@dataclass(frozen=True, slots=True)
class Program:
    """The formula of one kernel: lets in the order of their use, then one result for each output."""

    inputs: tuple[str, ...]
    params: tuple[str, ...]
    lets: tuple[Let, ...]
    results: tuple[Term, ...]

    @property
    def terms(self) -> tuple[Term, ...]:
        """The right-hand sides in order, the results last."""
        return (*(let.term for let in self.lets), *self.results)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One use of a simplifier's rule; where it needed a fact, `subject` lies in `range`."""

    rule: str
    before: Term
    after: Term
    subject: Term | None = None
    range: Interval = REALS


def children(term: Term) -> tuple[Term, ...]:
    """Return the direct parts of a term, left to right."""
    match term:
        case Apply(_, args):
            return args
        case SpecCall(_, args, keywords):
            return args + tuple(value for _, value in keywords)
        case _:
            return ()


def walk(term: Term) -> Iterator[Term]:
    """Yield every part of a term, the term itself first, in the order written."""
    left = [term]
    while left:
        part = left.pop()
        yield part
        left += reversed(children(part))


def applied(terms: Iterable[Term]) -> frozenset[str]:
    """Return the operations in some terms."""
    return frozenset[str]().union(*map(_operations, terms))


@lru_cache(maxsize=KEPT)
def _operations(term: Term) -> frozenset[str]:
    own = (term.op,) if isinstance(term, Apply) else ()
    return frozenset(own).union(*map(_operations, children(term)))


def infinite(term: Term) -> bool:
    """Return True if a term is an infinity."""
    return isinstance(term, Number) and abs(term.value) == INFINITY


@lru_cache(maxsize=KEPT)
def names(term: Term) -> tuple[str, ...]:
    """Return the names a term mentions, each once, in the order written."""
    if isinstance(term, Name):
        return (term.name,)
    return tuple(dict.fromkeys(name for part in children(term) for name in names(part)))


@lru_cache(maxsize=KEPT)
def size(term: Term) -> int:
    """Return the number of operations and operands of a term."""
    return 1 + sum(map(size, children(term)))


def unused(like: str, taken: Collection[str]) -> str:
    """Return the first of a name, it and 1, it and 2, ... that is not taken."""
    return next(name for k in count() if (name := f"{like}{k or ''}") not in taken)


def rebuild(term: Term, change: Callable[[Term], Term]) -> Term:
    """Return the term with `change` applied to each direct part; the same term, if that changes none."""
    match term:
        case Apply(op, args, span):
            changed = tuple(map(change, args))
            return term if all(map(is_, changed, args)) else Apply(op, changed, span)
        case SpecCall(spec, args, keywords, span):
            values = tuple((name, change(value)) for name, value in keywords)
            return SpecCall(spec, tuple(change(arg) for arg in args), values, span)
        case _:
            return term


def substitute(term: Term, values: dict[str, Term]) -> Term:
    """Return the term with each name in `values` replaced by its value."""
    if isinstance(term, Name):
        return values.get(term.name, term)
    return rebuild(term, lambda part: substitute(part, values))


def needed(lets: Sequence[Let], results: Sequence[Term]) -> tuple[Let, ...]:
    """Return the lets that some results depend on, in their order."""
    used = {name for result in results for name in names(result)}
    kept: list[Let] = []
    for let in reversed(lets):
        if let.name in used:
            used.update(names(let.term))
            kept.append(let)
    return tuple(reversed(kept))
