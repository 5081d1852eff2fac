"""Formulas as users write them, at inputs where their own operations cancel, overflow or underflow.

Values and gradients hold the accuracy contract against the exact formula, by the CPU's kernels and by the
emulated CUDA text. One row a formula; `bound` says where the operations of PyTorch are the measure.
"""

import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
import torch
from elements import DTYPES, Elements, Formula
from verdicts import Bound, results, wrong

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


@dataclass(frozen=True)
class Row:
    """A formula at inputs that show what is wrong."""

    formula: Formula  # as declared
    points: tuple[tuple[float, ...], ...]  # inputs; a dtype that does not hold one leaves it out
    why: str  # what goes wrong in the formula's own operations
    bound: Bound = Bound.ULP  # the allowed error of results
    dtypes: tuple[torch.dtype, ...] = DTYPES  # in which


def row(formula: str, *points: float, why: str, **params: float) -> Row:
    """A row of one input."""
    return Row(Formula(formula, params), tuple((x,) for x in points), why)


def both(formula: str, *points: tuple[float, float], why: str, **params: float) -> Row:
    """A row of two inputs, `x` and `y`."""
    return Row(Formula(formula, params, ("x", "y")), points, why)


def as_eager(strict: Row) -> Row:
    """The row, held to eager's error where that is larger: no rewrite is promised for it."""
    return replace(strict, bound=Bound.EAGER)


def signed(*points: float) -> tuple[float, ...]:
    """Each point and its negation."""
    return tuple(sign * x for x in points for sign in (1, -1))


