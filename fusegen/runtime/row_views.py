"""Views of tensors whose rows are other dimensions than the last ones, with these dimensions last."""

from typing import Any, Callable, List, NamedTuple, Sequence, Tuple

import torch

from .checks import check
from .shared import mapped


class RowViews(NamedTuple):
    """The dimensions of a module's rows.

    Attributes:
        name: of the module.
        first, size: the first dimension of a row, from the last one if negative, and how many it has.
        results: how many there are.
        elements: the places of those that have the dimensions of rows.
    """

    name: str
    first: int
    size: int
    results: int
    elements: "Sequence[int]"

    def of(self, tensors: "Sequence[Any]") -> "List[Any]":
        """Return views whose last dimensions are those of rows."""
        rank = max(t.dim() for t in tensors)
        own, last = self.dimensions(rank)
        return [t[(None,) * (rank - t.dim())].movedim(own, last) for t in tensors]

    def back(self, result: Any) -> Any:
        """Return results of such views with the dimensions of rows in their places."""
        return mapped(self._back, result, self.results, self.elements)

    def _back(self, result: Any) -> Any:
        own, last = self.dimensions(result.dim())
        return result.movedim(last, own)

    def called(self, kernels: Any, function: "Callable[..., Any]", *arguments: Any) -> Any:
        """Return the result of a module's function for such views."""
        tensors, others = arguments[: kernels.inputs], arguments[kernels.inputs :]
        rank = max(t.dim() for t in tensors)
        own, last = self.dimensions(rank)
        result = function(*(t[(None,) * (rank - t.dim())].movedim(last, own) for t in tensors), *others)
        return mapped(lambda t: t.movedim(own, last), result, self.results, self.elements)

    def dimensions(self, rank: int) -> "Tuple[Tuple[int, ...], Tuple[int, ...]]":
        """Return the dimensions of rows, and those that the views have them as."""
        own = tuple(range(self.first, self.first + self.size))
        fits = -rank <= own[0] and own[-1] < (0 if self.first < 0 else rank)
        check(fits, self.name, f"a tensor of {rank} dimensions has no rows from {self.first} on")
        return own, tuple(range(-self.size, 0))


class KeptRows(NamedTuple):
    """The dimensions of rows that values of rows keep, with size 1.

    Attributes:
        first, size: the first of them, from the last one if negative, and how many; 0 for all behind it.
        results: how many the function has.
        of_rows: the places of those that are values of rows.
    """

    first: int
    size: int
    results: int
    of_rows: "Sequence[int]"

    def dimensions(self, rank: int) -> "Tuple[int, ...]":
        """Return the dimensions of rows of a tensor of so many."""
        first = self.first + (rank if self.first < 0 else 0)
        return tuple(range(first, first + self.size if self.size else rank))

    def dropping(self, function: "Callable[..., Any]") -> "Callable[..., Any]":
        """Return a function that keeps them as one without them, as kernels have it."""

        def call(*arguments: Any) -> Any:
            made = function(*arguments)
            return mapped(self._dropped, made, self.results, self.of_rows)

        return call

    def _dropped(self, result: Any) -> Any:
        return torch.squeeze(result, self.dimensions(result.dim()))

    def keeping(self, kernels: Any, eager: "Callable[..., Any]") -> "Callable[..., Any]":
        """Return the kernels' call with them, and PyTorch's function of what is recorded or nested."""
        run = kernels.run

        def call(*arguments: Any) -> Any:
            tensors = arguments[: kernels.inputs]
            if any(isinstance(t, torch.fx.Proxy) or getattr(t, "is_nested", False) for t in tensors):
                return eager(*arguments)
            made = run(*arguments)
            own = self.dimensions(max(t.dim() for t in tensors))
            places = (*(slice(None),) * own[0], *(None,) * len(own))
            return mapped(lambda t: t[places], made, self.results, self.of_rows)

        return call


class RowGroups(NamedTuple):
    """The groups of a module's rows: a part of a dimension, and all behind it.

    Attributes:
        name: of the module.
        dim: the dimension that is cut.
        results: how many there are.
        elements: the places of those that have the dimensions of rows.
    """

    name: str
    dim: int
    results: int
    elements: "Sequence[int]"

    def of(self, tensors: "Sequence[Any]", groups: int) -> "List[Any]":
        """Return views in which a part has a dimension of its own."""
        dim, rank = self.dim, max(t.dim() for t in tensors)
        check(rank > dim, self.name, f"a tensor of {rank} dimensions has no dimension {dim} to be cut")
        sizes = [t.shape[dim - rank] for t in tensors if t.dim() >= rank - dim]
        size = next((s for s in sizes if s != 1), 1)
        fits = isinstance(groups, int) and groups > 0 and size % groups == 0
        if not fits:  # a sentence of symbolic numbers would fix them, or TorchDynamo refuses it
            check(False, self.name, f"{groups} groups do not divide the {size} of dimension {dim}")
        whole = [t[(None,) * (rank - t.dim())] for t in tensors]
        return [t.unflatten(dim, (groups if t.shape[dim] == size else 1, -1)) for t in whole]

    def of_proxies(self, tensors: "Sequence[Any]", groups: Any) -> "List[Any]":
        """Return the views that torch.fx records; all tensors but the first begin with the dimension."""
        first, *others = tensors
        return [first.unflatten(self.dim, (groups, -1)), *(t.unflatten(0, (groups, -1)) for t in others)]

    def back(self, result: Any) -> Any:
        """Return results of such views with the parts of a dimension side by side."""
        return mapped(lambda t: t.flatten(self.dim, self.dim + 1), result, self.results, self.elements)


def grouped(kernels: Any, function: "Callable[..., Any]") -> "Callable[..., Any]":
    """Return a function of tensors in whose views groups are a dimension; their number comes last."""
    groups, count = kernels.groups, kernels.inputs
    if groups is None:
        return function

    def call(*arguments: Any) -> Any:
        tensors, params, number = arguments[:count], arguments[count:-1], arguments[-1]
        views = groups.of if all(isinstance(t, torch.Tensor) for t in tensors) else groups.of_proxies
        return groups.back(function(*views(tensors, number), *params))

    return call
