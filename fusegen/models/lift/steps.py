"""From the operations of a graph to the steps of a chain, named as the model names them.

Operations of one statement are one step. Each step reads the value of the one before it; a value that is
read further on has a name. A value beside the chain that is read twice is a line of `where`.
"""

import ast
import itertools
import linecache
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fusegen.errors import FusegenError, Span
from fusegen.language.parse.names import check_variable
from fusegen.models.lift.fx_graph import START, Operation, Traced
from fusegen.models.reader.formula import substituted

BEFORE, VALUE, RESULT = "before", "value", "last"


@dataclass
class Steps:
    """The body of a spec."""

    where: dict[str, ast.expr] = field(default_factory=dict)  # formulas by name
    chain: list[tuple[str, ast.expr]] = field(default_factory=list)  # the steps, each perhaps with a name
    formula: ast.expr | None = None  # the whole, where there is no chain
    results: dict[str, ast.expr] = field(default_factory=dict)  # by name, where there are several


def steps(traced: Traced, running: str, path: Path, taken: Collection[str]) -> Steps:
    """Return the steps of a graph in the running value, named as in the model's file if not taken."""
    names = _Names(path, {running, *taken})
    if traced.others:
        return _of_several({each.key: each for each in traced.operations}, traced, running, names)
    operations = _merged(traced)
    spine = _spine(operations, traced.result)
    aside = [key for key in operations if key not in spine]
    fits = all(not operations[key].reads & set(spine) for key in aside)
    if fits and START in operations[spine[0]].reads and not any(map(_aligns, traced.operations)):
        return _chain(operations, spine, running, names)
    return _formula(operations, traced.result, running, names)


def _aligns(operation: Operation) -> bool:
    """Return True if an operation reads the first input by a view, which no running value has."""
    calls = (node for node in ast.walk(operation.body) if isinstance(node, ast.Call))
    return any(ast.unparse(call).startswith(f"unsqueeze({START}") for call in calls)


class _Names:
    """Names for values: the variables of the model where they can be, else numbered ones."""

    def __init__(self, path: Path, taken: set[str]) -> None:
        self.path, self.taken = path, taken

    def of(self, line: int, otherwise: str) -> str:
        """Return a new name for the value of a line of the model."""
        name = self.variable(line) or otherwise
        try:
            check_variable(name, Span(""))
        except FusegenError:
            name = otherwise
        if name in self.taken:
            numbered = (f"{otherwise}_{number}" for number in itertools.count(2))
            free = (each for each in (otherwise, *itertools.islice(numbered, 99)) if each not in self.taken)
            name = next(free)
        self.taken.add(name)
        return name

    def variable(self, line: int) -> str:
        """Return the variable that a line assigns to."""
        return assigned(linecache.getline(str(self.path), line))


def assigned(line: str) -> str:
    """Return the variable that a line of Python assigns to; empty where it is no such statement."""
    try:
        [statement] = ast.parse(line.strip()).body
    except (SyntaxError, ValueError):
        return ""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AugAssign(target=ast.Name(id=name)):
            return name
    return ""


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
        if len(readers) == 1 and readers[0].line == each.line and each.line and each.key != traced.result:
            reader = readers[0]
            body = substituted(reader.body, {each.key: found.pop(each.key).body})
            found[reader.key] = Operation(reader.key, body, reader.what, reader.line)
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
            name = names.of(operation.line, VALUE)
            made.where[name] = substituted(operation.body, known)
            known[key] = ast.Name(name)
    previous = START
    chained = [START, *spine]
    later = {
        key: any(key in operations[other].reads for other in spine if other not in (key, following))
        for key, following in zip(chained, spine, strict=False)
    }
    if later.get(START):
        name = names.of(0, BEFORE)
        made.chain.append((name, ast.Name(running)))
        known[START] = ast.Name(name)
    for key in spine:
        operation = operations[key]
        body = substituted(operation.body, {**known, previous: ast.Name(running)})
        name = names.of(operation.line, VALUE) if later.get(key) else ""
        made.chain.append((name, body))
        if name:
            known[key] = ast.Name(name)
        previous = key
    if len(made.chain) == 1 and not made.where:
        made.formula = made.chain[0][1]
    return made


def _formula(operations: Mapping[str, Operation], result: str, running: str, names: _Names) -> Steps:
    """Return the whole as a formula, with a line of `where` for each value."""
    made = Steps()
    known: dict[str, ast.expr] = {START: ast.Name(running)}
    for key, operation in operations.items():
        body = substituted(operation.body, known)
        if key == result:
            made.formula = body
        else:
            name = names.of(operation.line, VALUE)
            made.where[name] = body
            known[key] = ast.Name(name)
    return made


def _of_several(operations: Mapping[str, Operation], traced: Traced, running: str, names: _Names) -> Steps:
    """Return a formula of each result, and lines of `where` for other values."""
    made = _formula(operations, traced.result, running, names)
    by_key = dict(zip([key for key in operations if key != traced.result], [*made.where], strict=True))
    assert made.formula is not None
    made.results = {names.of(0, RESULT): made.formula}
    made.results |= {by_key[key]: made.where.pop(by_key[key]) for key in traced.others}
    return made
