"""One kernel for float and double, where the kernels of both differ in their numbers only."""

import math
from dataclasses import dataclass, replace

from fusegen.core.ir import Call, Const, Expr, Kernel, Let, Math, Ref, round_to

SPLIT = "words"  # a number, or a value, and its low word


@dataclass(frozen=True, slots=True)
class OfBoth(Const):
    """A number of double that is another one in float than the nearest."""

    single: float = math.nan  # the number in float


def for_both(single: Kernel, double: Kernel) -> Kernel | None:
    """Return the kernel in double whose text stands for float, too; none if more than numbers differs.

    The types of values may differ: what gives a single word in float gives two in double.
    """
    steps = [(a.name, a.word) for a in single.lets], [(a.name, a.word) for a in double.lets]
    if steps[0] != steps[1] or len(single.results) != len(double.results):
        return None
    lets = [_both(a.value, b.value) for a, b in zip(single.lets, double.lets, strict=True)]
    results = [_both(a, b) for a, b in zip(single.results, double.results, strict=True)]
    if None in (*lets, *results):
        return None
    named = (Let(let.name, value) for let, value in zip(double.lets, lets, strict=True) if value)
    return replace(double, lets=tuple(named), results=tuple(filter(None, results)))


def split(hi: float, lo: float) -> tuple[float, float]:
    """The float double-word of a double double-word number, as `number<float>` computes it in C++."""
    first = round_to(hi, Math.FLOAT)
    return first, round_to(hi - first + lo, Math.FLOAT)


def is_number(call: Call) -> bool:
    """Return True for a double-word constant, from which `number<float>` derives the one in float."""
    return call.op == SPLIT and all(type(arg) is Const for arg in call.args)


def _both(single: Expr, double: Expr) -> Expr | None:
    match single, double:
        case Const(value), Const(other):
            nearest = round_to(other, Math.FLOAT)
            if (value, math.copysign(1, value)) == (nearest, math.copysign(1, nearest)):
                return Const(other)
            return None if math.isinf(value) or math.isinf(other) else OfBoth(other, value)
        case Ref(name), Ref(other) if name == other:
            return double
        case Call("words", (Const(hi), Const(lo))), Call("words", (Const(a), Const(b))) if split(a, b) == (
            hi,
            lo,
        ):
            return double
        case Call(op, args), Call(other, others) if (op, single.body) == (other, double.body):
            if len(args) != len(others):
                return None
            found = [_both(a, b) for a, b in zip(args, others, strict=True)]
            return None if None in found else replace(double, args=tuple(filter(None, found)))
    return None
