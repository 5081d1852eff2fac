"""PyTorch's own fused kernels: one row per function, operation for operation, forward and backward.

A row is written in the order in which ATen's CUDA kernel computes. `fma` stands where that kernel, compiled
with contraction, rounds a product and a sum once; `round_to_storage` where a value of a 16-bit kernel
passes through its storage type; `quotient` where a constant divides by true division on every device. 1 +
exp(-x) needs no `fma`, because exp ends in an exact scaling. A number is the double that ATen writes, or an
exact fraction; rounded to float it is ATen's float. Selections are the comparisons of the CUDA kernels,
which decide what a NaN does.

What a row does not say:
    in float64, hardsigmoid, hardswish (CUDA) and hardsigmoid's backward (CPU) take the float of 1/6.
    relu, relu6 and hardtanh turn -0.0 into 0.0 on CUDA before PyTorch 2.14 where a bound is 0.
    the CPU's backward of sigmoid rounds between operations in float16 but not in bfloat16.
    the CPU's vectorized exp, expm1, log1p, tanh and erf are other approximations than its math library's.
    softsign and tanhshrink have no row: each is several kernels.

Source: PyTorch, aten/src/ATen/native/Activation.cpp, aten/src/ATen/native/cuda/Activation*.cu,
BinaryMiscBackwardOpsKernels.cu and UnarySpecialOpsKernel.cu; tools/autograd/derivatives.yaml.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Literal

from fusegen.core.term import Apply, Operand, Term, call

Forward = Callable[..., Term]
Backward = Callable[..., tuple[Term, ...]]


@dataclass(frozen=True, slots=True)
class Fused:
    """One of PyTorch's fused kernels."""

    params: tuple[str, ...]  # the names of its scalar arguments, in the order of torch.nn.functional
    forward: Forward  # from the inputs and the params to the value
    # from the gradient of the value, what is saved and the params to one gradient an input
    backward: Backward
    saves: Literal["inputs", "output"] = "inputs"  # what backward reads
    inputs: tuple[str, ...] = ("x",)  # the names of its tensors; glu's are the halves of one
    half: Backward | None = None  # backward in 16-bit types on CUDA, where ATen computes it otherwise
    cpu: Fused | None = None  # the kernel of the CPU, where arithmetic differs

    def gradients(self, g: Term, saved: tuple[Term, ...], params: tuple[Term, ...]) -> tuple[Term, ...]:
        """Return one gradient an input; where the width of the elements decides, both forms."""
        wide = self.backward(g, *saved, *params)
        if self.half is None:
            return wide
        narrow = self.half(g, *saved, *params)
        return tuple(call("select_by_width", a, b) for a, b in zip(narrow, wide, strict=True))


# the doubles of <math.h> and of the kernels; selu's product is the same rounded from its two floats
_SQRT_2, _TWO_OVER_SQRT_PI, _SQRT_HALF = math.sqrt(2), 2 / math.sqrt(math.pi), math.sqrt(0.5)
_TANH_BETA, _TANH_KAPPA = _SQRT_2 * _TWO_OVER_SQRT_PI * 0.5, 0.044715
_PDF = _TWO_OVER_SQRT_PI * _SQRT_HALF * 0.5
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805
_SELU_PRODUCT = _SELU_ALPHA * _SELU_SCALE
_stored = partial(call, "round_to_storage")


def _where(condition: Apply, chosen: Operand, other: Operand) -> Apply:
    return call("where", condition, chosen, other)


def _sigmoid(x: Term) -> Apply:
    return 1 / (1 + call("exp", -x))


def _one_minus_square(x: Term) -> Apply:
    return call("fma", -x, x, 1)


def _leaky(x: Term, value: Term, slope: Term) -> Apply:
    return _where(x > 0, value, value * slope)


def _middle(lower: Term, upper: Term) -> Apply:
    return (lower + upper) / 2  # ATen's host computes it in double, and rounds that


def _inside(x: Term, low: Operand, high: Operand, g: Term) -> Apply:
    return _where(x <= low, 0, _where(x >= high, 0, g))


