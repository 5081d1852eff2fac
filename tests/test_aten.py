"""Every row of the table of PyTorch's fused kernels, computed step by step, against the kernel itself."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from kernels import assert_same, patterns
from torch import Tensor

from fusegen.core.aten import ATEN, Fused
from fusegen.core.term import Apply, Name, Number, Term, names, walk

COUNT = 2**14
KINKS = (0.5, 1.0, 3.0, 6.0, 20.0)
WIDE, NARROW = (torch.float32, torch.float64), (torch.float16, torch.bfloat16)
Params = tuple[float, ...]

PARAMS: dict[str, tuple[Params, ...]] = {
    "torch.nn.functional.hardtanh": ((-1.0, 1.0), (-0.3, 2.7)),
    "torch.nn.functional.leaky_relu": ((0.01,), (-0.7,)),
    "torch.nn.functional.rrelu": ((0.125, 1 / 3), (0.25, 0.5)),
    "torch.nn.functional.threshold": ((0.0, 0.0), (0.3, -1.7)),
    "torch.nn.functional.hardshrink": ((0.5,), (0.3,)),
    "torch.nn.functional.softshrink": ((0.5,), (0.3,)),
    "torch.nn.functional.elu": ((1.0,), (0.7,)),
    "torch.nn.functional.celu": ((1.0,), (0.75,), (1.5,)),  # floats: backward rounds alpha to one
    "torch.nn.functional.softplus": ((1.0, 20.0), (1.5, 3.0), (0.75, 6.0)),
}
CASES = [(name, params) for name in ATEN for params in PARAMS.get(name, ((),))]
ARITHMETIC = [
    f"torch.nn.functional.{name}"
    for name in (
        "relu relu6 hardtanh leaky_relu rrelu threshold hardshrink softshrink hardsigmoid hardswish"
    ).split()
]
FROM_OUTPUT = ["torch.sigmoid", "torch.tanh"]
NEAR = {torch.float32: (2e-5, 4e-6), torch.float64: (1e-12, 1e-14)}  # relative, absolute
FLOATS = {  # the bits of ATen's constants of type float
    "torch.nn.functional.gelu(approximate='tanh')": {0x3F4C422A, 0x3D372713},
    "torch.nn.functional.gelu": {0x3F3504F3, 0x3ECC422A},
    "torch.nn.functional.hardsigmoid": {0x3E2AAAAB},
    "torch.nn.functional.selu": {0x3F867D5F, 0x3FE10966},
}
SIXTH_IN_FLOAT = (1e-7, 0.0)  # float64 hardsigmoid's backward takes the float nearest to 1/6

pytestmark = pytest.mark.filterwarnings("ignore:TF32 acceleration")  # of a switch beside oneDNN's own
every_case = pytest.mark.parametrize(("name", "params"), CASES, ids=lambda value: str(value))
wide = pytest.mark.parametrize("dtype", WIDE, ids=str)


def relu(x: Tensor) -> Tensor:
    return torch.where(x < 0, torch.zeros_like(x), x)


def clamp(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    x = torch.where(x < low, low, x)
    return torch.where(x > high, high, x)


def fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return (a.double() * b.double() + c.double()).to(a.dtype)  # of floats, the product is exact


STEPS: dict[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "quotient": torch.div,
    "neg": torch.neg,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "where": torch.where,
    "relu": relu,
    "relu6": lambda x: clamp(x, torch.zeros_like(x), torch.full_like(x, 6)),
    "clamp": clamp,
    "abs": torch.abs,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log1p": torch.log1p,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "fma": fma,
}


class Steps:
    """A term's value, one operation of PyTorch for each of its own, in the math of a storage type."""

    def __init__(self, dtype: torch.dtype, device: str = "cpu") -> None:
        self.dtype, self.device = dtype, device
        self.math = torch.float64 if dtype == torch.float64 else torch.float32

    def number(self, value: Fraction | float) -> Tensor:
        """A constant: rounded to float64, then to the math type."""
        return torch.tensor(float(value), dtype=self.math, device=self.device)

    def value(self, term: Term, given: dict[str, Tensor]) -> Tensor:
        """A term's value, in the math type."""
        match term:
            case Number(value):
                return self.number(value)
            case Name(name):
                return given[name]
            case Apply("round_to_storage", (part,)):
                return self.value(part, given).to(self.dtype).to(self.math)
            case Apply("div", (part, Number(value))) if self.device == "cuda":
                return self.value(part, given) * self.number(1 / float(value))
            case Apply(op, parts):
                return STEPS[op](*(self.value(part, given) for part in parts))
        raise AssertionError(term)

    def values(self, terms: tuple[Term, ...], given: dict[str, Tensor], params: Any) -> list[Tensor]:
        """The values of terms of tensors of the storage type and of numbers, rounded to that type."""
        widened = {name: tensor.to(self.math) for name, tensor in given.items()}
        widened |= {name: self.number(value) for name, value in params.items()}
        shape = next(iter(given.values()))
        return [self.value(term, widened).to(self.dtype).expand_as(shape) for term in terms]

    def forward(self, row: Fused, inputs: list[Tensor], params: Any) -> Tensor:
        """The row's value."""
        term = row.forward(*map(Name, (*row.inputs, *row.params)))
        return self.values((term,), dict(zip(row.inputs, inputs, strict=True)), params)[0]

    def backward(self, row: Fused, g: Tensor, saved: list[Tensor], params: Any) -> list[Tensor]:
        """The row's gradient for each input."""
        rule = row.half if row.half and self.device == "cuda" and self.dtype in NARROW else row.backward
        arguments = ("g", *(row.inputs if row.saves == "inputs" else ("y",)))
        terms = rule(*map(Name, (*arguments, *row.params)))
        return self.values(terms, dict(zip(arguments, (g, *saved), strict=True)), params)


