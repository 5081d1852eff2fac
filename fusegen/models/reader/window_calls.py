"""Poolings as formulas: their windows are numbers that a formula writes."""

import ast
from collections.abc import Callable
from typing import Any

from fusegen.core.poolings import POOLINGS
from fusegen.models.reader.aten_table import Rows, form
from fusegen.models.reader.formula import Unfit

WINDOWS: Rows = {
    name: (form(f"{name}(self, kernel_size, {', '.join(f'{each}={each}' for each in args)})"),)
    for name, args in (
        (name, [each for each in of.args if each not in ("input", "kernel_size", "divisor_override")])
        for name, of in POOLINGS.items()
        if name.startswith(("max", "avg"))
    )
}


def with_windows(value: Callable[[Any], ast.expr]) -> Callable[[Any], ast.expr]:
    """Return a function of arguments that writes numbers of windows, too; others as the given one does."""

    def written(given: Any) -> ast.expr:
        if isinstance(given, bool):
            return ast.Constant(given)
        if not isinstance(given, list | tuple):
            return value(given)
        if not all(isinstance(each, int | float) for each in given):
            raise Unfit("its windows are sizes of tensors, and a formula has numbers")
        numbers = [ast.Constant(int(each)) for each in given] or [ast.Constant(None)]  # no stride
        return (
            numbers[0] if len({each.value for each in numbers}) == 1 else ast.Tuple([*numbers], ast.Load())
        )

    return written
