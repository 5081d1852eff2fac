"""Inputs kept finite: where infinity would give NaN and the function has a limit, and nowhere else."""

import math
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from kernels import DTYPES, by_module, compiled, function, methods

from fusegen.algebra.limits import finite
from fusegen.algebra.limits.numbers import INFINITE
from fusegen.core.term import Apply, Let, Name, Number, Program, Term, call, walk
from fusegen.project.build import compiled_file

X = Name("x")


def kept(program: Program) -> set[str]:
    """The operations that keep the inputs of a program finite."""
    after = finite(program, program.inputs, {})
    terms = [*(let.term for let in after.lets), *after.results]
    return {part.op for term in terms for part in walk(term) if isinstance(part, Apply)} & {
        "clamp_to_lowest",
        "clamp_to_highest",
        "clamp_min",
        "clamp_max",
    }


def of(*results: Apply) -> Program:
    return Program(("x",), (), (), results)


@pytest.mark.together
@pytest.mark.parametrize(
    ("program", "sides"),
    [
        (of(X * call("sigmoid", X)), {"clamp_to_lowest"}),
        (of(call("soft_sign", X)), {"clamp_to_lowest", "clamp_to_highest"}),
        (of(call("sigmoid", X) + X * call("sigmoid_slope", X)), {"clamp_to_lowest", "clamp_to_highest"}),
        (of(call("tanh", X)), set()),
        (of(call("sin", X)), set()),  # NaN is right: there is no limit
        (of(X * call("sin", X)), set()),
        (of(call("cospi", X), call("sinpi", X)), set()),  # 1 and 0 at every large number
        (of(call("sigmoid_slope", X) * (X * X * X)), {"clamp_min", "clamp_max"}),  # its cube is finite
        (of(X - X), {"clamp_to_lowest", "clamp_to_highest"}),
        (of(X * X - X * X * X), set()),  # grows
        (of(X * call("sigmoid", X), -X), {"clamp_to_lowest"}),  # in the first alone
        (of(X / call("sqrt", 1 + X * X)), {"clamp_min", "clamp_max"}),  # its square is, if not of 2^1022
    ],
)
def test_an_input_is_kept_finite_where_that_gives_the_limit(program: Program, sides: set[str]) -> None:
    assert kept(program) == sides


T, PRODUCT = Name("t"), X * Name("b")


def test_a_sine_is_that_of_0_at_an_infinity_and_of_no_other_number_elsewhere() -> None:
    """So that x + sin(x) grows; the sine of the largest number is as it was."""
    infinite = call("eq", call("abs", X), INFINITE)
    (result,) = finite(of(X + call("sin", X)), ("x",), {}).results
    assert result == X + call("sin", call("where", infinite, 0, X))


@pytest.mark.parametrize(
    ("tied", "sides"),
    [
        (PRODUCT, {"clamp_to_lowest"}),
        (call("relu", PRODUCT) - 1, {"clamp_to_lowest"}),
        (call("tanh", PRODUCT), set()),
        (call("clamp", PRODUCT, -1, 1), set()),
        (call("minimum", PRODUCT, 1), {"clamp_to_lowest"}),
    ],
)
def test_a_step_of_two_inputs_is_kept_finite_unless_its_function_is_bounded(
    tied: Apply, sides: set[str]
) -> None:
    assert kept(Program(("x", "b"), (), (Let("t", tied),), (T * call("sigmoid", T),))) == sides


SQUARE = X * X
FALLING, GROWING = SQUARE / (SQUARE * X), (SQUARE * X) / SQUARE  # NaN also where the squares are infinite


@pytest.mark.parametrize(
    ("result", "below", "above"),
    [
        (FALLING, 0.0, 0.0),
        (-FALLING, 0.0, 0.0),
        (GROWING, -math.inf, math.inf),
        (-GROWING, math.inf, -math.inf),
        (GROWING * X, math.inf, math.inf),
        (call("exp", X) * FALLING, math.nan, math.inf),  # is 0 below from some x on, which is kept
        (call("sin", X) * X, math.nan, math.nan),
    ],
)
def test_a_limit_that_is_never_reached_is_chosen(result: Term, below: float, above: float) -> None:
    found = finite(Program(("x",), (), (), (result,)), ("x",), {}).results[0]
    for side, infinity, limit in ((-1, -INFINITE, below), (1, INFINITE, above)):
        chosen = [
            part.args[1]
            for part in walk(found)
            if isinstance(part, Apply) and part.op == "where" and part.args[0] == call("eq", X, infinity)
        ]
        expected = {0.0: Number(Fraction(0)), side * math.inf: X, -side * math.inf: -X}
        assert chosen == ([] if math.isnan(limit) else [expected[limit]])


