"""The kernel IR as C++, for both devices, with the fewest parentheses that keep its meaning.

Reading the text back gives the same expression: a right operand of an operator's own strength keeps its
parentheses, since a + (b + c) is not (a + b) + c in floating point. The functions that a kernel calls stand
in the headers of `runtime/include`.
"""

import math
import re
from collections.abc import Iterable, Iterator
from functools import singledispatchmethod
from textwrap import TextWrapper

from fusegen.codegen.printers.both import is_number
from fusegen.codegen.printers.guards import Guard, guard
from fusegen.codegen.printers.literals import GENERIC, SUFFIX, generic_literal, literal
from fusegen.core.ir import Call, Const, Expr, Kernel, Let, Math, Ref, Word, operations
from fusegen.core.ops import ROUNDED, ROWS
from fusegen.core.ops.double_word import CURVE
from fusegen.core.ops.row import ATOM, COMPARE, SELECT, UNARY, Op
from fusegen.core.targets import Device

WIDTH = 116  # of a line
INDENT, NEXT = "  ", "      "  # of a statement, and of its further lines
PIECE = re.compile(r"[^(]*\(|[^(]+")
CURVES = "curves"  # the object of the kernel that looks curves up
TYPED = (ROUNDED, "select_by_width")  # templates over the element type T
NARROW = "narrow"  # a double-word value rounded to a single word


