"""Functions in float of double-word arguments on the CPU, and the chains that are computed with them."""

import ctypes
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from kernels import compiled, loops
from numpy.typing import NDArray
from test_ops import REFERENCE

from fusegen.codegen.runtime_text import INCLUDE
from fusegen.core import budget
from fusegen.core.ir import Body
from fusegen.core.ops import ROWS
from fusegen.runtime.flags import CPU_FLAGS, CPU_ISA

Floats = NDArray[np.float32]
TWO = {
    "x_sigmoid": ("one", "t"),
    "times_sigmoid": ("one", "t"),
    "x_sigmoid_slope": ("one", "one", "t"),
}  # arguments beside the last, 1 each
ONLY_SINGLE = {"log1p"}  # takes no double-word value
SLOPES = {"x_sigmoid_slope", "times_ndtr_slope", "times_tanh_softplus_slope"}  # these have zeros
REAL = {
    **REFERENCE,
    "x_sigmoid": REFERENCE["sigmoid"],
    "times_sigmoid": REFERENCE["sigmoid"],
    "x_sigmoid_slope": lambda t: REFERENCE["sigmoid"](t) + REFERENCE["sigmoid_slope"](t),
}
FUNCTIONS = sorted(name for name, row in ROWS.items() if Body.SINGLE_RESULT in row.bodies)
BELOW = {"log1p": -0.99}  # the arguments that each is tried at begin here, else at -16
AT_INFINITY = {  # at -infinity and at infinity
    "exp": (0, math.inf), "expm1": (-1, math.inf), "log1p": (math.nan, math.inf), "gauss": (0, 0),
    "x_sigmoid": (0, 1), "x_sigmoid_slope": (0, 1), "sigmoid": (0, 1), "sigmoid_slope": (0, 0),
    "times_sigmoid": (0, 1),
    "softplus": (0, math.inf), "tanh_slope": (0, 0), "tanh_softplus": (0, 1), "normal": (0, 0),
    "ndtr": (0, 1), "times_tanh_softplus_slope": (0, 1), "times_ndtr_slope": (0, 1),
}  # fmt: skip
MOST = {**budget.SINGLE_RESULT_ULP, **dict.fromkeys(SLOPES, 4.0)}

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, str]:
    """Loops over each function of single and of double words; and what GCC says of them."""
    text = ['#include "cpu/single_result.h"', "namespace fusegen {", "constexpr float one = 1.0f;"]
    for name in FUNCTIONS:
        for kind, value in (("single", "x[i]"), ("words", "double_word(x[i], lo[i])")):
            if kind == "words" and name in ONLY_SINGLE:
                continue
            arguments = ", ".join(TWO.get(name, ("t",)))
            call = f"{ROWS[name].function}<SINGLE_RESULT>({arguments})"
            text += [
                f'extern "C" void {name}_{kind}(const float* __restrict x, const float* __restrict lo, '
                "float* __restrict y, long n) {",
                f"  for (long i = 0; i < n; ++i) {{ const auto t = {value}; y[i] = {call}; }}",
                "}",
            ]
    source = tmp_path_factory.mktemp("single_result") / "single_result.cpp"
    source.write_text("\n".join([*text, "}"]) + "\n", encoding="utf-8")
    library = source.with_suffix(".so")
    flags = ["-std=c++17", *CPU_FLAGS, *CPU_ISA["AVX2"], "-fPIC", "-shared", f"-I{INCLUDE}"]
    command = ["g++", *flags, "-fopt-info-vec-optimized", str(source), "-o", str(library)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    lines = source.read_text(encoding="utf-8").splitlines()
    places = (int(line.split(":")[1]) for line in told.splitlines() if "single_result.cpp:" in line)
    return ctypes.CDLL(str(library)), "\n".join(lines[place - 2] for place in places)


def applied(library: ctypes.CDLL, function: str, x: Floats, lo: Floats | None = None) -> Floats:
    """The results of a loop over numbers and their second words."""
    y, rest = np.empty_like(x), np.zeros_like(x) if lo is None else lo
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, rest, y)]
    getattr(library, function)(*pointers, ctypes.c_long(x.size))
    return y