def kernel(name: str) -> Callable[..., Tensor]:
    """PyTorch's function of a row, of one tensor for each of the row's inputs."""
    path, _, rest = name.partition("(")
    function: Any = torch
    for part in path.split(".")[1:]:
        function = getattr(function, part)
    if rest:
        return lambda x: function(x, approximate="tanh")
    if path.endswith(".glu"):
        return lambda a, b: function(torch.cat([a, b]), dim=0)
    return lambda *inputs, **params: function(*inputs, **params)


def operands(row: Fused, dtype: torch.dtype, params: Params, device: str = "cpu") -> list[Tensor]:
    """The row's inputs: values of every kind, in another order for each."""
    kinks = (*KINKS, *map(abs, params), *(params[1] / params[0] for _ in params[1:] if params[0]))
    x = patterns(dtype, COUNT, kinks, device)
    return [x, x.roll(len(x) // 3)][: len(row.inputs)]


def gradient(x: Tensor) -> Tensor:
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(x)


def spread(x: Tensor) -> Tensor:
    """The same values two apart, for which the CPU's kernels are scalar and treat NaN as CUDA's do."""
    return torch.stack([x, torch.zeros_like(x)], dim=-1)[:, 0]


def pulled(
    name: str, inputs: list[Tensor], g: Tensor, params: dict[str, float]
) -> tuple[Tensor, list[Tensor]]:
    """The value and the gradients that PyTorch's kernels give."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    with torch.backends.mkldnn.flags(enabled=False):  # oneDNN's gelu is another
        y = kernel(name)(*leaves, **params)
        return y.detach(), list(torch.autograd.grad(y, leaves, g))


def assert_near(actual: Tensor, expected: Tensor, name: str, near: tuple[float, float]) -> None:
    """They agree within a relative and an absolute bound; a NaN agrees with every other NaN."""
    relative, absolute = near
    torch.testing.assert_close(
        actual, expected, rtol=relative, atol=absolute, equal_nan=True, msg=lambda m: f"{name}: {m}"
    )


@pytest.mark.together
@wide
@every_case
def test_forward_is_the_kernels_value(name: str, params: Params, dtype: torch.dtype) -> None:
    row, steps = ATEN[name], Steps(dtype)
    given = dict(zip(row.params, params, strict=True))
    for layout in (torch.Tensor.contiguous, spread):
        inputs = [layout(x) for x in operands(row, dtype, params)]
        expected, _ = pulled(name, inputs, gradient(inputs[0]), given)
        actual = steps.forward(row, inputs, given)
        assert_near(actual, expected, name, (0, 0) if name in ARITHMETIC else NEAR[dtype])
        if name in ARITHMETIC and not name.endswith(".softshrink"):  # whose scalar kernel has two zeros
            assert_same(actual, expected, *inputs)


@pytest.mark.together
@wide
@every_case
def test_backward_is_the_kernels_gradient(name: str, params: Params, dtype: torch.dtype) -> None:
    row, steps = ATEN[name], Steps(dtype)
    given = dict(zip(row.params, params, strict=True))
    near = (0.0, 0.0) if name in ARITHMETIC else NEAR[dtype]
    if name in FROM_OUTPUT and dtype == torch.float32:
        near = (0.0, 0.0)
    if name.endswith(".hardsigmoid") and dtype == torch.float64:
        near = SIXTH_IN_FLOAT
    for layout in (torch.Tensor.contiguous, spread):
        inputs = operands(row, dtype, params)
        if layout is torch.Tensor.contiguous:  # vectorized kernels have a NaN of their own
            numbers = ~torch.stack(inputs).isnan().any(dim=0)
            inputs = [x[numbers] for x in inputs]
        inputs, g = [layout(x) for x in inputs], layout(gradient(inputs[0]))
        y, expected = pulled(name, inputs, g, given)
        saved = inputs if row.saves == "inputs" else [y]
        for actual, one in zip(steps.backward(row, g, saved, given), expected, strict=True):
            assert_near(actual, one, name, near)


@pytest.mark.together
@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize(("name", "params"), [case for case in CASES if case[0] in ARITHMETIC])
def test_arithmetic_in_16_bits_is_the_cpus(name: str, params: Params, dtype: torch.dtype) -> None:
    row, steps = ATEN[name].cpu or ATEN[name], Steps(dtype)
    given = dict(zip(row.params, params, strict=True))
    inputs = [spread(x) for x in operands(row, dtype, params)]
    g = spread(gradient(inputs[0]))
    y, expected = pulled(name, inputs, g, given)
    assert_near(steps.forward(row, inputs, given), y, name, (0, 0))
    saved = inputs if row.saves == "inputs" else [y]
    assert_near(steps.backward(row, g, saved, given)[0], expected[0], name, (0, 0))


@pytest.mark.parametrize("name", FROM_OUTPUT)
def test_gradients_from_a_16_bit_output_are_the_cpus(name: str) -> None:
    dtype = torch.float16
    inputs = [x[~x.isnan()] for x in operands(ATEN[name], dtype, ())]
    g = gradient(inputs[0])
    y, expected = pulled(name, inputs, g, {})
    assert_near(Steps(dtype).backward(ATEN[name], g, [y], {})[0], expected[0], name, (0, 0))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_half_of_tanh_rounds_after_every_operation(dtype: torch.dtype) -> None:
    half = ATEN["torch.tanh"].half
    assert half is not None
    y = patterns(dtype, COUNT)
    g = gradient(y)
    actual = Steps(dtype).values(half(Name("g"), Name("y")), {"g": g, "y": y}, {})[0]
    assert_same(actual, g * (1 - y * y), g, y)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("name", [name for name, row in ATEN.items() if row.cpu])
def test_a_bound_in_16_bits_is_rounded_on_cuda(name: str, dtype: torch.dtype) -> None:
    row, steps = ATEN[name], Steps(dtype)
    bound, *others = 0.3, -1.7
    exact = dict(zip(row.params, (bound, *others), strict=False))
    rounded = exact | {row.params[0]: steps.number(bound).to(dtype).item()}
    inputs = [spread(x) for x in operands(row, dtype, ())]
    g = spread(gradient(inputs[0]))
    y, expected = pulled(name, inputs, g, rounded)
    assert_near(steps.forward(row, inputs, exact), y, name, (0, 0))
    assert_near(steps.backward(row, g, inputs, exact)[0], expected[0], name, (0, 0))


@pytest.mark.parametrize(("name", "words"), FLOATS.items())
def test_a_number_held_to_float_is_the_kernels_constant(name: str, words: set[int]) -> None:
    row = ATEN[name]
    terms = (row.forward(Name("x")), *row.backward(Name("g"), Name("x")))
    numbers = [part.value for term in terms for part in walk(term) if isinstance(part, Number)]
    held = torch.stack([Steps(torch.float32).number(value) for value in numbers])
    assert words <= set(held.view(torch.int32).tolist())


def test_selus_product_held_to_float_is_the_product_of_its_floats() -> None:
    alpha, scale = torch.tensor([1.6732632423543772, 1.0507009873554805], dtype=torch.float64)
    assert (alpha * scale).float() == alpha.float() * scale.float()


@pytest.mark.together
@every_case
def test_a_row_reads_what_it_says(name: str, params: Params) -> None:
    row = ATEN[name]
    for each in (row, row.cpu or row):
        saved = each.inputs if each.saves == "inputs" else ("y",)
        gradients = each.backward(*map(Name, ("g", *saved, *each.params)))
        assert len(gradients) == len(each.inputs)
        assert set(names(each.forward(*map(Name, (*each.inputs, *each.params))))) == {
            *each.inputs,
            *each.params,
        }
        assert {part for term in gradients for part in names(term)} <= {"g", *saved, *each.params}
        assert each.params == row.params
        assert len(params) == len(each.params)


@pytest.mark.together
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("dtype", [torch.float32, *NARROW], ids=str)
@every_case
def test_a_row_is_cudas_kernel_bit_by_bit(name: str, params: Params, dtype: torch.dtype) -> None:
    row, steps = ATEN[name], Steps(dtype, "cuda")
    given = dict(zip(row.params, params, strict=True))
    inputs = operands(row, dtype, params, "cuda")
    g = gradient(inputs[0])
    y, expected = pulled(name, inputs, g, given)
    assert_near(steps.forward(row, inputs, given), y, name, (0, 0))
    saved = inputs if row.saves == "inputs" else [y]
    for actual, one in zip(steps.backward(row, g, saved, given), expected, strict=True):
        assert_near(actual, one, name, (0, 0))
