"""The kernel IR: typed lets over immutable scalar expressions, one kernel per device and math type.

    Expr   = Const | Ref | Call, each of a single-word or a double-word type
    Let    = name := Expr
    Kernel = inputs, parameters, lets in order, results

Below `lower` this is all there is: constants are floats of the math type, every operation is a row of
`ops.ROWS`, and each rounds once, in the order written here, unless its type is double-word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from ctypes import c_float
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from fusegen.core.targets import Device


class Math(Enum):
    """The C++ type arithmetic is done in: float for 16-bit and float32 tensors, double for float64."""

    FLOAT = "float"
    DOUBLE = "double"


def round_to(value: float, math: Math) -> float:
    """Return a float64 rounded to a math type: to nearest, ties to even, infinite beyond its range."""
    return value if math is Math.DOUBLE else c_float(value).value


class Word(Enum):
    """The type of a value: a number of the math type, or an unevaluated sum of two, hi + lo."""

    SINGLE = "single-word"
    DOUBLE = "double-word"


class Body(Enum):
    """The body of a function, where the types of its arguments do not say which: a template argument."""

    DOUBLE_WORD = "double-word arithmetic, and a double-word value"
    SINGLE_WORD = "single-word arithmetic in float"
    NEAR = "the same, of arguments from a little below 0 on"
    SINGLE_RESULT = "single-word arithmetic in float, of an argument of either type; on the CPU"


@dataclass(frozen=True, slots=True)
class Const:
    """A number that the math type holds exactly."""

    value: float
    word: ClassVar[Word] = Word.SINGLE


@dataclass(frozen=True, slots=True)
class Ref:
    """The value of an input, a parameter or an earlier let, and its type."""

    name: str
    word: Word = Word.SINGLE


@dataclass(frozen=True, slots=True)
class Call:
    """An operation of `ops.ROWS` applied to its arguments, the type of its value, and the body it names."""

    op: str
    args: tuple[Expr, ...]
    word: Word = Word.SINGLE
    body: Body | None = None
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.op, self.args)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:  # another process hashes names otherwise
        return Call, (self.op, self.args, self.word, self.body)


Expr = Const | Ref | Call


@dataclass(frozen=True, slots=True)
class Let:
    """A named intermediate value."""

    name: str
    value: Expr

    @property
    def word(self) -> Word:
        """The type of its value."""
        return self.value.word


@dataclass(frozen=True, slots=True)
class Kernel:
    """The function of one element: what is read, the steps in order, and the values that are stored."""

    name: str  # the C++ name of the function
    device: Device  # where it runs
    math: Math  # the type of every value in it
    inputs: tuple[str, ...]  # tensor elements, in the order of the spec
    params: tuple[str, ...]  # scalars that do not change from element to element
    lets: tuple[Let, ...]  # the steps, each used by a later one or by a result
    results: tuple[Expr, ...]  # the values of the output elements
    # the inputs of which an element serves many outputs, as a channel's bias
    small: frozenset[str] = frozenset()
    # the tensors whose gradients the results are, by place, where some have equal ones; empty where each
    # result has a tensor of its own
    owners: tuple[int, ...] = ()

    @property
    def moved(self) -> int:
        """The elements that are read and written for each output element; small gradients are summed."""
        summed = len(self.small) if len(self.results) > 1 else 0
        return len(self.inputs) - len(self.small) + len(self.results) - summed


def parts(expr: Expr) -> Iterator[Expr]:
    """Yield every part of an expression, the expression itself first."""
    yield expr
    if isinstance(expr, Call):
        for arg in expr.args:
            yield from parts(arg)


def reads(expr: Expr) -> set[str]:
    """Return the names that an expression reads."""
    return {part.name for part in parts(expr) if isinstance(part, Ref)}


def used(lets: Sequence[Let], results: Sequence[Expr]) -> tuple[Let, ...]:
    """Return the steps that a later one which is used, or a result, reads: a form may pass one over."""
    wanted = {name for result in results for name in reads(result)}
    found = []
    for let in reversed(lets):
        if let.name in wanted:
            found.append(let)
            wanted |= reads(let.value)
    return tuple(reversed(found))


def expressions(kernel: Kernel) -> tuple[Expr, ...]:
    """Return the right-hand sides of a kernel in order, the results last."""
    return (*(let.value for let in kernel.lets), *kernel.results)


def operations(kernel: Kernel) -> tuple[str, ...]:
    """Return the names of all operations of a kernel, in the order written, with repetition."""
    return tuple(call.op for call in calls(kernel))


def calls(kernel: Kernel) -> tuple[Call, ...]:
    """Return the operations of a kernel with their arguments, in the order written, with repetition."""
    return tuple(e for x in expressions(kernel) for e in parts(x) if isinstance(e, Call))


def depend(kernel: Kernel, ops: Collection[str], names: Collection[str]) -> bool:
    """Return True if an argument of one of some operations depends on one of some names."""
    known = set(names)

    def depends(value: Expr) -> bool:
        return any(isinstance(part, Ref) and part.name in known for part in parts(value))

    for let in kernel.lets:
        if depends(let.value):
            known.add(let.name)
    return any(depends(call) for call in calls(kernel) if call.op in ops)
