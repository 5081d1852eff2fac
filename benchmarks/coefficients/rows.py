"""The table: an array of each kind, its function, its interval, and how far it may be from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mpmath import mp

from benchmarks.coefficients.fit import DIGITS, Minimax, interpolated, rounded, rounded_to, value

INCLUDE = Path(__file__).resolve().parents[2] / "fusegen" / "runtime" / "include"
ARRAY = re.compile(r"\w+\[\] = \{([^{};]*)\}")
NUMBER = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")
LEAST = 5  # numbers of what is an array of coefficients


@dataclass(frozen=True)
class Row:
    """The coefficients of one polynomial.

    Attributes:
        parts: a header that has them, with the place of the array among those of the header, from 0;
            further ones where the polynomial is in several arrays.
        target: the function that the polynomial stands for.
        weight: by which its error is multiplied, so that it is that of the result.
        low, high: the interval.
        bound: of the error, as a power of two.
        method: how they are made again: ``interpolated``, ``minimax`` or ``series``.
        kind: their type.
        given: how many of the first ones are not fitted.
        divisor: the place of the polynomial that divides it, if it is a quotient, which is not made again.
    """

    parts: tuple[tuple[str, int], ...]
    target: Callable[[Any], Any]
    weight: Callable[[Any], Any]
    low: Any
    high: Any
    bound: float
    method: str = "minimax"
    kind: str = "float"
    given: int = 0
    divisor: tuple[str, int] | None = None

    @property
    def coefficients(self) -> tuple[float, ...]:
        """The coefficients as they are in the header."""
        return tuple(number for header, place in self.parts for number in arrays(header)[place])

    @property
    def interval(self) -> tuple[str, str]:
        """The ends of the interval, in four digits."""
        return mp.nstr(mp.mpf(self.low), 4), mp.nstr(mp.mpf(self.high), 4)

    def error(self, coefficients: Sequence[Any]) -> float:
        """Return the largest error of some coefficients, as a power of two."""
        by = arrays(self.divisor[0])[self.divisor[1]] if self.divisor else (1.0,)
        with mp.workdps(DIGITS):
            fit = Minimax(
                lambda t: self.target(t) * value(by, t),
                lambda t: self.weight(t) / value(by, t),
                self.low,
                self.high,
            )
            return float(mp.log(fit.largest(coefficients), 2))

    def made(self) -> list[Any] | None:
        """Return the coefficients, made again; None where they are a series or a quotient."""
        count = len(self.coefficients)
        if self.method == "series" or self.divisor:
            return None
        with mp.workdps(DIGITS):
            if self.method == "interpolated":
                found = interpolated(self.target, self.low, self.high, count)
                return [rounded_to(self.kind, each) for each in found]
            fit = Minimax(self.target, self.weight, self.low, self.high)
            return rounded(fit, self.coefficients[: self.given], count, self.kind)

    def note(self, name: str) -> str:
        """Return the comment above the array."""
        low, high = self.interval
        return f"// From {low} to {high}, to 2^{self.bound}: python -m benchmarks.coefficients {name}"


def places(row: Row) -> set[tuple[str, int]]:
    """Return all arrays that are those of a row, or these without their first number."""
    parts = [arrays(header)[place] for header, place in row.parts]
    headers = (path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*.*h"))
    same = {
        (header, place)
        for header in headers
        for place, found in enumerate(arrays(header))
        if any(found in (part, part[1:], (1.0, *part)) for part in parts)
    }
    return same | ({row.divisor} if row.divisor else set())


@cache
def arrays(header: str) -> list[tuple[float, ...]]:
    """Return the arrays of coefficients in a header, in their order."""
    text = (INCLUDE / header).read_text(encoding="utf-8")
    found = (tuple(map(float, NUMBER.findall(body))) for body in ARRAY.findall(text) if "0x" not in body)
    return [each for each in found if len(each) >= LEAST]


def one(_: Any) -> Any:
    """Return 1: the error of the polynomial is that of the result."""
    return mp.mpf(1)


def exp_rest(r: Any) -> Any:
    """Return p of e^r = 1 + r + r² p(r)."""
    return (mp.expm1(r) - r) / r**2


def log_rest(z: Any) -> Any:
    """Return p of log((1 + s) / (1 - s)) = 2 s + s³ p(s²)."""
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) - 2 * s) / s**3


def log1p_rest(f: Any) -> Any:
    """Return p of log(1 + f) = f - f² / 2 + f³ p(f)."""
    return (mp.log1p(f) - f + f**2 / 2) / f**3


def shrink(s: Any) -> Any:
    """Return p of x - tanh(x) = x³ p(x²)."""
    x = mp.sqrt(s)
    return (x - mp.tanh(x)) / x**3


def erf_rest(s: Any) -> Any:
    """Return p of erf(x) = x (2 / √π + s p(s)), s = x²."""
    x = mp.sqrt(s)
    return (mp.erf(x) / x - 2 / mp.sqrt(mp.pi)) / s


def mills(x: Any) -> Any:
    """Return Φ(-x) e^(x² / 2)."""
    return mp.exp(x**2 / 2) * mp.erfc(x / mp.sqrt(2)) / 2


def mills_in_k(k: Any) -> Any:
    """Return p of Φ(-x) e^(x² / 2) = k p(k), k = 1 / (1 + x / 4)."""
    return mills(4 * (1 / k - 1)) / k


def tail(t: Any) -> Any:
    """Return p of (x + 4.75) Φ(-x) e^(x² / 2) = p(t), t = (x - 4.75) / (x + 4.75)."""
    x = 4.75 * (1 + t) / (1 - t)
    return (x + 4.75) * mills(x)


def scaled_erfc(t: Any) -> Any:
    """Return p of (1 + 2 x) e^(x²) erfc(x) = p(t), t = (x - 3.75) / (x + 3.75)."""
    x = 3.75 * (1 + t) / (1 - t)
    return (1 + 2 * x) * mp.exp(x**2) * mp.erfc(x)


with mp.workdps(DIGITS):
    FAR = mp.mpf(28 - 3.75) / (28 + 3.75)
    END = mp.mpf(38.75 - 4.75) / (38.75 + 4.75)
    LN2, ROOT = mp.log(2), mp.sqrt(2)
    HALF = LN2 / 2
    LOGS = (3 - 2 * ROOT) ** 2  # s² of an m from root 1/2 to root 2
FAST, NORMAL, GENERIC = "cuda/fast_functions.cuh", "cuda/normal.cuh", "functions/normal.h"
CPU_EXP, CPU_NORMAL, SINGLE = "cpu/exponential.h", "cpu/normal.h", "cpu/single_result.h"
TANH, GENERIC_EXP = "functions/hyperbolic.h", "functions/exponential.h"
PLAIN39, PLAIN44 = "cuda/plain_double_39.cuh", "cuda/plain_double_44.cuh"
BELOW, STREAMED = ("cuda/exp_below.cuh", 0), "cuda/largest_and_terms.cuh"


def of_exp(r: Any) -> Any:
    """Return the weight of p in the relative error of e^r."""
    return r**2 / mp.exp(r)


def relative(target: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the weight that makes an error relative."""
    return lambda t: 1 / target(t)


