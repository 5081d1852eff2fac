"""Functions of double on the CPU: errors, special values, and loops over them."""

import ctypes
import math
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from kernels import compiled, loops, methods
from numpy.typing import NDArray

from fusegen.codegen.runtime_text import INCLUDE
from fusegen.runtime.flags import CPU_FLAGS, CPU_ISA

Doubles = NDArray[np.float64]
UNITS = {"exp": 0.65, "expm1": 1.05, "log": 0.9, "log1p": 0.9, "tanh": 1.75, "erf": 1.05, "erfc": 2.7}
DOUBLES = tuple(UNITS)
BETWEEN = {  # where each is neither all of one number nor too small for one
    "exp": (-708.3, 709.7), "expm1": (-40.0, 709.7), "log": (1e-300, 1e300), "log1p": (-0.999999, 1e300),
    "tanh": (-20.0, 20.0), "erf": (-6.0, 6.0), "erfc": (-6.0, 26.5),
}  # fmt: skip
SPECIAL = (
    *(sign * size for size in (0.0, 5e-324, 1e-310, 1.0, 26.6, 40.0, 709.78, 745.2, 1e308, math.inf)
      for sign in (1.0, -1.0)),
    math.nan, -2.0, 27.2,
)  # fmt: skip
COMPILE = ["g++", "-std=c++17", *CPU_FLAGS, *CPU_ISA["AVX2"], "-fPIC", f"-I{INCLUDE}"]
HEADERS = ("exponential", "logarithm", "hyperbolic", "normal")

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
    pytest.mark.usefixtures("exact_eager"),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, str]:
    """A loop over each function, and one over what kernels have in two words; and what GCC says of them."""
    each = "for (long i = 0; i < n; ++i)"
    text = [*(f'#include "cpu/{name}.h"' for name in HEADERS), "namespace fusegen {"]
    text += [
        f'extern "C" void {name}_all(const double* __restrict x, double* __restrict y, long n) {{\n'
        f"  {each} y[i] = {within}::{function}(x[i]);\n}}"
        for function in DOUBLES
        for name, within in ((function, "fusegen"), (f"std_{function}", "std"))
    ]
    tail = "normal_tail(x[i], exp_dw(two_prod(x[i], x[i]) * -0.5))"
    text += [
        'extern "C" void tail_all(const double* __restrict x, double* __restrict y, double* __restrict z, '
        "long n) {\n"
        f"  {each} {{\n    const DoubleWord<double> w = {tail};\n    y[i] = w.hi, z[i] = w.lo;\n  }}\n}}",
        "}",
    ]
    source = tmp_path_factory.mktemp("doubles") / "doubles.cpp"
    source.write_text("\n".join(text) + "\n", encoding="utf-8")
    library = source.with_suffix(".so")
    command = [*COMPILE, "-shared", "-fopt-info-vec-optimized", str(source), "-o", str(library)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    lines = source.read_text(encoding="utf-8").splitlines()
    report = "\n".join(
        lines[int(line.split(":")[1]) - 2] for line in told.splitlines() if "doubles.cpp:" in line
    )
    return ctypes.CDLL(str(library)), report


def applied(library: ctypes.CDLL, name: str, x: Doubles, count: int = 1) -> list[Doubles]:
    """The results of a loop over numbers."""
    out = [np.empty_like(x) for _ in range(count)]
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, *out)]
    getattr(library, f"{name}_all")(*pointers, ctypes.c_long(x.size))
    return out


def numbers(low: float, high: float) -> Doubles:
    """Some of all sizes, signed."""
    random = np.random.default_rng(4)
    sizes = np.exp2(random.uniform(-60, math.log2(max(high, -low)), 2000)) * random.choice([-1, 1], 2000)
    found = np.concatenate([random.uniform(low, min(high, 1e3), 2000), random.normal(size=2000), sizes])
    return found[(found > low) & (found < high)]


