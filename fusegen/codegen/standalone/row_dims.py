"""The dimensions that the rows of a module have, and what a standalone file says of them."""

import ast
from dataclasses import dataclass
from typing import Any

from fusegen.codegen.standalone.reading import Module


@dataclass(frozen=True)
class RowDims:
    """Where the rows of a module lie.

    Attributes:
        first: the first dimension of a row, from the last one if negative.
        count: how many it has; 0 for all behind it.
        by_channel: whether tensors have a value for each channel, the dimension in front of a row.
        groups: the dimension whose groups are rows, with all behind it; None where there are no groups.
    """

    first: int
    count: int
    by_channel: bool
    groups: int | None

    @property
    def is_split(self) -> bool:
        """True unless rows are the last dimensions, and operands lie as the rows do."""
        return bool(self.count) or self.by_channel or self.groups is not None

    @property
    def least_dim(self) -> int:
        """The least number of dimensions of tensors that have such rows."""
        if self.groups is not None:
            return self.groups + 1
        return (
            -self.first + self.is_split * (not self.count)
            if self.first < 0
            else self.first + max(self.count, 1)
        )

    def context(self) -> dict[str, Any]:
        """Return what templates name of the dimensions."""
        first = self.first if self.groups is None else self.groups
        last = first + self.count if self.count and first + self.count else ""
        return {
            "over": self.first,
            "least_dim": self.least_dim,
            "split": self.is_split,
            "columns": bool(self.count),
            "runs": self.groups is not None,
            "groups": self.groups is not None,
            "groups_dim": self.groups or 0,
            "of_row": f"[{first}:{last}]",
        }


def row_dims(module: Module) -> RowDims:
    """Return the dimensions of the rows of a module."""
    given = {key: ast.literal_eval(module.given[key]) for key in ("over", "groups") if key in module.given}
    over = given["over"]
    first, count = over if isinstance(over, tuple) else (over, 0)
    return RowDims(first, count, "channels" in module.given, given.get("groups"))
