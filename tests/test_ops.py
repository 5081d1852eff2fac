"""Every row of the table of operations: its range, its real function, its spellings."""

import ctypes
import keyword
import math
import re
import shutil
import subprocess
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy
import torch
from budget import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fusegen.codegen.emit.includes import COMMON
from fusegen.codegen.printers.cpp import TYPED, CppPrinter
from fusegen.codegen.runtime_text import INCLUDE
from fusegen.core.interval import REALS, Interval, between, point
from fusegen.core.ir import Call, Const, Expr, Kernel, Math, Ref
from fusegen.core.ops import CONSTANTS, FUNCTIONS, OPS, TRANSCENDENTAL, argument_count, called
from fusegen.core.ops.double_word import WORDS
from fusegen.core.ops.row import ATOM, Op
from fusegen.core.targets import Device

# what each row is over the real numbers, said a second time in mpmath
REFERENCE: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "where": lambda condition, a, b: a if condition else b,
    "pi": lambda: mpmath.mpf(mpmath.pi),
    "e": lambda: mpmath.mpf(mpmath.e),
    "relu": lambda x: max(x, 0),
    "relu6": lambda x: min(max(x, 0), 6),
    "clamp": lambda x, low, high: min(max(x, low), high),
    "clamp_min": max,
    "clamp_max": min,
    "minimum": min,
    "maximum": max,
    "abs": abs,
    "sign": mpmath.sign,
    "square": lambda x: x * x,
    "cube": lambda x: x * x * x,
    "reciprocal": lambda x: 1 / x,
    "sqrt": mpmath.sqrt,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "pow": mpmath.power,
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.power(2, x),
    "expm1": mpmath.expm1,
    "log": mpmath.log,
    "log2": lambda x: mpmath.log(x, 2),
    "log1p": mpmath.log1p,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "sinpi": mpmath.sinpi,
    "cospi": mpmath.cospi,
    "tanh": mpmath.tanh,
    "erf": mpmath.erf,
    "erfc": mpmath.erfc,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "softplus": lambda x: mpmath.log(1 + mpmath.exp(x)),
    "saturate": lambda x, low, high: min(max(x, low), high),
    "ndtr": mpmath.ncdf,
    "soft_sign": lambda x: x / (1 + abs(x)),
    "scaled_hypot": mpmath.hypot,
    "scaled_hypot_slope": lambda a, b: a / mpmath.hypot(a, b),
    "tanh_shrink": lambda x: x - mpmath.tanh(x),
    "clamp_to_lowest": lambda x: x,
    "clamp_to_highest": lambda x: x,
    "tanh_softplus": lambda x: mpmath.tanh(mpmath.log(1 + mpmath.exp(x))),
    "tanh_of_exp": lambda x: mpmath.tanh(mpmath.exp(x)),
    "tanh_of_exp_slope": lambda x: mpmath.exp(x) * mpmath.sech(mpmath.exp(x)) ** 2,
    "times_ndtr": lambda x: x * mpmath.ncdf(x),
    "times_ndtr_slope": lambda x: mpmath.ncdf(x) + x * mpmath.npdf(x),
    "times_tanh_softplus": lambda x: x * REFERENCE["tanh_softplus"](x),
    "times_tanh_softplus_slope": lambda x: (
        REFERENCE["tanh_softplus"](x) + x * REFERENCE["tanh_softplus_slope"](x)
    ),
    "sigmoid_slope": lambda x: mpmath.diff(REFERENCE["sigmoid"], x),
    "tanh_slope": lambda x: mpmath.sech(x) ** 2,
    "tanh_softplus_slope": lambda x: mpmath.sech(mpmath.log(1 + mpmath.exp(x))) ** 2 / (1 + mpmath.exp(-x)),
    "gauss": lambda x: mpmath.exp(-x * x),
    "normal": mpmath.npdf,
    "fma": lambda a, b, c: a * b + c,
    "quotient": lambda a, b: a / b,
    "select_by_width": lambda narrow, wide: wide,
    "round_to_storage": lambda x: x,
    "detach": lambda x: x,
}
ROWS = pytest.mark.parametrize("row", OPS.values(), ids=lambda row: row.name)
POSITIVE = {"sqrt", "rsqrt", "log", "log2"}


