"""From the operations of a graph to the steps of a chain, named as the model names them.

Operations of one statement are one step. Each step reads the value of the one before it; a value that is
read further on has a name. A value beside the chain that is read twice is a line of `where`. Where the
model gives its values other names than that of what runs through the chain, the steps are lines of `where`.
"""

import ast
import itertools
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from fusegen.errors import FusegenError, Span
from fusegen.language.parse.names import check_variable
from fusegen.models.lift.fx_graph import START, Operation, Traced
from fusegen.models.reader.formula import substituted

BEFORE, VALUE, RESULT = "before", "value", "last"
RUNNING = "x"  # what runs through a region where the model has no name for it
MOST_INSIDE = 72  # characters of a value that stands in the formula of another


@dataclass
class Steps:
    """The body of a spec."""

    where: dict[str, ast.expr] = field(default_factory=dict)  # formulas by name
    chain: list[tuple[str, ast.expr]] = field(default_factory=list)  # the steps, each perhaps with a name
    formula: ast.expr | None = None  # the whole, where there is no chain
    results: dict[str, ast.expr] = field(default_factory=dict)  # by name, where there are several


def steps(traced: Traced, running: str, taken: Collection[str]) -> Steps:
    """Return the steps of a graph in the running value, named as in the model's file if not taken."""
    names = _Names({running, *taken})
    if traced.others:
        return _formula({each.key: each for each in traced.operations}, traced, running, names)
    operations = _merged(traced)
    spine = _spine(operations, traced.result)
    aside = [key for key in operations if key not in spine]
    fits = all(not operations[key].reads & set(spine) for key in aside)
    fits &= START in operations[spine[0]].reads and not any(map(_aligns, traced.operations))
    if fits and _runs_through(operations, spine, running):
        return _chain(operations, spine, running, names)
    return _formula(operations, traced, running, names)


def _runs_through(operations: Mapping[str, Operation], spine: list[str], running: str) -> bool:
    """Return True if the name of the first value may be that of each value of a chain.

    So it is where the model gives it to them, or where it is one letter and each step reads the one before.
    """
    given = {operations[key].variable for key in spine[:-1]} - {""}
    names = {running, running.removesuffix("_value")}
    reads = [key for key in (START, *spine) if _is_read_later(operations, spine, key)]
    is_plain = len(running) == 1 and (not given or not reads)
    return is_plain or len(spine) == 1 or (bool(given) and given <= names)


def _is_read_later(operations: Mapping[str, Operation], spine: list[str], key: str) -> bool:
    """Return True if a step of a chain reads a value behind the one that follows it."""
    chained = [START, *spine]
    following = chained[chained.index(key) + 1 :][:1]
    return any(key in operations[other].reads for other in spine if other not in (key, *following))


def _aligns(operation: Operation) -> bool:
    """Return True if an operation reads the first input by a view, which no running value has."""
    calls = (node for node in ast.walk(operation.body) if isinstance(node, ast.Call))
    return any(ast.unparse(call).startswith(f"unsqueeze({START}") for call in calls)


class _Names:
    """Names for values: the variables of the model where they can be, else operations, or numbered."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = taken

    def is_free(self, name: str) -> bool:
        """Return True if a value may have a name."""
        try:
            check_variable(name, Span(""))
        except FusegenError:
            return False
        return name not in self.taken

    def of(self, operation: Operation, usual: str = VALUE) -> str:
        """Return a new name for the value of an operation."""
        wished, made = (each.strip("_").lower() for each in (operation.variable, operation.what))
        numbered = (f"{VALUE}_{number}" for number in itertools.count(2))
        wishes = (wished, f"{wished}_{made}".strip("_"), usual, *itertools.islice(numbered, 99))
        name = next(each for each in wishes if self.is_free(each))
        self.taken.add(name)
        return name


def _readers(operations: Collection[Operation]) -> dict[str, list[Operation]]:
    found: dict[str, list[Operation]] = {}
    for each in operations:
        for node in ast.walk(each.body):
            if isinstance(node, ast.Name) and node.id.startswith("%"):
                found.setdefault(node.id, []).append(each)
    return found


def _merged(traced: Traced) -> dict[str, Operation]:
    """Return the operations with those in the place of their names that the same line reads once."""
    found = {each.key: each for each in traced.operations}
    for each in traced.operations:
        readers = _readers(list(found.values())).get(each.key, [])
        is_one = len(readers) == 1 and readers[0].statement == each.statement is not None
        if is_one and each.key != traced.result and _is_short(each.body):
            reader = readers[0]
            body = substituted(reader.body, {each.key: found.pop(each.key).body})
            found[reader.key] = replace(reader, body=body)
    return found


def _spine(operations: Mapping[str, Operation], result: str) -> list[str]:
    """Return the operations from the first to the result, each of which reads the one before."""
    order = {key: place for place, key in enumerate(operations)}
    found = [result]
    while True:
        latest = max(
            (key for key in operations[found[0]].reads if key in order), key=order.__getitem__, default=""
        )
        if not latest or not _leads(operations, latest):
            return found
        found.insert(0, latest)


def _leads(operations: Mapping[str, Operation], key: str) -> bool:
    """True if a value is more than the start without its gradient, which is read beside the chain."""
    body = operations[key].body
    stopped = isinstance(body, ast.Call) and isinstance(body.func, ast.Name) and body.func.id == "detach"
    return not (stopped and len(_readers(list(operations.values())).get(key, ())) > 1)


def _chain(operations: Mapping[str, Operation], spine: list[str], running: str, names: _Names) -> Steps:
    made = Steps()
    known: dict[str, ast.expr] = {START: ast.Name(running)}
    for key, operation in operations.items():
        if key not in spine:
            name = names.of(operation)
            made.where[name] = substituted(operation.body, known)
            known[key] = ast.Name(name)
    previous = START
    if _is_read_later(operations, spine, START):
        name = names.of(Operation(START, known[START], "", variable=BEFORE))
        made.chain.append((name, ast.Name(running)))
        known[START] = ast.Name(name)
    for key in spine:
        operation = operations[key]
        body = substituted(operation.body, {**known, previous: ast.Name(running)})
        name = names.of(operation) if _is_read_later(operations, spine, key) else ""
        made.chain.append((name, body))
        if name:
            known[key] = ast.Name(name)
        previous = key
    if len(made.chain) == 1 and not made.where:
        made.formula = made.chain[0][1]
    return made


def _is_short(body: ast.expr) -> bool:
    return len(ast.unparse(body)) <= MOST_INSIDE


def _formula(operations: Mapping[str, Operation], traced: Traced, running: str, names: _Names) -> Steps:
    """Return the whole as a formula, or one of each result, with a line of `where` for other values.

    A value without a name of its own that is read once stands where it is read.
    """
    made = Steps()
    known: dict[str, ast.expr] = {START: ast.Name(running)}
    reads = Counter(
        node.id
        for each in operations.values()
        for node in ast.walk(each.body)
        if isinstance(node, ast.Name)
    )
    for key, operation in operations.items():
        body, wished = substituted(operation.body, known), operation.variable
        is_named = names.is_free(wished) and wished != ""
        if key == traced.result and not traced.others:
            made.formula = body
        elif key == traced.result:
            made.results = {names.of(operation, RESULT): body, **made.results}
        elif key in traced.others:
            name = names.of(operation)
            made.results[name], known[key] = body, ast.Name(name)
        elif not is_named and reads[key] == 1 and _is_short(body):
            known[key] = body
        else:
            name = names.of(operation)
            made.where[name], known[key] = body, ast.Name(name)
    return made
