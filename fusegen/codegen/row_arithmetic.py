"""The arithmetic that a phase of rows asks for: of sums whose terms cancel, of elements as they are."""

from collections.abc import Collection, Set

from fusegen.core.ir import Call, Const, Expr, Kernel, Ref, calls, operations, reads

COMPARED = {"eq", "ne", "lt", "le", "gt", "ge"}
WATCHED = {"add", "sub", "mul", "neg", "exp"}  # the operations of WatchedFloat


def cancels(kernel: Kernel) -> bool:
    """Return True if an element is a sum of more than two inputs, or of more than one and a row's value.

    A sum of two inputs is of elements as they are: it rounds once, however little of them is left.
    """
    sums = [call for call in calls(kernel) if call.op in ("add", "sub")]
    return any(not _is_of_inputs(call, set(kernel.inputs), set(kernel.params)) for call in sums)


def watches(kernel: Kernel, indices: Collection[str] = ()) -> bool:
    """Return True if `WatchedFloat` has all operations of an element.

    It has selections by what float has exactly: whether an index picks the element, and the sign of a value
    of the row.
    """
    return set(operations(kernel)) <= WATCHED or (selects(kernel, indices) and _is_watched_besides(kernel))


def selects(kernel: Kernel, indices: Collection[str]) -> bool:
    """Return True if an element is selected by an index, and else by signs of values of the row alone."""
    conditions = [call.args[0] for call in calls(kernel) if call.op == "where"]
    exact = {*indices, *kernel.params}
    by_index = any(_is_exact(each, indices) for each in conditions)
    return by_index and all(_is_exact(each, exact) for each in conditions)


def _is_exact(condition: Expr, names: Collection[str]) -> bool:
    match condition:
        case Call(op, (Ref(name), Const(number))) if op in COMPARED:
            return name in names and number == 0
    return False


def _is_watched_besides(kernel: Kernel) -> bool:
    """Return True if there are no other operations, and comparisons are of conditions alone."""
    compared = [call for call in calls(kernel) if call.op in COMPARED]
    selections = [call for call in calls(kernel) if call.op == "where"]
    own = {"where", *(call.op for call in compared)}
    return set(operations(kernel)) <= WATCHED | own and len(compared) == len(selections)


def compares(kernel: Kernel, of_row: Set[str]) -> bool:
    """Return True if what is computed of an element is compared with a value of its row.

    As with the largest one: all phases have to compute it with the same bits then.
    """
    of_element = set(kernel.inputs)
    for let in kernel.lets:
        of_element |= {let.name} if of_element & reads(let.value) else set()
    computed = [call.args for call in calls(kernel) if call.op in COMPARED]
    computed = [
        args for args in computed if not any(arg == Ref(name) for arg in args for name in kernel.inputs)
    ]
    read = [[reads(arg) for arg in args] for args in computed]
    return any(
        one & of_element and other & of_row and not other & of_element
        for args in read
        for one, other in (args, args[::-1])
    )


def _is_of_inputs(call: Call, inputs: Set[str], params: Set[str]) -> bool:
    names = [arg.name if isinstance(arg, Ref) else "" for arg in call.args]
    return any(a in inputs and b in inputs | params for a, b in (names, reversed(names)))


def is_plain(kernel: Kernel) -> bool:
    """Return True if an element's results are inputs as they are."""
    return not kernel.lets and all(isinstance(result, Ref) for result in kernel.results)
