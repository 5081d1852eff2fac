"""What CUDA kernels call instead of the math library where 16 bits are kept of a result: a row a function.

A row is the body of a function of `Approximate` values, whose floats are `x.v`. Each has an error of a few
units in float's last place wherever 16 bits can tell, which tests/test_gpu.py holds against the correctly
rounded results on all 65,536 inputs; a function without a row is the library's.

Source: minimax polynomials of the relative error by Lawson's iteration (Rice and Usow 1968); erfc in the
form of Press et al. 1992, Numerical Recipes, section 6.2; ex2.approx and __fdividef as the CUDA C++
Programming Guide describes them, section "Mathematical Functions".
"""

from __future__ import annotations

from fusegen.ir import Device, Kernel, operations
from fusegen.ops import OPS, TRANSCENDENTAL
from fusegen.printers.cpp import ROUNDED

_LOG1P = (
    0.9999998211860657,
    -0.4999740421772003,
    0.33275479078292847,
    -0.24495449662208557,
    0.17745204269886017,
    -0.10768117010593414,
    0.044089239090681076,
    -0.00853909645229578,
)
_EXPM1 = (1.0, 0.5, 0.16665974259376526, 0.04166870191693306, 0.008407682180404663, 0.0013888811226934195)
_TANH = (1.0, -0.33332309126853943, 0.13310173153877258, -0.05210147425532341, 0.015475417487323284)
_ERFC = (-1.265498161315918, 0.9989520311355591, 0.39150264859199524, -0.031230930238962173,
         0.33354800939559937, -0.9831385016441345, 0.741163432598114, -0.18529914319515228)  # fmt: skip


def _constants(coefficients: tuple[float, ...]) -> str:
    """The coefficients of a polynomial, lowest first."""
    return f"const float c[] = {{{', '.join(f'{c!r}f' for c in coefficients)}}}; "


# fmt: off
BODIES: dict[str, str] = {
    "exp": "return __expf(x.v);",
    "exp2": "return exp2f(x.v);",
    "expm1": _constants(_EXPM1)
             + "return fabsf(x.v) < 0.5f ? x.v * polynomial(c, x.v) : __expf(x.v) - 1.0f;",
    "tanh": _constants(_TANH) + "const float s = x.v * x.v, e = __expf(-2.0f * fabsf(x.v)); "
            "return s < 0.36f ? x.v * polynomial(c, s) "
            ": copysignf(__fdividef(1.0f - e, 1.0f + e), x.v);",
    "softplus": _constants(_LOG1P) + "const float e = __expf(-fabsf(x.v)); "
                "return (x.v < 0.0f ? 0.0f : x.v) + e * polynomial(c, e);",
    "erfc": _constants(_ERFC) + "const float z = fabsf(x.v), t = __fdividef(1.0f, fmaf(0.5f, z, 1.0f)); "
            "const float y = t * __expf(fmaf(-z, z, polynomial(c, t))); "
            "return x.v < 0.0f ? 2.0f - y : y;",
}
LIBRARY = ("fabs", "log", "log2", "log1p", "sin", "cos", "erf", "sqrt", "pow", "fma")
# fmt: on


def approximates(kernels: tuple[Kernel, ...]) -> bool:
    """Whether kernels of a device hold functions that may be cheaper where 16 bits are kept of a result."""
    used = {name for kernel in kernels for name in operations(kernel)}
    return kernels[0].device is Device.CUDA and ROUNDED not in used and bool(used & TRANSCENDENTAL)


def approximations(kernels: tuple[Kernel, ...]) -> tuple[str, ...]:
    """The functions of `Approximate` values that kernels call, in table order; none if they take none."""
    if not approximates(kernels):
        return ()
    used = {name for kernel in kernels for name in operations(kernel)}
    bodies = " ".join(OPS[name].body for name in used)
    called = used | {row.name for row in OPS.values() if row.libm and f"}}{row.libm}(" in bodies}
    spelt = {OPS[name].libm or name for name in called}
    own = tuple(
        _function(OPS[name].libm or name, ("x",), body) for name, body in BODIES.items() if name in called
    )
    library = tuple(
        _function(row.libm, row.args, f"return {row.libm}f({', '.join(f'{arg}.v' for arg in row.args)});")
        for row in OPS.values()
        if row.libm in LIBRARY and row.libm in spelt
    )
    return own + library


def _function(name: str, args: tuple[str, ...], body: str) -> str:
    given = ", ".join(f"Approximate {arg}" for arg in args)
    inside = body.replace("; ", ";\n  ")
    return f"__device__ __forceinline__ Approximate {name}({given}) {{\n  {inside}\n}}"
