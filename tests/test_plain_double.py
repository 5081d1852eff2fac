"""One word of double for what no double is kept of: its functions, where it is taken, and what it gives."""

import ctypes
import math
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath
import pytest
import torch
from emulated import defined as defined
from emulated import emulated, run
from kernels import INTEGERS, compiled, differences, methods, nearest, patterns
from parsed import spec_file

from fusegen.codegen.emit import kernel_text
from fusegen.codegen.emit.includes import COMMON
from fusegen.codegen.runtime_text import INCLUDE
from fusegen.core.ir import Body
from fusegen.core.method import DOUBLE, FAST, FLOAT, PLAIN, Pass, Table
from fusegen.core.ops import ROWS
from fusegen.core.ops.row import Words
from fusegen.core.targets import Device
from fusegen.project import build
from fusegen.schedule.sentences import LOST

DIGITS = {"44": 2.0**-44, "39": 2.0**-39}  # what functions err by
# in more digits, and between what they are tried
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], float, float]] = {
    "exp": (mpmath.exp, -707.0, 708.0),
    "expm1": (mpmath.expm1, -707.0, 708.0),
    "log1p": (mpmath.log1p, -0.999999, 1e300),
    "softplus": (lambda x: mpmath.log1p(mpmath.exp(x)), -700.0, 1e300),
    "sigmoid": (lambda x: 1 / (1 + mpmath.exp(-x)), -689.0, 1e300),
    "sigmoid_slope": (lambda x: mpmath.exp(-x) / (1 + mpmath.exp(-x)) ** 2, -600.0, 600.0),
    "tanh": (mpmath.tanh, -1e300, 1e300),
    "tanh_slope": (lambda x: mpmath.sech(x) ** 2, -340.0, 340.0),
    "erfc": (mpmath.erfc, -6.0, 10.0),
    "times_ndtr": (lambda x: x * mpmath.ncdf(x), -14.0, 1e300),
}
SPECIAL = {
    "exp": ((0.0, 1.0), (math.inf, math.inf), (-math.inf, 0.0), (710.0, math.inf), (-1e300, 0.0)),
    "expm1": ((-0.0, -0.0), (math.inf, math.inf), (-math.inf, -1.0), (1e300, math.inf)),
    "log1p": ((0.0, 0.0), (-0.0, -0.0), (math.inf, math.inf), (-1.0, -math.inf), (-2.0, math.nan)),
    "softplus": ((math.inf, math.inf), (-math.inf, 0.0), (1e300, 1e300)),
    "sigmoid": ((0.0, 0.5), (math.inf, 1.0)),
    "tanh": ((-0.0, -0.0), (math.inf, 1.0), (-math.inf, -1.0)),
    "erfc": ((math.inf, 0.0), (-math.inf, 2.0), (27.5, 0.0), (-28.0, 2.0)),
    "times_ndtr": ((-0.0, -0.0), (math.inf, math.inf), (-1e300, -0.0)),
}
SINGLE_ALONE = ("x_sigmoid_slope", "times_sigmoid")  # of which double has none
TWO = "inputs: {x: {}, y: {}}\nformula: "
THREE = "inputs: {x: {}, y: {}, z: {}}\nformula: "
CHAINED = f"{TWO}silu(gelu(x) * y)"
BODIES = {  # which of forward and gradient double computes on CUDA, in how many words
    "highway": (f"{TWO}sigmoid(x) * y + (1 - sigmoid(x)) * x * y", (1, 1)),
    "update": (f"{THREE}sigmoid(x) * y + (1 - sigmoid(x)) * z", (1, 2)),
    "chained": (CHAINED, (1, 1)),
    "tail": (f"{TWO}softplus(x) * silu(y)", (None, None)),
    "focal": (f"{TWO}(1 - sigmoid(x * y)) * (1 - sigmoid(x * y)) * softplus(-x * y)", (None, 1)),
    "normed": (f"{TWO}x / sqrt(1 + x * x) * silu(y)", (None, 1)),
    "gate": (f"{TWO}silu(x) * y", (None, None)),
    "product": (f"{TWO}x * y", (None, None)),
}
WORDS = {"PlainDouble": 1, "double": 2}
DIGITS_OF = {"update": "39"}
IN_16_BITS = {  # by what float errs by: how these results come about
    "chained": (CHAINED, (FLOAT, FAST)),  # 160 units
    "update": (f"{THREE}sigmoid(x) * y + (1 - sigmoid(x)) * z", (FLOAT, FAST)),
    "overflows": (f"{TWO}x * 1e37 * y * 1e-37", (DOUBLE, PLAIN)),
    "alone": ("chain: [softsign, silu, mish, quick_gelu, tanhshrink]", (Table(),)),
}


