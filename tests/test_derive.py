"""The gradient of every primitive and of whole programs is PyTorch's, kinks and NaN included."""

import math
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import pytest
import torch
import torch.nn.functional as F
from conftest import ROOT, library_spec
from torch import Tensor

from fusegen.algebra.compose import compose_eager, expanded
from fusegen.algebra.derive import aten_gradient, derive, derive_eager, is_arithmetic, unrounded
from fusegen.algebra.simplify.constants import constants_folded
from fusegen.codegen.printers.dump import program as written
from fusegen.codegen.printers.pytorch import statements
from fusegen.compiler.stages import differentiated
from fusegen.core.gradients import GRADIENTS
from fusegen.core.ops import OPS
from fusegen.core.term import INFINITY, Apply, Let, Name, Number, Program, SpecCall, Term, call
from fusegen.errors import Span
from fusegen.language.parse import parse_spec
from fusegen.language.parse.formula import parse_formula
from fusegen.project import build

Function = Callable[..., Tensor]

# every primitive that a formula can hold, in PyTorch, whose autograd is what the rows are held against
TORCH: dict[str, Function] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "neg": torch.neg,
    "where": torch.where,
    "relu": torch.relu, "relu6": F.relu6, "clamp": torch.clamp,
    "saturate": lambda x: F.hardtanh(x, -1.0, 6.0),  # its bounds are numbers
    "clamp_min": torch.clamp_min, "clamp_max": torch.clamp_max,
    "minimum": torch.minimum, "maximum": torch.maximum, "abs": torch.abs, "sign": torch.sign,
    "detach": torch.detach,
    "square": torch.square, "cube": lambda x: x**3, "reciprocal": torch.reciprocal,
    "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "pow": torch.pow, "scaled_hypot": torch.hypot,
    "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1,
    "log": torch.log, "log2": torch.log2, "log1p": torch.log1p,
    "sin": torch.sin, "cos": torch.cos, "tanh": torch.tanh, "erf": torch.erf, "erfc": torch.erfc,
    "sinpi": lambda x: torch.sin(math.pi * x), "cospi": lambda x: torch.cos(math.pi * x),
    "ndtr": torch.special.ndtr, "sigmoid": torch.sigmoid,
    "softplus": lambda x: F.softplus(x, threshold=100.0),
    "soft_sign": F.softsign, "tanh_shrink": F.tanhshrink, "tanh_of_exp": lambda x: torch.tanh(torch.exp(x)),
    "times_ndtr": lambda x: x * torch.special.ndtr(x), "times_tanh_softplus": F.mish,
    "tanh_softplus": lambda x: torch.tanh(F.softplus(x, threshold=100.0)),
    "sigmoid_slope": lambda x: torch.sigmoid(x) * torch.sigmoid(-x),
    "tanh_slope": lambda x: 4 * torch.sigmoid(2 * x) * torch.sigmoid(-2 * x),
    "gauss": lambda x: torch.exp(-x * x),
    "normal": lambda x: torch.exp(-x * x / 2) / math.sqrt(2 * math.pi),
}  # fmt: skip
# and what only the compiler writes
COMPUTED: dict[str, Function] = TORCH | {
    "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge, "eq": torch.eq, "ne": torch.ne,
    "fma": lambda a, b, c: (a.double() * b + c).to(a.dtype), "quotient": torch.div,
    "select_by_width": lambda narrow, wide: wide, "saturate": torch.clamp,
    "clamp_to_lowest": lambda x: x.clamp(min=-(2.0**1022)),
    "clamp_to_highest": lambda x: x.clamp(max=2.0**1022),
    "sigmoid_slope": lambda x: torch.exp(-abs(x)) / (1 + torch.exp(-abs(x))).square(),
    "tanh_slope": lambda x: 4 * torch.exp(-2 * abs(x)) / (1 + torch.exp(-2 * abs(x))).square(),
    "tanh_softplus_slope": lambda x: _mish_slope(torch.exp(-abs(x)), x > 0),
    "times_ndtr_slope": lambda x: torch.special.ndtr(x) + x * COMPUTED["normal"](x),
    "times_tanh_softplus_slope": lambda x: (
        TORCH["tanh_softplus"](x) + x * COMPUTED["tanh_softplus_slope"](x)
    ),
    "tanh_of_exp_slope": lambda x: (t := x.clamp(max=10).exp()) / t.cosh().square(),
    "scaled_hypot_slope": lambda a, b: a / torch.hypot(a, b),
    "gauss": lambda x: torch.exp(-x * x),
    "normal": lambda x: torch.exp(-x * x / 2) / math.sqrt(math.tau),
    "pi": lambda: torch.tensor(math.pi, dtype=torch.float64),
    "e": lambda: torch.tensor(math.e, dtype=torch.float64),
}  # fmt: skip


