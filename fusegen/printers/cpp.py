"""The kernel IR as C++, for both devices, with the fewest parentheses that keep its meaning.

Reading the text back gives the same expression: a right operand of an operator's own strength keeps its
parentheses, since a + (b + c) is not (a + b) + c in floating point.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import singledispatchmethod
from textwrap import fill

from fusegen.ir import Call, Const, Device, Expr, Kernel, Let, Math, Ref, held, operations
from fusegen.links import LINKS
from fusegen.ops import ATOM, COMPARE, OPS, ROWS, SELECT, UNARY, WORDS, Op
from fusegen.singles import SINGLES

GENERIC = "M"  # float, or Approximate where the tensor's elements have 16 bits; double, or Ample
ROUNDED = "rounded"  # eager's rounding between two operations
TYPED = (ROUNDED, "by_width")  # templates over the element type T
NARROW = "narrow"  # two words added up
WIDTH = 116  # of a line
DIGITS = {Math.FLOAT: 9, Math.DOUBLE: 17}  # enough to tell any two values apart


@dataclass(frozen=True, slots=True)
class Language:
    """How a device's C++ differs: what stands before a function, and before the math library."""

    qualifier: str
    library: str


LANGUAGES = {
    Device.CUDA: Language("__device__ __forceinline__", ""),
    Device.CPU: Language("inline", "math::"),
}


# in the order of their calls
DEFINED = tuple(op for op in (*WORDS.values(), *OPS.values()) if op.body or op.name in SINGLES | LINKS)
# what double computes by another function on the CPU (`doubles`)
TAIL_IN_DOUBLE = "return s < M(25) ? half_erfc(x) : bell * mills(s);"
IN_DOUBLE = {"ndtr_tail": (TAIL_IN_DOUBLE, "return {m}normal_tail(-minus_size(x), bell);")}
CALLS, WORD, OPEN = re.compile(r"(?<![}\w])(\w+)\("), re.compile(r"\bM\b"), re.compile(r"\bX\b")
HOST = Language("inline", "std::")


class CppPrinter:
    """Prints expressions of one kernel; each visit returns a text and how tightly it binds."""

    def __init__(self, kernel: Kernel, generic: bool = False) -> None:
        """Print in float or double; `generic` prints for any type like it."""
        self.kernel, self.language = kernel, LANGUAGES[kernel.device]
        self.kind = GENERIC if generic else kernel.math.value
        self.called = {word for op in operations(kernel) for word in (op, ROWS[op].libm)}

    def expr(self, expr: Expr, place: int = SELECT) -> str:
        """The text of an expression for a place that needs at least the strength `place`."""
        text, strength = self.visit(expr)
        return f"({text})" if strength < place else text

    @singledispatchmethod
    def visit(self, expr: Expr) -> tuple[str, int]:
        """The text of one node, and how tightly it binds."""
        raise NotImplementedError(type(expr))

    @visit.register
    def _(self, expr: Const) -> tuple[str, int]:
        negative = math.copysign(1.0, expr.value) < 0  # -0.0 too
        return literal(expr.value, self.kernel.math), UNARY if negative else ATOM

    @visit.register
    def _(self, expr: Ref) -> tuple[str, int]:
        return self.variable(expr.name), ATOM

    @visit.register
    def _(self, expr: Call) -> tuple[str, int]:
        op = ROWS[expr.op]
        match expr.args:
            case (operand,) if op.infix:
                return op.infix + self.expr(operand, ATOM), op.strength
            case (left, right) if op.infix:
                text = f"{self.expr(left, op.strength)} {op.infix} {self.expr(right, op.strength + 1)}"
                return text, op.strength
            case (condition, chosen, other) if op.strength == SELECT:
                texts = self.expr(condition, COMPARE), self.expr(chosen, COMPARE), self.expr(other)
                return "{} ? {} : {}".format(*texts), SELECT
        arguments = ", ".join(self.argument(arg) for arg in expr.args)
        return f"{self.function(op)}({arguments})", ATOM

    def variable(self, name: str) -> str:
        """The C++ name of a variable: one that the kernel calls gets a letter that no spec's names have."""
        return f"{name}_V" if name in self.called else name

    def argument(self, expr: Expr) -> str:
        """The text of an argument; a number where the type is open is given that type."""
        text = self.expr(expr)
        return f"{GENERIC}({text})" if self.kind == GENERIC and isinstance(expr, Const) else text

    def function(self, op: Op) -> str:
        """How a function of the table is called."""
        if op.name in TYPED:
            return f"{op.name}<T>"
        if op.name == NARROW:
            return self.kind
        return self.language.library + op.libm if op.libm else op.name

    def definition(self) -> str:
        """The whole function of a kernel: its lets as named lines, then its value, or values in `out`."""
        kernel, kind = self.kernel, self.kind
        arguments = [f"{kind} {self.variable(name)}" for name in (*kernel.inputs, *kernel.params)]
        values = [self.expr(result) for result in kernel.results]
        lines = [
            f"  const {f'Wide<{kind}>' if let.wide else kind} {name} = {self.expr(let.value)};"
            for let, name in ((let, self.variable(let.name)) for let in kernel.lets)
        ]
        if len(values) == 1:
            returned, lines = kind, [*lines, f"  return {values[0]};"]
        else:
            returned = "void"
            arguments = [*arguments, f"{kind}* out"]
            lines += [f"  out[{k}] = {value};" for k, value in enumerate(values)]
        parameter = "T" if ROUNDED in operations(kernel) else kind if kind == GENERIC else ""
        template = f"template <typename {parameter}>\n" if parameter else ""
        head = f"{template}{self.language.qualifier} {returned} {kernel.name}({', '.join(arguments)}) {{"
        return "\n".join([head, *lines, "}"])

    def element(self) -> str:
        """The statement that calls the function on the elements `in` and sets the elements `out`."""
        kernel = self.kernel
        typed = "<T>" if ROUNDED in operations(kernel) else ""
        values = [
            *(f"in[{k}]" for k in range(len(kernel.inputs))),
            *(f"p.{name}" for name in kernel.params),
        ]
        if len(kernel.results) == 1:
            return f"out[0] = {kernel.name}{typed}({', '.join(values)});"
        return f"{kernel.name}{typed}({', '.join([*values, 'out'])});"


