"""A pointwise region: its operations, what it reads and what it computes for others."""

import ast
import functools
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx

from fusegen.models.lift.labels import label_of
from fusegen.models.lift.regions.pointwise import LABEL, NODE, Pointwise
from fusegen.models.reader.aten_calls import value_of
from fusegen.models.reader.row_calls import Reduced

ALONG = "along"  # the view of a tensor of one dimension that formulas read along the channels


@dataclass(frozen=True)
class Region:
    """A pointwise region.

    Attributes:
        parts: its operations, in order; the last is the result.
        inputs: the nodes outside that it reads. The first has the shape of its elements if one has, and is
            no mask: that from which eager's result has its layout in memory, unless it is a parameter. The
            others are in the order of reading, those that run along the channels last.
        others: results beside the last.
    """

    parts: tuple[Pointwise, ...]
    inputs: tuple[fx.Node, ...]
    others: tuple[fx.Node, ...] = ()

    @property
    def results(self) -> tuple[fx.Node, ...]:
        """The nodes whose values the region computes for others."""
        return self.result, *self.others

    @property
    def result(self) -> fx.Node:
        """The node whose value the region computes."""
        return self.parts[-1].node

    @property
    def nodes(self) -> tuple[fx.Node, ...]:
        """The nodes of the region, in order."""
        return tuple(part.node for part in self.parts)

    @property
    def rows(self) -> Reduced | None:
        """The dimensions that it reduces."""
        return next((part.rows for part in self.parts if part.rows is not None), None)

    @property
    def is_of_rows(self) -> bool:
        """True if it reduces rows."""
        return self.rows is not None

    @property
    def layer(self) -> str:
        """The path of its batch norm; empty where it has none."""
        return self.rows.layer if self.rows is not None else ""

    @property
    def drops(self) -> Any:
        """The path of the mode by which its dropout drops elements, or True; None where it has none."""
        return next((part.drops for part in self.parts if part.drops), None)

    @property
    def reduces(self) -> bool:
        """True if it reduces rows or windows."""
        return any(part.reduces is not None for part in self.parts)

    @property
    def whole(self) -> Tensor:
        """The example value of the shape of its elements: of its result, or of what it reduces."""
        found: Tensor = value_of(next((each.reduces for each in self.parts if each.reduces), self.result))
        return found

    @functools.cached_property
    def pooled(self) -> frozenset[fx.Node]:
        """The nodes that its pooling reads, itself, and what these read."""
        found = {part.node for part in self.parts if part.is_pool}
        for part in reversed(self.parts):
            found |= {*part.reads} if part.node in found else set()
        return frozenset(found)

    @functools.cached_property
    def of_rows(self) -> frozenset[fx.Node]:
        """The nodes whose values are one of each row."""
        found = set[fx.Node]()
        for part in self.parts:
            inside = [each for each in part.reads if each in found]
            if part.is_fold or (inside and len(inside) == len(part.reads)):
                found.add(part.node)
        return frozenset(found)

    @property
    def restored(self) -> tuple[Any, ...]:
        """The index that gives its result the dimensions of size 1 that eager's has."""
        return self.restored_of(self.result)

    def restored_of(self, node: fx.Node) -> tuple[Any, ...]:
        """Return the same of any result; none of elements, or where eager's has no such dimensions."""
        if self.rows is None or node not in self.of_rows or value_of(node).dim() < self.whole.dim():
            return ()
        return (*[slice(None)] * self.rows.dims[0], *[None] * len(self.rows.dims))

    @property
    def along(self) -> tuple[fx.Node, ...]:
        """The inputs of one dimension that it reads along the channels."""
        names = {
            ast.unparse(each.args[0])
            for part in self.parts
            for each in ast.walk(part.body)
            if isinstance(each, ast.Call) and ast.unparse(each.func) == ALONG
        }
        read = (node for part in self.parts for node in part.node.all_input_nodes)
        return tuple(dict.fromkeys(node for node in read if f"{NODE}{node.name}" in names))

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the numbers that it reads, each once, in order."""
        names = (
            each.id for part in self.parts for each in ast.walk(part.body) if isinstance(each, ast.Name)
        )
        read = [name[len(LABEL) :] for name in names if name.startswith(LABEL)]
        groups = label_of(self.rows.groups) if self.rows is not None else None
        return tuple(dict.fromkeys([*read, *([groups] if groups else [])]))
