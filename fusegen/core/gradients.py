"""Gradients of the primitives: one row for each operation that a formula can hold.

A row maps the gradient g of an operation's value y, that value, and the operation's arguments to one term
for each argument. The accurate form is one in which nothing cancels; where eager computes another, the row
says that too. PyTorch's conventions at the kinks are written out as comparisons: relu'(0) = 0,
relu6'(0) = relu6'(6) = 0, clamp'(bound) = 1, abs'(0) = 0, and half to each of maximum's equal arguments.
They also decide what a NaN argument does: it fails the comparison.

Source: PyTorch, tools/autograd/derivatives.yaml; Griewank and Walther 2008, Evaluating Derivatives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from fusegen.core.term import Apply, Number, Operand, Term, call

Rule = Callable[..., tuple["Term | None", ...]]


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of one primitive."""

    rule: Rule  # from g, y and the arguments to one term an argument; None where there is no gradient
    # the same as PyTorch's eager operations compute it, where they compute it otherwise
    eager: Rule | None = None
    # from g and y alone, where that is as cheap and exactly as accurate
    from_value: Callable[[Term, Term], Term] | None = None


def _where(condition: Apply, chosen: Operand, other: Operand) -> Apply:
    return call("where", condition, chosen, other)


def _if_both(first: Apply, second: Apply, chosen: Term) -> Apply:
    return _where(first, _where(second, chosen, 0), 0)


# to 120 digits: where a slope cancels far out, its exact value takes as many
_TWO_OVER_ROOT_PI = Fraction(
    "1.12837916709551257389615890312154517168810125865799771368817144342128493688298682"
    "8973487320404214726886056695812723414703"
)
_IN_DOUBLE = Fraction(float(_TWO_OVER_ROOT_PI))  # eager's
_LN2 = Fraction(
    "0.69314718055994530941723212145817656807550013436025525412068000949339362196969471"
    "56058633269964186875420014810205706857337"
)
_PI = call("pi")
_HALF = Fraction(1, 2)