def uniform(let: Let) -> str:
    """A scalar that the host computes, as a C++ statement in double."""
    printer = CppPrinter(Kernel(let.name, Device.CPU, Math.DOUBLE, (), (), (), (let.value,)))
    printer.language = HOST
    return f"const double {let.name} = {printer.expr(let.value)};"


def support(kernels: tuple[Kernel, ...]) -> tuple[str, ...]:
    """The definitions of the table's own functions that kernels of one device call, in table order."""
    device = kernels[0].device
    used = {
        kind: reached(
            (name for kernel in kernels if kernel.math is kind for name in operations(kernel)),
            device, kind,
        )
        for kind in Math
    }  # fmt: skip
    kinds = {op: tuple(kind for kind in Math if op.name in used[kind]) for op in DEFINED}
    return tuple(_functions(op, device, kinds[op]) for op in DEFINED if kinds[op])


def wide(kernel: Kernel) -> bool:
    """Whether a kernel computes in two words anywhere."""
    return any(ROWS[op].wide or op in WORDS or "Two<" in ROWS[op].body for op in operations(kernel))


def reached(names: Iterable[str], device: Device, kind: Math) -> frozenset[str]:
    """These operations, and those that their bodies call in kernels of a device and a math type."""
    found = frozenset(names)
    more = {name for op in found for name in CALLS.findall(_body(op, device, kind)) if name in ROWS}
    return found if more <= found else reached(found | more, device, kind)


def _body(name: str, device: Device, kind: Math) -> str:
    single = SINGLES.get(name) if (device, kind) == (Device.CUDA, Math.FLOAT) else None
    return single or LINKS.get(name) or _own(ROWS[name], device)


def _own(op: Op, device: Device) -> str:
    """The body of an operation in the table; on the CPU double may take a function of `doubles` there."""
    taken = device is Device.CPU and op.name in IN_DOUBLE
    return op.body.replace(*IN_DOUBLE[op.name]) if taken else op.body


def literal(value: float, kind: Math) -> str:
    """The shortest literal of a math type that reads back as the same value.

    A bare 0.5 would be a double and pull float arithmetic up with it, so float literals end in f.
    """
    suffix = "f" if kind is Math.FLOAT else ""
    if math.isinf(value):
        return ("-" if value < 0 else "") + f"{kind.value}(INFINITY)"
    for digits in range(1, DIGITS[kind] + 1):
        text = f"{value:.{digits}g}"
        if held(float(text), kind) == value:
            break
    return repr(float(text)) + suffix


def _functions(op: Op, device: Device, kinds: tuple[Math, ...]) -> str:
    """One function for every math type, or on CUDA one for float and one for double, under what it is."""
    language, open_ = LANGUAGES[device], op.wide or bool(OPEN.search(op.body))
    given = "X" if open_ else GENERIC
    returned = "Wide<X>" if op.wide else "Word<X>" if open_ else GENERIC
    body = LINKS.get(op.name) or _own(op, device).format(m=language.library)
    body = f"using M = Word<X>; {body}" if open_ and WORD.search(body) else body
    if device is Device.CPU or op.name not in SINGLES:
        texts = [_function(op, language, given, returned, body)]
    else:
        by_kind = {
            Math.FLOAT: ("X", "OfFloat<X>", SINGLES[op.name]),
            Math.DOUBLE: (given, f"OfDouble<{given}, {returned}>", body),
        }
        texts = [_function(op, language, *by_kind[kind]) for kind in kinds]
    meaning = (op.meaning or op.notation).format(*op.args)
    note = f"// {meaning}\n" if meaning else ""
    return note + "\n\n".join(texts)


def _function(op: Op, language: Language, given: str, returned: str, body: str) -> str:
    *single, last = op.args
    kind = f"Word<{given}>" if given == "X" else given
    arguments = ", ".join([*(f"{kind} {arg}" for arg in single), f"{given} {last}"])
    head = f"template <typename {given}>\n{language.qualifier} {returned} {op.name}({arguments}) {{"
    return "\n".join([head, lines_of(body), "}"])


def lines_of(body: str) -> str:
    """A function's statements, a line each; a long one is broken."""
    lines = body.replace("; ", ";\n").split("\n")
    return "\n".join(
        fill(line, WIDTH, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)
        for line in lines
    )