def test_every_row_has_a_reference() -> None:
    assert set(REFERENCE) == set(OPS)


def numbers() -> st.SearchStrategy[Fraction]:
    """Signed numbers of every size that an exponential can take, and the kinks."""
    size = st.builds(lambda m, e: Fraction(m) * Fraction(10) ** e, st.floats(1, 10), st.integers(-12, 2))
    sizes = st.sampled_from([Fraction(0), Fraction(1), Fraction(6)]) | size
    return st.builds(lambda s, v: s * v, st.sampled_from([-1, 1]), sizes)


def arguments(row: Op, data: st.DataObject) -> list[Fraction]:
    """Numbers at which a row has a real value."""
    values = [data.draw(numbers()) for _ in row.args]
    if row.name in POSITIVE:
        values = [abs(v) for v in values]
        assume(values[0] != 0)
    if row.name == "scaled_hypot_slope":
        assume(any(values))
    if row.name in ("div", "quotient", "reciprocal"):
        assume(values[-1] != 0)
    if row.name == "log1p":
        assume(values[0] > -1)
    if row.name == "pow":
        values = [abs(values[0]) + 1, Fraction(round(values[1]) % 40 - 20, 4)]
    return values


def real(row: Op, values: list[Fraction]) -> Any:
    """The value of the reference, to 60 digits."""
    given = [mpmath.mpf(v.numerator) / v.denominator for v in values]
    return REFERENCE[row.name](*(_condition(row, given)))


def _condition(row: Op, given: list[Any]) -> list[Any]:
    return [given[0] > 0, *given[1:]] if row.name == "where" else given


def inside(range_: Interval, value: Any) -> bool:
    low, high = (
        mpmath.mpf(end) if isinstance(end, float) else mpmath.mpf(end.numerator) / end.denominator
        for end in (range_.low, range_.high)
    )
    return bool(low <= value <= high)


@pytest.mark.together
@ROWS
@settings(max_examples=examples(12))
@given(data=st.data())
def test_a_range_holds_every_value(row: Op, data: st.DataObject) -> None:
    values = arguments(row, data)
    with mpmath.workdps(60):
        value = real(row, values)
        assert inside(row.range(*map(point, values)), value)
        wide = [between(min(v, data.draw(numbers())), max(v, data.draw(numbers()))) for v in values]
        assert inside(row.range(*wide), value)
        assert inside(row.range(*(REALS for _ in values)), value)


@pytest.mark.together
@pytest.mark.parametrize("row", OPS.values(), ids=lambda row: row.name)
@settings(max_examples=examples(8))
@given(data=st.data())
def test_the_sympy_function_is_the_reference(row: Op, data: st.DataObject) -> None:
    values = arguments(row, data)
    symbols = [sympy.Rational(v.numerator, v.denominator) for v in values]
    if row.name == "where":
        symbols = [sympy.true if values[0] > 0 else sympy.false, *symbols[1:]]
    with mpmath.workdps(60):
        expected = real(row, values)
        found = row.real(*symbols)
        if row.boolean:
            assert bool(found) == bool(expected)
        else:
            close = mpmath.mpf(str(sympy.sympify(found).evalf(50)))
            assert mpmath.almosteq(close, expected, rel_eps=1e-35, abs_eps=1e-60)


ENDS = [0.0, 1e-45, 1.1754944e-38, 1e-3, 1.0, 2.5, 88.0, 89.0, 104.0, 1e19, 3.4028235e38, math.inf]
UNSPELT = (*TYPED, "detach")  # which kernels call otherwise, or never
UNARY = [name for name, row in OPS.items() if row.args == ("x",) and name not in UNSPELT]
SPELT = [name for name, row in OPS.items() if row.args and not row.boolean and name not in UNSPELT]
Computed = Callable[..., NDArray[np.float32]]


