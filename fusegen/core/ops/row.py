"""The row of an operation."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fusegen.core.interval import Interval, between
from fusegen.core.ir import Body

SELECT, COMPARE, SUM, PRODUCT, UNARY, ATOM = range(6)  # how tightly a spelling binds, loosest first
X = ("x",)  # the argument of most functions
# bodies: a double-word value of single words, too; and in chains on the CPU single-word arithmetic
WIDENED = (Body.DOUBLE_WORD,)
SINGLE_RESULT = (Body.SINGLE_RESULT,)
CHAINED = (*WIDENED, Body.SINGLE_WORD, Body.NEAR)


class Words(Enum):
    """The argument and result types of an operation: single-word or double-word."""

    SINGLE = "takes and gives single words"
    NARROWED = "takes either, gives a single word"
    DOUBLE = "takes either, gives a double-word value"
    AS_GIVEN = "takes either, gives a double-word value if an argument is one"
    AS_FIRST = "takes either, gives the type of the first argument; in double-word arithmetic"


@dataclass(frozen=True, slots=True)
class Op:
    """One operation.

    Attributes:
        name: its name in a formula; `None` arguments aside, PyTorch's.
        args: the names of its arguments, in order.
        real: the sympy function it denotes over the real numbers.
        range: from the intervals of the arguments to the interval of the value.
        infix: its symbol, where it has one (prefix for one argument).
        strength: how tightly that symbol binds.
        libm: its name in the C math library.
        header: the family of headers that defines it, `cpu/HEADER.h` and `cuda/HEADER.cuh`.
        cpp: its name there, where that is another; of a symbol, that of its exact double-word body.
        notation: how mathematics writes it, `{0}` being the first argument.
        written: whether a formula may name it; the others come from symbols or from the compiler.
        boolean: whether its value is a condition.
        words: the types that it takes and gives.
        transcendental: whether it is none of arithmetic, comparisons and square roots.
        fast: whether its fast form on CUDA, for 16-bit results, errs by more than the math library.
        single: whether floats on CUDA take a function of their own, whose value is a single word.
        bodies: that a call may name.
    """

    name: str
    args: tuple[str, ...]
    real: Callable[..., Any]
    range: Callable[..., Interval]
    infix: str = ""
    strength: int = ATOM
    libm: str = ""
    header: str = ""
    cpp: str = ""
    notation: str = ""
    written: bool = True
    boolean: bool = False
    words: Words = Words.SINGLE
    transcendental: bool = False
    fast: bool = False
    single: bool = False
    bodies: tuple[Body, ...] = ()

    @property
    def function(self) -> str:
        """The name of its function in C++."""
        return self.libm or self.cpp or self.name

    @property
    def signature(self) -> str:
        """The form of a call, for example ``clamp(x, min, max)``."""
        return f"{self.name}({', '.join(self.args)})"


def always(low: int | float, high: int | float) -> Callable[..., Interval]:
    """Return the range of a function whose values lie in it, whatever its arguments are."""
    return lambda *_: between(low, high)
