"""What CPU kernels call in float for the math library, so that loops vectorise: a row a function.

Branches are selections, so that a loop over them becomes vector instructions. Every function of a kernel is
found in the namespace `math`: the ones below in float, those of `doubles` in double, the standard library's
else.

Source: Cody and Waite 1980, Software Manual for the Elementary Functions, chapters 6 and 11; minimax
polynomials by Lawson's iteration (Rice and Usow 1968, Math. Comp. 22).
"""

from __future__ import annotations

from fusegen.ir import Device, Kernel, operations
from fusegen.ops import ERF, EXPM1, MILLS, OPS, ROWS, TANH
from fusegen.printers.cpp import lines_of, reached
from fusegen.printers.doubles import (
    DOUBLES,
    ERRORS,
    EXPONENTIAL,
    NEEDS,
    NORMAL_TAIL,
    POLYNOMIAL,
    POWER,
    WHOLLY,
)

_EXP = (
    1.0,
    1.0,
    0.49999991059303284,
    0.16666419804096222,
    0.041668228805065155,
    0.00837484560906887,
    0.0013836806174367666,
)


def _constants(coefficients: tuple[float, ...]) -> str:
    return f"constexpr float c[] = {{{', '.join(f'{c!r}f' for c in coefficients)}}};"


# fmt: off
BODIES: dict[str, tuple[str, ...]] = {
    "exp": (
        _constants(_EXP),
        "float t = x < -104.0f ? -104.0f : x;  // beyond these two, 0 and infinity",
        "t = t < 89.0f ? t : 89.0f;",
        "const float n = (t * 1.44269504f + 12582912.0f) - 12582912.0f;  // to the nearest integer",
        "const float r = std::fma(n, -1.42860677e-6f, std::fma(n, -0.693145752f, t));  // ln 2 in two",
        "const int k = int(n), half = k >> 1;  // 2^n in two factors, as it may be subnormal",
        "const float y = polynomial(c, r) * power_of_two<float>(half) * power_of_two<float>(k - half);",
        "return x == x ? y : x;",
    ),
    "expm1": (
        _constants(EXPM1),
        "const float near = x * polynomial(c, x), far = exp(x) - 1.0f;",
        "return std::fabs(x) < 0.5f ? near : far;",
    ),
    "tanh": (
        _constants(TANH),
        "const float size = std::fabs(x), t = size > 10.0f ? 10.0f : size, s = t * t;  // it is 1 beyond",
        "const float near = std::fma(t * s, polynomial(c, s), t), far = 1.0f - 2.0f / (exp(t + t) + 1.0f);",
        "return std::copysign(s < 0.36f ? near : far, x);",
    ),
    "erf": (
        _constants(ERF),
        _constants(MILLS).replace(" c[]", " m[]"),
        "const float size = std::fabs(x), t = size > 4.0f ? 4.0f : size, s = t * t;  // it is 1 beyond",
        "const float near = std::fma(t, 0.128379166f, t * (s * polynomial(c, s))) + t;",
        "const float k = 1.0f / std::fma(t, 0.353553391f, 1.0f);  // of erfc over exp(-t^2)",
        "const float far = std::fma(-2.0f * exp(-s), k * polynomial(m, k), 1.0f);",
        "return std::copysign(s < 0.64f ? near : far, x);",
    ),
    "log1p": ("return float(log1p(double(x)));",),
    "log": ("return float(log(double(x)));",),
    "sin": (
        "const Turned t = turned(x);",
        "const double y = t.quarter & 1 ? cosine(t.rest) : sine(t.rest);",
        "return x == 0.0f ? x : float(t.quarter & 2 ? -y : y);",
    ),
    "cos": (
        "const Turned t = turned(x);",
        "const double y = t.quarter & 1 ? sine(t.rest) : cosine(t.rest);",
        "return float((t.quarter + 1) & 2 ? -y : y);",
    ),
}
WIDENED = ("log1p", "log")  # functions in float that call the same in double
WAVES = ("sin", "cos")
# Payne and Hanek 1983, SIGNUM Newsletter 18, without a table: a product with 29 bits of 2 / pi is exact
TURN = """\
// x = quarter pi / 2 + rest, but for multiples of 2 pi, of any float; NaN of an infinity
struct Turned {
  double rest;
  int quarter;
};
WHOLLY Turned turned(double x) {
  constexpr double TWO_OVER_PI[] = {0x1.45f306dp-1,   0x1.9391054p-30,  0x1.4fe13abp-59, 0x1.d1f534dp-88,
                                    0x1.b81b6c5p-117, 0x1.5993c4p-148, 0x1.c820ff2p-175};
  double turns = 0.0, lost = 0.0;
#pragma GCC unroll 7
  for (int k = 0; k < 7; ++k) {
    const double exact = x * TWO_OVER_PI[k], part = std::fma(-4.0, std::rint(0.25 * exact), exact);
    const double sum = turns + part, more = sum - turns;
    lost += (turns - (sum - more)) + (part - more);
    turns = sum;
  }
  const double quarter = std::rint(turns);
  return {((turns - quarter) + lost) * 1.5707963267948966, int(quarter == quarter ? quarter : 0.0)};
}
// Of an r from -1 to 1.
WHOLLY double sine(double r) {
  constexpr double c[] = {1.0, -1.6666666666666666e-01, 8.3333333333333332e-03, -1.9841269841269841e-04,
                          2.7557319223985893e-06, -2.5052108385441720e-08, 1.6059043836821613e-10};
  return r * polynomial(c, r * r);
}
WHOLLY double cosine(double r) {
  constexpr double c[] = {1.0, -0.5, 4.1666666666666664e-02, -1.3888888888888889e-03,
                          2.4801587301587302e-05, -2.7557319223985888e-07, 2.0876756987868100e-09};
  return polynomial(c, r * r);
}"""
# fmt: on