def _celu(x: Term, alpha: Term) -> Apply:
    inverse = 1 / alpha  # ATen's host computes it in double, and rounds that
    return _where(x > 0, x, call("expm1", x * inverse) * alpha)


def _celu_backward(g: Term, x: Term, alpha: Term) -> tuple[Term]:
    inverse = 1 / alpha  # of alpha rounded to float, in every type
    return (_where(x <= 0, g * inverse * alpha * call("exp", x * inverse), g),)


def _gelu(x: Term) -> Apply:
    return x * 0.5 * (1 + call("erf", x * _SQRT_HALF))


def _gelu_backward(g: Term, x: Term) -> tuple[Term]:
    pdf = call("exp", -0.5 * x * x) * _PDF
    return (g * call("fma", 0.5, 1 + call("erf", x * _SQRT_HALF), x * pdf),)


def _gelu_inner(x: Term, cube: Term) -> Apply:
    return call("tanh", _TANH_BETA * call("fma", cube, _TANH_KAPPA, x))


def _gelu_tanh(x: Term) -> Apply:
    return 0.5 * x * (1 + _gelu_inner(x, x * x * x))


def _gelu_tanh_backward(g: Term, x: Term) -> tuple[Term]:
    square = x * x
    t = _gelu_inner(x, square * x)
    kappa = call("fma", 3, _TANH_KAPPA, 0)  # rounded in the math type: in float not the nearest to 0.134145
    inner = _TANH_BETA * call("fma", kappa, square, 1)
    return (g * call("fma", 0.5, 1 + t, 0.5 * x * _one_minus_square(t) * inner),)


def _logsigmoid(x: Term) -> Apply:
    return _where(x < 0, x, 0) - call("log1p", call("exp", -call("abs", x)))


def _logsigmoid_backward(g: Term, x: Term) -> tuple[Term]:
    z = call("exp", -call("abs", x))
    slope = z / (1 + z)
    return (g * _where(x < 0, 1 - slope, slope),)  # ATen's max_deriv - sign * slope


def _silu_backward(g: Term, x: Term) -> tuple[Term]:
    s = _sigmoid(x)
    return (g * s * call("fma", x, 1 - s, 1),)


def _mish_inner(x: Term) -> Apply:
    return call("tanh", call("log1p", call("exp", x)))


def _mish_backward(g: Term, x: Term) -> tuple[Term]:
    t = _mish_inner(x)
    return (g * call("fma", x * _sigmoid(x), _one_minus_square(t), t),)


def _hardswish_backward(g: Term, x: Term) -> tuple[Term]:
    return (_where(x <= -3, 0, _where(x < 3, g * (call("quotient", x, 3) + 0.5), g)),)


def _softplus(x: Term, beta: Term, threshold: Term) -> Apply:
    scaled = x * beta
    return _where(scaled > threshold, x, call("log1p", call("exp", scaled)) / beta)


def _softplus_backward(g: Term, x: Term, beta: Term, threshold: Term) -> tuple[Term]:
    z = call("exp", x * beta)
    return (_where(x * beta > threshold, g, g * z / (z + 1)),)


def _softshrink(x: Term, lambd: Term) -> Apply:
    return _where(x > lambd, x - lambd, _where(x < -lambd, x + lambd, _where(x <= lambd, 0, x)))


def _shrink(x: Term, lambd: Term, value: Term) -> Apply:
    """None of a value where x, compared with lambda as its type stores it, is small."""
    bound = _stored(lambd)
    return _where(x >= -bound, _where(x <= bound, 0, value), value)


def _shrink_backward(g: Term, x: Term, lambd: Term) -> tuple[Term]:
    return (_shrink(x, lambd, g),)


def _threshold(x: Term, threshold: Term, value: Operand, other: Term) -> Apply:
    return _where(x <= threshold, value, other)  # a value of 16 bits is rounded when it is stored


def _glu_backward(g: Term, a: Term, b: Term) -> tuple[Term, Term]:
    s = _sigmoid(b)
    return s * g, (1 - s) * s * g * a


