"""What CUDA kernels call instead of the math library where 16 bits are kept of a result: a row a function.

A row is the body of a function of `Approximate` values, whose floats are `x.v`. ex2 and rcp are the chip's
2**x and 1 / x, to 2 units of float's last place; both flush subnormals, so a value that may be as small is
ex4(x) = 4**x, the square of ex2(x). Polynomials are minimax in the
relative error. A function without a row is the library's. docs/rounding.py counts the results that are not
correctly rounded, on all 65,536 inputs.

Source: Lawson's iteration for the polynomials (Rice and Usow 1968, Math. Comp. 22); the tails of erfc and
of the normal distribution as t 2**(P(t) - z**2), t = 1 / (1 + kz), after Press et al. 1992, Numerical
Recipes, section 6.2; ex2.approx and rcp.approx as the PTX ISA describes them.
"""

from __future__ import annotations

from fusegen.ir import Device, Kernel, Math, operations
from fusegen.ops import NESTED, OPS, ROWS, TRANSCENDENTAL
from fusegen.printers.cpp import ROUNDED, lines_of, reached
from fusegen.singles import constants

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
_ERFC = (
    -0.9128822684288025,
    0.7208625078201294,
    0.2807910442352295,
    -0.01744920015335083,
    0.23149903118610382,
    -0.6998054385185242,
    0.5294689536094666,
    -0.1324850618839264,
)
_NDTR = (
    -1.4623193740844727,
    0.7155240178108215,
    0.33131253719329834,
    -0.14030638337135315,
    0.5570431351661682,
    -0.9834111928939819,
    0.6207029223442078,
    -0.13854536414146423,
)
_TANH_SHRINK = (
    0.3333333134651184,
    -0.13333067297935486,
    0.053931597620248795,
    -0.02167247235774994,
    0.008325383998453617,
    -0.002748817903921008,
    0.0006410788046196103,
    -7.354012632276863e-05,
)
_LOG2_E, _LOG4_E = 1.4426950408889634, 0.7213475204444817
_ROOT_TAU = 2.5066282746310002  # of 2 pi  # fmt: skip


_NDTR_OF = (
    constants(_NDTR) + "const float t = rcp(fmaf(0.33f, fabsf(x.v), 1.0f)); "
    f"const float y = t * ex4(fmaf({-_LOG4_E / 2}f * x.v, x.v, polynomial(c, t))); "
)
_MISH_OF = (
    f"const float e = ex4(-{_LOG4_E}f * fabsf(x.v)); "
    "const float n = x.v > 0.0f ? fmaf(2.0f, e, 1.0f) : e * (e + 2.0f); "
    "const float r = rcp(n + (x.v > 0.0f ? 2.0f * e * e : 2.0f)); "
)
_MISH_SLOPE = "const float slope = (x.v > 0.0f ? e : 1.0f) * (4.0f * e) * (1.0f + e) * (r * r); "
_NORMAL = f"{1 / _ROOT_TAU}f * ex4({-_LOG4_E / 2}f * x.v * x.v)"

