"""The laws of a kernel, one row each: what every stage below `lower` may rely on."""

from collections.abc import Callable, Iterator

from fusegen.core import op_types
from fusegen.core.ir import Call, Const, Expr, Kernel, Ref, Word, calls, expressions, parts, reads, round_to
from fusegen.core.ops import ROWS
from fusegen.core.ops.row import Words


def broken_law(kernel: Kernel) -> str | None:
    """Return the first law that a kernel breaks, as a sentence; nothing when it keeps them all."""
    return next((sentence for sentence, holds in LAWS if not holds(kernel)), None)


def _all(kernel: Kernel) -> Iterator[Expr]:
    return (part for expr in expressions(kernel) for part in parts(expr))


def _types_are_those_of_rows(kernel: Kernel) -> bool:
    return all(call.word is op_types.given(call, kernel.device, kernel.math) for call in calls(kernel))


def _takes_its_arguments(call: Call) -> bool:
    return ROWS[call.op].words is not Words.SINGLE or not op_types.takes_double(call)


def _names_have_one_type(kernel: Kernel) -> bool:
    words = dict.fromkeys((*kernel.inputs, *kernel.params), Word.SINGLE)
    words |= {let.name: let.word for let in kernel.lets}
    return all(part.word is words[part.name] for part in _all(kernel) if isinstance(part, Ref))


def _names_are_distinct(kernel: Kernel) -> bool:
    declared = [*kernel.inputs, *kernel.params, *(let.name for let in kernel.lets)]
    return len(declared) == len(set(declared))


def _defined_before_use(kernel: Kernel) -> bool:
    defined = {*kernel.inputs, *kernel.params}
    for let in kernel.lets:
        if not reads(let.value) <= defined:
            return False
        defined.add(let.name)
    return all(reads(result) <= defined for result in kernel.results)


def _lets_are_used(kernel: Kernel) -> bool:
    used = {name for expr in expressions(kernel) for name in reads(expr)}
    return all(let.name in used for let in kernel.lets)


def _held_exactly(kernel: Kernel) -> bool:
    constants = (part.value for part in _all(kernel) if isinstance(part, Const))
    return all(round_to(value, kernel.math) == value for value in constants)


def _conditions_stand_in_where(kernel: Kernel) -> bool:
    for call in calls(kernel):
        for index, arg in enumerate(call.args):
            condition = isinstance(arg, Call) and ROWS[arg.op].boolean
            if condition != (call.op == "where" and index == 0):
                return False
    values = (expr for expr in expressions(kernel) if isinstance(expr, Call))
    return not any(ROWS[value.op].boolean for value in values)


LAWS: tuple[tuple[str, Callable[[Kernel], bool]], ...] = (
    ("a kernel has at least one input", lambda k: bool(k.inputs)),
    ("every name is declared once", _names_are_distinct),
    ("every name is declared before it is used", _defined_before_use),
    ("every let is used", _lets_are_used),
    ("every operation is a row of ops.ROWS", lambda k: all(c.op in ROWS for c in calls(k))),
    ("every operation has its number of arguments",
     lambda k: all(len(c.args) == len(ROWS[c.op].args) for c in calls(k))),
    ("every name has the type of its value wherever it is read", _names_have_one_type),
    ("what takes single words only is given no double-word value",
     lambda k: all(map(_takes_its_arguments, calls(k)))),
    ("a call names a body that its operation has",
     lambda k: all(c.body is None or c.body in ROWS[c.op].bodies for c in calls(k))),
    ("every operation has the type that its row gives it", _types_are_those_of_rows),
    ("no constant is NaN", lambda k: all(e.value == e.value for e in _all(k) if isinstance(e, Const))),
    ("the math type holds every constant exactly", _held_exactly),
    ("a condition stands in a where, and nowhere else", _conditions_stand_in_where),
)  # fmt: skip