# fmt: off
ATEN: dict[str, Fused] = {
    # selections
    "torch.nn.functional.relu": Fused(
        (), lambda x: call("relu", x), lambda g, y: (_where(y <= 0, 0, g),), saves="output"),
    "torch.nn.functional.relu6": Fused(
        (), lambda x: call("relu6", x), lambda g, x: (_inside(x, 0, 6, g),)),
    "torch.nn.functional.hardtanh": Fused(
        ("min_val", "max_val"), lambda x, low, high: call("clamp", x, low, high),
        lambda g, x, low, high: (_inside(x, low, high, g),)),
    "torch.nn.functional.leaky_relu": Fused(
        ("negative_slope",), lambda x, slope: _leaky(x, x, slope),
        lambda g, x, slope: (_leaky(x, g, slope),)),
    "torch.nn.functional.rrelu": Fused(  # as in evaluation
        ("lower", "upper"), lambda x, lower, upper: _leaky(x, x, _middle(lower, upper)),
        lambda g, x, lower, upper: (_leaky(x, g, _middle(lower, upper)),)),
    "torch.nn.functional.threshold": Fused(
        ("threshold", "value"), lambda x, t, v: _threshold(x, _stored(t), v, x),
        lambda g, x, t, v: (_threshold(x, _stored(t), 0, g),),
        cpu=Fused(("threshold", "value"), lambda x, t, v: _threshold(x, t, v, x),
                  lambda g, x, t, v: (_threshold(x, t, 0, g),))),
    "torch.nn.functional.hardshrink": Fused(
        ("lambd",), lambda x, lambd: _shrink(x, lambd, x), _shrink_backward),
    "torch.nn.functional.softshrink": Fused(
        ("lambd",), lambda x, lambd: _softshrink(x, _stored(lambd)), _shrink_backward,
        cpu=Fused(("lambd",), _softshrink, _shrink_backward)),
    # pieces of lines; on CUDA a division by a number is a product, but not in hardswish's backward
    "torch.nn.functional.hardsigmoid": Fused(
        (), lambda x: call("relu6", x + 3) / 6,
        lambda g, x: (_where(x > -3, _where(x < 3, g * Fraction(1, 6), 0), 0),)),
    "torch.nn.functional.hardswish": Fused(
        (), lambda x: x * call("relu6", x + 3) / 6, _hardswish_backward),
    # exponential units: x <= 0 in backward, x > 0 in forward
    "torch.nn.functional.elu": Fused(
        ("alpha",), lambda x, alpha: _where(x > 0, x, call("expm1", x) * alpha),
        lambda g, x, alpha: (_where(x <= 0, g * alpha * call("exp", x), g),)),
    "torch.nn.functional.selu": Fused(
        (), lambda x: _where(x > 0, x * _SELU_SCALE, call("expm1", x) * _SELU_PRODUCT),
        lambda g, x: (_where(x <= 0, g * _SELU_PRODUCT * call("exp", x), g * _SELU_SCALE),)),
    "torch.nn.functional.celu": Fused(("alpha",), _celu, _celu_backward),
    # smooth
    "torch.sigmoid": Fused((), _sigmoid, lambda g, y: (_stored(g * _stored(1 - y)) * y,), saves="output"),
    "torch.tanh": Fused(
        (), lambda x: call("tanh", x), lambda g, y: (g * _one_minus_square(y),), saves="output",
        half=lambda g, y: (g * _stored(1 - _stored(y * y)),)),
    "torch.nn.functional.logsigmoid": Fused((), _logsigmoid, _logsigmoid_backward),
    "torch.nn.functional.softplus": Fused(("beta", "threshold"), _softplus, _softplus_backward),
    "torch.nn.functional.silu": Fused((), lambda x: x / (1 + call("exp", -x)), _silu_backward),
    "torch.nn.functional.mish": Fused((), lambda x: x * _mish_inner(x), _mish_backward),
    "torch.nn.functional.gelu": Fused((), _gelu, _gelu_backward),
    "torch.nn.functional.gelu(approximate='tanh')": Fused((), _gelu_tanh, _gelu_tanh_backward),
    # gated
    "torch.nn.functional.glu": Fused((), lambda a, b: a * _sigmoid(b), _glu_backward, inputs=("a", "b")),
}
# fmt: on
