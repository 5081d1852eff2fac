"""Operators of ATen as formulas.

A row is the name of an operator, without its overload, with its forms: formulas in the names of the
schema's arguments. A form fits a call if the arguments that it reads are there, and all others have their
defaults. So `hardswish(x, False)`, ``nn.Hardswish()`` and ``x.hardswish_()`` are one row.
"""

import ast
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fusegen.models.reader.formula import Unfit, substituted
from fusegen.models.reader.operator_call import Call

UNARY = (
    *("abs", "sign", "square", "reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2"),
    *("log1p", "sin", "cos", "tanh", "erf", "erfc", "sigmoid", "relu", "ndtr", "detach"),
    *("relu6", "selu", "silu", "mish", "hardswish", "hardsigmoid"),
)
SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
ALIASES = {
    "true_divide": "div", "divide": "div", "multiply": "mul", "subtract": "sub", "clip": "clamp",
    "expit": "sigmoid", "max": "maximum", "min": "minimum",
}  # fmt: skip
REDUCING = {"max", "min"}  # operators that are pointwise of two tensors only
REDUCTION = "along a dimension it is a reduction"
UNKNOWN = "the language has no such operation"


@dataclass(frozen=True)
class Form:
    """One formula of an operator."""

    body: ast.expr  # the formula
    # other arguments with the values that they have to have
    given: Mapping[str, Any] = field(default_factory=dict)
    free: frozenset[str] = frozenset()  # arguments that decide nothing
    # the result has to have the dtype, the sizes and the strides of the first argument
    is_same: bool = False

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """The names in the formula, those of functions left out."""
        called = {node.func for node in ast.walk(self.body) if isinstance(node, ast.Call)}
        names = (node for node in ast.walk(self.body) if isinstance(node, ast.Name))
        return frozenset(node.id for node in names if node not in called)


Rows = Mapping[str, tuple[Form, ...]]


def form(text: str, **given: Any) -> Form:
    """Return the form that a text writes."""
    return Form(ast.parse(text, mode="eval").body, given)


ROWS: Rows = {
    **{name: (form(f"{name}(self)"),) for name in UNARY},
    **{name: (form(f"self {sign} other"),) for name, sign in SIGNS.items()},
    "neg": (form("-self"),),
    "positive": (form("self"),),
    "clone": (form("self"),),
    "add": (form("self + other"), form("self + alpha * other")),
    "sub": (form("self - other"), form("self - alpha * other")),
    "rsub": (form("other - self"), form("other - alpha * self")),
    "mul": (form("self * other"),),
    "div": (form("self / other"),),
    "pow": (form("self ** exponent"),),
    "maximum": (form("maximum(self, other)"),),
    "minimum": (form("minimum(self, other)"),),
    "clamp": (form("clamp(self, min, max)"), form("clamp_min(self, min)"), form("clamp_max(self, max)")),
    "clamp_min": (form("clamp_min(self, min)"),),
    "clamp_max": (form("clamp_max(self, max)"),),
    "where": (form("where(condition, self, other)"),),
    "masked_fill": (form("where(mask, value, self)"),),
    "addcmul": (form("self + tensor1 * tensor2"), form("self + value * tensor1 * tensor2")),
    "gelu": (form("gelu(self)"), form("gelu_tanh(self)", approximate="tanh")),
    "log_sigmoid": (form("logsigmoid(self)"),),
    "leaky_relu": (form("leaky_relu(self, negative_slope=negative_slope)"),),
    "elu": (form("elu(self, alpha=alpha)"),),
    "celu": (form("celu(self, alpha=alpha)"),),
    "hardtanh": (
        form("relu6(self)", min_val=0.0, max_val=6.0),
        form("hardtanh(self, min_val=min_val, max_val=max_val)"),
    ),
    "hardshrink": (form("hardshrink(self, lambd=lambd)"),),
    "softshrink": (form("softshrink(self, lambd=lambd)"),),
    "threshold": (form("threshold(self, threshold=threshold, value=value)"),),
    "softplus": (form("softplus(self, beta=beta, threshold=threshold)"),),
}
ROWS = {**ROWS, **{name: ROWS[other] for name, other in ALIASES.items()}}
# Operators that hand on their argument. A graph has them that holds for inputs of one dtype and one layout,
# which guards see to: where these may change, a cast or a copy may be one.
IDENTITIES: Rows = {
    **{
        name: (Form(ast.Name("self"), free=frozenset(arguments.split()), is_same=True),)
        for name, arguments in (
            ("to", "dtype device non_blocking copy memory_format layout pin_memory other"),
            ("contiguous", "memory_format"), ("view", "size dtype"), ("reshape", "shape"),
            ("expand", "size implicit"), ("view_as", "other"), ("type_as", "other"), ("alias", ""),
        )
    },
    "dropout": (
        Form(ast.Name("input"), {"train": False}, frozenset({"p"})),
        Form(ast.Name("input"), {"p": 0.0}, frozenset({"train"})),
    ),
}  # fmt: skip
GUARDED: Rows = {**ROWS, **IDENTITIES}
UNSQUEEZE: Rows = {"unsqueeze": (form("unsqueeze(self, dim)"),)}  # a view, which a spec has of its inputs
COMPOSED = {  # functions of PyTorch that run several operators, by their formulas
    name: ast.parse(text, mode="eval").body
    for name, text in (("softsign", "x / (abs(x) + 1)"), ("tanhshrink", "x - tanh(x)"))
}


def fitted(call: Call, value: Callable[[Any], ast.expr], rows: Rows) -> ast.expr:
    """Return the formula of a call, by those of its arguments and a table of rows.

    Raises:
        Unfit: no form takes these arguments.
    """
    problems = []
    for each in rows.get(call.name, ()):
        try:
            usual = _checked(each, call)
            values = {name: value(call.arguments[name]) for name in each.names & call.arguments.keys()}
        except Unfit as error:
            problems.append(str(error))
            continue
        return _simple(substituted(each.body, values, usual))
    raise Unfit(next(iter(problems), UNKNOWN))


def _checked(of: Form, call: Call) -> frozenset[str]:
    """Return the arguments that have their defaults, if the form takes the call."""
    if of.is_same and not call.is_same:
        raise Unfit(UNKNOWN)
    for name in of.names:
        if call.arguments.get(name) is None:
            raise Unfit(REDUCTION if call.name in REDUCING else f"the argument {name} is missing")
    for name, value in call.arguments.items():
        is_free = name in of.names | of.free or value is None
        if not is_free and not _is(value, of.given.get(name, call.defaults.get(name))):
            raise Unfit(f"the argument {name}={value!r} is not known")
    return frozenset(name for name, value in call.defaults.items() if call.has(name, value))


def _is(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


def _simple(body: ast.expr) -> ast.expr:
    """Return a formula without a factor or a divisor of one, which changes no number."""
    match body:
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=ast.Constant(value=1)):
            return left
        case ast.BinOp(left=ast.Constant(value=1), op=ast.Mult(), right=right):
            return right
    return body


def composed(body: ast.expr) -> str:
    """Return the function whose formula of one value a formula is; empty where it is none's."""
    called = {node.func for node in ast.walk(body) if isinstance(node, ast.Call)}
    names = {node.id for node in ast.walk(body) if isinstance(node, ast.Name) and node not in called}
    if len(names) == 1:
        value = {"x": ast.Name(names.pop())}
        for name, formula in COMPOSED.items():
            if ast.dump(substituted(formula, value)) == ast.dump(body):
                return name
    return ""
