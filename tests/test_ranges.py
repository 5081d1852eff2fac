"""The range of a function holds its real values, tightly, and what floats give; a bound outside it goes."""

import functools
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from budget import examples
from conftest import Workshop
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp
from parsed import parsed

from fusegen.algebra.simplify import simplify
from fusegen.algebra.simplify.factors import FACTORS, INCREASING, Factor, enclosure
from fusegen.algebra.simplify.term_ranges import Ranges
from fusegen.codegen.printers.notation import term as written
from fusegen.core.interval import INFINITY, REALS, Bound, Interval, between
from fusegen.core.term import Apply, Let, Name, Number, Program, Term, names
from fusegen.numerics.reals.enclosures import increasing

NUMBERS = {"k_": (Fraction(797885, 1000000), Fraction(1702, 1000)), "m_": (Fraction(44715, 1000000),)}
K, M = NUMBERS["k_"][0], NUMBERS["m_"][0]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def mpf(x: Fraction) -> Any:
    return mp.mpf(x.numerator) / x.denominator


def cubic(x: Any) -> Any:
    return mpf(K) * (x + mpf(M) * x**3)


def mish_factor(x: Any) -> Any:
    return mp.tanh(mp.log1p(mp.exp(x)))


def relu6(x: Any) -> Any:
    return min(max(x, mp.mpf(0)), mp.mpf(6))


# the factors by mpmath's own functions, with the numbers above
FACTOR: dict[str, Callable[[Any], Any]] = {
    "sigmoid(a)": sigmoid,
    "1 / (1 + exp(-a))": sigmoid,
    "sigmoid(k_ · a)": lambda x: sigmoid(mpf(K) * x),
    "sigmoid(k_ · (a + m_ · a³))": lambda x: sigmoid(cubic(x)),
    "1 + tanh(k_ · (a + m_ · a³))": lambda x: 1 + mp.tanh(cubic(x)),
    "1 + tanh(k_ · fma(a · a · a, m_, a))": lambda x: 1 + mp.tanh(cubic(x)),
    "Φ(a)": mp.ncdf,
    "1 + erf(k_ · a)": lambda x: 1 + mp.erf(mpf(K) * x),
    "tanh_softplus(a)": mish_factor,
    "tanh(softplus(a))": mish_factor,
    "tanh(log1p(exp(a)))": mish_factor,
    "tanh_of_exp(a)": lambda x: mp.tanh(mp.exp(x)),
    "tanh(exp(a))": lambda x: mp.tanh(mp.exp(x)),
    "relu6(a + 3)": lambda x: relu6(x + 3),
    "min(max(a + 3, 0), 6)": lambda x: relu6(x + 3),
    "min(max((a + 3) / 6, 0), 1)": lambda x: relu6(x + 3) / 6,
    "min(max(a / 6 + 0.5, 0), 1)": lambda x: relu6(x + 3) / 6,
}
RISING: dict[str, Callable[[Any], Any]] = {
    "sigmoid": sigmoid,
    "tanh": mp.tanh,
    "erf": mp.erf,
    "ndtr": mp.ncdf,
    "softplus": lambda x: mp.log1p(mp.exp(x)),
    "exp": mp.exp,
    "tanh_softplus": mish_factor,
    "tanh_of_exp": lambda x: mp.tanh(mp.exp(x)),
}
SIZES = st.sampled_from([1e-30, 1e-3, 1.0, 3.0, 12.0, 40.0, 600.0])
PLACES = st.builds(lambda size, part: size * part, SIZES, st.floats(-1, 1))
INTERVALS = st.tuples(PLACES | st.just(-math.inf), PLACES, PLACES | st.just(math.inf))


def bound(x: float) -> Bound:
    return x if math.isinf(x) else Fraction(x)


def numbers(row: Factor) -> tuple[Fraction, ...]:
    return tuple(NUMBERS[name][0] for name in ("k_", "m_") if name in names(row.pattern))


def inside(value: Any, range_: Interval, off: float = 1e-40) -> bool:
    """True if a value of many digits lies in an interval, or off by its own error."""
    ends = [mp.mpf(end) if isinstance(end, float) else mpf(end) for end in (range_.low, range_.high)]
    slack = off * (1 + abs(value))
    return bool(ends[0] - slack <= value <= ends[1] + slack)


