"""ONNX operators in place of generated operators: a translation table for torch.onnx.export.

    torch.onnx.export(model, (x,), dynamo=True, custom_translation_table=translation_table(gelu, swiglu))

A module's `eager` form runs on values of the ONNX graph, which PyTorch's functions take for tensors. Each
of these functions is a row of `PRIMITIVES`, or the formula that `aten` has for it.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from onnxscript import opset18

from fusegen.core.aten import ATEN
from fusegen.core.term import Apply, Name, Number, Operand

op: Any = opset18  # its stubs refuse tensors of several dtypes

Function = Callable[..., Any]
ROOT_HALF, LOG_2 = math.sqrt(0.5), math.log(2)
FLOAT = 1  # ONNX's number of float32


def _expm1(x: Any) -> Any:
    return op.Mul(op.Tanh(op.Mul(x, 0.5)), op.Add(op.Exp(x), 1.0))  # without cancellation near 0


def _log1p(x: Any) -> Any:
    """Kahan's log1p: the error of 1 + x is divided out."""
    near = op.Add(x, 1.0)
    direct = op.Or(op.Equal(near, 1.0), op.IsInf(op.Cast(x, to=FLOAT)))
    error = op.Div(x, op.Where(direct, 1.0, op.Sub(near, 1.0)))
    return op.Where(direct, x, op.Mul(op.Log(near), error))


def _erfc(x: Any) -> Any:
    return op.Sub(1.0, op.Erf(x))


def _clamp(x: Any, low: Any, high: Any) -> Any:
    return op.Min(op.Max(x, low), high)


def _fma(a: Any, b: Any, c: Any) -> Any:
    return op.Add(op.Mul(a, b), c)


def _first(x: Any, *_: Any) -> Any:
    return x


PRIMITIVES: dict[str, Function] = {  # by the operation of the language
    **{"add": op.Add, "sub": op.Sub, "mul": op.Mul, "div": op.Div, "quotient": op.Div, "neg": op.Neg},
    **{"fma": _fma, "round_to_storage": _first, "detach": _first},
    **{"lt": op.Less, "le": op.LessOrEqual, "gt": op.Greater, "ge": op.GreaterOrEqual, "eq": op.Equal},
    **{"ne": lambda a, b: op.Not(op.Equal(a, b)), "where": op.Where},
    **{"relu": op.Relu, "relu6": lambda x: _clamp(x, 0.0, 6.0), "clamp": _clamp, "saturate": _clamp},
    **{"clamp_min": op.Max, "clamp_max": op.Min, "minimum": op.Min, "maximum": op.Max},
    **{"abs": op.Abs, "sign": op.Sign, "square": lambda x: op.Mul(x, x)},
    **{"cube": lambda x: op.Mul(op.Mul(x, x), x), "reciprocal": op.Reciprocal, "sqrt": op.Sqrt},
    **{"rsqrt": lambda x: op.Reciprocal(op.Sqrt(x)), "pow": op.Pow},
    **{"exp": op.Exp, "exp2": lambda x: op.Exp(op.Mul(x, LOG_2)), "expm1": _expm1, "log": op.Log},
    **{"log2": lambda x: op.Div(op.Log(x), LOG_2), "log1p": _log1p, "sin": op.Sin, "cos": op.Cos},
    **{"tanh": op.Tanh, "erf": op.Erf, "erfc": _erfc, "sigmoid": op.Sigmoid, "softplus": op.Softplus},
    "ndtr": lambda x: op.Mul(_erfc(op.Mul(x, -ROOT_HALF)), 0.5),
}
ON_NUMBERS: dict[str, Function] = {
    name: getattr(operator, name) for name in ("add", "sub", "mul", "neg", "lt", "le", "gt", "ge")
} | {
    "div": operator.truediv,
    "quotient": operator.truediv,
    "fma": lambda a, b, c: a * b + c,
    "round_to_storage": _first,
}
SPELT = {  # the names of torch that differ from those of `aten` and of the language
    **{"special_ndtr": "ndtr", "log_sigmoid": "logsigmoid", "_threshold": "threshold"},
}