class CppPrinter:
    """Prints expressions of one kernel; each visit returns a text and how tightly it binds."""

    def __init__(self, kernel: Kernel, generic: bool = False, library: str = "") -> None:
        """Print in float or double; `generic` prints for any type; `library` stands before libm's names."""
        self.kernel, self.library = kernel, library
        self.kind = GENERIC if generic else kernel.math.value
        self.called = {ROWS[op].function for op in operations(kernel)}
        self.called |= {CURVES} if self.by_curves else set()

    def expr(self, expr: Expr, place: int = SELECT) -> str:
        """Return the text of an expression for a place that needs at least the strength `place`."""
        text, strength = self.visit(expr)
        return f"({text})" if strength < place else text

    @singledispatchmethod
    def visit(self, expr: Expr) -> tuple[str, int]:
        """Return the text of one node, and how tightly it binds."""
        raise NotImplementedError(type(expr))

    @visit.register
    def _(self, expr: Const) -> tuple[str, int]:
        if self.kind == GENERIC:
            return generic_literal(expr, self.kernel.math), ATOM
        text = literal(expr.value, self.kernel.math)
        negative = math.copysign(1.0, expr.value) < 0  # -0.0 too
        return text, UNARY if negative else ATOM

    @visit.register
    def _(self, expr: Ref) -> tuple[str, int]:
        return self.variable(expr.name), ATOM

    @visit.register
    def _(self, expr: Call) -> tuple[str, int]:
        op = ROWS[expr.op]
        match expr.args:
            case (Const(hi), Const(lo)) if is_number(expr) and self.is_template_of_double:
                digits = (literal(value, Math.DOUBLE) for value in (hi, lo))
                return f"number<{GENERIC}>({', '.join(digits)})", ATOM
            case (operand,) if op.infix:
                return op.infix + self.expr(operand, ATOM), op.strength
            case _ if found := guard(expr):
                return self.guard(found, expr.word), ATOM
            case (left, right) if op.infix and not expr.body:
                text = f"{self.expr(left, op.strength)} {op.infix} {self.expr(right, op.strength + 1)}"
                return text, op.strength
            case (condition, chosen, other) if op.strength == SELECT:
                texts = self.expr(chosen, COMPARE), self.expr(other)
                if self.held(chosen) is not self.held(other):  # C++ converts either, and chooses none
                    kind = self.type_of(expr.word)
                    texts = f"{kind}({texts[0]})", f"{kind}({texts[1]})"
                return f"{self.expr(condition, COMPARE)} ? {' : '.join(texts)}", SELECT
            case (value, Const(place)) if expr.op == CURVE:
                return f"curve<{int(place)}>({CURVES}, {self.expr(value)})", ATOM
        arguments = ", ".join(map(self.expr, expr.args))
        body = f"<{expr.body.name}>" if expr.body and not op.infix else ""
        return f"{self.function(op)}{body}({arguments})", ATOM

    def held(self, value: Expr) -> Word:
        """Return the type of a value's text: of a let that is read as a single word, its own."""
        lets = (let.word for let in self.kernel.lets if isinstance(value, Ref) and let.name == value.name)
        return next(lets, value.word)

    def result(self, value: Expr) -> str:
        """Return the text of a value that is stored, and so rounded to a single word."""
        found = guard(value) if isinstance(value, Call) else None
        return self.guard(found, Word.SINGLE) if found else self.expr(value)

    def guard(self, of: Guard, word: Word) -> str:
        """Return the call of a guard's function."""
        texts = [self.power(arg) if isinstance(arg, Const) else self.expr(arg) for arg in of.args]
        return f"{of.function}{f'<{self.type_of(word)}>' if of.by_type else ''}({', '.join(texts)})"

    def power(self, number: Const) -> str:
        """Return a power of two."""
        text = f"0x1p{math.frexp(number.value)[1] - 1}"
        return f"{GENERIC}({text})" if self.kind == GENERIC else text + SUFFIX[self.kernel.math]

    def type_of(self, word: Word) -> str:
        """Return the type of values."""
        return self.kind if word is Word.SINGLE else f"Promoted<{self.kind}>"

    def variable(self, name: str) -> str:
        """Return the C++ name of a variable: one that is taken gets a letter that no spec's names have."""
        return f"{name}_V" if name in self.called else name

    def function(self, op: Op) -> str:
        """Return the C++ name of a function of the table."""
        if op.name in TYPED:
            return f"{op.name}<T>"
        if op.name == NARROW:
            return self.kind
        return (self.library if op.libm else "") + op.function

    def definition(self) -> str:
        """The whole function of a kernel: its lets as named lines, then its value, or values in `out`."""
        kernel, kind = self.kernel, self.kind
        arguments = [f"{kind} {self.variable(name)}" for name in (*kernel.inputs, *kernel.params)]
        arguments += [f"CURVES& {CURVES}"] if self.by_curves else []
        values = list(map(self.result, kernel.results))
        lines = [
            f"  const {self.type_of(let.word)} {name} = {self.expr(let.value)};"
            for let, name in ((let, self.variable(let.name)) for let in kernel.lets)
        ]
        if len(values) == 1:
            returned, lines = kind, [*lines, f"  return {values[0]};"]
        else:
            returned = "void"
            arguments = [*arguments, f"{kind}* out"]
            lines += [f"  {''.join(places)}{value};" for value, places in _places(values).items()]
        parameters = ["T"] if self.takes_element_type else []
        parameters += [GENERIC] if kind == GENERIC else []
        parameters += ["CURVES"] if self.by_curves else []
        names = ", ".join(f"typename {parameter}" for parameter in parameters)
        head = f"template <{names}>\n" if parameters else ""
        head += f"HOST_DEVICE {returned} {kernel.name}({', '.join(arguments)}) {{"
        return "\n".join([head, *map(broken, lines), "}"])

    @property
    def is_template_of_double(self) -> bool:
        """True if one text stands for float, too, whose numbers are those of double rounded."""
        return self.kind == GENERIC and self.kernel.math is Math.DOUBLE

    @property
    def takes_element_type(self) -> bool:
        """True if the function has the element type for a parameter."""
        return not set(TYPED).isdisjoint(operations(self.kernel))

    @property
    def by_curves(self) -> bool:
        """True if the function takes what looks its curves up."""
        return CURVE in operations(self.kernel)

    def element(self) -> str:
        """Return the statement that calls the function on the elements `in` and sets the elements `out`."""
        kernel = self.kernel
        typed = "<T>" if self.takes_element_type else ""
        values = [f"in[{k}]" for k in range(len(kernel.inputs))]
        values += [*(f"p.{name}" for name in kernel.params), *[CURVES] * self.by_curves]
        if len(kernel.results) == 1:
            return f"out[0] = {kernel.name}{typed}({', '.join(values)})"
        return f"{kernel.name}{typed}({', '.join([*values, 'out'])})"


def _places(values: Iterable[str]) -> dict[str, list[str]]:
    """Return the assignments before each value, which several outputs may take."""
    found: dict[str, list[str]] = {}
    for k, value in enumerate(values):
        found.setdefault(value, []).append(f"out[{k}] = ")
    return found


def uniform(let: Let) -> str:
    """Return a scalar that the host computes, as a C++ statement in double."""
    kernel = Kernel(let.name, Device.CPU, Math.DOUBLE, (), (), (), (let.value,))
    return f"const double {let.name} = {CppPrinter(kernel, library='std::').expr(let.value)};"


def broken(line: str) -> str:
    """Return a statement on lines of `WIDTH` characters, broken at spaces, and behind parentheses."""
    text = " ".join(part for word in line.split() for part in _parts(word))
    wrapper = TextWrapper(
        WIDTH, initial_indent=INDENT, subsequent_indent=NEXT, break_on_hyphens=False, break_long_words=False
    )
    return wrapper.fill(text)


def _parts(word: str) -> Iterator[str]:
    """Yield a text without spaces in as few parts as lines hold, each but the last up to a parenthesis."""
    part = ""
    for piece in PIECE.findall(word):
        if part and len(part) + len(piece) > WIDTH - len(NEXT):
            yield part
            part = ""
        part += piece
    yield part