def numbers(name: str) -> Floats:
    """Arguments of ordinary size, where few results are subnormal."""
    random = np.random.default_rng(3)
    spread = np.exp2(random.uniform(-20, 3, 500)) * random.choice([-1, 1], 500)
    found = np.concatenate([random.uniform(-16, 16, 1500), spread]).astype(np.float32)
    return np.maximum(found, np.float32(BELOW.get(name, -16)))


def off(found: Floats, exact: list[Any], least: float = 0.0) -> float:
    """The largest error in ulp of the exact result, or of `least` where that is larger."""
    worst = 0.0
    for value, real in zip(found.tolist(), exact, strict=True):
        _, exponent = mpmath.frexp(max(abs(real), least))
        worst = max(worst, float(abs(value - real) / mpmath.mpf(2) ** max(exponent - 24, -149)))
    return worst


def exactly(name: str, x: Floats, lo: Floats) -> list[Any]:
    with mpmath.workdps(100):
        return [
            REAL[name](mpmath.mpf(a) + mpmath.mpf(b)) for a, b in zip(x.tolist(), lo.tolist(), strict=True)
        ]


def test_every_function_has_a_bound_and_a_limit() -> None:
    assert MOST.keys() == set(FUNCTIONS)
    assert AT_INFINITY.keys() == {*FUNCTIONS} - {"times_ndtr", "times_tanh_softplus"}


@pytest.mark.full
@pytest.mark.together
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_errs_by_as_much_as_the_estimate_says(name: str, built: tuple[ctypes.CDLL, str]) -> None:
    x = numbers(name)
    least = 0.5 if name in SLOPES else 0.0
    error = off(applied(built[0], f"{name}_single", x), exactly(name, x, np.zeros_like(x)), least)
    assert 0.2 * MOST[name] < error <= MOST[name]


@pytest.mark.few(4)
@pytest.mark.together
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in ONLY_SINGLE])
def test_the_second_word_of_an_argument_counts(name: str, built: tuple[ctypes.CDLL, str]) -> None:
    x = numbers(name)
    lo = (np.spacing(x) * np.random.default_rng(5).uniform(-0.5, 0.5, x.size)).astype(np.float32)
    exact, least = exactly(name, x, lo), 0.5 if name in SLOPES else 0.0
    assert off(applied(built[0], f"{name}_words", x, lo), exact, least) <= 1.1 * MOST[name]


@pytest.mark.parametrize("name", ["exp", "sigmoid", "x_sigmoid", "ndtr", "gauss"])
def test_without_the_second_word_digits_are_lost(name: str, built: tuple[ctypes.CDLL, str]) -> None:
    """The test before would not fail of itself: far out half an ulp of an argument is many of a result."""
    x = np.float32(-10) - np.random.default_rng(6).uniform(0, 2, 100).astype(np.float32)
    x = x / np.float32(4) if name == "gauss" else x
    lo = np.spacing(x) * np.float32(0.49)
    assert off(applied(built[0], f"{name}_words", x, np.zeros_like(x)), exactly(name, x, lo)) > 4


@pytest.mark.parametrize(
    "name", ["x_sigmoid", "sigmoid", "sigmoid_slope", "tanh_softplus", "ndtr", "gauss"]
)
def test_a_tail_keeps_its_digits(name: str, built: tuple[ctypes.CDLL, str]) -> None:
    low, high = {"gauss": (-9.2, -8), "ndtr": (-12.9, -10)}.get(name, (-86, -60))
    x = np.random.default_rng(7).uniform(low, high, 300).astype(np.float32)
    exact = exactly(name, x, np.zeros_like(x))
    assert off(applied(built[0], f"{name}_single", x), exact) <= budget.RESULT_ULP


@pytest.mark.together
@pytest.mark.parametrize("name", AT_INFINITY)
def test_a_function_has_its_limits_and_keeps_nan(name: str, built: tuple[ctypes.CDLL, str]) -> None:
    x = np.array([-math.inf, math.inf, math.nan], np.float32)
    for kind in ["single"] if name in ONLY_SINGLE else ["single", "words"]:
        found = applied(built[0], f"{name}_{kind}", x)
        np.testing.assert_array_equal(found, np.array([*AT_INFINITY[name], math.nan], np.float32))


