"""The kernels of a module that reduces rows: what they have otherwise than those of elements."""

import functools
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import torch

from . import row_binding, saved_rows, sharding, wide_values
from .activation import Activation
from .calls import copy_into
from .channels_last import as_they_are, operands
from .checks import check
from .compiled_call import in_front
from .indices import IGNORED, indexed
from .row_batches import along, gradients_in_batch, in_batch
from .row_operands import expanded
from .row_reductions import of_all_rows, with_index
from .row_shapes import shaped
from .row_views import KeptRows, RowGroups, RowViews, grouped
from .shared import listed, mapped


class Rows(Activation):
    """The kernels of a module that reduces rows.

    Operators and kernels take tensors whose rows are the last dimensions: of rows along other ones, views
    in which these are moved there, and elements lie apart.

    Attributes:
        over: the first dimension of a row, as the kernels take it.
        views: the views, where rows are other dimensions.
        where_they_are: the function of such tensors in PyTorch's own operations.
        once_a_row, row_results: whether all results are values of rows; the places of those that are.
        features: the tensors that may have one row for all, whose gradients are sums over the rows then.
        are_features, has_one_row: for each tensor, whether it is one; whether these may have a row's shape.
        by_channel: whether these have one value for several neighbours in a row.
        groups: the views, where rows are groups of a dimension; a call has their number last.
        results: how many the function has.
        elementwise: whether nothing is reduced, so that a tensor without dimensions is a row of one.
        reduction: what the function returns of the values of rows: mean, sum, or none for all of them.
        finds: whether these are the places of elements, in int64.
        of_rows, of_taken: the common call, without the reduction; that of what the operators take.
        row_dtype: the dtype of values of rows where tensors have 16 bits; None where it is theirs.
        divisor: the place of the tensor by whose sum, where the index picks it, a mean is divided; or 0.
    """

    tags = ()

    def __init__(
        self,
        name: str,
        *,
        over: "Union[int, Tuple[int, int]]",
        reduction: "Optional[str]" = None,
        features: "Tuple[str, ...]" = (),
        channels: "Tuple[str, ...]" = (),
        groups: "Optional[int]" = None,
        **own: Any,
    ) -> None:
        first, count = over if isinstance(over, tuple) else (over, 0)
        self.over, self.once_a_row = -count or first, reduction is not None
        self.features, self.by_channel = features or channels, bool(channels)
        self.finds, reduction = reduction == "place", None if reduction == "place" else reduction
        self.indices, self.results = own.pop("indices", 0), own.pop("results", 1)
        self.reduction, self.elementwise = reduction or "none", own.pop("elementwise", False)
        self.divisor, self.row_dtype = own.pop("divisor", 0), own.pop("row_dtype", None)
        self.reduces_index = bool(self.indices) and self.reduction != "none"
        every, of_rows, keeps = range(self.results), own.pop("row_results", ()), own.pop("keeps", False)
        self.row_results = tuple(every) if self.once_a_row else of_rows
        eager = wide_values.widening(self, own.pop("eager"))
        kind = self.results, [k for k in every if k not in self.row_results]
        kept = KeptRows(first, count, self.results, self.row_results)
        self.views = RowViews(name, first, count, *kind) if count else None
        plain = self.rows_last(kept.dropping(eager) if keeps else eager)
        is_wide = self.row_dtype and self.once_a_row  # and results are as of tensors in float32
        super().__init__(name, autocasts=not is_wide, eager=plain, **own)
        self.groups = None if groups is None else RowGroups(name, groups, *kind)
        self.lays = operands if count and groups is None else as_they_are  # rows whose elements lie apart
        self.are_features = self._which_are_features()
        self.has_one_row = self.over != 0 and not self.by_channel
        self.where_they_are = grouped(self, eager)
        self.of_taken, self.run = self.run, grouped(self, self._prepared(self.run))
        self.of_rows = self.run
        self.run = kept.keeping(self, eager) if keeps else self.run
        if self.reduces_index:
            self.forward_reduced, self.run = self.kernel("forward_reduced"), with_index(self)
        elif self.reduction != "none":
            self.run = functools.partial(of_all_rows, self, self.of_rows)

    @property
    def is_mixed(self) -> bool:
        """True if some results are values of rows, and others of elements."""
        return bool(self.row_results) and not self.once_a_row

    def values_in(self, dtype: "torch.dtype") -> "torch.dtype":
        """Return the dtype of values of rows beside elements of a dtype."""
        return torch.int64 if self.finds else wide_values.dtype_beside(self.row_dtype, dtype)

    def announce(self) -> None:
        """Leave the operator as it is under torch.compile: Inductor has no neighbour for it."""

    def first_of_row(self, dim: int) -> int:
        """Return the first dimension of a row of a tensor of so many dimensions."""
        first = self.over if self.over >= 0 else dim + self.over
        check(0 <= first < dim, self.name, f"a tensor of {dim} dimensions has no rows from {self.over} on")
        return first

    def includes(self) -> "List[str]":
        """Return the lines of C++ that include what binds kernels to PyTorch."""
        return [*row_binding.includes(self), *super().includes()]

    @property
    def feature_bits(self) -> int:
        """The tensors that are features, as bits."""
        return sum(1 << k for k, is_one in enumerate(self._which_are_features()) if is_one)

    @property
    def needs_elements(self) -> bool:
        """True if kernels take no empty tensors: no row of one shows its channels."""
        return self.by_channel

    @property
    def usual_shapes(self) -> "Tuple[int, ...]":
        """Return what C++ knows of the shapes that kernels take as they are (RowShapes in arguments.h)."""
        checks = self.has_one_row, self.elementwise, self.needs_elements
        return self.over, self.feature_bits, True, *checks

    def _which_are_features(self) -> "List[bool]":
        return [name in self.features for name in self.signature.tensors[: self.alike]]

    @property
    def rows_given(self) -> "Tuple[int, int]":
        """Return the first dimension of a given row, and how many it has; 0 for all from there on."""
        return (self.views.first, self.views.size) if self.views else (self.over, 0)

    def index(self, name: str, given: Any, x: Any, ignored: int = IGNORED) -> Any:
        """Return integers that pick an element of each row as the kernels take them; one picks none."""
        return indexed((self.name, name, *self.rows_given), given, x, ignored)

    def registration(self, kernel: str, counts: str) -> str:
        """Return the line of C++ that registers a kernel; it says which tensors are values of rows."""
        return row_binding.registration(self, super().registration(kernel, counts), kernel)

    launches = ()

    def by_nvrtc(self, operators: Any, kernel: str, library: Any = None) -> None:
        """Refuse to have Python launch the kernels, which take more than one launch."""
        check(False, self.name, "kernels of rows on CUDA are built by nvcc, which is not here")

    def by_operations(self, *arguments: Any) -> Any:
        """Return the function, with the module's reduction, by PyTorch's operations alone."""
        plain = self.where_they_are
        if self.reduction == "none":
            return plain(*arguments)
        return of_all_rows(self, plain, *arguments, self.reduction)

    def _graded(self) -> "Callable[..., Any]":
        """Return a function of the tensors that chooses the call whose gradient autograd records."""
        chosen = super()._graded()
        return saved_rows.graded(self, chosen) if self.saves else chosen

    @property
    def rules(self) -> "Dict[str, Callable[..., Any]]":
        """Return how each kernel is called on a batch."""
        forward, backward = functools.partial(in_batch, self), functools.partial(gradients_in_batch, self)
        return {"forward": forward, "backward": backward}

    def forward_along(self, ctx: Any, tangents: "Tuple[Any, ...]") -> Any:
        """Return the derivative of the function along some tangents, by PyTorch's operations."""
        return along(lambda *tensors: self.eager(*tensors, *ctx.params), ctx.saved_tensors, tangents)

    def backward_along(self, ctx: Any, tangents: "Tuple[Any, ...]") -> Any:
        """Return the derivative of the gradient along some tangents, by PyTorch's operations."""
        return along(lambda *tensors: self.slopes(*tensors, *ctx.params), ctx.saved_tensors, tangents)

    def slopes(self, *arguments: Any) -> Any:
        """Return the gradient by PyTorch's operations: of one tensor alone, of several a tuple."""
        made = self.eager_gradient(*arguments)
        return made if len(made) > 1 else made[0]

    def shapes(self, of: "Tuple[str, int, int, int]") -> "Callable[..., Any]":
        """Return a function that gives a kernel's results without the elements."""
        return functools.partial(shaped, self, of)

    def composed(self, *arguments: Any) -> Any:
        """Return the call that the operator makes, of whatever tensors a recorded program is given."""
        if sharding.is_sharded(*arguments[: self.inputs]):
            return self.eager(*arguments)
        return super().composed(*arguments)

    def without_kernel(self, *arguments: Any) -> Any:
        """Return the function of what is no plain tensor of one dtype."""
        tensors = arguments[: self.inputs]
        is_nested = any(isinstance(t, torch.Tensor) and t.is_nested for t in tensors)
        if is_nested or sharding.is_sharded(*tensors):
            return self.eager(*arguments)
        return super().without_kernel(*arguments)

    def write(self, out: Any, *arguments: Any) -> Any:
        """Return the result, copied into a given tensor; of several results, each into its own."""
        given, results = listed(out), listed(self.call(*arguments))
        fits = f"out is a tuple of {len(results)} tensors, and {len(given)} is given"
        check(len(given) == len(results), self.name, fits, TypeError)
        for one, result in zip(given, results):
            if one.numel() == 0:
                one.resize_(result.shape)
            copy_into(self.name, one, result)
        return out

    def _prepared(self, run: "Callable[..., Any]") -> "Callable[..., Any]":
        """Return a call of tensors as the kernels take them: of the whole shape, or of one row for all."""
        count, views = self.inputs, self.views
        if count == 1 and views is None and not self.elementwise and not self.needs_elements:
            return run

        def call(*arguments: Any) -> Any:
            tensors = arguments[:count]
            if all(isinstance(t, torch.Tensor) for t in tensors):
                if self.needs_elements and any(t.numel() == 0 for t in tensors):
                    return self.eager(*arguments)
                if self.elementwise and not any(t.dim() for t in tensors):
                    made = run(*(t[None] for t in tensors), *arguments[count:])
                    return mapped(lambda t: t[0], made, self.results)
                return run(*expanded(self, tensors), *arguments[count:])
            return run(*arguments)

        call = in_front(self, call, self.usual_shapes)

        def of_views(*arguments: Any) -> Any:
            tensors = arguments[:count]
            if any(isinstance(t, torch.fx.Proxy) or getattr(t, "is_nested", False) for t in tensors):
                return self.where_they_are(*arguments)
            if views is None or not all(isinstance(t, torch.Tensor) for t in tensors):
                return run(*arguments)
            return views.back(call(*views.of(tensors), *arguments[count:]))

        return call if views is None else of_views

    def rows_last(self, function: "Callable[..., Any]") -> "Callable[..., Any]":
        """Return a function of the module's tensors as one of views whose rows are last."""
        return function if self.views is None else functools.partial(self.views.called, self, function)