def test_every_row_has_a_second_opinion() -> None:
    assert {written(row.pattern) for row in FACTORS} == FACTOR.keys()
    assert INCREASING.keys() == RISING.keys()


@pytest.mark.together
@pytest.mark.parametrize("row", FACTORS, ids=lambda row: written(row.pattern))
@settings(max_examples=examples(60), deadline=None)
@given(places=INTERVALS)
def test_a_product_lies_in_its_enclosure_and_reaches_the_ends(
    row: Factor, places: tuple[float, float, float]
) -> None:
    low, at, high = sorted(places)
    found = enclosure(row, numbers(row), Interval(bound(low), bound(high)))
    factor = FACTOR[written(row.pattern)]
    with mp.workdps(80):
        values = [mp.mpf(x) * factor(mp.mpf(x)) for x in (low, at, high) if math.isfinite(x)]
        assert all(inside(value, found) for value in values)
        # the least value is at an end, or where the derivative is 0
        points = [x for x in (low, high) if math.isfinite(x)]
        turn = turning_point(factor)
        points += [turn] if low < turn < high else []
        least = min([mp.mpf(x) * factor(mp.mpf(x)) for x in points] + [mp.mpf(0)] * (low == -math.inf))
        assert mpf(Fraction(found.low)) >= least - 1e-6
        if math.isfinite(high) and math.isfinite(low):
            assert mpf(Fraction(found.high)) <= max(values) + mp.mpf(1e-6) * (1 + abs(max(values)))
        elif low == -math.inf and math.isfinite(high):
            assert mpf(Fraction(found.high)) <= max(mp.mpf(0), *values) + 1e-6
        else:
            assert found.high == INFINITY


def turning_point(factor: Callable[[Any], Any]) -> Any:
    """Where x times a factor is least, by golden-section search."""
    with mp.workdps(40):
        left, right = mp.mpf(-8), mp.mpf(0)
        while right - left > 1e-15:
            third = (right - left) / 3
            a, b = left + third, right - third
            if a * factor(a) >= b * factor(b):
                left = a
            else:
                right = b
        return (left + right) / 2


@pytest.mark.parametrize("name", INCREASING)
@settings(max_examples=examples(60), deadline=None)
@given(places=INTERVALS)
def test_an_increasing_function_lies_in_its_enclosure_and_reaches_the_ends(
    name: str, places: tuple[float, float, float]
) -> None:
    low, at, high = sorted(places)
    found = increasing(*INCREASING[name], Interval(bound(low), bound(high)))
    with mp.workdps(80):
        value = RISING[name](mp.mpf(at))
        assert inside(value, found)
        if -math.inf < low and high < 500:
            ends = [RISING[name](mp.mpf(x)) for x in (low, high)]
            for end, exact in zip((found.low, found.high), ends, strict=True):
                assert abs(mpf(Fraction(end)) - exact) <= mp.mpf(1e-25) * abs(exact) + mp.mpf(1e-25)


def range_of(text: str, **ranges: Interval) -> Interval:
    return Ranges({"x": REALS, "y": REALS, **ranges}).range(parsed(text))


ERF = "x * 0.5 * (1 + erf(x * 0.7071067811865476))"
TANH = "0.5 * x * (1 + tanh(0.7978845608 * (x + 0.044715 * cube(x))))"
WHOLE = {  # the least real values, to 16 digits
    "x * sigmoid(x)": "-0.2784645427610738",
    "x / (1 + exp(-x))": "-0.2784645427610738",
    "sigmoid(x) * x": "-0.2784645427610738",
    "x * sigmoid(x) / 2": "-0.1392322713805369",
    "x * ndtr(x)": "-0.1699712074792437",
    ERF: "-0.1699712074792437",
    TANH: "-0.1700407505711340",
    "x * tanh(softplus(x))": "-0.3088413373709402",
    "x * tanh(exp(x))": "-0.3532838563",
    "x * relu6(x + 3) / 6": "-0.375",
    "x * (relu6(3 + x) / 6)": "-0.375",
    "x * clamp((x + 3) / 6, 0, 1)": "-0.375",
    "x * clamp(x + 3, 0, 6) / 6": "-0.375",
    "2 * x * sigmoid(2 * x)": "-0.2784645427610738",
    "x * sigmoid(1.702 * x)": "-0.1636101896",
}


