"""Infinite inputs taken as large finite ones, where they would give NaN though there is a limit.

silu(-inf) is -inf times 0, but x sigmoid(x) tends to 0. Each input of an accurate program is tried at both
infinities, the others being 1, by what IEEE arithmetic gives (`values`). Where that is NaN, and two large
magnitudes agree on a number, the input is kept finite on that side, and small enough to be cubed where that
is what overflows; where another result is infinite, in the results that overflow alone. Where they agree on
an infinity, as x + sin(x) does, what has no limit, a sine or a cosine, takes its argument finite. Where
results grow or fall on and on, as x² / x³ does, their limit is chosen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from fusegen.term import Apply, Let, Name, Number, Program, Term, call, rebuild, substitute
from fusegen.values import value

INFINITY = math.inf
LARGEST, LARGE = 2.0**1022, 1e200
GROWING = (LARGE, 1.7e201, 2.9e202, 4.3e203)
CUBED = 2.0**40  # whose cube is a float
FAR, NEAR = (LARGEST, LARGE), (CUBED, CUBED / 16)  # where limits are read, the nearer for what overflows
WAY = (2.0**28, 2.0**32, 2.0**36, CUBED)
INFINITE = Number(Fraction(2) ** 1024)  # beyond every double
SIDES = ((-1.0, "finite_below", "clamp_min"), (1.0, "finite_above", "clamp_max"))


def finite(program: Program, inputs: tuple[str, ...], params: Mapping[str, float]) -> Program:
    """The program with inputs kept finite where infinity would give NaN instead of a limit.

    Args:
        program: of any number of inputs and results.
        inputs: the names of those to keep finite; an incoming gradient is not among them.
        params: the values of its parameters to try it with.
    """
    lets: list[Let] = []
    bounded: dict[str, Term] = {}
    spelt = {name: name for name in program.inputs}
    taken = {*program.inputs, *program.params, *(let.name for let in program.lets)}
    given = tuple(filter(program.inputs.__contains__, inputs))
    for name in given:
        term: Term = Name(name)
        for sign, operation, clamp in SIDES:
            far, near = (_limits(program, params, name, sign, way) for way in (FAR, NEAR))
            pairs = [(a, b) for a, b in zip(far, near, strict=True) if b is not None]
            agree = all(a is not None and _agree(a, b) for a, b in pairs)
            if any(limit is not None for limit in far) and agree:
                term = call(operation, term)
            elif any(limit is not None for limit in near):
                term = call(clamp, term, Number(Fraction(sign * CUBED)))
        if isinstance(term, Apply):
            free = next(
                n for n in (f"finite_{name}", f"finite_{name}2", f"finite_{name}3") if n not in taken
            )
            lets.append(Let(free, term))
            bounded[name] = Name(free)
            spelt[name] = free
    grows = any(_grows(program, params, name, sign) for name in given for sign, *_ in SIDES)

    def kept(term: Term) -> Term:
        term = substitute(term, bounded)
        return _bounded_waves(term) if grows else term

    lets += [Let(let.name, kept(let.term)) for let in program.lets]
    found = Program(program.inputs, program.params, tuple(lets), tuple(map(kept, program.results)))
    if len(given) == 1:
        return _chosen(found, given[0], params)
    for name in given:
        found = _cubed(found, name, spelt[name], params)
    return found


def _cubed(program: Program, name: str, spelt: str, params: Mapping[str, float]) -> Program:
    """The program of several inputs with one kept small enough to be cubed, in the results that overflow.

    In these alone: another may be infinite at its infinity. Of gelu_tanh(x) y the gradient by x is y there,
    the one by y is x.

    Args:
        program: of several inputs.
        name: of the input.
        spelt: the name that results have for it.
        params: the values of its parameters to try it with.
    """
    small: dict[Term, str] = {}
    results = list(program.results)
    taken = {*program.inputs, *program.params, *(let.name for let in program.lets)}
    for k, result in enumerate(results):
        term: Term = Name(spelt)
        for sign, _, clamp in SIDES:
            far, *near = (_results(program, params, name, sign * size)[k] for size in (LARGE, *NEAR))
            if math.isnan(far) and _agree(*near):
                term = call(clamp, term, Number(Fraction(sign * CUBED)))
        if isinstance(term, Apply):
            free = (f"near_{name}{count}" for count in ("", *range(2, len(taken) + 3)))
            small.setdefault(term, next(n for n in free if n not in {*taken, *small.values()}))
            results[k] = substitute(result, {spelt: Name(small[term])})
    lets = (Let(free, term) for term, free in small.items())
    return Program(program.inputs, program.params, (*program.lets, *lets), tuple(results))


def _chosen(program: Program, name: str, params: Mapping[str, float]) -> Program:
    """The program of one input with limits chosen where it gives NaN at an infinity and there is one."""
    results = list(program.results)
    incoming = next((Name(other) for other in program.inputs if other != name), None)
    for sign, *_ in SIDES:
        end, *way = (_results(program, params, name, sign * size) for size in (INFINITY, *WAY))
        for k, last in enumerate(end):
            limit = _tendency([values[k] for values in way]) if math.isnan(last) else None
            if limit is not None:
                terms: dict[float, Term] = {0.0: Number(Fraction(0)), sign: Name(name), -sign: -Name(name)}
                term = terms[limit] if incoming is None else incoming * terms[limit]
                at = INFINITE if sign > 0 else -INFINITE
                results[k] = call("where", call("eq", Name(name), at), term, results[k])
    return Program(program.inputs, program.params, program.lets, tuple(results))


def _tendency(values: Sequence[float]) -> float | None:
    """What values that differ by factors tend to: 0, or the sign of infinity; nothing where they settle."""
    pairs = list(itertools.pairwise(values))
    if all(abs(b) <= abs(a) / 2 < INFINITY for a, b in pairs):
        return 0.0
    if all(2 * abs(a) <= abs(b) and a * b > 0 for a, b in pairs):
        return math.copysign(1.0, values[0])
    return None


def _bounded_waves(term: Term) -> Term:
    """A term in which no sine or cosine is of an infinity."""
    term = rebuild(term, _bounded_waves)
    match term:
        case Apply("sin" | "cos" as op, (argument,)):
            return call(op, call("finite_above", call("finite_below", argument)))
    return term


def _grows(program: Program, params: Mapping[str, float], name: str, sign: float) -> bool:
    """Whether some result is NaN at an infinity of an input and tends to an infinity on the way there."""
    end, *way = [_results(program, params, name, sign * size) for size in (INFINITY, LARGEST, *GROWING)]
    return any(
        math.isnan(last) and (min(values) > LARGE / 10 or max(values) < -LARGE / 10)
        for last, *values in zip(end, *way, strict=True)
    )


def _limits(
    program: Program, params: Mapping[str, float], name: str, sign: float, way: tuple[float, float]
) -> list[float | None]:
    """What results settle at that are NaN at an infinity of an input; nothing where one is infinite."""
    end, *at = [_results(program, params, name, sign * size) for size in (INFINITY, *way)]
    if any(map(math.isinf, end)):
        return [None] * len(end)
    return [
        near if math.isnan(last) and _agree(near, before) else None
        for last, near, before in zip(end, *at, strict=True)
    ]


def _agree(a: float, b: float) -> bool:
    """Whether both are one number; what still grows has no finite limit."""
    return abs(a) < LARGE / 10 and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-150)


def _results(program: Program, params: Mapping[str, float], name: str, at: float) -> list[float]:
    known = {**params, **dict.fromkeys(program.inputs, 1.0), name: at}

    def evaluated(term: Term) -> float:
        match term:
            case Number(number):
                return float(number)
            case Name(other):
                return known[other]
            case Apply(op, args):
                return value(op, [evaluated(arg) for arg in args])
        raise AssertionError("compose has replaced every call of a spec")

    for let in program.lets:
        known[let.name] = evaluated(let.term)
    return [evaluated(result) for result in program.results]
