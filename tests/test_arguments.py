"""Numbers and keyword arguments: what PyTorch takes is taken, what it refuses is refused."""

import math
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from kernels import assert_same, compiled, function, generated
from torch import Tensor, nn

X = torch.tensor([-2.0, -0.25, 0.0, 0.75, 3.0, math.nan])
NUMBERS: dict[str, Any] = {
    "int": 2,
    "bool": True,
    "numpy.float16": numpy.float16(0.5),
    "numpy.float32": numpy.float32(0.5),
    "numpy.float64": numpy.float64(0.5),
    "numpy.int64": numpy.int64(2),
    "numpy.bool": numpy.bool_(True),
    "tensor": torch.tensor(0.5),
    "frozen parameter": nn.Parameter(torch.tensor(0.5), requires_grad=False),
    "integer tensor": torch.tensor(2),
}
CONSTANT = "elu: alpha must be a number: the kernels compute no gradient of it; give alpha.item()"
OTHERS: dict[str, tuple[Any, str]] = {
    "parameter": (nn.Parameter(torch.tensor(0.5)), CONSTANT),
    "leaf": (torch.tensor(0.5, requires_grad=True), CONSTANT),
    "result": (torch.tensor(0.5, requires_grad=True) * 2, CONSTANT),
    "tensor of one dimension": (torch.tensor([0.5]), "elu: alpha must be a number, not Tensor"),
    "complex tensor": (torch.tensor(0.5j), "elu: alpha must be a number, not Tensor"),
    "array": (numpy.array(0.5), "elu: alpha must be a number, not ndarray"),
    "text": ("1", "elu: alpha must be a number, not str"),
    "complex": (1j, "elu: alpha must be a number, not complex"),
    "none": (None, "elu: alpha must be a number, not NoneType"),
}
WAYS: dict[str, Callable[[Any], Any]] = {
    "a new tensor": lambda alpha: function("elu")(X, alpha),
    "in place": lambda alpha: function("elu")(X.clone(), alpha, inplace=True),
    "out": lambda alpha: function("elu")(X, alpha, out=torch.empty_like(X)),
    "a module": lambda alpha: generated("elu").ModelNew(alpha)(X),
}


@pytest.mark.together
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_one_to_us(number: str, way: str) -> None:
    alpha = NUMBERS[number]
    torch.testing.assert_close(WAYS[way](alpha), F.elu(X, alpha), equal_nan=True)


@pytest.mark.together
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("other", OTHERS)
def test_what_is_no_number_is_refused(other: str, way: str) -> None:
    value, sentence = OTHERS[other]
    with pytest.raises((TypeError, RuntimeError)):
        F.elu(X, value)
    with pytest.raises(TypeError) as raised:
        WAYS[way](value)
    assert str(raised.value) == sentence


# Scalars that PyTorch's functions refuse