@pytest.mark.together
@pytest.mark.parametrize(("formula", "least"), WHOLE.items())
def test_the_range_of_a_product_over_all_reals(formula: str, least: str) -> None:
    found = range_of(formula)
    assert found.high == INFINITY
    assert float(least) * 1.0015 < float(found.low) <= float(least)


SILU = "x * sigmoid(x)"
PARTS = {  # over an interval of x: what an end of it gives, and the turn where it lies inside
    (SILU, -5, -2): (-0.2384058440442351, -0.0334642546214245),
    (SILU, 1, 3): (0.7310585786300049, 2.857722380473300),
    (SILU, -3, 1): (-0.2784645427610738, 0.7310585786300049),
    (SILU, 0, 2): (0, 1.761594155955765),
    ("x * ndtr(x)", -1, 1): (-0.1699712074792437, 0.8413447460685429),
    ("x * tanh(softplus(x))", -1, 1): (-0.3034014613741, 0.8650983882673103),
    ("x * relu6(x + 3) / 6", -1, 1): (-1 / 3, 2 / 3),
    ("x * relu6(x + 3) / 6", -9, -4): (0, 0),
    ("x * ndtr(x)", -40, -20): (-5.507248237212e-88, 0),
    ("sigmoid(x)", -1, 2): (0.2689414213699951, 0.8807970779778824),
    ("tanh(x)", -1, 2): (-0.7615941559557649, 0.9640275800758169),
    ("softplus(x)", 1, 2): (1.313261687518223, 2.126928011042973),
}


@pytest.mark.together
@pytest.mark.parametrize(("case", "ends"), PARTS.items())
def test_the_range_of_a_product_over_an_interval(
    case: tuple[str, int, int], ends: tuple[float, float]
) -> None:
    formula, low, high = case
    found = range_of(formula, x=between(low, high))
    for end, exact, sign in ((found.low, ends[0], -1), (found.high, ends[1], 1)):
        assert 0 <= sign * (float(end) - exact) <= 0.001 * abs(exact) + 1e-15


def test_ranges_compose() -> None:
    assert str(range_of("tanh(x) * ndtr(tanh(x))")) == "[-0.170012727, 0.841550171]"
    inner = Ranges({"x": REALS})
    inner.name("t", parsed("sigmoid(x)"))
    inner.name("u", parsed("x * t", "x t"))
    assert float(inner.range(parsed("u * 2 + 1", "u")).low) == pytest.approx(1 - 2 * 0.27846, abs=1e-3)
    assert inner.ranges["u"] == inner.range(parsed("x * sigmoid(x)"))


@pytest.mark.parametrize(
    "formula",
    ["y * sigmoid(x)", "x * sigmoid(-x)", "x * tanh(x)", "x * relu6(x + 4)", "x * (1 + erf(-2 * x))",
     "x * sigmoid(100 * x)", "x * (0.5 + erf(x))", "x / (1 - exp(-x))", "x * sigmoid(y * x)"],
)  # fmt: skip
def test_what_is_no_row_keeps_the_range_of_its_parts(formula: str) -> None:
    assert range_of(formula).low == -INFINITY


FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "neg": operator.neg, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "erf": torch.erf, "exp": torch.exp,
    "cube": lambda x: x * x * x, "ndtr": torch.special.ndtr, "softplus": torch.nn.functional.softplus,
    "relu6": torch.nn.functional.relu6, "clamp": torch.clamp,
}  # fmt: skip


def computed(term: Term, x: torch.Tensor) -> torch.Tensor:
    """The value of a term in x, by PyTorch's operations."""
    match term:
        case Number(value):
            return torch.tensor(float(value), dtype=x.dtype)
        case Name():
            return x
        case Apply(op, args):
            return FUNCTIONS[op](*(computed(arg, x) for arg in args))
    raise AssertionError(term)


EDGES = [0.0, -0.0, 1e-45, -1e-45, -1e-38, -87.5, -104.0, 3.4028235e38, -3.4028235e38, math.inf, -math.inf]
EDGES += [-3.0, 3.0, -1e13, 1e13, -16.0, -5.5, -1e-20, math.nan]


@functools.cache
def floats(low: float, high: float) -> torch.Tensor:
    """Numbers of every size in an interval, in float32."""
    generator = torch.Generator().manual_seed(3)
    bits = torch.randint(-(2**31), 2**31, (2**17,), generator=generator).to(torch.int32)
    steps = torch.linspace(max(low, -20), min(high, 20), 2**16)
    x = torch.cat([torch.tensor(EDGES), bits.view(torch.float32), steps])
    return x[(x >= low) & (x <= high)]