def _mish_slope(e: Tensor, positive: Tensor) -> Tensor:
    """The slope of tanh(softplus(x)), where e is exp(-|x|)."""
    n = torch.where(positive, 1 + 2 * e, e * (e + 2))
    d = n + torch.where(positive, 2 * e * e, 2.0)
    return 4 * e * (1 + e) * torch.where(positive, e, 1.0) / (d * d)


class Interpreter:
    """Computes terms by PyTorch's operations; `dtype` is what `round_to_storage` rounds to."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        """Compute in float64 for float64, else in float32."""
        self.dtype, self.wide = dtype, torch.float64 if dtype == torch.float64 else torch.float32

    def value(self, term: Term, values: dict[str, Tensor]) -> Tensor:
        """The value of a term."""
        match term:
            case Number(number):
                infinite = math.inf if number > 0 else -math.inf
                value = infinite if abs(number) >= INFINITY else float(number)
                return torch.tensor(value, dtype=torch.float64).to(self.wide)
            case Name(name):
                return values[name]
            case Apply("round_to_storage", (part,)):
                return self.value(part, values).to(self.dtype).to(self.wide)
            case Apply(op, args):
                return COMPUTED[op](*(self.value(arg, values) for arg in args))
        raise AssertionError(term)

    def results(self, program: Program, values: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """The results of a program, each as large as its first input."""
        assert set(values) >= {*program.inputs, *program.params}
        values = {name: value.to(self.wide) for name, value in values.items()}
        shape = values[program.inputs[0]].shape
        for let in program.lets:
            values[let.name] = self.value(let.term, values)
        found = (self.value(result, values) for result in program.results)
        return tuple(value.to(self.dtype).expand(shape) for value in found)


def parsed(text: str, scope: str = "x y a b u v") -> Term:
    """The term that a formula over the names in `scope` denotes."""
    return parse_formula(text, Span("formula", 1, 1, text).after, scope.split())


def program(formula: str, inputs: str = "x", params: str = "", **lets: str) -> Program:
    """A program of one result."""
    steps = tuple(Let(name, parsed(text)) for name, text in lets.items())
    return Program(tuple(inputs.split()), tuple(params.split()), steps, (parsed(formula),))


def autograd(
    function: Callable[..., Tensor], g: Tensor, tensors: list[Tensor], *others: Any
) -> tuple[Tensor, ...]:
    """The gradient of each tensor by PyTorch, zeros where there is none."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    y = function(*leaves, *others)
    if not y.requires_grad:
        return tuple(map(torch.zeros_like, tensors))
    found = torch.autograd.grad(y, leaves, g, allow_unused=True, materialize_grads=True)
    return tuple(gradient.detach() for gradient in found)


# --- one row after the other ---------------------------------------------------------------------------

KINKS = [0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, -6.0, 0.5, -0.5, 1e-9, -1e-9]
NUMBERS = [*KINKS, 0.3, -0.7, 2.5, -2.2, 5.999, 6.001, 11.0, -9.0, 30.0, -30.0]
SPECIAL = [math.inf, -math.inf, math.nan]