@pytest.fixture(scope="module")
def spelt(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Computed]:
    """The values of the table's C++ of each operation in float on the CPU, over arrays."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    kernels, loops = [], []
    for name in SPELT:
        args = OPS[name].args
        given: list[Expr] = [Ref(arg) for arg in args]
        if name == "where":
            given[0] = Call("gt", (given[0], Const(0.0)))
        kernels.append(
            Kernel(f"f_{name}", Device.CPU, Math.FLOAT, args, (), (), (Call(name, tuple(given)),))
        )
        values = ", ".join(f"in[{k}][i]" for k in range(len(args)))
        loop = f"for (long i = 0; i < n; ++i) out[i] = f_{name}({values});"
        loops.append(f'extern "C" void {name}_all(const float* const* in, float* out, long n) {{ {loop} }}')
    definitions = [CppPrinter(kernel).definition() for kernel in kernels]
    source = tmp_path_factory.mktemp("ops") / "ops.cpp"
    source.write_text(
        "\n".join(
            [
                *(
                    f'#include "cpu/{name}.h"'
                    for name in sorted({row.header for row in OPS.values()} - {"", *COMMON})
                ),
                "namespace fusegen {",
                "namespace {",
                *definitions,
                "}",
                *loops,
                "}",
            ]
        )
    )
    library = source.with_suffix(".so")
    flags = [
        "-std=c++17",
        "-O1",
        "-ffp-contract=off",
        "-fPIC",
        "-shared",
        "-Wall",
        "-Werror",
        f"-I{INCLUDE}",
    ]
    subprocess.run(["g++", *flags, str(source), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))

    def computed(name: str) -> Computed:
        def compute(*values: Any) -> NDArray[np.float32]:
            arrays = [np.ascontiguousarray(value, np.float32) for value in values]
            out = np.empty_like(arrays[0])
            pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
            function = getattr(loaded, f"{name}_all")
            function(pointers, ctypes.c_void_p(out.ctypes.data), ctypes.c_long(out.size))
            return out

        return compute

    return {name: computed(name) for name in SPELT}


@pytest.mark.together
@pytest.mark.parametrize("name", UNARY)
def test_a_range_holds_what_floats_give_at_the_ends(name: str, spelt: dict[str, Computed]) -> None:
    for low in [-end for end in ENDS] + ENDS:
        range_ = OPS[name].range(between(low if math.isinf(low) else Fraction(low), math.inf))
        points = np.array([sign * end for end in ENDS for sign in (1.0, -1.0)], np.float32)
        points = points[points >= np.float32(low)]  # -0.0 among them where low is zero
        values = spelt[name](points)
        values = values[~np.isnan(values)]
        assert (values >= np.float64(float(range_.low))).all(), low
        assert (values <= np.float64(float(range_.high))).all(), low


# how many units of the last place of a float the C++ may be off where the value is a normal number;
# 2 is the math library's, and what is not named is rounded once
ULPS = {
    **dict.fromkeys("exp exp2 expm1 log log2 log1p sin cos sinpi cospi tanh erf pow".split(), 2),
    "erfc": 3, "cube": 1, "rsqrt": 1, "softplus": 1, "soft_sign": 1, "tanh_shrink": 3, "ndtr": 3,
    "times_ndtr": 3, "times_ndtr_slope": 3, "sigmoid_slope": 0.6, "tanh_of_exp_slope": 6,
    "scaled_hypot": 1, "scaled_hypot_slope": 1.75,
    "times_tanh_softplus_slope": 4,  # of two terms that nearly cancel
}  # fmt: skip
SIZES = np.concatenate([np.geomspace(1e-30, 1e-3, 8), np.geomspace(2e-3, 12, 40), [20.0, 60.0, 87.0]])


@pytest.mark.together
@pytest.mark.parametrize("name", SPELT)
def test_the_cpp_of_a_row_is_near_its_reference_everywhere(name: str, spelt: dict[str, Computed]) -> None:
    args = OPS[name].args
    columns = [np.roll(np.concatenate([SIZES, -SIZES]).astype(np.float32), 7 * k) for k in range(len(args))]
    if name in POSITIVE or name == "pow":
        columns[0] = abs(columns[0])
    if name == "log1p":
        columns[0] = np.maximum(columns[0], np.float32(-0.99))
    if name == "pow":
        columns[1] = np.clip(columns[1], -3, 3)
    found = spelt[name](*columns)
    tiny = float(np.finfo(np.float32).smallest_normal)
    with mpmath.workdps(100):
        for value, *row in zip(found, *columns, strict=True):
            given = _condition(OPS[name], [mpmath.mpf(float(x)) for x in row])
            exact = REFERENCE[name](*given)
            if tiny < abs(exact) < 3e38:
                error = abs(mpmath.mpf(float(value)) - exact) / abs(exact) * 2**24
                assert error <= 1.01 * max(1, 2 * ULPS.get(name, 0.5)), (row, float(value), float(error))
            else:
                assert abs(value) <= 2 * tiny or abs(exact) >= 3e38


@pytest.mark.together
@pytest.mark.parametrize("name", UNARY)
def test_special_values_are_treated_as_pytorch_does(name: str, spelt: dict[str, Computed]) -> None:
    own = {
        "cube": lambda x: x**3, "ndtr": torch.special.ndtr, "softplus": torch.nn.functional.softplus,
        "relu6": torch.nn.functional.relu6, "sigmoid_slope": lambda x: torch.sigmoid(x) * torch.sigmoid(-x),
        "tanh_slope": lambda x: 1 - torch.tanh(x).square(), "gauss": lambda x: torch.exp(-x * x),
        "normal": lambda x: torch.exp(-x * x / 2) / math.sqrt(2 * math.pi),
        "tanh_softplus": lambda x: torch.tanh(torch.nn.functional.softplus(x)),
    }  # fmt: skip
    own["tanh_softplus_slope"] = lambda x: (
        own["tanh_slope"](torch.nn.functional.softplus(x)) * torch.sigmoid(x)
    )
    own["tanh_of_exp"] = lambda x: torch.tanh(torch.exp(x))
    own["tanh_of_exp_slope"] = lambda x: (t := x.clamp(max=10).exp()) / t.cosh().square()
    own["times_ndtr"] = lambda x: x * torch.special.ndtr(x)
    own["times_tanh_softplus"] = torch.nn.functional.mish
    own["times_ndtr_slope"] = lambda x: torch.special.ndtr(x) + x * own["normal"](x)
    own["times_tanh_softplus_slope"] = lambda x: (
        own["tanh_softplus"](x) + x.clamp(max=40) * own["tanh_softplus_slope"](x)
    )
    own["soft_sign"] = torch.nn.functional.softsign
    own["tanh_shrink"] = torch.nn.functional.tanhshrink
    own["sinpi"] = lambda x: torch.sin(math.pi * x.fmod(2.0))
    own["cospi"] = lambda x: torch.cos(math.pi * x.fmod(2.0))
    own["clamp_to_lowest"] = lambda x: x.clamp(min=-(2.0**126))
    own["clamp_to_highest"] = lambda x: x.clamp(max=2.0**126)
    special = torch.tensor(
        [0.0, -0.0, 1e-45, -1e-45, 1.0, -1.0, 6.0, 1e30, -1e30, math.inf, -math.inf, math.nan]
    )
    expected = (own.get(name) or getattr(torch, name))(special)
    found = torch.from_numpy(spelt[name](special.numpy()))
    slopes = name == "soft_sign" or name.endswith("_slope") or name in ("gauss", "normal")
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7, equal_nan=True)
    zeros = special == 0
    assert slopes or torch.equal(torch.signbit(found[zeros]), torch.signbit(expected[zeros]))


@pytest.mark.together
@ROWS
def test_a_row_has_one_spelling(row: Op) -> None:
    spellings = [bool(row.infix), bool(row.libm), bool(row.header) and not (row.libm or row.infix)]
    expected = 0 if row.name in ("where", "pi", "e", *TYPED, *UNSPELT) else 1  # the printer knows them
    assert sum(spellings) == expected


@pytest.mark.together
@ROWS
def test_a_row_is_consistent(row: Op) -> None:
    assert OPS[row.name] is row
    assert row.name.isidentifier()
    assert not keyword.iskeyword(row.name)
    assert len(set(row.args)) == len(row.args)
    assert row.signature == f"{row.name}({', '.join(row.args)})"
    assert row.written or row.name not in FUNCTIONS
    assert (row.strength < ATOM) == bool(row.infix or row.name == "where")
    holes = set(re.findall(r"{(\d)}", row.notation))
    assert not holes or holes == {str(index) for index in range(len(row.args))}
    if row.boolean:
        assert row.range(REALS, REALS) == between(0, 1)


DEFINED = [row for row in (*OPS.values(), *WORDS.values()) if row.header and not row.libm]


@pytest.mark.together
@pytest.mark.parametrize("row", DEFINED, ids=lambda row: row.name)
def test_the_headers_of_a_row_define_its_function_with_its_arguments(row: Op) -> None:
    """For the CPU, for CUDA, or for both."""
    paths = [INCLUDE / f"{row.header}.h"] * (row.header in COMMON)
    paths += [INCLUDE / folder / f"{row.header}{end}" for folder, end in (("cpu", ".h"), ("cuda", ".cuh"))]
    paths += [INCLUDE / "functions" / f"{row.header}.h"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths if path.exists())
    heads = re.findall(rf"^HOST_DEVICE [^\n]*\b{row.function}\(([^)]*)\) \{{", text, re.MULTILINE)
    assert heads, row.name
    assert any(head.count(",") + 1 == len(row.args) for head in heads)


def test_names_of_functions_of_cpp_do_not_differ_from_their_names_here() -> None:
    for row in OPS.values():
        assert row.libm in ("", row.name, f"f{row.name}")


def test_functions_and_constants_are_what_a_formula_may_name() -> None:
    assert set(CONSTANTS) == {"pi", "e"}
    assert not set(CONSTANTS) & set(FUNCTIONS)
    assert set(FUNCTIONS) == {row.name for row in OPS.values() if row.written and row.args}
    assert not {"round_to_storage", "fma", "quotient", "gauss", "sigmoid_slope", "tanh_slope"} & set(
        FUNCTIONS
    )


def test_what_approximates_is_known_to_approximate() -> None:
    """An operation of the formula language is transcendental, or its C++ rounds as the row's symbols do."""
    arithmetic = {row.name for row in OPS.values() if row.header == "selections" or row.infix}
    exact = {"where", "pi", "e", "abs", "sqrt", "fma", "scaled_hypot", "scaled_hypot_slope", *UNSPELT}
    assert OPS.keys() - TRANSCENDENTAL == arithmetic | exact


