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
}
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
        POLYNOMIAL: any("{m}polynomial" in ROWS[name].body for name in used),
        POWER: (powers := any("{m}exponential" in ROWS[name].body for name in used))
        or not found.isdisjoint(DOUBLES),
        ERRORS: (tail := "ndtr_tail" in used) or "erfc" in found,
        EXPONENTIAL: powers,
        NORMAL_TAIL: tail,
    }
    shared = (text for text, wanted in needed.items() if wanted)
    defined = (f"{_single(name)}\n{_double(name)}" for name in DOUBLES if name in found)
    standard = (f"using std::{name};" for name in sorted(found - set(DOUBLES)))
    return (*standard, *(text.replace("WHOLLY", WHOLLY) for text in (*shared, *defined)))


def _single(name: str) -> str:
    """A function in float."""
    lines = "".join(f"  {line}\n" for line in BODIES.get(name, (f"return std::{name}(x);",)))
    return f"inline float {name}(float x) {{\n{lines}}}"


def _double(name: str) -> str:
    """A function in double."""
    lines = (lines_of(line) if "{" in line else f"  {line}" for line in DOUBLES[name])
    return "\n".join((f"WHOLLY double {name}(double x) {{", *lines, "}"))