def points(count: int, special: bool = True) -> list[Tensor]:
    """Every combination of numbers, among them equal ones and kinks."""
    values = torch.tensor(NUMBERS + (SPECIAL if special else []), dtype=torch.float64)
    return [column.flatten() for column in torch.meshgrid(*[values] * count, indexing="ij")]


def test_every_operation_has_a_gradient() -> None:
    """Every one that a formula can hold, and every form that stands for several of them."""
    compiler = {
        "tanh_softplus_slope",
        "tanh_of_exp_slope",
        "times_ndtr_slope",
        "scaled_hypot_slope",
        "times_tanh_softplus_slope",
        "fma",
        "quotient",
        "select_by_width",
        "clamp_to_lowest",
        "clamp_to_highest",
    }
    wanted = {n for n, row in OPS.items() if row.args and not row.boolean} - compiler - {"round_to_storage"}
    assert set(GRADIENTS) == wanted
    assert set(TORCH) == wanted


@pytest.mark.together
@pytest.mark.parametrize("op", GRADIENTS)
def test_a_row_is_autograds_gradient(op: str) -> None:
    names = [f"x{k}" for k in range(1 if op == "saturate" else len(OPS[op].args))]
    tensors = points(len(names))
    g = torch.linspace(-2, 3, tensors[0].numel(), dtype=torch.float64)
    given: list[Term] = [Name(name) for name in names]
    function = TORCH[op]
    if op == "where":
        given[0] = call("gt", given[0], 0)
        function = lambda c, a, b: torch.where(c > 0, a, b)  # noqa: E731
    if op == "saturate":
        given += [Number(Fraction(-1)), Number(Fraction(6))]
    whole = Program(tuple(names), (), (), (Apply(op, tuple(given)),))
    derived = derive(whole)
    saved = tensors if len(derived.inputs) > 2 or derived.inputs[1] == names[0] else [function(*tensors)]
    found = Interpreter().results(derived, dict(zip(derived.inputs, [g, *saved], strict=True)))
    expected = autograd(function, g, tensors)
    assert len(found) == len(expected) == len(names)
    for actual, exact in zip(found, expected, strict=True):
        usual = ~UNUSUAL[op](*tensors) if op in UNUSUAL else slice(None)
        torch.testing.assert_close(actual[usual], exact[usual], rtol=1e-9, atol=1e-12, equal_nan=True)


# where an accurate form differs on purpose: nothing is lost, or no product with infinity is made
UNUSUAL: dict[str, Callable[..., Tensor]] = {
    "div": lambda a, b: ~(a.isfinite() & b.isfinite()) | (b == 0),
    "soft_sign": lambda x: ~x.isfinite(),
    "expm1": lambda x: x.isinf(),
    "erf": lambda x: x.isinf(), "erfc": lambda x: x.isinf(), "ndtr": lambda x: x.isinf(),
    "tanh_softplus": lambda x: x.isinf(), "tanh_of_exp": lambda x: x > 6,
    "times_ndtr": lambda x: x.isinf(), "times_tanh_softplus": lambda x: x.isinf(),
    "saturate": torch.isnan,  # which PyTorch's vectorized kernel on the CPU gives no gradient
}  # fmt: skip


@pytest.mark.parametrize("op", [op for op in GRADIENTS if GRADIENTS[op].eager])
def test_a_row_for_eager_is_autograds_gradient(op: str) -> None:
    args = tuple(f"x{k}" for k in range(len(OPS[op].args)))
    whole = Program(args, (), (), (Apply("round_to_storage", (Apply(op, tuple(map(Name, args))),)),))
    tensors = points(len(args))
    g = torch.linspace(-2, 3, tensors[0].numel(), dtype=torch.float64)
    found = Interpreter().results(
        derive_eager(whole), dict(zip(("grad", *args), [g, *tensors], strict=True))
    )
    for actual, exact in zip(found, autograd(TORCH[op], g, tensors), strict=True):
        torch.testing.assert_close(actual, exact, rtol=1e-15, atol=0, equal_nan=True)


