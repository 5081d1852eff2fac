"""The primitives: one row per operation of the formula language.

A row says everything any stage needs to know of an operation: its arguments, the real function it is
(as sympy writes it), the interval of its values, and how C++ and mathematics spell it. The names, and
the meaning at NaN and at the ends, are PyTorch's.

C++ spelling is one of three: an infix symbol, a function of the math library (`exp`), or a function of the
headers in `runtime/include`, in which a NaN operand fails every comparison of a selection and stays.

Source: PyTorch documentation of torch and torch.nn.functional; ATen's BinaryOps, UnaryOps and Activation.
"""

from collections.abc import Collection

from fusegen.core.ops.double_word import WORDS
from fusegen.core.ops.language import LANGUAGE
from fusegen.core.ops.rewritten import FORMS
from fusegen.core.ops.row import Op, Words
from fusegen.core.term import Apply, Term, walk
from fusegen.errors import counted

OPS = {row.name: row for row in (*LANGUAGE, *FORMS)}
ROWS = OPS | WORDS
TURNS = frozenset(("sinpi", "cospi"))  # periodic in numbers of few bits, at which samples are alike
TRANSCENDENTAL = frozenset(row.name for row in ROWS.values() if row.transcendental)
# products that give what their first argument is: a double-word value of what an earlier function rounded
PRODUCTS = tuple(row.name for row in ROWS.values() if row.words is Words.AS_FIRST)
SINGLE_WORD_VALUED = frozenset(row.name for row in ROWS.values() if row.single)
_FEWER: dict[tuple[str, tuple[str, ...]], str] = {
    ("clamp", ("x", "min")): "clamp_min",
    ("clamp", ("x", "max")): "clamp_max",
}
ROUNDED = "round_to_storage"  # eager's rounding between two operations
FUNCTIONS = {name: row for name, row in OPS.items() if row.written and row.args}
CONSTANTS = {name: row for name, row in OPS.items() if not row.args}


def called(op: Op, given: Collection[str]) -> Op | None:
    """The row that a call of `op` with the given arguments means, or nothing where some are missing."""
    present = tuple(arg for arg in op.args if arg in given)
    return op if present == op.args else OPS.get(_FEWER.get((op.name, present), ""))


def on_host(term: Term) -> bool:
    """Return True if plain C++ computes a term: by symbols and the math library, without our functions."""
    operations = (OPS[part.op] for part in walk(term) if isinstance(part, Apply))
    return all((row.infix or row.libm) and not row.boolean for row in operations)


def argument_count(op: Op) -> str:
    """Return the number of arguments of a call of `op`, in words."""
    count = len(op.args)
    if any(name == op.name for name, _ in _FEWER):
        return f"{count - 1} or {count} arguments"
    return counted(count, "argument")
