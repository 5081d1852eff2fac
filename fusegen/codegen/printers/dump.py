"""Every stage's value as text, for ``fusegen show`` and for the comments of generated code."""

import math
from dataclasses import fields

from fusegen.codegen.printers.notation import notation, term
from fusegen.core.constructor import Argument, Layer, StateTensor
from fusegen.core.ir import Call, Const, Expr, Kernel, Ref, Word
from fusegen.core.spec import Input, Named, Param, Spec, Step
from fusegen.core.term import Apply, Name, Number, Program, Rewrite, SpecCall
from fusegen.errors import Span

TYPES = {Word.SINGLE: "", Word.DOUBLE: f": {Word.DOUBLE.value}"}  # of a let, after its name


def spec(value: Spec) -> str:
    """Return a spec, one field a line, as the parser understood it, without where it is written."""
    shown = [(each.name, getattr(value, each.name)) for each in fields(value) if each.name != "places"]
    shown = [(name, part) for name, part in shown if (name, part) != ("reduction", "none")]
    own = [f"{name}: {_plain(part)}" for name, part in shown if part and not isinstance(part, Span | Spec)]
    return "\n".join([*own, *(f"{front.name}: {notation(front)}" for front in value.kernels[:-1])])


def program(value: Program) -> str:
    """Return a program: what it takes, its lets, its results."""
    lines = [f"{let.name} = {term(let.term)}" for let in value.lets]
    given, results = value.inputs + value.params, ", ".join(map(term, value.results))
    return "\n".join([f"given {', '.join(given)}", *lines, f"return {results}"])


def rewrite(value: Rewrite) -> str:
    """Return one rewrite as a sentence."""
    change = f"{term(value.before)} is {term(value.after)}"
    reason = f", since {term(value.subject)} lies in {value.range}" if value.subject else ""
    return f"{value.rule.capitalize()}: {change}{reason}."


def kernel(value: Kernel) -> str:
    """Return a kernel as nested calls, every constant in full."""
    head = f"{value.device.name} {value.math.value} {value.name}({', '.join(value.inputs + value.params)})"
    lines = [f"  {let.name}{TYPES[let.word]} := {_expr(let.value)}" for let in value.lets]
    return "\n".join([head, *lines, f"  return {', '.join(map(_expr, value.results))}"])


def _expr(value: Expr) -> str:
    match value:
        case Const(number):
            return (
                f"{number:g}" if not math.isfinite(number) or number == int(number) else float(number).hex()
            )
        case Ref(name):
            return name
        case Call(op, args, _, body):
            named = f"<{body.name}>" if body else ""
            return f"{op}{named}({', '.join(map(_expr, args))})"


def _plain(value: object) -> str:
    match value:
        case Number() | Name() | Apply() | SpecCall():
            return term(value)
        case Step(call, written, _, label):
            return f"{label.name}: {_plain(call or written)}" if label else _plain(call or written)
        case Input(_, shape, fill):
            return f"{value.view} {list(shape)} {value.dtype or fill.kind}"
        case Param(name, default):
            return f"{name}={float(default):g}"
        case Named(name, formula):
            return f"{name} = {term(formula)}"
        case Layer(attribute, kind, args):
            return f"{attribute} = {kind}({', '.join(args)})"
        case StateTensor(attribute, kind, initialiser):
            return f"{attribute} = {kind.value}({initialiser})" + ("" if value.is_read else " unread")
        case Argument(name):
            return f"{name}={value.text}"
        case tuple():
            return ", ".join(map(_plain, value))
        case _:
            return str(value)