def test_a_bound_of_clamp_may_be_left_out() -> None:
    clamp = OPS["clamp"]
    assert called(clamp, ["x", "min", "max"]) is clamp
    assert called(clamp, ["x", "min"]) is OPS["clamp_min"]
    assert called(clamp, ["max", "x"]) is OPS["clamp_max"]
    assert called(clamp, ["x"]) is None
    assert called(OPS["relu"], []) is None
    assert argument_count(clamp) == "2 or 3 arguments"
    assert argument_count(OPS["relu"]) == "1 argument"
    assert argument_count(OPS["where"]) == "3 arguments"


@pytest.mark.together
@pytest.mark.parametrize(
    ("name", "range_"),
    [
        ("relu", between(0, math.inf)),
        ("relu6", between(0, 6)),
        ("tanh", between(-1, 1)),
        ("sigmoid", between(0, 1)),
        ("exp", between(0, math.inf)),
        ("expm1", between(-1, math.inf)),
        ("softplus", between(0, math.inf)),
        ("abs", between(0, math.inf)),
        ("square", between(0, math.inf)),
        ("erf", between(-1, 1)),
        ("erfc", between(0, 2)),
        ("sin", between(-2, 2)),
        ("ndtr", between(0, 1)),
        ("soft_sign", between(-1, 1)),
        ("tanh_softplus", between(0, 1)),
        ("sigmoid_slope", between(0, 1)),
        ("gauss", between(0, 1)),
        ("normal", between(0, 1)),
    ],
)
def test_the_ranges_that_the_simplifier_lives_on(name: str, range_: Interval) -> None:
    assert OPS[name].range(REALS) == range_
