"""Double-word kernels: the values that have a low word, and the products that are prescaled."""

from fractions import Fraction

import pytest
from budget import budget
from conftest import Workshop
from test_lower import parsed

from fusegen.core.ir import Call, Const, Expr, Kernel, Math, Ref, Word
from fusegen.core.targets import Device
from fusegen.core.term import Let, Name, Number, Program, Term, call
from fusegen.lower import lower
from fusegen.project import build

TENTH = "words(0.10000000149011612, -1.4901161415892261e-09)"

LINE = "linear(2.0, 0.0, 1.0, 0.0, square<DOUBLE_WORD>(x))"

# formula of x, y and the parameter a: what it becomes for the CPU
FORMS = {
    # a number that multiplies is taken exactly, and so is the arithmetic in an argument
    "x * 0.1": f"mul(x, {TENTH})",
    "x * 0.5": "mul(x, 0.5)",
    "x / 10": f"mul(x, {TENTH})",
    "exp(x)": "exp<DOUBLE_WORD>(x)",
    "expm1(x + y)": "expm1(add<DOUBLE_WORD>(x, y))",
    "exp(x + y)": "exp(add<DOUBLE_WORD>(x, y))",
    "exp(x * y - a)": "exp(sub(mul<DOUBLE_WORD>(x, y), a))",
    "exp(0.1 * x)": f"exp(mul({TENTH}, x))",
    "exp(square(x))": "exp(square<DOUBLE_WORD>(x))",
    "exp(cube(x))": "exp(cube<DOUBLE_WORD>(x))",
    # an odd cubic is x times a line in its square
    "exp(2 * (x + cube(x) / 8))": "exp(mul(x, linear(0.25, 0.0, 2.0, 0.0, square<DOUBLE_WORD>(x))))",
    "exp((x + 2 * cube(x)) / 2)": "exp(mul(x, linear(1.0, 0.0, 0.5, 0.0, square<DOUBLE_WORD>(x))))",
    "exp(x + cube(x))": "exp(mul(x, linear(1.0, 0.0, 1.0, 0.0, square<DOUBLE_WORD>(x))))",
    "exp(2 * (x - cube(x) / 8))": "exp(mul(2.0, sub(x, mul(cube<DOUBLE_WORD>(x), 0.125))))",
    "exp(2 * (x + cube(y) / 8))": "exp(mul(2.0, add(x, mul(cube<DOUBLE_WORD>(y), 0.125))))",
    "square(x)": "square(x)",
    "square(sigmoid(x))": "square(sigmoid(x))",
    "log(x * y)": "log(mul(x, y))",
    # what is made of two words is of two words, until something takes one
    "1 + sigmoid(x)": "add(1.0, sigmoid(x))",
    "-sigmoid(x)": "neg(sigmoid(x))",
    "sqrt(sigmoid(x))": "sqrt(narrow(sigmoid(x)))",
    "x / sigmoid(y)": "div(x, narrow(sigmoid(y)))",
    "where(x > 0, sigmoid(x), y)": "then = narrow(sigmoid(x)); where(gt(x, 0.0), then, y)",
    "where(x > 0, sigmoid(x), tanh(x))": (
        "then = narrow(sigmoid(x)); otherwise = narrow(tanh<DOUBLE_WORD>(x)); "
        "where(gt(x, 0.0), then, otherwise)"
    ),
    "2 * where(x > 0, sigmoid(x), y)": "mul(2.0, where(gt(x, 0.0), sigmoid(x), words(y, 0.0)))",
    "where(x > 0, y, sigmoid(x))": "otherwise = narrow(sigmoid(x)); where(gt(x, 0.0), y, otherwise)",
    "erf(x)": "erf<DOUBLE_WORD>(x)",
    "tanh(x * y)": "tanh(mul<DOUBLE_WORD>(x, y))",
    # products with what falls like an exponential are prescaled, up to the last of them
    "x * sigmoid(x)": "x_sigmoid(x, x)",
    "sigmoid(y) * x": "x_sigmoid(x, y)",
    "x * sigmoid(0.1 * y)": f"t = mul({TENTH}, y); x_sigmoid(x, t)",
    "a * sigmoid(x)": "mul(a, sigmoid(x))",
    "x * sigmoid(a)": "mul(x, sigmoid(a))",
    "x * exp(y)": "mul(narrow(mul(x, exp<DOUBLE_WORD>(prescaled(y)))), unscale(y))",
    "x * y * exp(x)": "mul(narrow(mul(mul(x, y), exp<DOUBLE_WORD>(prescaled(x)))), unscale(x))",
    "x * exp(x) + exp(x)": (
        "mul(narrow(add(mul(x, exp<DOUBLE_WORD>(prescaled(x))), exp<DOUBLE_WORD>(prescaled(x)))), "
        "unscale(x))"
    ),
    # a second one with an argument of its own as a whole, which has its own prescaling
    "softplus(x) * (y * sigmoid(y))": (
        "mul(narrow(x_sigmoid(mul(softplus(prescaled(x)), y), words(y, 0.0))), unscale(x))"
    ),
    # its product, which stays double-word where it is added
    "x * exp(x) + y": "add(mul(mul(x, exp<DOUBLE_WORD>(prescaled(x))), unscale(x)), y)",
    "y - x * exp(x)": "sub(y, mul(mul(x, exp<DOUBLE_WORD>(prescaled(x))), unscale(x)))",
    "exp(x) / y": "mul(div(narrow(exp<DOUBLE_WORD>(prescaled(x))), y), unscale(x))",
    "x * erf(exp(x))": "mul(mul(x, erf(narrow(exp<DOUBLE_WORD>(prescaled(x))))), unscale(x))",
    "x * exp(clamp(y, -1, 1))": "mul(x, exp<DOUBLE_WORD>(clamp(y, -1.0, 1.0)))",
    # numbers beyond those of a float
    "1e39 * sigmoid(x)": "mul(inf, sigmoid(x))",
    "sigmoid(x) / -1e-60": "mul(sigmoid(x), -inf)",
    "sigmoid(x) / 1e-310": "mul(sigmoid(x), inf)",
    "1e-60 * sigmoid(x)": "mul(0.0, sigmoid(x))",
    "exp(1e39 * (x + cube(y)))": "exp(mul(inf, add(x, cube<DOUBLE_WORD>(y))))",
    "exp(1e39 * (x + 2 * cube(x)))": f"exp(mul(inf, mul(x, {LINE})))",
}
NESTED = (
    "exp({})",
    "cube({})",
    "x * sigmoid({})",
    "sigmoid(square({}))",
    "sigmoid({}) + sigmoid(2 * x)",
    "silu({})",
)