REFUSED: dict[str, tuple[Callable[..., Tensor], tuple[float, ...], type[Exception], str]] = {
    "hardtanh": (F.hardtanh, (1.0, -1.0), ValueError, "min_val cannot be greater than max_val"),
    "softshrink": (F.softshrink, (-0.5,), RuntimeError, "lambd cannot be less than 0"),
    "celu": (F.celu, (0.0,), RuntimeError, "alpha cannot be 0"),
    "rrelu": (F.rrelu, (0.5, 0.25), RuntimeError, "lower cannot be greater than upper"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_scalars_that_eager_refuses_are_refused(name: str) -> None:
    eager, values, error, sentence = REFUSED[name]
    words: list[dict[str, Any]] = [{"out": X.clone()}, {}]
    words += [{"inplace": True}] if "inplace" in function(name).__code__.co_varnames else []
    with pytest.raises(error):
        eager(X, *values)
    for word in words:
        with pytest.raises(error) as raised:
            function(name)(X.clone(), *values, **word)
        assert str(raised.value) == f"{name}: {sentence}"


# Bounds that are NaN

NAN = ((math.nan, 1.0), (-1.0, math.nan), (math.nan, math.nan))


@pytest.mark.parametrize("bounds", NAN, ids=str)
def test_a_bound_that_is_nan_is_as_in_eager(bounds: tuple[float, float]) -> None:
    torch._dynamo.reset()  # a bound that changes is a symbol to it, which cannot be NaN
    hardtanh, expected = function("hardtanh"), F.hardtanh(X, *bounds)
    for actual in (
        hardtanh(X, *bounds),
        hardtanh(None, *bounds, input=X),
        hardtanh(X.clone(), *bounds, inplace=True),
        hardtanh(X, *bounds, out=torch.empty_like(X)),
        torch.compile(lambda x: hardtanh(x, *bounds), backend="eager", fullgraph=True)(X),
    ):
        assert_same(actual, expected)
    leaf = X.clone().requires_grad_()
    assert_same(*(torch.autograd.grad(f(leaf, *bounds).sum(), leaf)[0] for f in (hardtanh, F.hardtanh)))


@pytest.mark.full
def test_a_bound_that_is_computed_from_nan_is_as_in_eager(tmp_path: Any) -> None:
    body = "params: {low: 0.5, scale: 2}\nwhere: {least: -low}\nformula: clamp_min(x, least) * scale\n"
    module = compiled(tmp_path, "bounded", body)
    assert_same(module.bounded(X, 0.5), X.clamp_min(-0.5) * 2)
    assert_same(module.bounded(X, math.nan), torch.full_like(X, math.nan))


# Arguments by PyTorch's names


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["relu", "elu", "hardtanh", "gelu"])
def test_the_first_tensor_is_input(name: str) -> None:
    call, x = function(name), X.clone()
    expected = call(X)
    assert_same(call(input=X), expected)
    assert_same(call(x=X), expected)
    assert call(input=x, inplace=True) is x
    assert_same(x, expected)
    assert_same(call(input=X, out=torch.empty_like(X)), expected)
    torch._dynamo.reset()
    compile_ = torch.compile(lambda t: call(input=t), backend="eager", fullgraph=True)
    assert_same(compile_(X), expected)


@pytest.mark.full
def test_the_first_tensor_of_several_is_input(tmp_path: Any) -> None:
    gate, up = torch.randn(2, 3), torch.randn(2, 3)
    assert_same(function("swiglu")(input=gate, up=up), function("swiglu")(gate, up))
    assert_same(function("swiglu")(input=torch.cat([gate, up], -1)), function("swiglu")(gate, up))
    module = compiled(tmp_path, "pair", "inputs: {a: {}, b: {}}\nformula: a - b\n")
    assert_same(module.pair(input=gate, b=up), gate - up)
    with pytest.raises(TypeError, match=r"^pair: the argument b is missing$"):
        module.pair(gate)


OWN: dict[str, tuple[dict[str, Any], Tensor]] = {  # by what is called input: how to call it, the result
    "inputs: {input: {}}\nformula: input - 1\n": ({"input": X}, X - 1),
    "inputs: {x: {}, input: {}}\nformula: x - input\n": ({"x": X, "input": X.abs()}, X - X.abs()),
    "params: {input: 2}\nformula: x * input\n": ({"x": X, "input": 3.0}, X * 3.0),
    "where: {input: x + 1}\nformula: input * 2\n": ({"input": X}, (X + 1) * 2),
}


@pytest.mark.full
@pytest.mark.parametrize("body", OWN)
def test_what_a_spec_calls_input_keeps_its_name(body: str, tmp_path: Any) -> None:
    words, expected = OWN[body]
    call = compiled(tmp_path, "named", body).named
    assert_same(call(**words), expected)
    on_meta = {k: v.to("meta") if isinstance(v, Tensor) else v for k, v in words.items()}
    assert call(**on_meta).shape == expected.shape


def test_a_function_may_be_called_input(tmp_path: Any) -> None:
    call = compiled(tmp_path, "input", "formula: x - 1\n").input
    assert_same(call(input=X), X - 1)
    assert_same(call(X), X - 1)


def test_the_first_tensor_is_given_once() -> None:
    with pytest.raises(TypeError, match=r"^relu: the argument x is missing$"):
        function("relu")()
    with pytest.raises(TypeError, match=r"^relu: x and input are one argument, and both are given$"):
        function("relu")(X, input=X)


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh"])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_takes_approximate(approximate: str, name: str) -> None:
    call, x, out = function(name), X.clone(), torch.empty_like(X)
    expected = F.gelu(X, approximate=approximate)
    torch.testing.assert_close(call(X, approximate=approximate), expected, equal_nan=True)
    assert call(x, approximate=approximate, inplace=True) is x
    assert call(X, approximate=approximate, out=out) is out
    for written in (x, out):
        torch.testing.assert_close(written, expected, equal_nan=True)
    with pytest.raises(RuntimeError, match="approximate argument must be either none or tanh"):
        call(X, approximate="sin")


@pytest.mark.parametrize("given", [(2,), (2, 1.5), (1, 20)], ids=str)
def test_softplus_takes_its_scalars_in_order(given: tuple[float, ...]) -> None:
    torch.testing.assert_close(function("softplus")(X, *given), F.softplus(X, *given), equal_nan=True)
