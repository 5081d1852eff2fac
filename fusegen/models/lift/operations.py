"""Operations of PyTorch as formulas.

A row is a target with its forms: Python's lambda from the arguments, with PyTorch's names and defaults, to
the formula. A form fits a call whose arguments it reads are there, and whose others have their defaults.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

UNARY = (
    *("abs", "neg", "sign", "square", "reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2"),
    *("log1p", "sin", "cos", "tanh", "erf", "erfc", "sigmoid", "relu"),
)
SPECIAL = {"expit": "sigmoid", "erf": "erf", "erfc": "erfc", "exp2": "exp2", "expm1": "expm1",
           "log1p": "log1p", "ndtr": "ndtr"}  # fmt: skip
PLAIN = (  # of torch.nn.functional, without parameters
    *("relu", "relu6", "selu", "silu", "mish", "hardswish", "hardsigmoid", "sigmoid", "tanh", "softsign"),
    *("tanhshrink", "logsigmoid"),
)
BINARY = {
    "add": ("input, other: input + other", "input, other, alpha: input + alpha * other"),
    "sub": ("input, other: input - other", "input, other, alpha: input - alpha * other"),
    "mul": ("input, other: input * other",),
    "div": ("input, other, rounding_mode=None: input / other",),
    "pow": ("input, exponent: input ** exponent",),
    "maximum": ("input, other: maximum(input, other)",),
    "minimum": ("input, other: minimum(input, other)",),
    **{
        name: (f"input, other: input {sign} other",)
        for name, sign in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "=="), ("ne", "!="))
    },
}
CLAMP = (
    "input, min, max: clamp(input, min, max)",
    "input, min, max=None: clamp_min(input, min)",
    "input, max, min=None: clamp_max(input, max)",
)
OTHERS = {
    "clamp": CLAMP,
    "clip": CLAMP,
    "clamp_min": ("input, min: clamp_min(input, min)",),
    "clamp_max": ("input, max: clamp_max(input, max)",),
    "detach": ("input: detach(input)",),
    "clone": ("input, memory_format=None: input",),
    "unsqueeze": ("input, dim: unsqueeze(input, dim)",),
    "where": ("condition, input, other: where(condition, input, other)",),
    "masked_fill": ("input, mask, value: where(mask, value, input)",),
    "addcmul": (
        "input, tensor1, tensor2, value=1: input + tensor1 * tensor2",
        "input, tensor1, tensor2, value: input + value * tensor1 * tensor2",
    ),
}
GELU = ("input, approximate='none': gelu(input)", "input, approximate='tanh': gelu_tanh(input)")
ALIASES = {"true_divide": "div", "divide": "div", "multiply": "mul", "subtract": "sub", "truediv": "div"}


@dataclass(frozen=True)
class Form:
    """One formula of an operation.

    Attributes:
        body: the formula.
        names: the arguments, in order.
        defaults: of those that the call may leave out.
    """

    body: ast.expr
    names: tuple[str, ...]
    defaults: dict[str, Any]

    @functools.cached_property
    def reads(self) -> frozenset[str]:
        """The arguments that the formula reads."""
        found = {node.id for node in ast.walk(self.body) if isinstance(node, ast.Name)}
        return frozenset(found & set(self.names))


@dataclass(frozen=True)
class Row:
    """The forms of an operation.

    Attributes:
        forms: the first that fits is taken.
        tensors: arguments that mean something else where they are Python's numbers.
    """

    forms: tuple[Form, ...]
    tensors: frozenset[str] = field(default=frozenset())


@functools.cache
def form(text: str) -> Form:
    """Return the form that a text writes."""
    tree = ast.parse(f"lambda {text}", mode="eval").body
    assert isinstance(tree, ast.Lambda)
    names = tuple(arg.arg for arg in tree.args.args)
    values = [ast.literal_eval(value) for value in tree.args.defaults]
    return Form(tree.body, names, dict(zip(names[len(names) - len(values) :], values, strict=True)))


def row(*texts: str, tensors: tuple[str, ...] = ()) -> Row:
    """Return the row of some texts."""
    return Row(tuple(map(form, texts)), frozenset(tensors))


def _functions() -> dict[Callable[..., Any], Row]:
    """Return the rows of functions and of methods."""
    found: dict[Callable[..., Any], Row] = {}
    for name in UNARY:
        found |= _both(name, row(f"input: {name}(input)"))
    for name, texts in BINARY.items():
        found |= _both(name, row(*texts))
        if hasattr(operator, name):
            found[getattr(operator, name)] = row(*texts[:1])
    for name, other in ALIASES.items():
        found |= _both(name, row(*BINARY[other]))
    for name in ("min", "max"):
        found |= _both(name, row(f"input, other: {name}imum(input, other)", tensors=("other",)))
    for name, texts in OTHERS.items():
        found |= _both(name, row(*texts))
    for name, function in SPECIAL.items():
        found[getattr(torch.special, name)] = row(f"input: {function}(input)")
    for name in PLAIN:
        found |= {
            getattr(F, name): row(f"input: {name}(input)"),
            **_both(name, row(f"input: {name}(input)")),
        }
    return found


def _both(name: str, of: Row) -> dict[Callable[..., Any], Row]:
    """Return a row for the function of a name, for the method, and for the methods that write in place."""
    places = ((torch, name), (Tensor, name), (torch, f"{name}_"), (Tensor, f"{name}_"))
    return {getattr(place, word): of for place, word in places if hasattr(place, word)}


ROWS: dict[Callable[..., Any], Row] = {
    **_functions(),
    operator.truediv: row("input, other: input / other"),
    operator.neg: row("input: -input"),
    operator.pos: row("input: input"),
    operator.abs: row("input: abs(input)"),
    operator.iadd: row("input, other: input + other"),
    operator.isub: row("input, other: input - other"),
    operator.imul: row("input, other: input * other"),
    operator.itruediv: row("input, other: input / other"),
    operator.ipow: row("input, exponent: input ** exponent"),
    Tensor.contiguous: row("input, memory_format=None: input"),
    F.gelu: row(*GELU),
    F.leaky_relu: row("input, negative_slope=0.01: leaky_relu(input, negative_slope=negative_slope)"),
    F.elu: row("input, alpha=1.0: elu(input, alpha=alpha)"),
    F.celu: row("input, alpha=1.0: celu(input, alpha=alpha)"),
    F.hardtanh: row("input, min_val=-1.0, max_val=1.0: hardtanh(input, min_val=min_val, max_val=max_val)"),
    F.hardshrink: row("input, lambd=0.5: hardshrink(input, lambd=lambd)"),
    F.softshrink: row("input, lambd=0.5: softshrink(input, lambd=lambd)"),
    F.threshold: row("input, threshold, value: threshold(input, threshold=threshold, value=value)"),
    F.softplus: row("input, beta=1, threshold=20: softplus(input, beta=beta, threshold=threshold)"),
}
DUNDERS = {
    "add": "input + other", "radd": "other + input", "sub": "input - other", "rsub": "other - input",
    "mul": "input * other", "rmul": "other * input", "truediv": "input / other",
    "rtruediv": "other / input", "pow": "input ** other", "rpow": "other ** input",
}  # fmt: skip
ROWS |= {getattr(Tensor, f"__{name}__"): row(f"input, other: {body}") for name, body in DUNDERS.items()}

MODULES: dict[type[nn.Module], tuple[Callable[..., Any], tuple[str, ...]]] = {
    nn.ReLU: (F.relu, ("inplace",)),
    nn.ReLU6: (F.relu6, ("inplace",)),
    nn.SELU: (F.selu, ("inplace",)),
    nn.SiLU: (F.silu, ("inplace",)),
    nn.Mish: (F.mish, ("inplace",)),
    nn.Hardswish: (F.hardswish, ("inplace",)),
    nn.Hardsigmoid: (F.hardsigmoid, ("inplace",)),
    nn.Sigmoid: (F.sigmoid, ()),
    nn.Tanh: (F.tanh, ()),
    nn.Softsign: (F.softsign, ()),
    nn.Tanhshrink: (F.tanhshrink, ()),
    nn.LogSigmoid: (F.logsigmoid, ()),
    nn.GELU: (F.gelu, ("approximate",)),
    nn.LeakyReLU: (F.leaky_relu, ("negative_slope", "inplace")),
    nn.ELU: (F.elu, ("alpha", "inplace")),
    nn.CELU: (F.celu, ("alpha", "inplace")),
    nn.Hardtanh: (F.hardtanh, ("min_val", "max_val", "inplace")),
    nn.Hardshrink: (F.hardshrink, ("lambd",)),
    nn.Softshrink: (F.softshrink, ("lambd",)),
    nn.Threshold: (F.threshold, ("threshold", "value", "inplace")),
    nn.Softplus: (F.softplus, ("beta", "threshold")),
}


def number(value: float) -> ast.expr:
    """Return a number as a formula writes it.

    Raises:
        ValueError: it is NaN.
    """
    if math.isnan(value):
        raise ValueError("NaN is no number of a formula")
    size: ast.expr = ast.Name("inf") if math.isinf(value) else ast.Constant(abs(value))
    return ast.UnaryOp(ast.USub(), size) if math.copysign(1, value) < 0 else size