SMOOTH: dict[str, Callable[..., Any]] = {
    "expm1": mpmath.exp,
    "tanh": lambda x: mpmath.sech(x) ** 2,
    "sigmoid": lambda x: mpmath.exp(-x) / (1 + mpmath.exp(-x)) ** 2,
    "softplus": lambda x: 1 / (1 + mpmath.exp(-x)),
    "erf": lambda x: 2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-x * x),
    "erfc": lambda x: -2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-x * x),
    "ndtr": mpmath.npdf,
    "soft_sign": lambda x: 1 / (1 + abs(x)) ** 2,
    "tanh_shrink": lambda x: mpmath.tanh(x) ** 2,
    "tanh_softplus": lambda x: mpmath.sech(mpmath.log(1 + mpmath.exp(x))) ** 2 / (1 + mpmath.exp(-x)),
    "exp2": lambda x: mpmath.log(2) * mpmath.power(2, x),
    "log2": lambda x: 1 / (x * mpmath.log(2)),
    "rsqrt": lambda x: -1 / (2 * mpmath.power(x, 1.5)),
}


@pytest.mark.together
@pytest.mark.parametrize("op", SMOOTH)
def test_nothing_cancels_in_an_accurate_slope(op: str) -> None:
    """The relative error stays small where the slope is."""
    x = torch.tensor(
        [s * v for v in (1e-8, 0.1, 0.9, 2.0, 5.0, 12.0, 19.0) for s in (1, -1)], dtype=torch.float64
    )
    x = x[x > 0] if op in ("log2", "rsqrt") else x
    derived = derive(program(f"{op}(x) * 1" if OPS[op].written else "x"))
    if not OPS[op].written:
        derived = derive(Program(("x",), (), (), (call("mul", call(op, Name("x")), 1),)))
    [found] = Interpreter().results(derived, {"grad": torch.ones_like(x), "x": x})
    with mpmath.workdps(400):
        for at, value in zip(x.tolist(), found.tolist(), strict=True):
            exact = SMOOTH[op](mpmath.mpf(at))
            assert abs(value - exact) <= abs(exact) * 2e-13, at  # of a square's rounding, times 19 * 19


# --- whole programs ------------------------------------------------------------------------------------

PROGRAMS = {
    "x * x": program("x * x"),
    "steps used twice": program("u * v + u", u="tanh(x)", v="exp(u) - x"),
    "two inputs": program("x * sigmoid(y) - y / (1 + x * x)", "x y"),
    "an input without influence": program("x * 2", "x y"),
    "an input without a slope": program("sign(x) * y", "x y"),
    "a parameter": program("where(x > a, x, b * expm1(x / b))", params="a b"),
    "parameters only in a step": program("x * u + u", params="a b", u="a * b + 1"),
    "a step that is an input": program("u * x", u="x"),
    "nested choices": program("where(x > 0, where(x > 2, x * x, 3 * x), where(y > x, y, x * y))", "x y"),
    "a choice of steps": program("where(u > v, u, v) * u", "x y", u="x * y", v="sin(x)"),
    "a choice within a product": program("x * where(y > 0, x, y) * y", "x y"),
    "bounds that move": program("clamp(x, y, y + 1) + maximum(x * y, y) - minimum(x, 2)", "x y"),
    "a chain": program("cube(v) / u", u="relu6(x + 3) + 1", v="u * abs(x)"),
    "a power": program("(x * x + 1) ** (y / 2) + pow(2, x)", "x y"),
    "the input itself": program("x"),
    "a constant": program("3 + 0 * a", params="a"),
}


