"""The names by which a spec reads what a model names: each once, and none that means something else."""

import ast
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from fusegen.errors import FusegenError, Span
from fusegen.language.parse.names import check_attribute, check_variable
from fusegen.models.reader.formula import Unfit

Check = Callable[[str, Span], None]
LONGEST = 48  # characters of a word that a number and a suffix may follow


LACKS: dict[tuple[type[ast.AST], ...], str] = {
    (ast.FloorDiv, ast.Mod): "// and no %", (ast.Subscript,): "items of an argument",
}  # fmt: skip
INPUT: tuple[Check, ...] = (check_variable,)
ARGUMENT: tuple[Check, ...] = (check_variable, check_attribute)  # a scalar is an attribute of the model


def symbols(
    names: Iterable[str],  # of the model
    taken: Collection[str],  # the names that mean something else
    suffix: str,  # behind a name that is not free: ``clamp_value``
    checks: Sequence[Check],  # what a name has to pass
) -> dict[str, str]:
    """Return a symbol for each name: itself where it is free, else with a suffix."""

    def is_free(name: str, taken: Collection[str]) -> bool:
        with suppress(FusegenError):
            for check in checks:
                check(name, Span(""))
            return name not in taken
        return False

    names = list(names)
    found = {name: name for name in names if is_free(name, taken)}
    for name in names:
        held = {*taken, *found.values()}
        found.setdefault(name, next(each for each in _others(name, suffix) if is_free(each, held)))
    return {name: found[name] for name in names}


def _others(name: str, suffix: str) -> Iterator[str]:
    """Yield names in place of one: in lower case, with the suffix, and with a number."""
    word = re.sub(r"[^a-z0-9_]", "", name.lower()).strip("_")[:LONGEST] or "x"
    yield word
    yield f"{word}_{suffix}"
    yield from (f"{word}_{suffix}_{number}" for number in itertools.count(2))


def term(text: str, symbols: Mapping[str, str]) -> ast.expr:
    """Return arithmetic on the constructor's arguments as a term, with their names in formulas.

    Raises:
        Unfit: a formula cannot hold it. Its value would be right for get_init_inputs only.
    """
    found = ast.parse(text, mode="eval").body
    for kinds, lack in LACKS.items():
        if any(isinstance(part, kinds) for part in ast.walk(found)):
            raise Unfit(f"it reads {text}, and a formula has no {lack}")

    class Put(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.Name(symbols.get(node.id, node.id))

        def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
            return ast.Name(symbols[ast.unparse(node)])

        def visit_Call(self, node: ast.Call) -> ast.expr:
            return ast.Call(node.func, [self.visit(each) for each in node.args], [])

    renamed: ast.expr = Put().visit(found)
    return ast.fix_missing_locations(renamed)
