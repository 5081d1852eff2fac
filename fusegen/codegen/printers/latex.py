"""A formula in LaTeX, in the author's own order."""

from fusegen.core.ops import OPS
from fusegen.core.ops.row import ATOM, PRODUCT, SELECT, SUM, UNARY
from fusegen.core.term import Apply, Name, Number, SpecCall, Term, infinite

# how a function is written, {0} being its first argument, which is given in no parentheses
WRITTEN = {
    "where": r"\begin{{cases}} {1} & {0} \\ {2} & \text{{otherwise}} \end{{cases}}",
    "div": r"\frac{{{0}}}{{{1}}}", "quotient": r"\frac{{{0}}}{{{1}}}", "reciprocal": r"\frac{{1}}{{{0}}}",
    "sqrt": r"\sqrt{{{0}}}", "rsqrt": r"\frac{{1}}{{\sqrt{{{0}}}}}", "abs": r"\left|{0}\right|",
    "exp": "e^{{{0}}}", "exp2": "2^{{{0}}}", "expm1": r"\left(e^{{{0}}} - 1\right)",
    "log": r"\ln\left({0}\right)", "log2": r"\log_2\left({0}\right)", "log1p": r"\ln\left(1 + {0}\right)",
    "sin": r"\sin\left({0}\right)", "cos": r"\cos\left({0}\right)", "tanh": r"\tanh\left({0}\right)",
    "ndtr": r"\Phi\left({0}\right)", "times_ndtr": r"{0} \, \Phi\left({0}\right)",
    "times_tanh_softplus": r"{0} \tanh\left(\operatorname{{softplus}}\left({0}\right)\right)",
    "clamp": r"\min\left(\max\left({0}, {1}\right), {2}\right)",
    "saturate": r"\min\left(\max\left({0}, {1}\right), {2}\right)",
    "clamp_min": r"\max\left({0}, {1}\right)", "clamp_max": r"\min\left({0}, {1}\right)",
    "maximum": r"\max\left({0}, {1}\right)", "minimum": r"\min\left({0}, {1}\right)",
    "pi": r"\pi", "e": "e",
}  # fmt: skip
BOUND = {  # how tightly these bind; the others are closed by brackets
    "where": SELECT, "div": UNARY, "quotient": UNARY, "reciprocal": UNARY, "rsqrt": UNARY, "exp": UNARY,
    "exp2": UNARY, "times_ndtr": PRODUCT, "times_tanh_softplus": PRODUCT,
}  # fmt: skip
POWERS = {"square": "2", "cube": "3"}
SIGNS = {"mul": r"\cdot", "le": r"\le", "ge": r"\ge", "eq": "=", "ne": r"\ne"}


def term(formula: Term, place: int = SELECT) -> str:
    """Return one term, in parentheses where it stands in a place that binds tighter than it."""
    text, strength = _visit(formula)
    return rf"\left({text}\right)" if strength < place else text


def name(text: str) -> str:
    """Return a name: a letter as it is, a word upright."""
    return text if len(text) == 1 else rf"\mathrm{{{text}}}".replace("_", r"\_")


def _visit(formula: Term) -> tuple[str, int]:
    match formula:
        case Number(value) if infinite(formula):
            return (r"-\infty", UNARY) if value < 0 else (r"\infty", ATOM)
        case Number(value):
            return f"{float(value):.15g}", UNARY if value < 0 else ATOM
        case Name(text):
            return name(text), ATOM
        case SpecCall(spec, args, keywords):
            shown = [*map(term, args), *(f"{name(key)}={term(value)}" for key, value in keywords)]
            return _called(spec, shown), ATOM
        case Apply("pow", (base, exponent)):
            return f"{term(base, ATOM)}^{{{term(exponent)}}}", UNARY
        case Apply(op, (base,)) if op in POWERS:
            return f"{term(base, ATOM)}^{POWERS[op]}", UNARY
        case Apply(op, args) if op in WRITTEN:
            return WRITTEN[op].format(*map(term, args)), BOUND.get(op, ATOM)
        case Apply(op, args):
            return _apply(op, args)


def _apply(op: str, args: tuple[Term, ...]) -> tuple[str, int]:
    row = OPS[op]
    match args:
        case (operand,) if row.infix:
            return row.infix + term(operand, ATOM), row.strength
        case (left, right) if row.infix:
            tight = row.strength + (row.strength in (SUM, PRODUCT))
            sign = SIGNS.get(op, row.infix)
            return f"{term(left, row.strength)} {sign} {term(right, tight)}", row.strength
    return _called(op, [term(arg) for arg in args]), ATOM


def _called(function: str, args: list[str]) -> str:
    upright = function.replace("_", r"\_")
    return rf"\operatorname{{{upright}}}\left({', '.join(args)}\right)"
