"""A formula as the C++ of its intervals: its own lines, and the headers of `include` in their places."""

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path

from fusegen.codegen import render
from fusegen.core.header_files import inlined
from fusegen.core.term import Apply, Name, Number, Program, Term
from fusegen.evidence.certify.findings import Ranges

TEMPLATE = "interval_filter.cpp.j2"
INCLUDE = Path(__file__).parent / "include"
TOGETHER, SINGLY = "share_together.h", "share_singly.h"  # how a CPU shares out inputs
WHOLE_LINE = (-math.inf, math.inf)


def source(
    program: Program,  # in which little cancels
    params: Mapping[str, Fraction],  # a number for each of its parameters
    assume: Ranges,  # the ranges of inputs that are judged, where they are not all
) -> str:
    """Return the C++ and CUDA of a filter, which includes no header but the standard's."""
    lines = [f"const D& {name}_ = IN[{place}];" for place, name in enumerate(program.inputs)]
    lines += [f"const D {name}_ = {number(value)};" for name, value in params.items()]
    lines += [f"const D {let.name}_ = {text(let.term)};" for let in program.lets]
    lines += [f"return {text(program.results[0])};"]
    low, high = assume.get(program.inputs[0], WHOLE_LINE)
    holes = {
        "inputs": len(program.inputs),
        "low": end(low),
        "high": end(high),
        "lines": lines,
        "share": TOGETHER if len(program.inputs) == 1 else SINGLY,
    }
    return inlined(render.fill(TEMPLATE, holes), header)


@cache
def header(name: str) -> str:
    """Return the text of a header."""
    return (INCLUDE / name).read_text(encoding="utf-8")


def text(term: Term) -> str:
    """Return a term as an expression of intervals."""
    match term:
        case Number(value):
            return number(value)
        case Name(name):
            return f"{name}_"
        case Apply("pow", (base, Number(exponent))) if exponent in ROOTS:
            return ROOTS[exponent].format(text(base))
        case Apply("pow", (base, Number(exponent))) if (
            exponent.denominator == 1 and exponent < MOST_FACTORS
        ):
            return _power(text(base), int(exponent))
        case Apply(op, args) if op in PATTERNS:
            return PATTERNS[op].format(*map(text, args))
        case Apply(op, args):
            return f"{op}{'' if args else '<D>'}({', '.join(map(text, args))})"
    raise AssertionError("compose has replaced every call of a spec")


def _power(base: str, exponent: int) -> str:
    """Return a power as products, whose sign is known where that of its base is."""
    if exponent < 0:
        return f"reciprocal({_power(base, -exponent)})"
    if exponent == 0:
        return "constant_of<D>(1)"
    half = base if exponent < 4 else _power(base, exponent // 2)
    if exponent == 1:
        return base
    return f"square({half})" if exponent % 2 == 0 else f"({_power(base, exponent - 1)} * {base})"


PATTERNS = {
    "add": "({} + {})",
    "sub": "({} - {})",
    "mul": "({} * {})",
    "div": "({} / {})",
    "neg": "(-{})",
    "sinpi": "sin(pi<D>() * {})",
    "cospi": "cos(pi<D>() * {})",
    # over the real numbers nothing rounds
    "fma": "({} * {} + {})",
    "quotient": "({} / {})",
    "round_to_storage": "{}",
    "clamp_to_lowest": "{}",
    "clamp_to_highest": "{}",
    "select_by_width": "{1}",
}
ROOTS = {Fraction(1, 2): "sqrt({})", Fraction(-1, 2): "rsqrt({})"}
MOST_FACTORS = 64


def end(value: float) -> str:
    """Return an end of the judged range."""
    return value.hex() if math.isfinite(value) else "INF" if value > 0 else "-INF"


def number(value: Fraction) -> str:
    """Return the narrowest interval of doubles around a number."""
    try:
        near = float(value)
    except OverflowError:
        return "number<D>(-INF, INF)"
    low = near if Fraction(near) <= value else math.nextafter(near, -math.inf)
    high = near if Fraction(near) >= value else math.nextafter(near, math.inf)
    return f"number<D>({low.hex()}, {high.hex()})"