def by_hand(whole: Program) -> Callable[..., Tensor]:
    """The program as a function of tensors, then of the parameters, for autograd."""

    def function(*values: Tensor) -> Tensor:
        given = dict(zip((*whole.inputs, *whole.params), values, strict=True))
        for let in whole.lets:
            given[let.name] = Interpreter().value(let.term, given)
        return Interpreter().value(whole.results[0], given) + 0 * values[0]

    return function


@pytest.mark.together
@pytest.mark.parametrize("of", PROGRAMS)
def test_the_gradient_of_a_program_is_autograds(of: str) -> None:
    whole = PROGRAMS[of]
    tensors = points(len(whole.inputs), special=False)
    g = torch.linspace(-2, 3, tensors[0].numel(), dtype=torch.float64)
    params = [torch.tensor(v, dtype=torch.float64) for v in (0.75, 1.5)][: len(whole.params)]
    derived = derive(whole)
    assert derived.inputs == ("grad", *whole.inputs)
    assert derived.params == whole.params
    names = (*derived.inputs, *derived.params)
    found = Interpreter().results(derived, dict(zip(names, [g, *tensors, *params], strict=True)))
    expected = autograd(by_hand(whole), g, tensors, *params)
    for actual, exact in zip(found, expected, strict=True):
        torch.testing.assert_close(actual, exact, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_an_overflow_of_the_branch_not_taken_does_not_reach_the_gradient() -> None:
    huge = torch.tensor([800.0, 1.0], dtype=torch.float64)
    for formula in ("where(x > 700, 2 * x, x * exp(x))", "where(700 < x, 2 * x, exp(x) / x * x)"):
        [found] = Interpreter().results(
            derive(program(formula)), {"grad": torch.ones(2).double(), "x": huge}
        )
        assert found[0] == 2.0
        assert found[1].isfinite()


SPECS = sorted(path.stem for path in (ROOT / "specs").glob("*.yaml"))
DIVIDED_BY = {"snake_per_channel": 1}  # an input, which is not tried at 0, where eager gives NaN


@pytest.mark.together
@pytest.mark.few(3)
@pytest.mark.parametrize("name", SPECS)
def test_the_gradient_of_every_committed_spec_is_that_of_its_eager_form(name: str) -> None:
    """At kinks too; the eager form is the one in the module, of PyTorch's own operations."""
    compiled = library_spec(name)
    spec = compiled.spec
    inputs, params = [i.name for i in spec.tensors], [p.name for p in spec.scalars]
    body = "\n    ".join(statements(constants_folded(compiled.declared.eager)))
    scope: dict[str, Any] = {"torch": torch, "nn": torch.nn}
    exec(f"def eager({', '.join([*inputs, *params])}):\n    {body}", scope)
    scalars = [float(p.default) for p in spec.scalars]
    tensors = points(len(inputs), special=False)
    if name in DIVIDED_BY:
        tensors[DIVIDED_BY[name]] = tensors[DIVIDED_BY[name]].where(
            tensors[DIVIDED_BY[name]].abs() > 0.1, 0.7
        )
    g = torch.linspace(-2, 3, tensors[0].numel(), dtype=torch.float64)
    expected = autograd(scope["eager"], g, tensors, *scalars)
    derived = expanded(differentiated(compiled.declared))
    saved = tensors
    if derived.inputs[1:] != tuple(inputs):
        saved = [scope["eager"](*tensors, *scalars)]
    values = dict(zip(derived.inputs, [g, *saved], strict=True))
    values |= {p: torch.tensor(v, dtype=torch.float64) for p, v in zip(params, scalars, strict=True)}
    near = 1e-6 if name in ("softplus", "logsigmoid", "serf", "mish", "hardsigmoid") else 1e-9
    for whole in (derived, compiled.programs.backward):
        for actual, exact in zip(Interpreter().results(whole, values), expected, strict=True):
            torch.testing.assert_close(actual, exact, rtol=near, atol=1e-8)


# --- what is saved, how it is named --------------------------------------------------------------------


@pytest.mark.parametrize("op", [op for op, row in GRADIENTS.items() if row.from_value])
def test_a_primitive_whose_value_is_enough_is_read_off_the_output(op: str) -> None:
    whole = Program(("x",), ("a",), (), (Apply(op, (Name("x"),)),))
    derived = derive(whole)
    assert (derived.inputs, derived.params, derived.lets) == (("grad", "output"), ("a",), ())
    x = torch.tensor([0.5, 1.0, 6.0, 7.0, 2.25, 0.0], dtype=torch.float64)
    g = torch.linspace(-1, 2, len(x), dtype=torch.float64)
    y = TORCH[op](x)
    [found] = Interpreter().results(derived, {"grad": g, "output": y, "a": y})
    [exact] = autograd(TORCH[op], g, [x])
    torch.testing.assert_close(found, exact, rtol=1e-15, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "whole",
    [
        program("tanh(x)"),
        program("log(x)"),
        program("relu(x) * 2"),
        program("relu(2 * x)"),
        program("relu(x)", "x y"),
        program("relu(u)", u="x + 1"),
        program("relu(3)", "x"),
        program("relu(a)", "x", "a"),
    ],
    ids=lambda whole: written(whole).splitlines()[-1],
)
def test_everything_else_saves_its_inputs(whole: Program) -> None:
    assert derive(whole).inputs == ("grad", *whole.inputs)


def test_eager_saves_the_inputs_of_a_primitive() -> None:
    whole = Program(("x",), (), (), (call("round_to_storage", call("relu", Name("x"))),))
    assert derive_eager(whole).inputs == ("grad", "x")


def lines(whole: Program, eager: bool = False) -> list[str]:
    return written((derive_eager if eager else derive)(whole)).splitlines()


def test_a_step_that_is_used_once_is_written_where_it_is_used() -> None:
    assert lines(program("sin(cos(x))")) == ["given grad, x", "return -(grad · cos(cos(x))) · sin(x)"]
    assert lines(program("exp(2 * x + 1)")) == ["given grad, x", "return grad · exp(2 · x + 1) · 2"]


def test_a_step_that_is_used_twice_has_a_name_and_is_computed_once() -> None:
    assert lines(program("x * x * exp(x * x)")) == [
        "given grad, x",
        "t = x · x",
        "t2 = exp(t)",
        "grad_t = grad · t2 + grad · t · t2",
        "return grad_t · x + grad_t · x",
    ]


def test_the_authors_names_stay() -> None:
    assert lines(program("exp(u) * v", u="x + 3", v="a * 2", params="a")) == [
        "given grad, x, a",
        "u = x + 3",
        "v = a · 2",
        "return grad · v · exp(u)",
    ]


def test_a_name_never_meets_one_in_use() -> None:
    names = Program(("grad", "t"), ("output",), (), (parsed("sin(grad * t) * cos(grad * t)", "grad t"),))
    derived = derive(names)
    assert derived.inputs == ("grad2", "grad", "t")
    taken = [*derived.inputs, *derived.params, *(let.name for let in derived.lets)]
    assert len(set(taken)) == len(taken)
    assert not set(taken) & set(OPS)
    output = derive(Program(("x",), ("grad", "output"), (), (call("relu", Name("x")),)))
    assert output.inputs == ("grad2", "output2")


def test_parameters_have_no_gradient_and_steps_of_them_none_either() -> None:
    derived = derive(program("x * u", params="a b", u="exp(a) * b"))
    assert written(derived) == "given grad, x, a, b\nu = exp(a) · b\nreturn grad · u"
    assert derive(program("a * 2", params="a")).results == (Number(Fraction(0)),)


# --- PyTorch's own kernels and eager's rounding --------------------------------------------------------


def test_a_gradient_of_one_kernel_of_pytorchs_is_that_kernels() -> None:
    relu = SpecCall("torch.nn.functional.relu", (Name("x"),))
    derived = aten_gradient(Program(("x",), (), (), (call("round_to_storage", relu),)))
    assert derived is not None
    assert written(derived) == "given grad, output\nreturn 0 if output ≤ 0 else grad"
    elu = SpecCall("torch.nn.functional.elu", (Name("x"), Name("a")))
    derived = aten_gradient(Program(("x",), ("a",), (), (call("round_to_storage", elu),)))
    assert derived is not None
    assert written(derived).splitlines() == [
        "given grad, x, a",
        "return grad · a · exp(x) if x ≤ 0 else grad",
    ]


@pytest.mark.parametrize(
    "whole",
    [
        program("x * 2"),
        Program(("x",), (), (), (SpecCall("torch.tanh", (Name("x"),)),)),
        Program(
            ("x",), (), (),
            (call("round_to_storage", call("mul", SpecCall("torch.tanh", (Name("x"),)), 2)),),
        ),
        Program(
            ("x", "y"), (), (),
            (call("round_to_storage", SpecCall("torch.nn.functional.glu", (Name("y"), Name("x")))),),
        ),
        Program(
            ("x",), (), (Let("u", call("add", Name("x"), 1)),),
            (call("round_to_storage", SpecCall("torch.tanh", (Name("u"),))),),
        ),
    ],
    ids=lambda whole: written(whole).splitlines()[-1],
)  # fmt: skip
def test_what_is_more_than_one_kernel_has_no_gradient_of_its_own(whole: Program) -> None:
    assert aten_gradient(whole) is None


def test_arithmetic_is_told_from_what_approximates() -> None:
    exact = program("where(x > 0, x * 2 / 3, sqrt(abs(x)))")
    assert is_arithmetic(exact, exact)
    for formula in ("exp(x)", "x ** 2.5", "sigmoid(x)", "softplus(x)", "erfc(x)", "sin(x) + 1"):
        assert not is_arithmetic(exact, program(formula))
        assert not is_arithmetic(program("u * 2", u=formula), exact)


def test_a_program_without_its_roundings_is_otherwise_the_same() -> None:
    term = call(
        "round_to_storage", call("mul", call("round_to_storage", call("add", Name("x"), 1)), Name("u"))
    )
    whole = Program(("x",), (), (Let("u", call("round_to_storage", call("exp", Name("x")))),), (term,))
    assert unrounded(whole) == program("(x + 1) * u", u="exp(x)")


EAGER = [
    "x * y", "x / y", "x - y * x", "x / 3 * y", "-x * (y + 2)", "abs(x) / (abs(x) + 1)", "square(x) * y",
    "exp(x) - y", "expm1(x * 0.5)", "log(abs(x) + 1)", "sin(x) + cos(y)", "relu(x) * y", "relu6(x + 3) / 6",
    "clamp(x, -1, 1) * y", "where(x > 0.5, x * y, y - x)", "maximum(x, y) * 2", "minimum(x, y) * x",
    "cube(x) + 1", "reciprocal(x) * y", "log1p(abs(x)) * x", "clamp_min(x, 0.5) + clamp_max(y, 0)",
    "exp2(x) * 3", "x ** 2.5 * y", "2 * x / (y - 3)", "log2(abs(x) + 1) * y", "erf(x) * y", "erfc(x) * y",
]  # fmt: skip
FUSED = ["tanh(x) * y", "sigmoid(x) * x", "softplus(x) * 2"]
EVERY = (torch.bfloat16, torch.float16, torch.float32)
CASES = [(formula, dtype) for formula in EAGER for dtype in EVERY]
CASES += [(f, torch.float32) for f in ("sqrt(abs(x)) * y", "rsqrt(abs(x) + 1)")]  # 16 bits: not the CPU's


def eagerly(formula: str, dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
    """The gradients of a formula of one or two tensors by derive, and by autograd."""
    inputs = [name for name in ("x", "y") if re.search(rf"\b{name}\b", formula)]
    declared = ", ".join(f"{name}: {{}}" for name in inputs)
    text = f"name: gate\nsummary: s\nnumerics: eager\ninputs: {{{declared}}}\nformula: {formula}\n"
    eager = compose_eager(parse_spec(text, "gate.yaml"), lambda name: None, ())
    derived = expanded(derive_eager(eager))
    g, *tensors = (torch.randn(3, 1000, generator=torch.Generator().manual_seed(1)) * 2).to(dtype)
    given = dict(zip(inputs, tensors, strict=False))
    expected = autograd(
        lambda *leaves: eval(formula, TORCH | dict(zip(inputs, leaves, strict=True))),
        g,
        list(given.values()),
    )
    yield from zip(Interpreter(dtype).results(derived, {"grad": g, **given}), expected, strict=True)


@pytest.mark.together
@pytest.mark.parametrize(("formula", "dtype"), CASES, ids=str)
def test_an_eager_gradient_is_autograds_bit_by_bit(formula: str, dtype: torch.dtype) -> None:
    """On the CPU, in 16 bits too, where each operation rounds."""
    for actual, exact in eagerly(formula, dtype):
        wrong = (actual != exact) & ~(actual.isnan() & exact.isnan())
        assert not wrong.any(), list(
            zip(actual[wrong][:3].tolist(), exact[wrong][:3].tolist(), strict=True)
        )


@pytest.mark.parametrize("dtype", EVERY, ids=str)
@pytest.mark.parametrize("formula", FUSED)
def test_an_eager_gradient_through_a_fused_kernel_is_near_autograds(
    formula: str, dtype: torch.dtype
) -> None:
    """Near only, since the fused kernels of the CPU are not those of CUDA; most elements to the bit."""
    for actual, exact in eagerly(formula, dtype):
        eps = torch.finfo(dtype).eps  # sigmoid's rounds between operations in one 16-bit type only
        torch.testing.assert_close(actual, exact, rtol=4 * eps, atol=max(eps, 1e-6))
        assert int((actual != exact).sum()) <= (200 if dtype.itemsize == 2 else 500)


def test_an_eager_gradient_of_a_kernel_of_pytorchs_is_rounded_once() -> None:
    tanh = call("round_to_storage", SpecCall("torch.tanh", (Name("x"),)))
    assert lines(
        Program(("x",), (), (), (call("round_to_storage", call("mul", tanh, Name("x"))),)), eager=True
    ) == [
        "given grad, x",
        "t = round_to_storage(torch.tanh(x))",
        "grad_t = round_to_storage(grad · x)",
        "return round_to_storage(round_to_storage(grad · t) + round_to_storage(select_by_width("
        "grad_t · round_to_storage(1 - round_to_storage(t · t)), grad_t · fma(-t, t, 1))))",
    ]


@pytest.mark.full
def test_the_gradient_of_a_better_form_reads_what_is_saved_for_it(tmp_path: Path) -> None:
    """Exp(x) as a product whose factors overflow: its gradient is of the form, which saves the output."""
    lets = ", ".join(["w: exp(56 * x)", *(f"u{k}: exp(-{k} * x)" for k in range(1, 11))])
    product = " * ".join(["w", *(f"u{k}" for k in range(1, 11))])
    path = tmp_path / "deep.yaml"
    path.write_text(f"name: deep\nsummary: S.\nwhere: {{{lets}}}\nformula: {product}\n", encoding="utf-8")
    compiled = build.compiled_file(path)
    assert compiled.algebra.derivations.backward.first.inputs[1:] == ("output",)
    assert compiled.programs.backward.inputs[1:] == ("output",)
    assert "def eager_gradient(grad, output):" in build.module(compiled)