# fmt: off
BODIES: dict[str, str] = {
    "exp": f"return ex4({_LOG4_E}f * x.v);",
    "expm1": constants(_EXPM1)
             + f"return fabsf(x.v) < 0.5f ? x.v * polynomial(c, x.v) : ex2({_LOG2_E}f * x.v) - 1.0f;",
    "erfc": constants(_ERFC) + "const float z = fabsf(x.v), t = rcp(fmaf(0.5f, z, 1.0f)); "
            f"const float y = t * ex4(fmaf(-{_LOG4_E}f * z, z, polynomial(c, t))); "
            "return x.v < 0.0f ? 2.0f - y : y;",
    # one word is enough, and the tails of 16 bits are no smaller than those of a float
    "words": "return hi;",
    "product": "return a * b;",
    "sum": "return a + b;",
    "scaled": "return x * hi;",
    "quotient": "return a / b;",
    "product_plus": "return fmaf(a.v * b.v, c.v, d.v);",
    "lifted": "return x;",
    "lift_back": "return 1.0f;",
    "gate": f"const float e = ex4(-{_LOG4_E}f * fabsf(t.v)), r = rcp(1.0f + e); "
            "return x.v * (t.v < 0.0f ? e * r : r);",
    "square_of_two": "return x.v * x.v;",
    "gate_slope": f"const float e = ex4(-{_LOG4_E}f * fabsf(t.v)), r = rcp(1.0f + e); "
                  "return r * fmaf(a.v * b.v, e * r, t.v < 0.0f ? e : 1.0f);",
    "line_of_two": "return fmaf(b.v, x.v, a.v + a_lo.v);",
    "cube_of_two": "return x.v * x.v * x.v;",
    "exp_of_two": f"return ex4({_LOG4_E}f * x.v);",
    "ndtr": _NDTR_OF + "return x.v < 0.0f ? y : 1.0f - y;",
    "times_ndtr": _NDTR_OF + "return x.v * (x.v < 0.0f ? y : 1.0f - y);",
    "times_ndtr_slope": _NDTR_OF + f"const float bell = {_NORMAL}; "
                        "return (x.v < 0.0f ? y : 1.0f - y) + x.v * bell;",
    "normal": f"return {_NORMAL};",
    "gauss": f"return ex4(-{_LOG4_E}f * x.v * x.v);",
    "softplus": constants(_LOG1P) + f"const float e = ex4(-{_LOG4_E}f * fabsf(x.v)); "
                "return (x.v < 0.0f ? 0.0f : x.v) + e * polynomial(c, e);",
    "sigmoid": f"const float e = ex4(-{_LOG4_E}f * fabsf(x.v)), r = rcp(1.0f + e); "
               "return x.v < 0.0f ? e * r : r;",
    "sigmoid_slope": f"const float e = ex4(-{_LOG4_E}f * fabsf(x.v)), r = rcp(1.0f + e); return e * r * r;",
    "erf_of_two": "return erff(x.v);",
    "tanh_of_two": "return tanhf(x.v);",
    "tanh_of_exp": f"return tanhf(ex4({_LOG4_E}f * (x.v > 10.0f ? 10.0f : x.v)));",
    "tanh_of_exp_slope": f"const float t = ex4({_LOG4_E}f * (x.v > 10.0f ? 10.0f : x.v)); "
                         f"const float e = ex4({-2 * _LOG4_E}f * t), r = rcp(1.0f + e); "
                         "return t * (4.0f * e) * (r * r);",
    "tanh_slope": f"const float e = ex4({-2 * _LOG4_E}f * fabsf(x.v)), r = rcp(1.0f + e); "
                  "return 4.0f * e * r * r;",
    "tanh_shrink": constants(_TANH_SHRINK) + "const float s = x.v * x.v; "
                   "return s < 1.5625f ? 0.0f + x.v * (s * polynomial(c, s)) : x.v - tanhf(x.v);",
    "tanh_softplus": _MISH_OF + "return n * r;",
    "times_tanh_softplus": _MISH_OF + "return x.v * (n * r);",
    "tanh_softplus_slope": _MISH_OF + _MISH_SLOPE + "return slope;",
    "times_tanh_softplus_slope": _MISH_OF + _MISH_SLOPE
    + "return n * r + (x.v > 20.0f ? 20.0f : x.v) * slope;",
}
BODIES |= {name: BODIES[of] for name, of in NESTED.items()}  # one word is enough here, too
# sums and products of one word, and the library's own functions
AS_GOOD = {
    "words", "product", "sum", "scaled", "product_plus", "lifted", "lift_back", "square_of_two",
    "line_of_two", "cube_of_two", "erf_of_two", "tanh_of_two",
}
LIBRARY = ("fabs", "exp2", "tanh", "log", "log2", "log1p", "sin", "cos", "erf", "sqrt", "pow", "fma")
# fmt: on


def errs(kernel: Kernel) -> bool:
    """Whether a kernel holds functions that err by more here than the math library's."""
    return not (BODIES.keys() - AS_GOOD).isdisjoint(operations(kernel))


def approximates(kernels: tuple[Kernel, ...]) -> bool:
    """Whether kernels of a device hold functions that may be cheaper where 16 bits are kept of a result."""
    used = {name for kernel in kernels for name in operations(kernel)}
    return kernels[0].device is Device.CUDA and ROUNDED not in used and bool(used & TRANSCENDENTAL)


def approximations(kernels: tuple[Kernel, ...]) -> tuple[str, ...]:
    """The functions of `Approximate` values that kernels call, in table order; none if they take none."""
    if not approximates(kernels):
        return ()
    used = {name for kernel in kernels if kernel.math is Math.FLOAT for name in operations(kernel)}
    used = set(BODIES) & used | reached(used - set(BODIES), Device.CUDA, Math.FLOAT)
    bodies = " ".join(ROWS[name].body for name in used - set(BODIES))
    found = used | {row.name for row in OPS.values() if row.libm and f"}}{row.libm}(" in bodies}
    spelt = {ROWS[name].libm or name for name in found}
    own = tuple(
        _function(ROWS[name].libm or name, ROWS[name].args, body)
        for name, body in BODIES.items()
        if name in found
    )
    library = tuple(
        _function(row.libm, row.args, f"return {row.libm}f({', '.join(f'{arg}.v' for arg in row.args)});")
        for row in OPS.values()
        if row.libm in LIBRARY and row.libm in spelt
    )
    return own + library


def _function(name: str, args: tuple[str, ...], body: str) -> str:
    given = ", ".join(f"Approximate {arg}" for arg in args)
    return f"__device__ __forceinline__ Approximate {name}({given}) {{\n{lines_of(body)}\n}}"