CANCELS, OVERFLOWS = "a sum cancels", "an intermediate overflows"
IN_1, LINE = "x is lost in a sum with 1", "the result is next to x, and lost in a sum with 1"
GUARD = "a guard of x takes the place of x"
ROWS = {
    # 1 + f and 1 - f, where f is next to -1 or 1
    "gelu_erf": row("x * 0.5 * (1 + erf(x / sqrt(2)))", -12.5, -8, -5.5, -1, 3, *signed(1e4), why=CANCELS),
    "gelu_erf_half": row("0.5 * x * (1 + erf(x * 0.7071067811865476))", -5.5, -4, 2, why=CANCELS),
    "gelu_tanh": row(
        "0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))", -6, -4, 5,
        *signed(1e15, 3e38), why=CANCELS,
    ),
    "one_plus_tanh": row("1 + tanh(x)", -9.5, -5, -40, 9.5, *signed(1000), why=CANCELS),
    "one_minus_tanh": row("1 - tanh(x)", 9.5, 40, -9.5, *signed(1000), why=CANCELS),
    "one_minus_sigmoid": row("1 - sigmoid(x)", 24, 40, 5, -40, *signed(1000), why=CANCELS),
    "one_plus_erf": row("1 + erf(x)", -5, -3, -9, 5, *signed(1000), why=CANCELS),
    "one_minus_erf": row("1 - erf(x)", 4, 9, -4, *signed(1000), why=CANCELS),
    "sech_squared": row("1 - tanh(x)**2", 9.5, -9.5, 20, 1e-9, *signed(1000), why=CANCELS),
    "sigmoid_by_one_minus": row("sigmoid(x) * (1 - sigmoid(x))", 24, -24, 40, *signed(1000), why=CANCELS),
    "log_one_minus_sigmoid": row("log(1 - sigmoid(x))", 24, 110, 774, -24, *signed(1000), why=CANCELS),
    "rescaled_sigmoid": row("2 / (1 + exp(-2*x)) - 1", *signed(1e-9, 1000), 0.3, why=LINE),
    "sigmoid_to_tanh": row("2 * sigmoid(2 * x) - 1", *signed(1e-9, 1000), why=LINE),
    "elu_by_exp": row("where(x > 0, x, 1.67 * (exp(x) - 1))", -1e-9, -1e-3, -1, -1000, 2, why=IN_1),
    "expm1_by_exp": row("exp(x) - 1", *signed(1e-9, 1e-3), -100, 50, why=IN_1),
    "log1p_by_log": row("log(1 + x)", 1e-9, -1e-9, 1e-3, 1e30, why=IN_1),
    "log1p_of_multiple": row("log(1 - 3 * x**2)", *signed(1e-9, 1e-3, 0.5), why=IN_1),
    "sqrt_minus_one": row("sqrt(1 + x) - 1", 1e-9, -1e-9, 0.5, 1e30, why=IN_1),
    "sinh_by_exp": row("exp(x) - exp(-x)", *signed(1e-9, 1, 50), why=IN_1),
    "one_minus_cos": row("1 - cos(x)", *signed(1e-3, 1e-9), 1, why="x² is lost in 1"),
    # logarithms and quotients of exponentials
    "softplus_by_log": row("log(1 + exp(x))", *signed(1000, 100, 20), 1e-9, why=OVERFLOWS),
    "log_of_exp_plus_little": as_eager(row("log(exp(x) + 1e-4)", 1e-8, *signed(1e-3, 1000), why=CANCELS)),
    "softplus_of_2x": row("log(1 + exp(2 * x))", *signed(1000), 440, -30, why=OVERFLOWS),
    "softplus_half": row("log(1 + exp(2 * x)) / 2", 440, -440, -30, why=OVERFLOWS),
    "log_expm1": row("log(exp(x) - 1)", 1000, 1e-9, 100, 1, why=OVERFLOWS),
    "logcosh": row("log(exp(x) + exp(-x))", *signed(1000, 10, 0.5), why=OVERFLOWS),
    "logcosh_by_softplus": row(
        "abs(x) + softplus(-2 * abs(x)) - log(2)", *signed(1000, 1e-4, 0.5), 1e-30, why=CANCELS
    ),
    "logcosh_by_cosh": row("log((exp(x) + exp(-x)) / 2)", *signed(1000, 1e-4, 0.5), why=OVERFLOWS),
    "logsigmoid_by_log": row("log(sigmoid(x))", -774, -1000, 24, 1, why="sigmoid underflows"),
    "logsigmoid_by_exp": row("log(1 / (1 + exp(-x)))", -774, -1000, 24, why=OVERFLOWS),
    "silu_by_exp": row("x / (1 + exp(-x))", *signed(1000, 95, 1, 1e38), why=OVERFLOWS),
    "tanh_by_exp": row("(exp(2*x) - 1) / (exp(2*x) + 1)", *signed(1000, 1, 1e-9), why=OVERFLOWS),
    "tanh_by_two_exps": row("(exp(x) - exp(-x)) / (exp(x) + exp(-x))", *signed(1000, 1, 1e-9), why=IN_1),
    "logistic_density": row("25 * exp(-25*x) / (exp(-25*x) + 1)**2", *signed(100, 1), why=OVERFLOWS),
    "logistic_density_tail": as_eager(
        row("25 * exp(-25*x) / (exp(-25*x) + 1)**2", 4, why="a subnormal is magnified")
    ),
    "sigmoid_by_exp": row("exp(x) / (1 + exp(x))", *signed(1000, 100, 1), why=OVERFLOWS),
    "mish_by_logs": row("x * tanh(log(1 + exp(x)))", -40, -100, *signed(1000), 1, why=OVERFLOWS),
    "serf_by_logs": row("x * erf(log(1 + exp(x)))", -40, *signed(1000), 1, why=OVERFLOWS),
    "logish": row("x * log(1 + sigmoid(x))", -60, -90, *signed(1000), 1, why=CANCELS),
    "gompertz": row("x * exp(-exp(-x))", *signed(1000, 3, 1e38), why=OVERFLOWS),
    "erf_of_exp": row("x * erf(0.75 * exp(0.75 * x))", *signed(1000, 3), -100, why=OVERFLOWS),
    "gaussian_product": row("x * exp(-x * x)", *signed(1000, 5, 1e30), why=OVERFLOWS),
    # arithmetic and roots
    "squareplus": row("(x + sqrt(x**2 + 4)) / 2", -20000, -100, 5, why="x cancels its root"),
    "isru": row("x / sqrt(1 + x**2)", *signed(1000, 1), why="the slope cancels"),
    "bent_identity": row("(sqrt(x * x + 1) - 1) / 2 + x", *signed(1e-9, 1e-3, 1, 1e25), why=CANCELS),
    "relu_difference": row("relu(x) - relu(x - 6)", 2.7e8, 0, 6, 3, -1, 1e30, why="6 is lost in x"),
    "cubic_slope": as_eager(row("x / (1 + x**4)", *signed(1e12, 2), why=OVERFLOWS)),
    "rational": as_eager(row("x * x / (1 + x * x)", *signed(1e25, 1e-25, 1), why=OVERFLOWS)),
    "softsign_squared": as_eager(row("(x / (1 + abs(x)))**2", *signed(1e25, 3e38, 1), why=OVERFLOWS)),
    "difference_of_squares": as_eager(
        both("x**2 - y**2", (3.0000002, 3.0), (1e4, 9999), (1e-3, -1e-3), why=CANCELS)
    ),
    # several tensors and scalars
    "direction": as_eager(
        both("x / sqrt(x * x + y * y)", (3e12, 4e12), (3e25, 4e25), (3e200, 4e200), (1, 0), why=GUARD)
    ),
    "scaled_by_rsqrt": as_eager(both("x * rsqrt(x * x + y)", (3e14, 1e29), (1e25, 1), (1, 1), why=GUARD)),
    "normalised": as_eager(row("x * x / (x * x + eps)", 3e13, 1e25, 1, why=OVERFLOWS, eps=1e27)),
    "relative_difference": as_eager(
        both("(x - y) / (abs(x) + abs(y))", (2e38, 1e38), (1e38, -3e38), (1, 2), why=GUARD)
    ),
    "swish_negative": row("x * sigmoid(beta * x)", *signed(1000, 3e38, 2), why=GUARD, beta=-1.0),
    "swish_zero": row("x * sigmoid(beta * x)", *signed(1000, 3e38, 2), why=GUARD, beta=0.0),
    "softcap": row("cap * tanh(x / cap)", *signed(1, 1000, 3e38), why=GUARD, cap=50.0),
    "softcap_huge": row("cap * tanh(x / cap)", *signed(1e25, 3e38), why=GUARD, cap=1e38),
    "gelu_of_sum": as_eager(both("gelu(x + y)", (3e38, -2.9e38), (3e38, 1e37), (-3e38, -1e37), why=GUARD)),
    "mish_of_sum": as_eager(both("mish(x + y)", (3e38, -2.9e38), (3e38, 1e37), (-3e38, -1e37), why=GUARD)),
    "silu_of_sum": as_eager(both("silu(x + y)", (3e38, 1e37), (-3e38, 1e37), (1e308, 7e307), why=GUARD)),
    "weighted_silu": as_eager(both("y * silu(x)", (-100, 1e38), (-90, -3e38), (-700, 1e300), why=GUARD)),
    "weighted_tail": both("y * (1 + tanh(x))", (-9.5, 1e30), (-40, 1e4), why=CANCELS),
    "aptx": row(
        "(1 + tanh(b * x)) * g * x", *signed(1.9 * 2**127, 1.37 * 2**127, 1), why=OVERFLOWS, b=1.0, g=0.5
    ),
    "isru_in_16_bits": replace(
        row("x / sqrt(1 + 0.5 * x**2)", *signed(2**70, 2**120), why=OVERFLOWS), dtypes=(torch.bfloat16,)
    ),
    "sine_in_16_bits": replace(
        row("sin(30 * x)", *signed(2**30, 2**100), why="30 x is rounded"), dtypes=(torch.bfloat16,)
    ),
    "weighted_far_tail": replace(  # 16-bit elements compute with fewer exponents
        both("y * (1 + tanh(x))", (-50, 1e38), why=CANCELS), dtypes=(torch.float32, torch.float64)
    ),
}  # fmt: skip
BEYOND, NEAR = "an intermediate over- or underflows", "a sum cancels"
SEARCHED: dict[str, Row] = {  # kept by the search for other forms alone; in float32 and float64
    "hypot_far": both("sqrt(x * x + y * y)", (3e30, 4e30), (-3e-30, 4e-30), (1e-3, 2.0), why=BEYOND),
    "charbonnier": row("sqrt(x * x + eps * eps)", *signed(1e-30, 1e30, 2.0), why=BEYOND, eps=0.0),
    "pseudo_huber": row(
        "d**2 * (sqrt(1 + (x / d)**2) - 1)", *signed(1e-10, 0.3, 40.0, 1e25), why=NEAR, d=1.5
    ),
    "gelu_of_multiple": row("0.5 * x * (1 + erf(100 * x))", *signed(1e38, 1e-3), why=BEYOND),
    "power_of_sigmoid": row("sigmoid(x)**-1.5", -40, -55, 3, 20, why=BEYOND),
    "radial": as_eager(row("exp(-g * (x - d)**2)", *signed(1e25, 1.5), why=BEYOND, g=0.5, d=1.0)),
    "x_minus_sine": row("x - sin(x)", *signed(1e-8, 1e-3, 0.9, 3.0), why=NEAR),
    "phi_2": row("(exp(x) - 1 - x) / (x * x)", *signed(1e-9, 1e-3, 0.7, 5.0), why=NEAR),
    "roots_apart": row("sqrt(x + 1) - sqrt(x)", 1e-3, 1e5, 1e20, why=NEAR),
    # between 1 and 8 no form is known in which the slope 2 x y - 2 / sqrt(pi) keeps its digits
    "scaled_erfc": as_eager(row("exp(x * x) * erfc(x)", -2, 0.5, 20, 1e10, why=BEYOND)),
    "log_1m_exp": row("log(1 - exp(-x))", 1e-9, 0.5, 5, 50, why=NEAR),
    "asinh_by_log": as_eager(row("log(x + sqrt(x * x + 1))", *signed(1e-9, 1e-3, 3.0, 1e30), why=NEAR)),
    "atanh_by_log": row("log((1 + x) / (1 - x))", *signed(1e-9, 1e-3, 0.5), why=NEAR),
    "quotient_and_term": as_eager(
        both(
            "x / sqrt(1 + square(x * x)) + y",
            (8e30, -1.1),
            (-3e33, 2.0),
            (0.5, 0.3),
            why="a denominator overflows",
        )
    ),
    "root_less_x": both("sqrt(x * x + y * y) - x", (1e4, 1.3), (-5.0, 2.0), (100.0, 1e-3), why=NEAR),
}  # fmt: skip
ROWS |= {name: replace(it, dtypes=(torch.float32, torch.float64)) for name, it in SEARCHED.items()}


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Elements]:
    """A function from the name of a row to its kernels, compiled once."""
    folder = tmp_path_factory.mktemp("stable")
    return cache(lambda name: Elements(ROWS[name].formula, name, folder))


@pytest.mark.few(1)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ROWS)
def test_a_formula_holds_the_contract_where_its_operations_do_not(
    build: Callable[[str], Elements], name: str, device: str
) -> None:
    it, elements = ROWS[name], build(name)
    found = [
        r for dtype in it.dtypes for r in results(elements, device, it.points, dtype) if wrong(r, it.bound)
    ]
    assert not found, f"{it.formula.formula}: {it.why}\n" + "\n".join(map(str, found))


@pytest.mark.full
def test_a_periodic_function_has_no_value_at_infinity(tmp_path: Path) -> None:
    """No guard of one input makes a number of another's NaN."""
    elements = Elements(Formula("x + sin(x) + cos(y)", inputs=("x", "y")), "periodic", tmp_path)
    for device in ("cpu", "cuda"):
        for dtype in DTYPES:
            x, y = torch.tensor([[1.0, 1.0, math.inf], [math.inf, -math.inf, 1.0]]).to(dtype)
            values = elements(device, x, y)[0]
            assert values[:2].isnan().all(), (device, dtype)
            assert values[2] == math.inf, (device, dtype)
