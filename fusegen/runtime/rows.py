"""The kernels of a module that reduces rows: what differs from those of elements."""

import functools
import re
from typing import Any, Callable, List, Sequence, Tuple

import torch

from . import autograd, operators, sharding
from .activation import Activation
from .calls import batched, copy_into
from .checks import check
from .headers import inlined
from .shared import listed
from .sources import Texts, binding, header

REGISTRATION = re.compile(r"FUSEGEN_REGISTER(_WITH_SUMS)?\((.*)\)")


class Rows(Activation):
    """The kernels of a module that reduces rows.

    Attributes:
        over: the first dimension of a row, which has all behind it.
        once_a_row: whether a result is a value of each row.
        gradient_at: for each tensor, the output of `backward` that is its gradient.
    """

    tags = ()

    def __init__(self, name: str, *, over: int, once_a_row: bool = False, **own: Any) -> None:
        self.over, self.once_a_row = over, once_a_row
        super().__init__(name, autocasts=True, **own)
        self.run = self._prepared(self.run)

    def announce(self) -> None:
        """Leave the operator as it is under torch.compile: Inductor has no neighbour for it."""

    def first_of_row(self, dim: int) -> int:
        """Return the first dimension of a row of a tensor of so many dimensions."""
        first = self.over if self.over >= 0 else dim + self.over
        check(0 <= first < dim, self.name, f"a tensor of {dim} dimensions has no rows from {self.over} on")
        return first

    def texts(self) -> Texts:
        """Return the sources with their headers in their places."""
        texts = binding(self.signature, self.dtypes, False)
        over = f"#define FUSEGEN_OVER {self.over}\n"
        texts = over + texts.replace('"stable_abi.h"', '"stable_abi_rows.h"')
        lines = [self._registration(line) for line in texts.split("\n")]
        several = ("\n".join(lines), self.sources.cpu, self.sources.cuda, "")
        return Texts(*(inlined(text, header) for text in several))

    def _registration(self, line: str) -> str:
        reduced = "NONE"
        if self.once_a_row:
            reduced = "OUTPUT" if f" {self.name}_forward," in line else "INPUT"
        return REGISTRATION.sub(rf"FUSEGEN_REGISTER_ROWS\1(\2, {reduced})", line)

    def functions(self) -> "Tuple[Any, Any]":
        """Return the kernel with its gradient, and the kernel of the gradient."""
        return functions(self)

    def rules(self) -> "dict[str, Any]":
        """Return how the kernels are called on a batch."""
        return {
            "forward": functools.partial(in_batch, self),
            "backward": functools.partial(gradients_in_batch, self),
        }

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
        if any(isinstance(t, torch.Tensor) and t.is_nested for t in tensors) or sharding.is_sharded(
            *tensors
        ):
            return self.eager(*arguments)
        return super().without_kernel(*arguments)

    def write(self, out: torch.Tensor, *arguments: Any) -> torch.Tensor:
        """Return the result, copied into a given tensor."""
        result = self.call(*arguments)
        if out.numel() == 0:
            out.resize_(result.shape)
        return copy_into(self.name, out, result)

    def _prepared(self, run: "Callable[..., Any]") -> "Callable[..., Any]":
        """Return a call of tensors as the kernels take them: of the whole shape, or of one row for all."""
        if self.inputs == 1:
            return run
        count = self.inputs

        def call(*arguments: Any) -> Any:
            tensors = arguments[:count]
            if all(isinstance(t, torch.Tensor) for t in tensors):
                return run(*expanded(self, tensors), *arguments[count:])
            return run(*arguments)

        return call


def expanded(kernels: Rows, tensors: "Sequence[Any]") -> "Sequence[Any]":
    """Return tensors of the whole shape, and of one row for all as they are, where all of these are so."""
    shape = torch.broadcast_shapes(*(t.shape for t in tensors))
    row = shape[kernels.first_of_row(len(shape)) :]
    same = [t.shape == shape for t in tensors]
    one = [t.shape[-len(row) :] == row and t.shape[: -len(row)].numel() == 1 for t in tensors]
    if all(a or b for a, b in zip(same, one)) and same[0]:
        whole = {k for k in range(1, len(tensors)) if same[k] and not one[k]}
        if not whole or not any(one[1:]):
            return tensors
    return [t if fits else t.expand(shape) for t, fits in zip(tensors, same)]