def errors(given: Doubles, exact: list[Any]) -> Iterator[float]:
    """By how many units in the last place each number is off."""
    for value, real in zip(given.tolist(), exact, strict=True):
        _, exponent = mpmath.frexp(abs(real))
        yield float(abs(mpmath.mpf(value) - real) / mpmath.mpf(2) ** max(exponent - 53, -1074))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", DOUBLES)
def test_a_function_is_near_the_real_one(name: str, built: tuple[ctypes.CDLL, str]) -> None:
    x = numbers(*BETWEEN[name])
    [y] = applied(built[0], name, x)
    with mpmath.workdps(60):
        real: Callable[[Any], Any] = getattr(mpmath, name)
        assert max(errors(y, [real(mpmath.mpf(v)) for v in x.tolist()])) <= UNITS[name]


@pytest.mark.parametrize("name", DOUBLES)
def test_special_values_are_the_math_librarys(name: str, built: tuple[ctypes.CDLL, str]) -> None:
    x = np.array(SPECIAL)
    [given], [expected] = applied(built[0], name, x), applied(built[0], f"std_{name}", x)
    for at, ours, theirs in zip(x, given, expected, strict=True):
        alike = ours == theirs or (math.isnan(ours) and math.isnan(theirs))
        assert alike or abs(ours - theirs) <= max(abs(theirs) * 5e-16, 5e-324), (at, ours, theirs)
        assert math.isnan(ours) or np.signbit(ours) == np.signbit(theirs), (at, ours, theirs)


def test_a_tail_has_more_digits_than_a_double(built: tuple[ctypes.CDLL, str]) -> None:
    x = np.abs(numbers(-38.0, 38.0))
    x = x[x < 37.0]
    high, low = applied(built[0], "tail", x, 2)
    with mpmath.workdps(60):
        for at, hi, lo in zip(x.tolist(), high.tolist(), low.tolist(), strict=True):
            exact = mpmath.erfc(mpmath.mpf(at) / mpmath.sqrt(2)) / 2
            assert abs(lo) <= abs(hi) * 2.0**-50
            assert abs(mpmath.mpf(hi) + mpmath.mpf(lo) - exact) <= exact * 2.0**-51.5


@pytest.mark.parametrize("name", [*DOUBLES, "tail"])
def test_a_loop_over_a_function_becomes_vector_instructions(
    name: str, built: tuple[ctypes.CDLL, str]
) -> None:
    assert f"void {name}_all(" in built[1]


ROWS = {
    "gates": "chain: [hardswish, softsign, silu, mish, quick_gelu, tanhshrink, a * x]",
    "tails": "chain: [x * 1.3 + 0.1, gelu, squared_relu, softplus, tanhshrink, a * x]",
    "sum": "formula: a * x + x * sigmoid(1.702 * x) * tanh(x) * elu(x) - x * expm1(-x * x)",
}


@pytest.mark.full
@pytest.mark.parametrize("name", ROWS)
def test_the_loop_in_which_double_stands_in_for_float_becomes_vector_instructions(
    name: str, tmp_path: Path
) -> None:
    module = compiled(tmp_path, name, f"dtypes: [float32]\nparams: {{a: 0.1}}\n{ROWS[name]}\n")
    assert "Formula<double>" in [of_32 for _, of_32, _ in methods(module.CPU_SOURCE)]
    assert loops(module, "forward", tmp_path)[1]


FLOATS = ("chain: [gelu, mish]", "formula: erf(x) + tanh(x) * exp(-softplus(x))", "chain: [gelu, serf]")


@pytest.mark.full
@pytest.mark.parametrize("body", FLOATS)
def test_a_module_of_floats_alone_is_built(body: str, tmp_path: Path, extensions: Path) -> None:
    """Nothing calls its functions of double."""
    name = f"floats{FLOATS.index(body)}"
    given = compiled(tmp_path, name, f"dtypes: [float32]\n{body}\n")
    of_both = compiled(tmp_path, f"{name}_and_doubles", f"dtypes: [float32, float64]\n{body}\n")
    x = torch.randn(3000, generator=torch.Generator().manual_seed(5)) * 4
    assert torch.equal(given.FORWARD(x), of_both.FORWARD(x))