@pytest.mark.together
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "bounds", [(-math.inf, math.inf), (-5, -2), (-0.5, 3), (1, 2), (-200, -90), (1, 3e38)]
)
@pytest.mark.parametrize(
    "formula", ["x * 64 * (sigmoid(x) / 64)", *WHOLE, *dict.fromkeys(case[0] for case in PARTS)]
)
def test_what_floats_give_lies_in_the_range(
    formula: str, bounds: tuple[float, float], dtype: torch.dtype
) -> None:
    x = floats(*bounds).to(dtype)
    value = computed(parsed(formula), x).double()
    value = value[~value.isnan()]
    found = range_of(formula, x=between(*map(bound, map(float, bounds))))
    assert value.numel() > 100
    assert float(found.low) <= value.min().item()
    assert value.max().item() <= float(found.high)


CHAINS = {  # KernelBench's level 2, by problem: the chain, its results, and what the derivation says
    57: ("relu, 'x * clamp((x + 3) / 6, 0, 1)'", "after_relu · min((after_relu + 3) / 6, 1)",
         "Dead lower bound: min(max((after_relu + 3) / 6, 0), 1) is min((after_relu + 3) / 6, 1), "
         "since (after_relu + 3) / 6 lies in [0.49999997, inf]."),
    81: ("silu, x / 2, 'clamp(x, -1, 1)', tanh, 'clamp(x, -1, 1)'", "after_tanh",
         "Dead lower bound: min(max(step2, -1), 1) is min(step2, 1), "
         "since step2 lies in [-0.139266282, inf]."),
    2: ("'clamp(x, 0, 1)', x * 2, 'clamp(x, 0, 1)', x / 2", "min(max(x, 0), 0.5)",
        "Bound before the scale: step3 / 2 is min(step1, 1 / 2), since step1 lies in [0, 1]."),
    16: ("mish, x + 0.5, hardtanh, x * 2", "after_hardtanh · 2",
         "Dead lower bound: min(max(step2, -1), 1) is min(step2, 1), "
         "since step2 lies in [0.191081166, inf]."),
    95: ("silu, tanh, gelu, hardtanh", "after_gelu",
         "Dead lower bound: min(max(after_gelu, -1), 1) is min(after_gelu, 1), "
         "since after_gelu lies in [-0.106758967, 0.841550171]."),
    7: ("relu, leaky_relu, gelu, sigmoid", "sigmoid(after_gelu)",
        "Dead slope: after_relu if after_relu > 0 else after_relu · 0.01 is after_relu, "
        "since after_relu lies in [0, inf]."),
    92: ("tanh, hardswish", "after_tanh · (after_tanh · 0.166666666666667 + 0.5)",
         "Dead upper bound: min(after_tanh · 0.166666666666667 + 0.5, 1) is "
         "after_tanh · 0.166666666666667 + 0.5, "
         "since after_tanh · 0.166666666666667 + 0.5 lies in [0.333333313, 0.666666687]."),
}  # fmt: skip


@pytest.mark.few(3)
@pytest.mark.parametrize("problem", CHAINS)
def test_a_dead_operation_of_a_benchmark_is_found(problem: int, workshop: Workshop) -> None:
    chain, result, sentence = CHAINS[problem]
    workshop.spec("one", f"inputs: {{x: {{shape: [4, 8]}}}}\nchain: [{chain}]")
    lines = workshop.run("show", "one", "--stage", "simplify").output.splitlines()
    assert sentence in lines
    assert next(line for line in lines if line.startswith("return ")) == f"return {result}"


EAGER = {
    "silu, x / 2, 'clamp(x, -1, 1)'": "round_to_storage(min(step2, 1))",
    "mish, x + 0.5, 'clamp(x, 0, 1)'": "round_to_storage(min(step2, 1))",
    "gelu, 'clamp(x, -1, 1)'": "round_to_storage(min(after_gelu, 1))",
    "gelu_tanh, 'clamp(x, -1, 1)'": "round_to_storage(min(after_gelu_tanh, 1))",
    "hardswish, 'clamp(x, -0.375, 1)'": "round_to_storage(min(max(after_hardswish, -0.375), 1))",
}


