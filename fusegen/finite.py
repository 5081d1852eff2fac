"""Infinite inputs taken as large finite ones, where they would give NaN though there is a limit.

silu(-inf) is -inf times 0, but x sigmoid(x) tends to 0. Each input of an accurate program is tried at both
infinities, the others being 1, by what IEEE arithmetic gives (`VALUES`, a row an operation). Where that is
NaN, and two large magnitudes agree on a number, the input is kept finite on that side, and small enough to
be cubed where that is what overflows. Where they agree on an infinity, as x + sin(x) does, what has no
limit, a sine or a cosine, takes its argument finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

from fusegen.term import Apply, Let, Name, Number, Program, Term, call, rebuild, substitute

INFINITY, ROOT_TWO = math.inf, math.sqrt(2)
LARGEST, LARGE = 2.0**1022, 1e200
GROWING = (LARGE, 1.7e201, 2.9e202, 4.3e203)
CUBED = 2.0**40  # whose cube is a float
DECIDED = ("where", "lt", "le", "gt", "ge", "eq", "ne")  # of NaN, too
SIDES = ((-1.0, "finite_below", "clamp_min"), (1.0, "finite_above", "clamp_max"))


def finite(program: Program, names: tuple[str, ...], params: Mapping[str, float]) -> Program:
    """The program with inputs kept finite where infinity would give NaN instead of a limit.

    Args:
        program: of any number of inputs and results.
        names: of the inputs to keep finite; an incoming gradient is not among them.
        params: the values of its parameters to try it with.
    """
    lets: list[Let] = []
    bounded: dict[str, Term] = {}
    taken = {*program.inputs, *program.params, *(let.name for let in program.lets)}
    given = tuple(filter(program.inputs.__contains__, names))
    for name in given:
        term: Term = Name(name)
        for sign, operation, clamp in SIDES:
            if _has_limit(program, params, name, sign, (LARGEST, LARGE)):
                term = call(operation, term)
            elif _has_limit(program, params, name, sign, (CUBED, CUBED / 16)):
                term = call(clamp, term, Number(Fraction(sign * CUBED)))
        if isinstance(term, Apply):
            free = next(
                n for n in (f"finite_{name}", f"finite_{name}2", f"finite_{name}3") if n not in taken
            )
            lets.append(Let(free, term))
            bounded[name] = Name(free)
    grows = any(_grows(program, params, name, sign) for name in given for sign, *_ in SIDES)

    def kept(term: Term) -> Term:
        term = substitute(term, bounded)
        return _bounded_waves(term) if grows else term

    others = tuple(Let(let.name, kept(let.term)) for let in program.lets)
    return Program(program.inputs, program.params, (*lets, *others), tuple(map(kept, program.results)))


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


def _has_limit(
    program: Program, params: Mapping[str, float], name: str, sign: float, way: tuple[float, float]
) -> bool:
    """Whether some result is NaN at an infinity of an input but settles on its way, none being infinite."""
    at = [_results(program, params, name, sign * size) for size in (INFINITY, *way)]
    settled = any(math.isnan(end) and _agree(near, before) for end, near, before in zip(*at, strict=True))
    return settled and not any(map(math.isinf, at[0]))


def _agree(a: float, b: float) -> bool:
    """Whether both are one number; what still grows has no finite limit."""
    return abs(a) < LARGE / 10 and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-150)


def _results(program: Program, params: Mapping[str, float], name: str, value: float) -> list[float]:
    known = {**params, **dict.fromkeys(program.inputs, 1.0), name: value}

    def evaluated(term: Term) -> float:
        match term:
            case Number(number):
                return float(number)
            case Name(other):
                return known[other]
            case Apply(op, args):
                return _evaluated(op, [evaluated(arg) for arg in args])
        raise AssertionError("compose has replaced every call of a spec")

    for let in program.lets:
        known[let.name] = evaluated(let.term)
    return [evaluated(result) for result in program.results]


def _evaluated(op: str, args: list[float]) -> float:
    """An operation in IEEE arithmetic; what Python refuses is infinite or NaN."""
    if op not in DECIDED and any(math.isnan(arg) for arg in args):
        return math.nan
    try:
        return float(VALUES[op](*args))
    except OverflowError:
        return INFINITY
    except (ValueError, ZeroDivisionError):
        return math.nan


def _log(x: float, log: Callable[[float], float] = math.log) -> float:
    return -INFINITY if x == 0 else log(x)


def _quotient(a: float, b: float) -> float:
    return math.copysign(INFINITY, a) * math.copysign(1, b) if b == 0 and a != 0 else a / b


def _logistic(x: float) -> float:
    e = math.exp(-abs(x))
    return (e if x < 0 else 1) / (1 + e)


def _bell(x: float) -> float:
    return math.exp(-min(x * x, 1e4))


def _slope(x: float) -> float:
    return _logistic(x) * _logistic(-x)


# fmt: off
VALUES: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": _quotient,
    "neg": lambda a: -a, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "where": lambda condition, a, b: a if condition else b,
    "pi": lambda: math.pi, "e": lambda: math.e,
    "relu": lambda x: max(x, 0.0), "relu6": lambda x: min(max(x, 0.0), 6.0),
    "clamp": lambda x, low, high: min(max(x, low), high),
    "saturate": lambda x, low, high: min(max(x, low), high),
    "clamp_min": max, "clamp_max": min, "minimum": min, "maximum": max, "abs": abs,
    "finite_below": lambda x: max(x, -LARGEST), "finite_above": lambda x: min(x, LARGEST),
    "sign": lambda x: (x > 0) - (x < 0), "square": lambda x: x * x, "cube": lambda x: x * x * x,
    "reciprocal": lambda x: _quotient(1.0, x), "sqrt": math.sqrt,
    "rsqrt": lambda x: _quotient(1.0, math.sqrt(x)), "pow": math.pow,
    "exp": math.exp, "exp2": lambda x: 2.0**x, "expm1": math.expm1, "log": _log,
    "log2": lambda x: _log(x, math.log2), "log1p": lambda x: -INFINITY if x == -1 else math.log1p(x),
    "sin": math.sin, "cos": math.cos, "tanh": math.tanh, "erf": math.erf, "erfc": math.erfc,
    "ndtr": lambda x: math.erfc(-x / math.sqrt(2)) / 2, "sigmoid": _logistic,
    "times_tanh_softplus": lambda x: x * math.tanh(max(x, 0.0) + math.log1p(math.exp(-abs(x)))),
    "times_tanh_softplus_slope": lambda x: _logistic(x) + 0 * min(x, 0.0),  # near enough at infinity
    "times_ndtr": lambda x: x * (math.erfc(-x / ROOT_TWO) / 2),
    "times_ndtr_slope": lambda x: math.erfc(-x / ROOT_TWO) / 2 + x * _bell(x / ROOT_TWO) / 2.5,
    "softplus": lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))),
    "sigmoid_slope": _slope, "tanh_slope": lambda x: 4 * _slope(2 * x),
    "soft_sign": lambda x: x / (abs(x) + 1),
    "tanh_shrink": lambda x: x - math.tanh(x),
    "tanh_softplus": lambda x: math.tanh(max(x, 0.0) + math.log1p(math.exp(-abs(x)))),
    "tanh_softplus_slope": lambda x: 1 - math.tanh(abs(x)),
    "tanh_of_exp": lambda x: math.tanh(math.exp(min(x, 10.0))),
    "tanh_of_exp_slope": lambda x: math.exp(min(x, 10.0)) * 4 * _slope(2 * math.exp(min(x, 10.0))),
    "gauss": _bell, "normal": _bell,
    "fma": lambda a, b, c: a * b + c, "quotient": _quotient, "by_width": lambda narrow, wide: wide,
    "rounded": lambda x: x,
}
# fmt: on
