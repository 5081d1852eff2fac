"""Numbers in C++: the shortest literals that read back as the same values."""

import math

from fusegen.codegen.printers.both import OfBoth
from fusegen.core.ir import Const, Math, round_to

GENERIC = "M"  # any type that a kernel may be computed in
SUFFIX = {Math.FLOAT: "f", Math.DOUBLE: ""}  # of literals
DIGITS = {Math.FLOAT: 9, Math.DOUBLE: 17}  # enough to tell any two values apart


def generic_literal(number: Const, kind: Math) -> str:
    """A number of a template: the literal of its math type, or of both types where they differ in more."""
    if math.isinf(number.value):
        return ("-" if number.value < 0 else "") + f"{GENERIC}(INFINITY)"
    text = literal(number.value, kind)
    if isinstance(number, OfBoth):
        return f"constant<{GENERIC}>({literal(number.single, Math.FLOAT)}, {text})"
    return f"{GENERIC}({text.removesuffix('.0')})"


def literal(value: float, kind: Math) -> str:
    """Return the shortest literal of a math type that reads back as the same value.

    A bare 0.5 would be a double and pull float arithmetic up with it, so float literals end in f.
    """
    suffix = SUFFIX[kind]
    if math.isinf(value):
        return ("-" if value < 0 else "") + f"{kind.value}(INFINITY)"
    for digits in range(1, DIGITS[kind] + 1):
        text = f"{value:.{digits}g}"
        if round_to(float(text), kind) == value:
            break
    return repr(float(text)) + suffix