def kernel(formula: str, device: Device, incoming: str | None = None, inputs: str = "x y") -> Kernel:
    program = Program(tuple(inputs.split()), ("a",), (), (parsed(formula, f"{inputs} a"),))
    return lower("gate", program, device, Math.FLOAT, True, incoming)


def shown(value: Expr) -> str:
    match value:
        case Call(op, args):
            body = f"<{value.body.name}>" if value.body else ""
            return f"{op}{body}({', '.join(map(shown, args))})"
        case Ref(name):
            return name
        case Const(number):
            return repr(number)
    raise AssertionError(value)


@pytest.mark.together
@pytest.mark.parametrize(("formula", "form"), FORMS.items())
def test_a_formula_becomes(formula: str, form: str) -> None:
    made = kernel(formula, Device.CPU)
    steps = [f"{let.name} = {shown(let.value)}" for let in made.lets]
    assert "; ".join((*steps, *map(shown, made.results))) == form


def test_cudas_own_erf_and_tanh_take_one_word() -> None:
    assert shown(kernel("erf(0.1 * x)", Device.CUDA).results[0]) == f"erf(narrow(mul({TENTH}, x)))"
    assert shown(kernel("tanh(x)", Device.CUDA).results[0]) == "tanh(x)"


# on CUDA functions of float give one word, and what is next to them rounds once
SINGLE = {
    "sigmoid(x) * 0.1": "scaled(sigmoid(x), 0.09999999403953552, 5.9604645663569045e-09)",
    "sigmoid(x) * 0.5": "mul(sigmoid(x), 0.5)",
    "2 * (0.05 * sigmoid(x))": "scaled(sigmoid(x), 0.09999999403953552, 5.9604645663569045e-09)",
    "y + x * sigmoid(a)": "fma(x, sigmoid(a), y)",
    "y - x * sigmoid(a)": "fma(neg(x), sigmoid(a), y)",
    "sigmoid(y) + a * sigmoid(x) * sigmoid(a)": "product_plus(a, sigmoid(x), sigmoid(a), sigmoid(y))",
    "a * sigmoid(x) + 0.1": "add(fma(a, sigmoid(x), -1.4901161415892261e-09), 0.10000000149011612)",
    "sigmoid(x) / a": "quotient(sigmoid(x), a)",
    "sigmoid(0.1 * x)": f"sigmoid(mul({TENTH}, x))",
    "exp(x + y)": "exp(add<DOUBLE_WORD>(x, y))",
    "x * sigmoid(y)": "x_sigmoid(x, y)",
    "square(tanh(x))": "square(tanh<DOUBLE_WORD>(x))",
    "x * 0.1": f"mul(x, {TENTH})",  # nothing approximates
}