@pytest.mark.parametrize(("chain", "result"), EAGER.items())
def test_a_bound_of_eager_operations_counts_their_roundings(
    chain: str, result: str, workshop: Workshop
) -> None:
    workshop.spec("one", f"inputs: {{x: {{shape: [4, 8]}}}}\nnumerics: eager\nchain: [{chain}]")
    lines = workshop.run("show", "one", "--stage", "simplify").output.splitlines()
    assert next(line for line in lines if line.startswith("return ")) == f"return {result}"


def simplest(text: str, **ranges: Interval) -> str:
    program, _ = simplify(Program(("x", "y"), (), (), (parsed(text),)), ranges)
    return written(program.results[0])


SIMPLER = {
    "clamp(x * sigmoid(x), -0.2786, 1)": "min(x · sigmoid(x), 1)",
    "maximum(x * sigmoid(x), -1)": "x · sigmoid(x)",
    "minimum(1, tanh(x) * ndtr(tanh(x)))": "tanh(x) · Φ(tanh(x))",
    "relu(x * tanh(softplus(x)) + 0.5)": "x · tanh(softplus(x)) + 0.5",
    "abs(x * sigmoid(x) - 1) + abs(x * sigmoid(x) + 1)": "|x · sigmoid(x) - 1| + (x · sigmoid(x) + 1)",
    "abs(-1 - exp(x))": "-(-1 - exp(x))",
    "where(x * ndtr(x) < -0.2, y, x)": "x",
    "where(tanh(x) * sigmoid(tanh(x)) > 1, y, x)": "x",
    "where(exp(x) > 0, exp(x), 0.1 * exp(x))": "exp(x)",
    "where(relu(x) >= 0, relu(x), relu(x) * y)": "relu(x) if relu(x) ≥ 0 else relu(x) · y",
    "where(relu(x) > 0, relu(x), -0.1 * relu(x))": "relu(x) if relu(x) > 0 else -0.1 · relu(x)",
    "clamp(x * sigmoid(x), -0.2784, 1)": "min(max(x · sigmoid(x), -0.2784), 1)",
    "clamp(x * sigmoid(x), -0.27846454276, 1)": "min(max(x · sigmoid(x), -0.27846454276), 1)",
    "clamp(x * ndtr(x), -0.1699, 1)": "min(max(x · Φ(x), -0.1699), 1)",
    "relu(x * relu6(x + 3) / 6)": "relu(x · relu6(x + 3) / 6)",  # -0.0 at -5, and relu(x) times it +0.0
    "relu(x * ndtr(x))": "relu(x · Φ(x))",
    "minimum(x, y) - y": "min(x, y) - y",  # the difference from -inf is NaN, or 0
    "x - 0.5 - 0.2": "x - 0.5 - 0.2",  # rounds twice
    "minimum(relu(x) * 3, 1) / 3": "min(relu(x) · 3, 1) / 3",
    "minimum(x * 2, 1) / 2": "min(x · 2, 1) / 2",
}


@pytest.mark.together
@pytest.mark.parametrize(("formula", "after"), SIMPLER.items())
def test_a_formula_loses_what_its_ranges_decide_and_nothing_else(formula: str, after: str) -> None:
    assert simplest(formula) == after


def test_the_range_of_a_parameter_is_what_is_assumed() -> None:
    formula = "where(relu(x) > 0, relu(x), relu(x) * y)"
    assert simplest(formula, y=between(0, 1)) == written(parsed(formula))  # a NaN of y is not in it
    assert simplest("clamp(y * sigmoid(y), 0.7, 9)", y=between(1, 3)) == "y · sigmoid(y)"


@pytest.mark.parametrize(("result", "steps"), [("v / 2", ["u"]), ("v / 2 + v", ["u", "v", "w"])])
def test_a_rule_looks_through_steps_that_are_used_once(result: str, steps: list[str]) -> None:
    lets = (
        Let("u", parsed("relu(x)")),
        Let("w", parsed("u * 2", "u")),
        Let("v", parsed("clamp(w, 0, 1)", "w")),
    )
    after, rewrites = simplify(Program(("x",), (), lets, (parsed(result, "v"),)), {})
    assert sorted(let.name for let in after.lets) == steps
    assert [step.rule for step in rewrites] == ["dead lower bound", "bound before the scale"][
        : 4 - len(steps)
    ]