@pytest.mark.parametrize("lo", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", sorted({*AT_INFINITY} - ONLY_SINGLE))
def test_a_low_word_of_an_infinity_counts_as_none(
    name: str, lo: float, built: tuple[ctypes.CDLL, str]
) -> None:
    """A product that overflows has an infinite one, or NaN."""
    x = np.array([-math.inf, math.inf], np.float32)
    found = applied(built[0], f"{name}_words", x, np.full_like(x, lo))
    np.testing.assert_array_equal(found, np.array(AT_INFINITY[name], np.float32))


@pytest.mark.parametrize("name", ["expm1", "log1p"])
def test_an_odd_function_keeps_the_sign_of_a_zero(name: str, built: tuple[ctypes.CDLL, str]) -> None:
    x = np.array([0.0, -0.0, 1e-30, -1e-30], np.float32)
    for kind in ["single"] if name in ONLY_SINGLE else ["single", "words"]:
        found = applied(built[0], f"{name}_{kind}", x)
        np.testing.assert_array_equal(found, x)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(x))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_loop_over_a_function_becomes_vector_instructions(
    name: str, built: tuple[ctypes.CDLL, str]
) -> None:
    assert f"void {name}_single(" in built[1]
    assert (f"void {name}_words(" in built[1]) is (name not in ONLY_SINGLE)


CHAINS = {  # formulas of x and operands, and the passes that single words are enough for
    "gelu(x + b)": ("b", ("forward", "backward")),
    "x * sigmoid(b * x)": ("b", ("forward", "backward")),
    "silu(x) * u": ("u", ("forward", "backward")),
    "softplus(x + b) + u": ("b u", ("backward",)),  # forward a sum that cancels would lose to eager
}


@pytest.mark.full
@pytest.mark.parametrize("formula", CHAINS)
def test_a_chain_with_operands_is_as_near_as_eager_and_its_loops_are_vectors(
    formula: str, tmp_path: Path
) -> None:
    operands, single = CHAINS[formula]
    inputs = ", ".join(f"{name}: {{}}" for name in ("x", *operands.split()))
    module = compiled(tmp_path, "operands_test", f"inputs: {{{inputs}}}\nformula: {formula}\n")
    single_words = re.findall(r"HOST_DEVICE \w+ operands_test_(\w+)_single_result\(", module.CPU_SOURCE)
    assert tuple(single_words) == single
    for which in single:
        _, in_rows = loops(module, which, tmp_path)  # of a tile, and of rows in float
        assert in_rows
    generator = torch.Generator().manual_seed(11)
    given = [torch.randn(4096, generator=generator) * 3 for _ in inputs.split(",")]
    ours, eager, exact = (
        gradients(function, [tensor.to(dtype) for tensor in given])
        for function, dtype in (
            (module.operands_test, torch.float32),
            (module.eager, torch.float32),
            (module.eager, torch.float64),
        )
    )
    for found, other, wanted in zip(ours, eager, exact, strict=True):
        unit = wanted.abs().clamp_min(1.0) * 2.0**-24  # next to a zero both lose digits
        mine, theirs = (((each.double() - wanted).abs() / unit).max() for each in (found, other))
        assert mine <= max(4.0, float(theirs))


@pytest.mark.full
def test_a_chain_in_float32_alone_has_one_function_a_pass(tmp_path: Path) -> None:
    body = "dtypes: [float32]\ninputs: {x: {}, u: {}}\nformula: silu(x) * u\n"
    module = compiled(tmp_path, "alone_test", body)
    assert "_single_result(" not in module.CPU_SOURCE
    assert "sigmoid<SINGLE_RESULT>" in module.CPU_SOURCE
    x, u = torch.linspace(-8, 8, 257), torch.linspace(1, 2, 257)
    torch.testing.assert_close(module.alone_test(x, u), torch.nn.functional.silu(x) * u)


def gradients(function: Any, given: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [tensor.requires_grad_() for tensor in given]
    y = function(*leaves)
    return [y.detach(), *torch.autograd.grad(y.sum(), leaves)]