def vectorised(kernels: tuple[Kernel, ...]) -> tuple[str, ...]:
    """The declarations in the namespace `math` that kernels need, each function's after those it calls."""
    called = [(kernel.math, operations(kernel)) for kernel in kernels]
    used = {name for kind, names in called for name in reached(names, Device.CPU, kind)}
    found = {row.libm for row in OPS.values() if row.libm and row.name in used}
    found |= {row.libm for row in OPS.values() for name in used if f"{{m}}{row.libm}(" in ROWS[name].body}
    found -= {""}
    found |= {name for by in found for name in NEEDS.get(by, ())}
    needed = {
        POLYNOMIAL: any("{m}polynomial" in ROWS[name].body for name in used) or not found.isdisjoint(WAVES),
        POWER: (powers := any("{m}exponential" in ROWS[name].body for name in used))
        or not found.isdisjoint(DOUBLES),
        ERRORS: (tail := "ndtr_tail" in used) or "erfc" in found,
        EXPONENTIAL: powers,
        NORMAL_TAIL: tail,
        TURN: not found.isdisjoint(WAVES),
    }
    shared = (text for text, wanted in needed.items() if wanted)
    own = [name for name in (*DOUBLES, *WAVES) if name in found]
    defined = ("\n".join(_both(name)) for name in own)
    standard = (f"using std::{name};" for name in sorted(found - set(own)))
    return (*standard, *(text.replace("WHOLLY", WHOLLY) for text in (*shared, *defined)))


def _both(name: str) -> tuple[str, str]:
    """A function in float and in double, the first of which may call the second."""
    both = _single(name), _double(name)
    return both[::-1] if name in WIDENED else both


def _single(name: str) -> str:
    """A function in float."""
    lines = "".join(f"  {line}\n" for line in BODIES.get(name, (f"return std::{name}(x);",)))
    return f"inline float {name}(float x) {{\n{lines}}}"


def _double(name: str) -> str:
    """A function in double."""
    body = DOUBLES.get(name, (f"return std::{name}(x);",))
    lines = (lines_of(line) if "{" in line else f"  {line}" for line in body)
    return "\n".join((f"WHOLLY double {name}(double x) {{", *lines, "}"))