@pytest.mark.together
@pytest.mark.parametrize(("formula", "form"), SINGLE.items())
def test_a_formula_becomes_on_cuda(formula: str, form: str) -> None:
    assert shown(kernel(formula, Device.CUDA).results[0]) == form


X, Y, A = Name("x"), Name("y"), Name("a")
SLOPES = {
    X * call("sigmoid_slope", X): "x_sigmoid_slope(x, 1.0, x)",
    X * call("sigmoid_slope", X) * (X + X): "x_sigmoid_slope(x, add(x, x), x)",
    X * call("sigmoid_slope", X) * (A + Y): (  # of a product that may overflow where the slope is 0
        "x_sigmoid_slope(where(lt(abs(x), 140.0), x, 0.0), add(a, y), x)"
    ),
    A * call("sigmoid_slope", Y): "fma(a, sigmoid_slope(y), sigmoid(x))",  # of another argument
}


@pytest.mark.parametrize(("slope", "form"), SLOPES.items(), ids=SLOPES.values())
def test_a_sigmoid_and_its_slope_are_computed_together_on_cuda(slope: Term, form: str) -> None:
    program = Program(("x", "y"), ("a",), (), (call("sigmoid", X) + slope,))
    found = lower("f", program, Device.CUDA, Math.FLOAT, True)
    assert shown(found.results[0]) == form


GATE = call("sigmoid", X) + X * call("sigmoid_slope", X)
FACTORS = {  # y being the incoming gradient
    Y * GATE * A: "mul(mul(y, x_sigmoid_slope(x, 1.0, x)), a)",
    GATE * A: "mul(x_sigmoid_slope(x, 1.0, x), a)",
    Y * (GATE + call("exp", X)): (
        "mul(mul(y, add(x_sigmoid_slope(x, 1.0, prescaled(x)), exp<SINGLE_WORD>(prescaled(x)))), "
        "unscale(x))"
    ),
}


@pytest.mark.parametrize(("product", "form"), FACTORS.items(), ids=FACTORS.values())
def test_the_slope_of_a_gate_is_not_prescaled_unless_something_else_is(product: Term, form: str) -> None:
    program = Program(("y", "x"), ("a",), (), (product,))
    found = lower("f", program, Device.CUDA, Math.FLOAT, True, incoming="y")
    assert shown(found.results[0]) == form


def mish(of: Term) -> Term:
    return call("times_tanh_softplus", of)