class Value:
    """A value of an ONNX graph that PyTorch's functions take for a tensor."""

    def __init__(self, value: Any) -> None:
        self.value = value  # as onnxscript has it; a tuple of two for tensors that are stacked

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, arguments: Sequence[Any] = (), words: Any = None
    ) -> Any:
        """Return the ONNX operators of one of PyTorch's functions."""
        return _called(function.__name__, arguments, words or {})

    def __getitem__(self, index: int) -> Value:
        """Return the result of a gate, which PyTorch stacks: its only part."""
        return self

    def __neg__(self) -> Any:
        return _applied("neg", self)

    def detach(self) -> Value:
        """Return the same; an exported program has no gradient."""
        return self


def _binary(name: str) -> tuple[Function, Function]:
    """Return an operation with a value on its left, and with one on its right."""
    return (lambda a, b: _applied(name, a, b)), (lambda b, a: _applied(name, a, b))


for _name, _symbol in (("add", "add"), ("sub", "sub"), ("mul", "mul"), ("div", "truediv"), ("pow", "pow")):
    _left, _right = _binary(_name)
    setattr(Value, f"__{_symbol}__", _left)
    setattr(Value, f"__r{_symbol}__", _right)
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Value, f"__{_name}__", _binary(_name)[0])


def _applied(name: str, *arguments: Any) -> Any:
    """Return an operation of the language, of values or of numbers alone."""
    if not any(isinstance(a, Value) for a in arguments):
        return ON_NUMBERS[name](*arguments)
    given = [a.value if isinstance(a, Value) else float(a) for a in arguments]
    return Value(PRIMITIVES[name](*given))


def _called(name: str, arguments: Sequence[Any], words: dict[str, Any]) -> Any:
    """Return one of PyTorch's functions, by its name."""
    name = SPELT.get(name, name)
    match name, arguments:
        case "broadcast_tensors", _:
            return arguments
        case "stack", ((a, b), *_):
            return Value((a, b))
        case "zeros_like", (like,):
            return Value(op.Expand(op.CastLike(0.0, like.value), op.Shape(like.value)))
    option = "(approximate='tanh')" if words.get("approximate") == "tanh" else ""
    row = ATEN.get(f"torch.nn.functional.{name}{option}")
    if row is None:
        return _applied(name, *arguments, *words.values())
    tensors = arguments[0].value if name == "glu" else arguments[:1]
    given = dict(zip(row.params, arguments[1:], strict=False)) | words
    known = dict(zip(row.inputs, tensors, strict=True))
    scalars = [Number(given[param]) if math.isfinite(given[param]) else Name(param) for param in row.params]
    return _evaluated(row.forward(*map(Name, row.inputs), *scalars), known | given)


def _evaluated(term: Operand, known: dict[str, Any]) -> Any:
    """Return the value of a formula."""
    match term:
        case Number(value):
            return float(value)
        case Name(name):
            return known[name]
        case Apply(name, parts):
            return _applied(name, *(_evaluated(part, known) for part in parts))
    raise AssertionError(term)


def _translation(kernels: Any) -> Function:
    """Return the function that writes the ONNX operators of a module's operator."""
    tensors, schema = kernels.signature.tensors, kernels.overload._schema
    scalars = [a.name for a in schema.arguments if a.name not in tensors]

    def translate(*arguments: Any, **words: Any) -> Any:
        given = dict(zip((*tensors, *scalars), arguments, strict=False)) | words
        values = [Value(given[name]) for name in tensors]
        result: Value = kernels.eager(*values, *(given[name] for name in scalars))
        return result.value

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in (*tensors, *scalars)]
    described: Any = translate
    described.__signature__ = inspect.Signature(parameters)
    described.__annotations__ = dict.fromkeys(scalars, float)
    described.__name__ = kernels.name
    return translate


def translation_table(*modules: ModuleType) -> dict[Any, Function]:
    """Return the functions that write ONNX operators in place of the operators of generated modules.

    Args:
        modules: generated modules whose operators the exported model has.

    Returns:
        What ``custom_translation_table`` of torch.onnx.export takes.
    """
    table: dict[Any, Function] = {}
    for module in modules:
        kernels = module.KERNELS
        forward = getattr(kernels.operators, f"{kernels.name}_forward").default
        table |= dict.fromkeys((kernels.overload, forward), _translation(kernels))
    return table
