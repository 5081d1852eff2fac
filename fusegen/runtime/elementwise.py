"""Kernels that compute each element by itself: their gradients along tangents, batches and binding."""

import functools
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import autograd, flavour, fusion, launched, operators
from .calls import batched, batched_gradients


class Elementwise:
    """The part of a module's kernels that those of rows have otherwise."""

    signature: Any  # the arguments of the kernels; `inputs` is the number of tensors
    name: str
    operators: Any  # their namespace
    inputs: int
    sources: Any  # the C++ of the kernels
    tags: "Tuple[str, ...]" = ("pointwise",)  # of the operator
    launches: "Tuple[str, ...]" = ("forward", "backward")  # the kernels that Python can launch

    def announce(self) -> None:
        """Register the operator with Inductor, which may have neighbours to fuse it with."""
        fusion.register(self)

    @property
    def rules(self) -> "Dict[str, Callable[..., Any]]":
        """Return how each kernel is called on a batch."""
        several = self.inputs > 1
        gradients = functools.partial(batched_gradients, self.signature) if several else batched
        return {"forward": batched, "backward": gradients}

    def forward_along(self, ctx: Any, tangents: "Tuple[Any, ...]") -> Any:
        """Return the derivative of the function along some tangents."""
        return autograd.forward_along(self, ctx, tangents)

    def backward_along(self, ctx: Any, tangents: "Tuple[Any, ...]") -> Any:
        """Return the derivative of the gradient along some tangents."""
        return autograd.backward_along(self, ctx, tangents)

    def shapes(self, of: "Tuple[str, int, int, int]") -> "Callable[..., Any]":
        """Return a function that gives an operator's result without the elements; see `shaped_like`."""
        return operators.shaped_like(self.signature, of)

    def by_nvrtc(self, operators: Any, kernel: str, library: "Optional[Callable[[], None]]" = None) -> None:
        """Register the operators of a kernel that NVRTC compiles and Python launches; see `implement`."""
        launched.implement(self, operators, kernel, library)

    def kernel(self, name: str) -> Any:
        """Return an operator, by the end of its name, as Python calls it fastest."""
        return getattr(self.operators, f"{self.name}_{name}").default._op

    def includes(self) -> "List[str]":
        """Return the lines of C++ that include what binds kernels to PyTorch."""
        return flavour.binding_header(self.sources.bitmask)

    def registration(self, kernel: str, counts: str) -> str:
        """Return the line of C++ that registers a kernel, of some inputs, outputs and scalars."""
        line = flavour.registration(self.signature.name, kernel, counts)
        several = kernel == "backward" and self.inputs > 1  # of an operand that is broadcast a sum
        return line.replace("(", "_WITH_SUMS(", 1) if several else line
