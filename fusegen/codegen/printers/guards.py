"""The guards of `finite` at infinite inputs, which C++ has a function for each."""

import math
from dataclasses import dataclass
from fractions import Fraction

from fusegen.core.ir import Call, Const, Expr
from fusegen.core.term import GROWN, ORDINARY


@dataclass(frozen=True, slots=True)
class Guard:
    """A call of a function that C++ has for a guard."""

    function: str  # its name
    args: tuple[Expr, ...]  # what it takes, of which a number is a power of two
    by_type: bool = False  # whether the type of its value is a template argument


def guard(call: Call) -> Guard | None:
    """Return the guard that a choice is, if it is one."""
    match call.args:
        case Call("abs", (x,)), Call(
            "where", (_, Const(0.0), Call("clamp", (_, Const(least), Const(most))))
        ):
            if (Fraction(least), Fraction(most)) == ORDINARY:
                return Guard("is_ordinary", (x,))
        case Call("eq", (x, Const(math.inf))), Const(size) as by, Call(
            "where", (is_least, Const(other), rest)
        ):
            if rest == x and other == -size and _is_least(is_least, x) and math.frexp(size)[0] == 0.5:
                return Guard("replace_infinity", (x, by))
        case Call("eq", (Call("abs", (x,)), Const(math.inf))), chosen, found:
            if _is_grown(_bare(chosen), _bare(found)):
                return Guard("restore_infinity", (_bare(found), x), by_type=True)
        case Call("eq", (finite, x)), found, chosen:
            if _is_grown(_bare(chosen), _bare(found)):
                return Guard("restore_replaced", (_bare(found), finite, x), by_type=True)
    return None


def _is_least(condition: Expr, x: Expr) -> bool:
    match condition:
        case Call("eq", (value, Const(number) | Call("neg", (Const(number),)))):
            return value == x and math.isinf(number)
    return False


def _is_grown(chosen: Expr, found: Expr) -> bool:
    """Return True if a value is another, or an infinity where that is huge."""
    match chosen:
        case Call(
            "where",
            (Call("gt", (Call("abs", (size,)), Const(bound))), Call("mul", (a, Const(math.inf))), b),
        ):
            return bound == GROWN and a == b == found == _bare(size)
    return False


def _bare(value: Expr) -> Expr:
    match value:
        case Call("narrow", (found,)):
            return found
    return value
