"""Kernels that compute each element by itself, as PyTorch is told of them."""

import functools
from typing import Any, Callable, Dict, Tuple

from . import autograd, fusion, operators
from .calls import batched, batched_gradients


class Elementwise:
    """The part of a module's kernels that those of rows have otherwise.

    Attributes:
        signature: the arguments of the kernels; `inputs` is the number of tensors.
        tags: of the operator.
    """

    signature: Any
    inputs: int
    tags: "Tuple[str, ...]" = ("pointwise",)

    def announce(self) -> None:
        """Tell Inductor of the operator, which may have neighbours to fuse it with."""
        fusion.register(self)

    def functions(self) -> "Tuple[Any, Any]":
        """Return the kernel with its gradient, and the kernel of the gradient."""
        return autograd.functions(self)

    def rules(self) -> "Dict[str, Callable[..., Any]]":
        """Return how each kernel is called on a batch."""
        several = self.inputs > 1
        gradients = functools.partial(batched_gradients, self.signature) if several else batched
        return {"forward": batched, "backward": gradients}

    def shapes(self, of: "Tuple[str, int, int, int]") -> "Callable[..., Any]":
        """Return a function that gives an operator's result without the elements; see `shaped_like`."""
        return operators.shaped_like(self.signature, of)
