"""Views of tensors whose rows are other dimensions than the last ones, with these dimensions last."""

from typing import Any, Callable, List, NamedTuple, Sequence, Tuple

from .checks import check


class RowViews(NamedTuple):
    """The dimensions of a module's rows.

    Attributes:
        name: of the module.
        first, size: the first dimension of a row, from the last one if negative, and how many it has.
        once_a_row: whether a result is a value of each row.
    """

    name: str
    first: int
    size: int
    once_a_row: bool

    def of(self, tensors: "Sequence[Any]") -> "List[Any]":
        """Return views whose last dimensions are those of rows."""
        rank = max(t.dim() for t in tensors)
        own, last = self.dimensions(rank)
        return [t[(None,) * (rank - t.dim())].movedim(own, last) for t in tensors]

    def back(self, result: Any) -> Any:
        """Return a result of such views with the dimensions of rows in their places."""
        if self.once_a_row:
            return result
        own, last = self.dimensions(result.dim())
        return result.movedim(last, own)

    def called(self, kernels: Any, function: "Callable[..., Any]", *arguments: Any) -> Any:
        """Return the result of a module's function for such views."""
        tensors, others = arguments[: kernels.inputs], arguments[kernels.inputs :]
        rank = max(t.dim() for t in tensors)
        own, last = self.dimensions(rank)
        result = function(*(t[(None,) * (rank - t.dim())].movedim(last, own) for t in tensors), *others)
        return result if self.once_a_row else result.movedim(own, last)

    def dimensions(self, rank: int) -> "Tuple[Tuple[int, ...], Tuple[int, ...]]":
        """Return the dimensions of rows, and those that the views have them as."""
        own = tuple(range(self.first, self.first + self.size))
        fits = -rank <= own[0] and own[-1] < (0 if self.first < 0 else rank)
        check(fits, self.name, f"a tensor of {rank} dimensions has no rows from {self.first} on")
        return own, tuple(range(-self.size, 0))
