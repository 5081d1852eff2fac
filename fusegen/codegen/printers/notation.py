"""A formula as mathematics writes it, in the author's own order, for headers and docstrings."""

from collections.abc import Iterator
from dataclasses import replace
from textwrap import wrap

from fusegen.core.kernel_order import title
from fusegen.core.ops import FUNCTIONS, OPS
from fusegen.core.ops.language import definition
from fusegen.core.ops.row import ATOM, PRODUCT, SELECT, SUM, UNARY
from fusegen.core.spec import Spec, Step
from fusegen.core.term import Apply, Name, Number, SpecCall, Term, infinite, rebuild, substitute

BOUND = {"square": UNARY, "cube": UNARY, "sqrt": UNARY, "reciprocal": PRODUCT, "rsqrt": PRODUCT}
WIDTH = 110  # of a line of a formula in a header
SYMBOLS = {"mul": "·", "sub": "-", "add": "+", "div": "/"}
SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def notation(spec: Spec) -> str:
    """Return the formula of a spec on one line: ``y = x · u / 6,  u = x + 3``."""
    running = spec.inputs[0].name
    views: dict[str, Term] = {i.name: Name(i.view) for i in spec.tensors}
    spec = _with_calls(spec) if spec.dropouts else spec
    where = [f"{running} = {running} + {spec.bias.name}"] if spec.bias else []
    lines = {line.name: f"{line.name} = {term(substitute(line.term, views))}" for line in spec.where}
    results = [lines.pop(name) for name in spec.results]
    where += lines.values()
    if results:
        return ",  ".join([*results, *where])
    if spec.formula is not None:
        formula = substitute(spec.formula, views)
        if spec.over and spec.over.is_part and isinstance(formula, SpecCall):  # the mean of a part
            formula = replace(formula, spec=spec.reduction)
        return ",  ".join([f"y = {term(formula)}", *where])
    steps = [_step(step, running, views) for step in spec.chain]
    named = [_named(step, text, running) for step, text in zip(spec.chain[:-1], steps, strict=False)]
    return ",  ".join([*where, *named, f"y = {steps[-1]}"])


def formulas(spec: Spec) -> list[str]:
    """Return the lines of the formulas of all kernels, in order, those in front with their names."""
    *ahead, _ = spec.kernels
    then = "then: " if ahead else ""
    every = [*(f"{title(each, spec)}: {notation(each)}" for each in ahead), f"{then}{notation(spec)}"]
    return [line for each in every for line in _wrapped(each)]


def _wrapped(formula: str) -> Iterator[str]:
    """Yield a formula, of which each step has lines of its own where it is longer than a line."""
    if len(formula) <= WIDTH:
        yield formula
        return
    for k, step in enumerate(formula.split(",  ")):
        first, *more = wrap(step, WIDTH, break_on_hyphens=False)
        yield f"{'  ' if k else ''}{first}"
        yield from (f"      {line}" for line in more)


def _named(step: Step, text: str, running: str) -> str:
    if step.label is None:
        return f"{running} = {text}"
    return f"{step.label.name} = {text}" if text == running else f"{running} = {step.label.name} = {text}"


def _with_calls(spec: Spec) -> Spec:
    """Return a spec with calls of dropout in place of the products that they are."""
    rates = {each.kept.name: each.rate for each in spec.dropouts}

    def written(term: Term) -> Term:
        match rebuild(term, written):
            case Apply("mul", (dropped, Apply("mul", (Apply("detach", (Name(kept),)), _)))) if (
                kept in rates
            ):
                return SpecCall("dropout", (dropped, Name(rates[kept])))
            case other:
                return other

    where = tuple(replace(line, term=written(line.term)) for line in spec.where)
    chain = tuple(replace(step, term=step.term and written(step.term)) for step in spec.chain)
    return replace(spec, where=where, chain=chain, formula=spec.formula and written(spec.formula))


def functions() -> Iterator[tuple[str, str]]:
    """Yield the functions that a formula may call: how a call is written, and its value."""
    for op in FUNCTIONS.values():
        text = term(Apply(op.name, tuple(map(Name, op.args))))
        yield op.signature, definition(op) if text == op.signature else text


def term(formula: Term, place: int = SELECT) -> str:
    """Return one term, in parentheses where it stands in a place that binds tighter than it."""
    text, strength = _visit(formula)
    return f"({text})" if strength < place else text


def number(value: float) -> str:
    """Return a number in the fewest digits that name it."""
    return f"{value:.15g}"


def _visit(formula: Term) -> tuple[str, int]:
    match formula:
        case Number(value) if infinite(formula):
            return ("-inf", UNARY) if value < 0 else ("inf", ATOM)
        case Number(value):
            return number(float(value)), UNARY if value < 0 else ATOM
        case Name(name):
            return name, ATOM
        case SpecCall("gather", (picked, index), ()):
            return f"{term(picked, ATOM)}[{term(index)}]", ATOM
        case SpecCall(spec, args, keywords):
            shown = [term(arg) for arg in args]
            shown += [f"{key}={term(value)}" for key, value in keywords]
            return f"{spec}({', '.join(shown)})", ATOM
        case Apply("pow", (base, Number(exponent))) if exponent.denominator == 1:
            return term(base, ATOM) + str(exponent).translate(SUPERSCRIPTS), UNARY
        case Apply("where", (condition, chosen, other)):
            return f"{term(chosen, SUM)} if {term(condition)} else {term(other)}", SELECT
        case Apply(op, args):
            return _apply(op, args)


def _apply(name: str, args: tuple[Term, ...]) -> tuple[str, int]:
    op = OPS[name]
    match args:
        case (operand,) if op.infix:
            return op.infix + term(operand, ATOM), op.strength
        case (left, right) if op.infix:
            symbol = SYMBOLS.get(name, op.notation or op.infix)
            tight = op.strength + (op.strength in (SUM, PRODUCT))
            return f"{term(left, op.strength)} {symbol} {term(right, tight)}", op.strength
    if name in BOUND:  # written with symbols that bind their argument
        return op.notation.format(term(args[0], ATOM)), BOUND[name]
    shown = [term(arg) for arg in args]
    if op.notation:
        return op.notation.format(*shown), ATOM
    return f"{name}({', '.join(shown)})", ATOM


def _step(step: Step, running: str, views: dict[str, Term]) -> str:
    if step.call is None:
        assert step.term is not None
        return term(substitute(step.term, views))
    keywords = [f"{key}={term(substitute(value, views))}" for key, value in step.call.keywords]
    return f"{step.call.spec}({', '.join([running, *keywords])})"