def test_of_a_gradient_the_limit_is_that_times_what_comes_in() -> None:
    program = Program(("grad", "x"), (), (), (Name("grad") * GROWING,))
    [found] = finite(program, ("x",), {}).results
    below = call("where", call("eq", X, -INFINITE), Name("grad") * X, Name("grad") * GROWING)
    assert found == call("where", call("eq", X, INFINITE), Name("grad") * X, below)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.usefixtures("optimised")
def test_a_kernel_gives_the_limits_that_it_never_reaches(
    dtype: torch.dtype, tmp_path: Path, extensions: Path
) -> None:
    function = compiled(tmp_path, "grows", "chain: [softplus, x * x, hardswish, mish]\n").grows
    x = torch.tensor([-math.inf, math.inf, math.nan], dtype=dtype, requires_grad=True)
    y = function(x)
    [slope] = torch.autograd.grad(y, x, torch.full_like(y, -2.0))
    assert y.tolist()[:2] == [0.0, math.inf]
    assert slope.tolist()[:2] == [0.0, -math.inf]
    assert y[2].isnan()
    assert slope[2].isnan()


def test_an_incoming_gradient_is_left_alone() -> None:
    program = Program(("grad", "x"), (), (), (Name("grad") * call("tanh_slope", X),))
    assert finite(program, ("x",), {}) == program


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.usefixtures("optimised")
def test_a_result_that_overflows_is_kept_finite_beside_one_that_is_infinite(
    dtype: torch.dtype, tmp_path: Path, extensions: Path
) -> None:
    """Of gelu_tanh(x) y the gradient by x is y far out, the one by y is x."""
    module = compiled(tmp_path, "geglu_tanh", "inputs: {x: {}, y: {}}\nformula: gelu_tanh(x) * y\n")
    found = [*methods(module.CUDA_SOURCE), *methods(module.CPU_SOURCE)]
    assert not any("Widened" in of_32 or of_32 == "Formula<double>" for _, of_32, _ in found)
    x = torch.tensor([math.inf, -math.inf, 1e30, -1e30, 3.0], dtype=dtype, requires_grad=True)
    y = torch.full_like(x, 2.0, requires_grad=True)
    by_x, by_y = torch.autograd.grad(module.geglu_tanh(x, y), (x, y), torch.ones_like(x))
    assert by_x[:4].tolist() == [2.0, 0.0, 2.0, 0.0]
    assert by_y[:4].tolist() == [math.inf, 0.0, x[2].item(), 0.0]
    assert 2.0 < by_x[4] < 2.05


@pytest.mark.few(2)
@pytest.mark.together
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("name", "below", "above"),
    [
        ("silu", 0.0, math.inf), ("gelu", 0.0, math.inf), ("softsign", -1.0, 1.0),
        *(
            pytest.param(name, 0.0, math.inf, marks=pytest.mark.full)
            for name in ("mish", "serf", "gelu_tanh", "quick_gelu", "tanh_exp")
        ),
    ],
)  # fmt: skip
def test_a_kernel_tends_to_its_limits(name: str, dtype: torch.dtype, below: float, above: float) -> None:
    x = torch.tensor([-math.inf, math.inf, math.nan], dtype=dtype, requires_grad=True)
    y = function(name)(x)
    [slope] = torch.autograd.grad(y, x, torch.ones_like(y))
    assert y.tolist()[:2] == [below, above]
    assert slope.tolist()[:2] == [0.0, 0.0 if name == "softsign" else 1.0]
    assert y[2].isnan()
    assert slope[2].isnan()


def test_what_has_pytorchs_bits_keeps_its_nan() -> None:
    compiled = compiled_file(Path(ROOT / "specs" / "hardswish.yaml"))
    assert compiled.limited == compiled.algebra.derivations.map(lambda found: found.program)
    assert function("hardswish")(torch.tensor([-math.inf]))[0].isnan()


THROUGH_ZERO = "silu mish gelu gelu_tanh quick_gelu serf tanh_exp tanh lecun_tanh elu selu"


@pytest.mark.together
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", by_module(THROUGH_ZERO.split()))
def test_a_zero_keeps_its_sign(name: str, dtype: torch.dtype) -> None:
    """A value of two words is hi + lo, and -0 + 0 would be 0."""
    x = torch.tensor([0.0, -0.0] * 20, dtype=dtype)
    y = function(name)(x)
    assert not y.any()
    assert y.signbit().tolist() == [False, True] * 20
