"""Chains on the CPU: where a function of float gives and takes one word, and what that costs."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from kernels import by_module, generated, units
from numpy.polynomial import Polynomial
from test_lower import parsed
from test_words import TENTH, shown
from torch import Tensor

from fusegen.codegen.runtime_text import INCLUDE
from fusegen.core.budget import FUNCTION_ULPS
from fusegen.core.ir import Body, Kernel, Math
from fusegen.core.ops import ROWS, TRANSCENDENTAL
from fusegen.core.targets import Device
from fusegen.core.term import Let, Name, Number, Program, Term, call
from fusegen.lower import Form, lower
from fusegen.lower.error_budget import (
    ANY_ARGUMENT,
    CONDITION,
    CONDITION_OF_ANY_ARGUMENT,
    LEAST_VALUE,
    NEAR_FROM,
    exact,
    scaled,
)

X, Y, U, V = (Name(name) for name in "xyuv")


def silu(of: Term) -> Term:
    return call("x_sigmoid", of, of)


def gelu(of: Term) -> Term:
    return call("times_ndtr", of)


def times(by: str, name: str = "u") -> Let:
    return Let("v", parsed(f"{name} * {by}", name))


SILU, HALF = Let("u", silu(X)), times("0.5")
GELU, TANH = Let("u", gelu(X)), Let("u", call("tanh", X))

SEVEN = "words(0.699999988079071, 1.1920929132713809e-08)"  # 0.7

# steps and a result: what they become in float on the CPU
CHAINS: list[tuple[tuple[Let, ...], Term, str]] = [
    ((SILU, HALF), silu(V), "u = x_sigmoid<SINGLE_WORD>(x, x); v = mul(u, 0.5); x_sigmoid<NEAR>(v, v)"),
    ((GELU,), gelu(U), "u = times_ndtr<SINGLE_WORD>(x); times_ndtr<NEAR>(u)"),
    ((TANH, HALF), call("sigmoid", V), "u = tanh(x); v = mul(u, 0.5); sigmoid<NEAR>(v)"),
    ((SILU,), call("tanh", U), "u = x_sigmoid<SINGLE_WORD>(x, x); tanh(u)"),
    ((SILU,), call("erf", U), "u = x_sigmoid<SINGLE_WORD>(x, x); erf(u)"),
    # what cuts off or divides magnifies nothing
    (
        (SILU, Let("v", parsed("clamp(u / 2, -1, 1)", "u"))),
        call("tanh", V),
        "u = x_sigmoid<SINGLE_WORD>(x, x); v = clamp(mul(u, 0.5), -1.0, 1.0); tanh(v)",
    ),
    (
        (SILU, Let("v", parsed("where(u > 0, u, u * 0.25)", "u"))),
        gelu(V),
        "u = x_sigmoid<SINGLE_WORD>(x, x); v = where(gt(u, 0.0), u, mul(u, 0.25)); times_ndtr<NEAR>(v)",
    ),
    # tanh(silu(x)) is not below silu(x)'s least; of three functions the last takes one word
    (
        (SILU, Let("v", call("tanh", U))),
        gelu(V),
        "u = x_sigmoid<DOUBLE_WORD>(x, x); v = narrow(tanh(u)); times_ndtr<NEAR>(v)",
    ),
    # a factor that is no function's takes some of what may be spent
    (
        (Let("u", call("softplus", X)),),
        X * call("erf", U),
        "u_prescaled = narrow(softplus(prescaled(x))); mul(mul(x, erf(u_prescaled)), unscale(x))",
    ),
    # a single function, and one of arithmetic, stays as accurate as it is
    ((), silu(X), "x_sigmoid(x, x)"),
    ((times("0.1", "x"),), call("erf", V), f"v = mul(x, {TENTH}); erf(v)"),
    # up to where little is magnified, and further
    (
        (SILU, times("4")),
        silu(V),
        "u = x_sigmoid<SINGLE_WORD>(x, x); v = mul(u, 4.0); x_sigmoid<NEAR>(v, v)",
    ),
    ((SILU, times("5")), silu(V), "u = x_sigmoid<DOUBLE_WORD>(x, x); v = mul(u, 5.0); x_sigmoid(v, v)"),
    ((SILU, times("-1")), silu(V), "u = x_sigmoid<DOUBLE_WORD>(x, x); v = mul(u, -1.0); x_sigmoid(v, v)"),
    ((TANH, times("5")), call("sigmoid", V), "u = tanh<DOUBLE_WORD>(x); v = mul(u, 5.0); sigmoid(v)"),
    # of two inputs
    (
        (Let("u", call("x_sigmoid", X, Y)), HALF),
        silu(V),
        "u = x_sigmoid<DOUBLE_WORD>(x, y); v = mul(u, 0.5); x_sigmoid(v, v)",
    ),
    # what is taken off a rounded value magnifies what it errs by
    (
        (SILU, Let("v", parsed("u - 0.1", "u"))),
        call("tanh", V),
        f"u = x_sigmoid<DOUBLE_WORD>(x, x); v = sub(u, {TENTH}); tanh(v)",
    ),
    # so does a sum, and a product of two that err may err by as much as both
    (
        (SILU, HALF),
        silu(V) + call("tanh", V),
        "u = x_sigmoid<DOUBLE_WORD>(x, x); v = mul(u, 0.5); add(x_sigmoid(v, v), tanh(v))",
    ),
    ((TANH,), U * call("sigmoid", U), "u = tanh<DOUBLE_WORD>(x); mul(u, sigmoid(u))"),
]


# likewise where double settles how results are rounded to 16 bits
SETTLED: list[tuple[tuple[Let, ...], Term, str]] = [
    ((), silu(X), "x_sigmoid<SINGLE_WORD>(x, x)"),
    ((), gelu(X), "times_ndtr<SINGLE_WORD>(x)"),
    ((times("0.1", "x"),), call("tanh", V), f"v = narrow(mul(x, {TENTH})); tanh(v)"),
    (
        (Let("u", parsed("clamp(x, -1, 1)", "x")),),
        call("sigmoid", U),
        "u = clamp(x, -1.0, 1.0); sigmoid<NEAR>(u)",
    ),
    ((Let("u", silu(X)),), 2 * U, "u = x_sigmoid<SINGLE_WORD>(x, x); mul(2.0, u)"),
    # there is no short form of any argument
    ((), call("sigmoid", X), "sigmoid(x)"),
    ((), call("times_tanh_softplus", X), "times_tanh_softplus(x)"),
    # of two, and of products, float's own are kept
    ((), call("x_sigmoid", X, Y), "x_sigmoid(x, y)"),
    ((), X * call("tanh", Y), "mul(x, tanh<DOUBLE_WORD>(y))"),
    # what is next to 0 need not be its tangent
    (
        (times("0.7", "x"),),
        Number(Fraction(3, 2)) * call("tanh", V),
        f"v = narrow(mul(x, {SEVEN})); mul(1.5, tanh(v))",
    ),
]


def form(
    lets: tuple[Let, ...],
    result: Term,
    math: Math = Math.FLOAT,
    device: Device = Device.CPU,
    verified: bool = False,
) -> str:
    program = Program(("x", "y"), (), lets, (result,))
    use = Form.VERIFIED if verified else Form.ROUNDED
    made: Kernel = lower("f", program, device, math, True, form=use)
    return "; ".join(
        (*(f"{let.name} = {shown(let.value)}" for let in made.lets), *map(shown, made.results))
    )


@pytest.mark.together
@pytest.mark.parametrize(("lets", "result", "expected"), CHAINS)
def test_a_chain_becomes(lets: tuple[Let, ...], result: Term, expected: str) -> None:
    assert form(lets, result) == expected


@pytest.mark.parametrize(("lets", "result", "expected"), SETTLED)
def test_what_double_settles_becomes(lets: tuple[Let, ...], result: Term, expected: str) -> None:
    assert form(lets, result, verified=True) == expected


@pytest.mark.parametrize(
    ("math", "device"), [(Math.DOUBLE, Device.CPU), (Math.DOUBLE, Device.CUDA), (Math.FLOAT, Device.CUDA)]
)
def test_double_and_cuda_have_no_links(math: Math, device: Device) -> None:
    for lets, result, _ in CHAINS:
        found = form(lets, result, math, device)
        assert "NEAR" not in found
        assert not any(f"{op}<SINGLE_WORD>" in found for op in ANY_ARGUMENT)


def test_an_infinity_is_left_to_a_function_that_makes_it_finite_itself() -> None:
    finite = Let("finite_x", call("clamp_to_lowest", X))
    kept = Name("finite_x")
    assert (
        form((finite, Let("u", gelu(kept))), gelu(U))
        == "u = times_ndtr<SINGLE_WORD>(x); times_ndtr<NEAR>(u)"
    )
    assert form((finite, Let("u", silu(kept))), call("tanh", U) * kept) == (
        "finite_x = clamp_to_lowest(x); u = x_sigmoid<SINGLE_WORD>(x, x); mul(tanh(u), finite_x)"
    )


def test_every_link_is_a_body_of_what_approximates() -> None:
    assert {*ANY_ARGUMENT, *NEAR_FROM} <= TRANSCENDENTAL
    assert NEAR_FROM.keys() == {name for name, row in ROWS.items() if Body.NEAR in row.bodies}
    single = {name for name, row in ROWS.items() if Body.SINGLE_WORD in row.bodies} - {"exp"}
    assert single == {name for name, body in ANY_ARGUMENT.items() if body}
    assert NEAR_FROM.keys() == CONDITION.keys()
    assert {*ANY_ARGUMENT, *NEAR_FROM, *CONDITION_OF_ANY_ARGUMENT, *LEAST_VALUE} <= ROWS.keys()


# what the functions are over the real numbers, in double
REAL: dict[str, Callable[[Tensor], Tensor]] = {
    "x_sigmoid": torch.nn.functional.silu,
    "sigmoid": torch.sigmoid,
    "times_ndtr": lambda x: x * torch.special.ndtr(x),
    "times_tanh_softplus": torch.nn.functional.mish,
    "tanh": torch.tanh,
    "erf": torch.erf,
}


@pytest.mark.parametrize("op", [*CONDITION, *CONDITION_OF_ANY_ARGUMENT])
def test_a_function_magnifies_by_no_more_than_is_said(op: str) -> None:
    x = torch.linspace(float(NEAR_FROM.get(op, -12)), 12, 24_001, dtype=torch.float64).requires_grad_()
    y = REAL[op](x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    magnified = (x * slope / y).abs().nan_to_num(1.0).max()
    said = CONDITION.get(op) or CONDITION_OF_ANY_ARGUMENT[op]
    assert 0.98 * said < magnified <= said


@pytest.mark.parametrize("op", LEAST_VALUE)
def test_no_value_is_below_the_least(op: str) -> None:
    least = REAL[op](torch.linspace(-5, 0, 50_001, dtype=torch.float64)).min()
    assert float(LEAST_VALUE[op]) <= least < float(LEAST_VALUE[op]) + 1e-3


MOST = {
    "silu_scale_silu": 3.4,
    "gelu_gelu": 3.9,
    "mish_mish": 2.6,
    "serf": 2.8,
    "scale_tanh_scale_sigmoid": 1.8,
}


@pytest.mark.parametrize("name", by_module(MOST))
def test_a_chain_errs_by_less_than_four_units(name: str) -> None:
    """As much as its certificate says, nearly, and no more: the bound is neither missed nor idle."""
    forward = generated(name).KERNELS.forward
    x = torch.randn(2**21, generator=torch.Generator().manual_seed(5)) * 4
    assert MOST[name] - 1.2 < units(forward(x), forward(x.double())).max() < MOST[name]


@pytest.mark.parametrize("name", by_module([*MOST, "mish_tanh"]))
def test_a_chain_treats_special_values_as_double_does(name: str) -> None:
    forward = generated(name).KERNELS.forward
    x = torch.tensor([0.0, -0.0, 1e-45, -1e-45, 1e-38, -90.0, -110.0, 1e38, float("inf"), -float("inf")])
    expected = forward(x.double()).float()
    torch.testing.assert_close(forward(x), expected, rtol=1e-6, atol=2e-45)
    assert torch.equal(torch.signbit(forward(x)), torch.signbit(expected))
    nan = torch.tensor([float("nan")])
    assert forward(torch.cat([nan, nan.copysign(torch.tensor(-1.0))])).isnan().all()


@pytest.mark.parametrize(
    ("term", "by", "other"),
    [
        ("x * 3", Fraction(3), X),
        ("3 * x", Fraction(3), X),
        ("x / 4", Fraction(1, 4), X),
        ("x + 1", Fraction(1), parsed("x + 1")),
    ],
)
def test_a_number_is_found_on_either_side(term: str, by: Fraction, other: Term) -> None:
    assert scaled(parsed(term)) == (by, other)


def test_the_tail_of_gelu_is_the_one_in_two_words_at_a_half() -> None:
    whole, at_half = (
        coefficients(name, of)
        for name, of in (("functions/normal.h", "ndtr_tail"), ("cpu/normal.h", "times_ndtr"))
    )
    powers = Polynomial(whole[1:])(Polynomial([0.5, 1.0])).coef
    assert powers.astype(np.float32).tolist() == [np.float32(number) for number in at_half]


def coefficients(header: str, function: str) -> list[float]:
    """Those of the first polynomial of a function."""
    text = (INCLUDE / header).read_text(encoding="utf-8").split(f" {function}(", 1)[1]
    return [float(x.strip().rstrip("f")) for x in text.split("c[] = {", 1)[1].split("}", 1)[0].split(",")]


def test_only_a_power_of_two_rounds_nothing() -> None:
    assert [exact(Fraction(by)) for by in ("1", "2", "1/4", "3", "1/3", "0.1", "-2")] == [
        True, True, True, False, False, False, True,
    ]  # fmt: skip


def test_a_number_of_no_product_is_no_factor() -> None:
    two = Number(Fraction(2))
    assert scaled(two) == (Fraction(1), two)


# modules of the library that are one function
FUNCTIONS = {
    **{"tanh": "tanh", "sigmoid": "sigmoid", "silu": "x_sigmoid", "gelu": "times_ndtr"},
    **{"mish": "times_tanh_softplus", "tanhshrink": "tanh_shrink", "softsign": "soft_sign"},
}


@pytest.mark.full
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_function_errs_by_more_than_its_budget(name: str) -> None:
    """At the arguments that the budget names."""
    allowed = FUNCTION_ULPS[Device.CPU][FUNCTIONS[name]]
    for low, high in ((-4.0, 4.0), (0.01, 8.0), (-16.0, -0.001)):
        x = torch.linspace(low, high, 2**21)
        exact = generated(name).KERNELS.forward(x.double())
        normal = exact.abs() >= torch.finfo(torch.float32).tiny
        assert units(generated(name).KERNELS.forward(x)[normal], exact[normal]).max() <= allowed