# fmt: off
GRADIENTS: dict[str, Gradient] = {
    # symbols
    "add": Gradient(lambda g, y, a, b: (g, g)),
    "sub": Gradient(lambda g, y, a, b: (g, -g)),
    "mul": Gradient(lambda g, y, a, b: (g * b, g * a)),
    "div": Gradient(lambda g, y, a, b: (g / b, -g * (y / b)),
                    eager=lambda g, y, a, b: (g / b, -g * ((a / b) / b))),
    "neg": Gradient(lambda g, y, a: (-g,)),
    "where": Gradient(lambda g, y, holds, a, b: (None, _where(holds, g, 0), _where(holds, 0, g))),
    # selections
    "relu": Gradient(lambda g, y, x: (_where(x <= 0, 0, g),),
                     from_value=lambda g, y: _where(y <= 0, 0, g)),
    "relu6": Gradient(lambda g, y, x: (_where(x <= 0, 0, _where(x >= 6, 0, g)),),
                      from_value=lambda g, y: _where(y <= 0, 0, _where(y >= 6, 0, g))),
    "saturate": Gradient(lambda g, y, x, low, high: (
        _where(x <= low, 0, _where(x >= high, 0, g)), _where(x <= low, g, 0), _where(x >= high, g, 0))),
    "clamp": Gradient(lambda g, y, x, low, high: (
        _if_both(x >= low, x <= high, g), _if_both(low < high, x < low, g),
        _where(x > high, g, _where(high < low, g, 0)))),
    "clamp_min": Gradient(lambda g, y, x, low: (_where(x >= low, g, 0), _where(x < low, g, 0))),
    "clamp_max": Gradient(lambda g, y, x, high: (_where(x <= high, g, 0), _where(x > high, g, 0))),
    "minimum": Gradient(lambda g, y, a, b: (_tied(g, a > b, a, b), _tied(g, a < b, a, b))),
    "maximum": Gradient(lambda g, y, a, b: (_tied(g, a < b, a, b), _tied(g, a > b, a, b))),
    "abs": Gradient(lambda g, y, x: (g * call("sign", x),)),
    "sign": Gradient(lambda g, y, x: (None,)),
    "detach": Gradient(lambda g, y, x: (None,)),
    # arithmetic
    "square": Gradient(lambda g, y, x: (g * (2 * x),)),
    "cube": Gradient(lambda g, y, x: (g * (3 * call("square", x)),)),
    "reciprocal": Gradient(lambda g, y, x: (-g * (y * y),), from_value=lambda g, y: -g * (y * y)),
    "sqrt": Gradient(lambda g, y, x: (g / (2 * y),), from_value=lambda g, y: g / (2 * y)),
    "rsqrt": Gradient(lambda g, y, x: (Fraction(-1, 2) * g * call("cube", y),),
                      from_value=lambda g, y: Fraction(-1, 2) * g * call("cube", y)),
    "pow": Gradient(lambda g, y, x, c: (
        _power_slope(g, x, c),
        _where(call("eq", x, 0), _where(c >= 0, 0, g * (y * call("log", x))), g * (y * call("log", x))))),
    # the math library
    "exp": Gradient(lambda g, y, x: (g * y,), from_value=lambda g, y: g * y),
    "exp2": Gradient(lambda g, y, x: (g * y * _LN2,), from_value=lambda g, y: g * y * _LN2),
    "expm1": Gradient(lambda g, y, x: (g * call("exp", x),), eager=lambda g, y, x: (g * (y + 1),)),
    "log": Gradient(lambda g, y, x: (g / x,)),
    "log2": Gradient(lambda g, y, x: (g / (x * _LN2),)),
    "log1p": Gradient(lambda g, y, x: (g / (x + 1),)),
    "sin": Gradient(lambda g, y, x: (g * call("cos", x),)),
    "cos": Gradient(lambda g, y, x: (-g * call("sin", x),)),
    "sinpi": Gradient(lambda g, y, x: (g * (_PI * call("cospi", x)),)),
    "cospi": Gradient(lambda g, y, x: (-g * (_PI * call("sinpi", x)),)),
    "tanh": Gradient(lambda g, y, x: (g * call("tanh_slope", x),)),
    "erf": Gradient(lambda g, y, x: (g * (_TWO_OVER_ROOT_PI * call("gauss", x)),),
                    eager=lambda g, y, x: (_IN_DOUBLE * call("exp", -call("square", x)) * g,)),
    "erfc": Gradient(lambda g, y, x: (-g * (_TWO_OVER_ROOT_PI * call("gauss", x)),),
                     eager=lambda g, y, x: (-_IN_DOUBLE * call("exp", -call("square", x)) * g,)),
    "ndtr": Gradient(lambda g, y, x: (g * call("normal", x),)),
    "times_tanh_softplus": Gradient(lambda g, y, x: (g * call("times_tanh_softplus_slope", x),)),
    "times_ndtr": Gradient(lambda g, y, x: (g * call("times_ndtr_slope", x),)),
    "soft_sign": Gradient(lambda g, y, x: (g * call("square", call("reciprocal", call("abs", x) + 1)),)),
    "tanh_shrink": Gradient(lambda g, y, x: (g * call("square", call("tanh", x)),)),
    "scaled_hypot": Gradient(lambda g, y, a, b: (
        g * call("scaled_hypot_slope", a, b), g * call("scaled_hypot_slope", b, a))),
    "tanh_softplus": Gradient(lambda g, y, x: (g * call("tanh_softplus_slope", x),)),
    "tanh_of_exp": Gradient(lambda g, y, x: (g * call("tanh_of_exp_slope", x),)),
    "sigmoid": Gradient(lambda g, y, x: (g * call("sigmoid_slope", x),)),
    "softplus": Gradient(lambda g, y, x: (g * call("sigmoid", x),)),
    # slopes, which stable forms hold
    "sigmoid_slope": Gradient(lambda g, y, x: (-g * (y * call("tanh", _HALF * x)),)),
    "tanh_slope": Gradient(lambda g, y, x: (-2 * g * (y * call("tanh", x)),)),
    "gauss": Gradient(lambda g, y, x: (-2 * g * (y * x),)),
    "normal": Gradient(lambda g, y, x: (-g * (y * x),)),
}
# fmt: on


def _tied(g: Term, loses: Apply, a: Term, b: Term) -> Apply:
    """Return all of g, none where the argument loses, half where both are equal."""
    return _where(loses, 0, _where(call("eq", a, b), g / 2, g))


def _power_slope(g: Term, x: Term, c: Term) -> Term | None:
    """Return the gradient of x in x ** c; at an exponent of 0 there is none, also where x is infinite."""
    slope = g * (c * call("pow", x, c - 1))
    if isinstance(c, Number):
        return slope if c.value else None
    return _where(call("eq", c, 0), 0, slope)