def shaped(kernels: Rows, of: "Tuple[str, int, int, int]", *arguments: Any) -> Any:
    """Return a kernel's results without the elements, laid in memory as the kernel would lay them."""
    kernel, inputs, outputs, _ = of
    tensors = list(arguments[:inputs])
    check(
        len({(t.dtype, t.device) for t in tensors}) == 1,
        kernels.name,
        "expected tensors of one dtype and device",
    )
    if kernels.once_a_row and kernel == "backward":
        of_row = max(t.dim() for t in tensors[1:]) - tensors[0].dim()
        tensors[0] = tensors[0][(..., *(None,) * of_row)]
    whole = functools.reduce(torch.add, tensors) if inputs > 1 else torch.neg(*tensors)
    first = kernels.first_of_row(whole.dim())
    if kernels.once_a_row and kernel == "forward":
        made = [whole.new_empty(whole.shape[:first])][:outputs]
    else:
        if not _is_one_run(whole, first):
            whole = whole.new_empty(whole.shape)
        owners = kernels.signature.owners(kernel, [t.shape for t in arguments[:inputs]])
        own = [tensors[k] for k in owners] or [whole]
        made = [operators.result_like(whole, like.shape) for like in own[:outputs]]
    return tuple(made) if outputs > 1 else made[0] if made else None


def _is_one_run(t: torch.Tensor, first: int) -> bool:
    """Return True if the dimensions of a row are one run of memory."""
    run = 1
    for size, step in reversed([*zip(t.shape[first:], t.stride()[first:])]):
        if size != 1 and step != run:
            return False
        run *= size
    return True


def in_batch(kernels: Rows, function: "Callable[..., Any]", in_dims: Any, arguments: Any) -> Any:
    """Return the function of each of a batch; by PyTorch's operations where a batch moves the rows."""
    if kernels.over < 0:
        return batched(function, in_dims, arguments)
    return torch.func.vmap(kernels.eager, in_dims)(*arguments), 0


def gradients_in_batch(kernels: Rows, function: "Callable[..., Any]", in_dims: Any, arguments: Any) -> Any:
    """Return the gradients of each of a batch: of tensors of the whole shape, which are no sums."""
    count = 1 + kernels.inputs
    tensors, dims, params = arguments[:count], in_dims[:count], arguments[count:]
    if kernels.over >= 0:
        gradient = functools.partial(_gradient, kernels)
        return torch.func.vmap(gradient, in_dims)(*arguments), (0,) * kernels.inputs
    count = next(t.shape[d] for t, d in zip(tensors, dims) if d is not None)
    grad, *moved = [t[None] if d is None else t.movedim(d, 0) for t, d in zip(tensors, dims)]
    rank = max(t.dim() for t in moved)
    padded = [t[(slice(None), *(None,) * (rank - t.dim()))] for t in moved]
    shape = torch.broadcast_shapes(*(t.shape[1:] for t in padded))
    whole = [t.expand(count, *shape) for t in padded]
    made = listed(function(grad.expand(count, *grad.shape[1:]), *whole, *params))
    result = tuple(
        g.sum_to_size(count, *p.shape[1:]).reshape(count, *t.shape[1:])
        for g, p, t in zip(made, padded, moved)
    )
    return (result, (0,) * len(result)) if len(result) > 1 else (result[0], 0)


def _gradient(kernels: Rows, grad: Any, *arguments: Any) -> Any:
    made = kernels.eager_gradient(grad, *arguments)
    return made if len(made) > 1 else made[0]


def functions(kernels: Rows) -> "Tuple[Any, Any]":
    """Return the kernel with its gradient, and the kernel of the gradient, whose own is PyTorch's."""
    Elements, Gradients = autograd.functions(kernels)
    count = kernels.inputs

    class Backward(Gradients):  # type: ignore[misc, valid-type]
        """The kernel of the gradient."""

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            def gradient(*tensors: Any) -> Any:
                return _gradient(kernels, *tensors, *ctx.params)

            return along(gradient, ctx.saved_tensors, tangents[: 1 + count])

        @staticmethod
        def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
            return gradients_in_batch(kernels, Backward.apply, in_dims, arguments)

    class Forward(Elements):  # type: ignore[misc, valid-type]
        """The kernel with its gradient, for which the inputs are saved."""

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            def value(*tensors: Any) -> Any:
                return kernels.eager(*tensors, *ctx.params)

            return along(value, ctx.saved_tensors, tangents[:count])

        @staticmethod
        def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
            return in_batch(kernels, Forward.apply, in_dims, arguments)

    return Forward, Backward


def along(function: "Callable[..., Any]", tensors: "Sequence[Any]", tangents: "Sequence[Any]") -> Any:
    """Return the derivative of a function along some tangents: that of its gradient, which is linear."""
    value, pull, *_ = torch.func.vjp(function, *tensors)
    zeros = [torch.zeros_like(v) for v in listed(value)]
    given: "List[Any]" = [torch.zeros_like(t) if g is None else g for t, g in zip(tensors, tangents)]

    def gradients(*of: Any) -> Any:
        return pull(of if isinstance(value, tuple) else of[0])

    made: Any = torch.func.vjp(gradients, *zeros)[1](tuple(given))
    return tuple(made) if isinstance(value, tuple) else made[0]