SHIFTED = X - Number(Fraction(7, 10))
FEW = "sub(x, words(0.699999988079071, 1.1920929132713809e-08))"
# what an earlier function, or arithmetic, has rounded is taken in two words, but on the CPU where one is as
# good as that; on CUDA in float one comes out
OF_EARLIER: dict[tuple[Device, Term], str] = {
    (Device.CPU, mish(mish(X))): "times_tanh_softplus<NEAR>(times_tanh_softplus(x))",
    (Device.CUDA, mish(mish(X))): "times_tanh_softplus(times_tanh_softplus<DOUBLE_WORD>(x))",
    (Device.CPU, mish(SHIFTED)): f"times_tanh_softplus({FEW})",
    (Device.CUDA, mish(SHIFTED)): f"times_tanh_softplus({FEW})",
    (Device.CPU, call("times_ndtr", mish(X))): "times_ndtr(times_tanh_softplus<DOUBLE_WORD>(x))",
    (Device.CUDA, call("times_ndtr", mish(X))): "times_ndtr(times_tanh_softplus<DOUBLE_WORD>(x))",
    (Device.CPU, mish(call("times_ndtr", X))): "times_tanh_softplus<NEAR>(times_ndtr<SINGLE_WORD>(x))",
    (
        Device.CUDA,
        mish(call("times_ndtr", X)),
    ): "times_tanh_softplus(times_ndtr(x))",  # it would take double
    (Device.CPU, call("tanh_slope", X * call("sigmoid", X))): "tanh_slope(x_sigmoid<DOUBLE_WORD>(x, x))",
    (Device.CUDA, call("tanh_slope", X * call("sigmoid", X))): "tanh_slope(x_sigmoid<DOUBLE_WORD>(x, x))",
    (Device.CUDA, mish(X) * mish(Y)): "mul(times_tanh_softplus(x), times_tanh_softplus(y))",
    # of more than two that err by units, all but the last have two words
    (Device.CUDA, mish(X) * mish(Y) * call("tanh_slope", X)): (
        "mul(mul(times_tanh_softplus<DOUBLE_WORD>(x), times_tanh_softplus<DOUBLE_WORD>(y)), tanh_slope(x))"
    ),
}


@pytest.mark.together
@pytest.mark.parametrize(("case", "form"), OF_EARLIER.items())
def test_what_an_earlier_function_has_rounded_is_taken_in_two_words(
    case: tuple[Device, Term], form: str
) -> None:
    device, term = case
    made = lower("f", Program(("x", "y"), (), (), (term,)), device, Math.FLOAT, True)
    assert shown(made.results[0]) == form


def test_what_multiplies_a_number_keeps_infinities_and_the_sign_of_zero() -> None:
    scaled = kernel("sigmoid(x) * 1.0507009873554805", Device.CUDA).results[0]
    assert isinstance(scaled, Call)
    _, hi, lo = scaled.args
    assert isinstance(hi, Const)
    assert isinstance(lo, Const)
    assert (hi.value > 0) == (lo.value > 0)


def test_the_incoming_gradient_prescales_nothing_whatever_an_input_is_called() -> None:
    def form(incoming: str | None) -> str:
        return shown(kernel("gradient * sigmoid(x)", Device.CPU, incoming, "gradient x").results[0])

    assert form(None) == "x_sigmoid(gradient, x)"
    assert form("gradient") == "mul(gradient, sigmoid(x))"


def test_a_name_is_of_two_words_where_an_argument_wants_it() -> None:
    step = Let("u", parsed("x * y"))
    inside = Program(("x", "y"), (), (step,), (parsed("exp(u) + u", "u"),))
    made = lower("gate", inside, Device.CPU, Math.FLOAT, True)
    assert [(let.word, shown(let.value)) for let in made.lets] == [(Word.DOUBLE, "mul<DOUBLE_WORD>(x, y)")]
    outside = Program(("x", "y"), (), (step,), (parsed("u + u", "u"),))
    made = lower("gate", outside, Device.CPU, Math.FLOAT, True)
    assert [(let.word, shown(let.value)) for let in made.lets] == [(Word.SINGLE, "mul(x, y)")]


def test_a_prescaled_step_takes_a_name_that_is_free() -> None:
    lets = (Let("u", parsed("exp(x)")), Let("u_prescaled", parsed("y + 1")), Let("t", parsed("y * 2")))
    result = parsed("(y * u + u_prescaled) * (t * exp(x + t))", "x y u u_prescaled t")
    made = lower("gate", Program(("x", "y"), (), lets, (result,)), Device.CPU, Math.FLOAT, True)
    assert [let.name for let in made.lets] == ["u_prescaled1", "u_prescaled", "t", "t1"]


@pytest.mark.full
@pytest.mark.parametrize("form", NESTED)
def test_the_work_does_not_double_with_every_level(form: str, workshop: Workshop) -> None:
    formula = "x"
    for _ in range(16):
        formula = form.format(formula)
    path = workshop.spec("deep", f"formula: sigmoid({formula})\n")
    with budget(50_000_000):  # twice what is needed; one step that doubles at each level exceeds it
        assert "sigmoid" in build.module(build.compiled_file(path))
