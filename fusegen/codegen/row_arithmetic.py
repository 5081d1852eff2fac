"""The arithmetic that a phase of rows asks for: of sums whose terms cancel, of elements as they are."""

from collections.abc import Set

from fusegen.core.ir import Call, Expr, Kernel, Ref, calls, operations, parts

COMPARED = {"eq", "ne", "lt", "le", "gt", "ge"}
WATCHED = {"add", "sub", "mul", "neg", "exp"}  # the operations of WatchedFloat


def cancels(kernel: Kernel) -> bool:
    """Return True if an element is a sum of more than two inputs, or of more than one and a row's value.

    A sum of two inputs is of elements as they are: it rounds once, however little of them is left.
    """
    sums = [call for call in calls(kernel) if call.op in ("add", "sub")]
    return any(not _is_of_inputs(call, set(kernel.inputs), set(kernel.params)) for call in sums)


def watches(kernel: Kernel) -> bool:
    """Return True if `WatchedFloat` has all operations of an element."""
    return set(operations(kernel)) <= WATCHED


def compares(kernel: Kernel, of_row: Set[str]) -> bool:
    """Return True if what is computed of an element is compared with a value of its row.

    As with the largest one: all phases have to compute it with the same bits then.
    """
    of_element = set(kernel.inputs)
    for let in kernel.lets:
        of_element |= {let.name} if of_element & _read(let.value) else set()
    computed = [call.args for call in calls(kernel) if call.op in COMPARED]
    computed = [
        args for args in computed if not any(arg == Ref(name) for arg in args for name in kernel.inputs)
    ]
    read = [[_read(arg) for arg in args] for args in computed]
    return any(
        one & of_element and other & of_row and not other & of_element
        for args in read
        for one, other in (args, args[::-1])
    )


def _read(expr: Expr) -> set[str]:
    return {part.name for part in parts(expr) if isinstance(part, Ref)}


def _is_of_inputs(call: Call, inputs: Set[str], params: Set[str]) -> bool:
    names = [arg.name if isinstance(arg, Ref) else "" for arg in call.args]
    return any(a in inputs and b in inputs | params for a, b in (names, reversed(names)))


def is_plain(kernel: Kernel) -> bool:
    """Return True if an element's results are inputs as they are."""
    return not kernel.lets and all(isinstance(result, Ref) for result in kernel.results)