def exp2(t: Any) -> Any:
    """Return 2^t."""
    return mp.mpf(2) ** t


def log4(t: Any) -> Any:
    """Return the logarithm of a number to the base 4, which fast functions take as a power."""
    return mp.log(t) / mp.log(4)


def fast_tail(k: float, tail: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return P of tail(x) = t 4^P(t) without its bell, t = 1 / (1 + k x)."""
    return lambda t: log4(tail((1 / t - 1) / k) / t)


def slope_rest(k: Any) -> Any:
    """Return r of Φ(-s) e^(s² / 2) - s / √(2π) = (s - zero) (s r(k) - 0.665078), k = 1 / (1 + 0.4 s)."""
    s = (1 / k - 1) / mp.mpf(0.4)
    value = mills(s) - s / mp.sqrt(2 * mp.pi)
    return (value / (s - ZERO) + mp.mpf("0.665078")) / s


def shifted(t: Any) -> Any:
    """Return q of Φ(-x) e^(x² / 2) = k (0.09974633157253265 + k q(k - 1/2)), k = 1 / (1 + x / 4)."""
    k = t + mp.mpf(1) / 2
    return (mills_in_k(k) - mp.mpf(0.09974633157253265)) / k


def half_erf(s: Any) -> Any:
    """Return the quotient of (Φ(x) - 1/2) / x in x²."""
    x = mp.sqrt(s)
    return mp.erf(x / mp.sqrt(2)) / (2 * x)


with mp.workdps(DIGITS):
    ZERO = mp.findroot(lambda s: mills(s) - s / mp.sqrt(2 * mp.pi), 0.75)
    POWER = mp.log(4)
    TURN = (mp.pi / 4) ** 2
ROWS = {
    "exp_double": Row(((CPU_EXP, 0),), exp_rest, of_exp, -HALF, HALF, -61, kind="double"),
    "exp_float": Row(((CPU_EXP, 1),), mp.exp, relative(mp.exp), -HALF, HALF, -25, given=2),
    "expm1_float": Row(((GENERIC_EXP, 1),), exp_rest, lambda x: x**2 / mp.expm1(x), -0.5, 0.5, -26),
    "exp_reduced": Row(((GENERIC_EXP, 0),), exp_rest, of_exp, -HALF, HALF, -27),
    "tanh_float": Row((("cpu/hyperbolic.h", 0),), lambda s: -shrink(s), lambda s: s, 0, 0.36, -27),
    "tanh_shrink_double": Row(
        ((TANH, 1),), shrink, relative(shrink), 0, 1.5625, -52, "interpolated", "double"
    ),
    "tanh_shrink_float": Row(((TANH, 3),), shrink, relative(shrink), 0, 1.5625, -23, "interpolated"),
    "tanh_shrink_fast": Row(((FAST, 6),), shrink, relative(shrink), 0, 1.5625, -22, "interpolated"),
    "log_double": Row((("cpu/logarithm.h", 0),), log_rest, lambda z: z / 2, 0, LOGS, -60, kind="double"),
    "log1p_single_result": Row(
        ((SINGLE, 0),), log1p_rest, lambda f: f**3 / mp.log1p(f), 1 / ROOT - 1, ROOT - 1, -28
    ),
    "softplus_float": Row(((SINGLE, 1),), log1p_rest, lambda e: e**3 / mp.log1p(e), 0, 1, -25),
    "sine": Row(
        (("cpu/trigonometric.h", 0),),
        lambda z: mp.sin(mp.sqrt(z)) / mp.sqrt(z),
        one,
        0,
        1,
        -40,
        "series",
        "double",
    ),
    "cosine": Row(
        (("cpu/trigonometric.h", 1),), lambda z: mp.cos(mp.sqrt(z)), one, 0, 1, -36, "series", "double"
    ),
    "sine_of_turns": Row(
        (("cpu/turns.h", 0),),
        lambda z: mp.sin(mp.sqrt(z)) / mp.sqrt(z),
        one,
        0,
        TURN,
        -57,
        "series",
        "double",
    ),
    "cosine_of_turns": Row(
        (("cpu/turns.h", 1),), lambda z: mp.cos(mp.sqrt(z)), one, 0, TURN, -59, "series", "double"
    ),
    "erf_double": Row(((CPU_NORMAL, 0),), erf_rest, lambda s: s, 0, 0.83**2, -56, kind="double"),
    "erfc_double": Row(
        ((CPU_NORMAL, 1), (CPU_NORMAL, 2)),
        scaled_erfc,
        relative(scaled_erfc),
        -1,
        FAR,
        -52,
        "interpolated",
        "double",
    ),
    "erf_float": Row(((CPU_NORMAL, 3),), erf_rest, lambda s: s, 0, 0.64, -28),
    "mills_float": Row(((GENERIC, 0),), mills_in_k, relative(mills_in_k), 0.2, 1, -23),
    "expm1_fast": Row(
        ((FAST, 0),), lambda x: mp.expm1(x) / x, lambda x: x / mp.expm1(x), -0.5, 0.5, -21, given=2
    ),
    "erfc_fast": Row(
        ((FAST, 1),),
        fast_tail(0.5, lambda x: mp.exp(x**2) * mp.erfc(x)),
        lambda t: POWER,
        1 / mp.mpf(6),
        1,
        -20,
    ),
    "ndtr_fast": Row(((FAST, 2),), fast_tail(0.33, mills), lambda t: POWER, 1 / mp.mpf(6), 1, -19),
    "softplus_fast": Row(((FAST, 5),), lambda e: mp.log1p(e) / e, lambda e: e / mp.log1p(e), 0, 1, -21),
    "mills_double": Row(
        ((NORMAL, 0),),
        lambda t: mills(32 + 7 * t),
        lambda t: 1 / mills(32 + 7 * t),
        -1,
        1,
        -52,
        "interpolated",
        "double",
    ),
    "exp_39": Row(((PLAIN39, 0),), exp_rest, of_exp, -HALF, HALF, -43, "interpolated", "double"),
    "log_39": Row(((PLAIN39, 1),), log_rest, lambda z: z / 2, 0, LOGS, -43, kind="double"),
    "tail_39": Row(((PLAIN39, 2),), tail, relative(tail), -1, END, -40, "interpolated", "double"),
    "exp_below": Row((BELOW,), exp_rest, of_exp, -HALF, HALF, -32, "interpolated", "double"),
    "exp2_small": Row(((STREAMED, 0),), exp2, relative(exp2), -0.5, 0.5, -27),
    "exp2_wide": Row(((STREAMED, 1),), exp2, relative(exp2), -0.5, 0.5, -34, "interpolated", "double"),
    "exp_44": Row(((PLAIN44, 0),), exp_rest, of_exp, -HALF, HALF, -49, "interpolated", "double"),
    "log_44": Row(((PLAIN44, 1),), log_rest, lambda z: z / 2, 0, LOGS, -50, "interpolated", "double"),
    "tail_44": Row(((PLAIN44, 2),), tail, relative(tail), -1, END, -49, "interpolated", "double"),
    "ndtr_slope": Row(
        (("functions/normal_slope.h", 0),),
        slope_rest,
        lambda k: (1 / k - 1) / mp.mpf(0.4),
        1 / mp.mpf(7.4),
        1,
        -25,
    ),
    "mills_shifted": Row(
        ((CPU_NORMAL, 5),),
        shifted,
        lambda t: (t + mp.mpf(1) / 2) / mills_in_k(t + mp.mpf(1) / 2),
        -0.3,
        0.5,
        -23,
    ),
    "half_erf": Row(
        ((CPU_NORMAL, 6),), half_erf, relative(half_erf), 0, 5.45**2, -23, divisor=(CPU_NORMAL, 7)
    ),
}
