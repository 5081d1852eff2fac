"""Random formulas over the whole grammar: every symbol, every function, every spec of the library."""

import random
from collections.abc import Sequence

from conftest import ROOT

from fusegen.core.ops import FUNCTIONS
from fusegen.language.library import Library

SPECS = Library(ROOT / "specs")
CALLS = tuple(
    name for name in SPECS.names() if (spec := SPECS(name)) and not spec.layers and name not in FUNCTIONS
)
OPERATIONS = tuple(name for name in FUNCTIONS if name != "where")
SYMBOLS = ("({0} + {1})", "({0} - {1})", "({0} * {1})", "({0} / {1})", "({0} ** {1})", "(-{0})")
COMPARISONS = ("<", "<=", ">", ">=")
CONSTANTS = ("0", "1", "2", "-1", "0.5", "pi", "e")


def term(chance: random.Random, depth: int, leaves: Sequence[str]) -> str:
    """A random term of some depth; its leaves are given, by how often they are to come."""
    if depth == 0 or chance.random() < 0.1:
        return chance.choice(leaves)
    kind = chance.random()

    def part() -> str:
        return term(chance, depth - 1, leaves)

    if kind < 0.35:
        return chance.choice(SYMBOLS).format(part(), part())
    if kind < 0.5:
        return f"where({part()} {chance.choice(COMPARISONS)} {part()}, {part()}, {part()})"
    name = chance.choice(OPERATIONS if kind < 0.75 else CALLS)
    spec = SPECS(name)
    count = len(FUNCTIONS[name].args) if name in FUNCTIONS else 0
    if not count and spec is not None:
        count = len(spec.inputs) + chance.randint(0, len(spec.params))
    return f"{name}({', '.join(part() for _ in range(count))})"