def head(digits: str) -> list[str]:
    """The text of a module before its functions, for g++."""
    words = ("__device__", "__host__", "__constant__", "__forceinline__ inline")
    return [*(f"#define {word}" for word in words), f'#include "cuda/plain_double_{digits}.cuh"']


FLAGS = ["-std=c++17", "-ffp-contract=off", "-Wall", "-Wextra", "-Wno-unused", "-Werror", f"-I{INCLUDE}"]

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
    pytest.mark.usefixtures("exact_eager"),
]


@dataclass(frozen=True)
class Compiled:
    """Its functions, of doubles, and by what they may err."""

    library: ctypes.CDLL
    errs: float

    def __call__(self, name: str, *given: float) -> float:
        """The value of one."""
        function = getattr(self.library, f"of_{name}")
        function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double] * len(given)
        return float(function(*given))


@pytest.fixture(scope="module", params=DIGITS)
def functions(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    text, errs = [*head(request.param), "namespace fusegen {"], DIGITS[request.param]
    text += [
        f'extern "C" double of_{name}(double x) {{ return double({name}(PlainDouble(x))); }}'
        for name in FUNCTIONS
    ]
    gate = "double(x_sigmoid(PlainDouble(x), PlainDouble(t)))"
    text += [f'extern "C" double of_gate(double x, double t) {{ return {gate}; }}', "}"]
    source = tmp_path_factory.mktemp("plain_double") / "plain_double.cpp"
    source.write_text("\n".join(text) + "\n", encoding="utf-8")
    library = source.with_suffix(".so")
    subprocess.run(["g++", *FLAGS, "-O1", "-fPIC", "-shared", str(source), "-o", str(library)], check=True)
    return Compiled(ctypes.CDLL(str(library)), errs)


def numbers(low: float, high: float) -> list[float]:
    """Of every size in between, of both signs where there are two."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.rand(250, generator=generator, dtype=torch.float64)
    near, spread = low + (high - low) * sizes, 10 ** (sizes * 600 - 300)
    usual = (sizes * 40 - 20, spread, -spread, 10 ** (sizes * 6 - 4), -(10 ** (sizes * 6 - 4)))
    return [x for x in torch.cat([near, *usual]).tolist() if low < x < high]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_its_digits(name: str, functions: Compiled) -> None:
    real, *ends = FUNCTIONS[name]
    worst = 0.0
    with mpmath.workprec(200):
        for x in numbers(*ends):
            exact = real(mpmath.mpf(x))
            worst = max(worst, float(abs((functions(name, x) - exact) / exact)))
    assert 1e-3 * functions.errs < worst <= functions.errs


@pytest.mark.parametrize("name", SPECIAL)
def test_a_function_has_its_limits(name: str, functions: Compiled) -> None:
    for x, real in (*SPECIAL[name], (math.nan, math.nan)):
        found = functions(name, x)
        assert (found, math.copysign(1, found)) == (real, math.copysign(1, real)) or math.isnan(
            found + real
        )


def test_a_gate_keeps_what_a_float_holds(functions: Compiled) -> None:
    for t in (-1e30, -690.0, -88.0, -1.3, -0.0, 2.5, 700.0, 1e300):
        with mpmath.workprec(200):
            real = float(3 / (1 + mpmath.exp(-mpmath.mpf(t))))
        assert abs(functions("gate", 3.0, t) - real) <= functions.errs * real + 1e-290
    assert functions("gate", 3.0, math.inf) == 3.0
    assert math.isnan(functions("gate", 1.0, math.nan))


@pytest.mark.full
@pytest.mark.parametrize("name", BODIES)
def test_single_word_double_is_taken_where_it_is_accurate_enough(name: str, tmp_path: Path) -> None:
    body, words = BODIES[name]
    spec = spec_file(tmp_path, name, body)
    compiled = build.compiled_file(spec)
    plain = [compiled.plan[which, Device.CUDA, "float32"] == PLAIN for which in Pass]
    trusted = (not (how == 2 or enough) for how, enough in zip(words, plain, strict=True))
    assert plain == [how == 1 for how in words]
    for functor, how, enough in zip(("Forward", "Backward"), words, trusted, strict=True):
        [taken] = [of for name, of in of_32(build.sources(compiled)["cuda"]) if name == functor]
        assert ("Widened" in taken) is (how is not None) is not enough
        assert how is None or WORDS[taken.removeprefix("Widened<").removesuffix(">")] == how


def of_32(text: str) -> list[tuple[str, str]]:
    """Each kernel of a text with its method of 32 bits."""
    names = ("Forward", "Backward")
    return [(name, method) for name, (_, method, _) in zip(names, methods(text), strict=True)]


@pytest.mark.full
@pytest.mark.parametrize("name", DIGITS_OF)
def test_as_many_digits_are_taken_as_are_needed(name: str, tmp_path: Path) -> None:
    spec = spec_file(tmp_path, name, BODIES[name][0])
    assert kernel_text.plain_double_bits(build.compiled_file(spec)) == DIGITS_OF[name]


@pytest.mark.full
@pytest.mark.parametrize("name", IN_16_BITS)
def test_in_16_bits_float_is_taken_where_its_digits_are_enough(name: str, tmp_path: Path) -> None:
    spec = spec_file(tmp_path, name, IN_16_BITS[name][0])
    compiled = build.compiled_file(spec)
    method = compiled.plan[Pass.FORWARD, Device.CUDA, "float16"]
    assert method in IN_16_BITS[name][1]
    assert not compiled.facts.forward.float_ok[Device.CUDA]
    text = build.sources(compiled)["cuda"]
    assert (f"{name}_forward_single_word(" in text) is (method in (FLOAT, FAST))


@pytest.mark.full
@pytest.mark.parametrize(
    ("body", "told"),
    [
        (f"dtypes: [float32]\n{CHAINED}", "float32: the formula in single-word double"),
        (IN_16_BITS["overflows"][0], "float32 and 16-bit: the formula in single-word double"),
    ],
)
def test_what_double_computes_is_told_in_the_module(body: str, told: str, tmp_path: Path) -> None:
    spec = spec_file(tmp_path, "told", body)
    text = build.sources(build.compiled_file(spec))["cuda"]
    assert text.count(f"// {told}, {LOST}.") == 1  # of both passes


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.full)])
def test_a_result_of_float_is_at_most_one_neighbour_off(
    dtype: torch.dtype, tmp_path: Path, extensions: Path
) -> None:
    module = compiled(tmp_path, "chained", f"{CHAINED}\n")
    assert methods(module.CUDA_SOURCE)[0][0].startswith("Formula<")
    generator = torch.Generator().manual_seed(1)
    x, y, grad = (torch.randn(3, 20_000, generator=generator) * 4).to(dtype)
    kernels = emulated(module, "chained", tmp_path)
    for kernel, inputs in ((kernels.forward, (x, y)), (kernels.backward, (grad, x, y))):
        exact = run(kernel, *(value.double() for value in inputs))
        for given, real in zip(run(kernel, *inputs), exact, strict=True):
            assert_rounded(given, real, 2e-3)


def test_every_function_takes_it(tmp_path: Path) -> None:
    rows = [row for row in ROWS.values() if row.header and row.name not in SINGLE_ALONE]
    own = [row for row in rows if row.header not in COMMON]
    calls = [(row, "PlainDouble", "") for row in rows if not row.libm and row.name != "linear"]
    calls += [(row, "Both", "") for row in own if row.words in (Words.DOUBLE, Words.AS_GIVEN)]
    calls += [(ROWS["linear"], "Both", "")]
    calls += [(row, "PlainDouble", "<DOUBLE_WORD>") for row in own if Body.DOUBLE_WORD in row.bodies]
    taken = [
        f"PlainDouble of_{k}({''.join(f'PlainDouble {arg}, ' for arg in first)}{kind} {last}) "
        f"{{ return {row.function}{body}({', '.join(row.args)}); }}"
        for k, (row, kind, body) in enumerate(calls)
        for *first, last in (row.args,)
    ]
    assert len(taken) > 60
    families = sorted({row.header for row in own if not row.libm})
    text = [
        "float sinpif(float); double sinpi(double); float cospif(float); double cospi(double);",  # CUDA's
        *head("44"),
        *(f'#include "{name}.h"' for name in COMMON),
        *(f'#include "cuda/{name}.cuh"' for name in families),
        "namespace fusegen {",
        "namespace {",
        "using Both = DoubleWord<PlainDouble>;",
        *taken,
        "}",
        "}",
    ]
    source = tmp_path / "all.cpp"
    source.write_text("\n".join(text) + "\n", encoding="utf-8")
    subprocess.run(["g++", *FLAGS, "-fsyntax-only", str(source)], check=True)


def assert_rounded(given: torch.Tensor, exact: torch.Tensor, share: float = 5e-4) -> None:
    """Results are those of two words, rounded, but for a share by a unit, and a tenth of that by more."""
    real = exact.float() if given.dtype == torch.float32 else nearest(exact, given.dtype)
    usual = (exact.abs() > torch.finfo(torch.bfloat16).tiny) & (exact.abs() < torch.finfo(given.dtype).max)
    off = differences(given, real) & usual
    assert usual.float().mean() > 0.1
    assert off.float().mean() < share
    bits = INTEGERS[given.dtype]
    far = off & ((given.view(bits).long() - real.view(bits).long()).abs() > 1)
    assert far.float().mean() < share / 10


@pytest.mark.full
def test_a_result_is_what_two_words_round_to(tmp_path: Path, extensions: Path) -> None:
    kernel = emulated(compiled(tmp_path, "chained", f"{CHAINED}\n"), "chained", tmp_path).forward
    x = patterns(torch.float32, 4000)
    x = x[x.isfinite()]
    inputs = [x.roll(7 * k) for k in range(kernel.inputs)]
    exact = run(kernel, *(value.double() for value in inputs))
    for given, real in zip(run(kernel, *inputs), exact, strict=True):
        assert_rounded(given, real)


def assert_all_rounded(
    given: torch.Tensor | tuple[torch.Tensor, ...],
    exact: torch.Tensor | tuple[torch.Tensor, ...],
    share: float = 5e-4,
) -> None:
    """Likewise of what a kernel gives, one result or several."""
    one = isinstance(given, torch.Tensor)
    for found, real in zip((given,) if one else given, (exact,) if one else exact, strict=True):
        assert_rounded(found, real, share)


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("name", [name for name, (_, words) in BODIES.items() if 1 in words])
def test_a_result_is_what_two_words_round_to_on_a_gpu(name: str, tmp_path: Path, extensions: Path) -> None:
    body, words = BODIES[name]
    module = compiled(tmp_path, name, f"{body}\n")
    given = torch.randn(1 + len(module.get_inputs()), 1_000_003, device="cuda").mul_(4)
    ways = ((module.KERNELS.forward, given[1:]), (module.KERNELS.backward, given))
    for launch, inputs in (way for way, how in zip(ways, words, strict=True) if how == 1):
        assert_all_rounded(launch(*inputs), launch(*(value.double() for value in inputs)))


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_result_of_float_is_at_most_one_neighbour_off_on_a_gpu(
    dtype: torch.dtype, tmp_path: Path, extensions: Path
) -> None:
    module = compiled(tmp_path, "chained", f"{CHAINED}\n")
    x, y, grad = torch.randn(3, 1_000_003, device="cuda").mul_(4).to(dtype)
    for launch, inputs in ((module.KERNELS.forward, (x, y)), (module.KERNELS.backward, (grad, x, y))):
        assert_all_rounded(launch(*inputs), launch(*(value.double() for value in inputs)), 2e-3)
