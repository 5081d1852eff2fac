"""The arguments of a module's function as its kernels take them."""

from typing import TYPE_CHECKING, Any, Callable, Tuple

import torch

from . import checks
from .calls import dtype_of, is_symbolic, traced, transformed
from .checks import check


class Arguments:
    """A reader of the arguments of a module."""

    name: str  # of the module
    signature: Any  # the arguments of its kernels
    detached: "Tuple[str, ...]"  # the tensors through which eager's operations record no gradient

    if TYPE_CHECKING:  # a module's function is an attribute under two names that no type checker knows

        def __getattr__(self, name: str) -> Any: ...

    def scalar(self, name: str, value: Any) -> float:
        """Return a parameter as the float that the operator takes."""
        return value if is_symbolic(value) else checks.scalar(self.name, name, value)

    def number(self, name: str, value: Any) -> Any:
        """A scalar of forward as the operator takes it, or as it is if it is a tensor to be waited for."""
        if isinstance(value, torch.Tensor) and (value.device.type != "cpu" or traced() or transformed()):
            checks.check_number(self.name, name, value)
            return value
        return self.scalar(name, value)

    def mask(self, name: str, given: Any, *others: Any) -> Any:
        """A mask as the kernels take it: 1 or 0 in the dtype of the other tensors, without a gradient."""
        if is_symbolic(given):
            return given.to(next(t for t in others if is_symbolic(t) or isinstance(t, torch.Tensor)).dtype)
        checks.check_mask(self.name, name, given)
        dtype = dtype_of(*(t for t in others if isinstance(t, torch.Tensor)))
        return given if dtype is None else given.to(dtype)

    def along(self, name: str, given: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
        """A tensor of one dimension, or of one number, aligned with a dimension of another tensor."""
        return aligned(self.name, name, given, x, dim)

    def without_history(self, arguments: "Tuple[Any, ...]") -> "Tuple[Any, ...]":
        """Return the arguments of a call, detached where a formula is constant, as in a condition."""
        if not self.detached:
            return arguments
        names = self.signature.tensors
        apart = [k for k, name in enumerate(names) if name in self.detached]
        return tuple(
            t.detach() if k in apart and isinstance(t, torch.Tensor) else t for k, t in enumerate(arguments)
        )

    def first(self, given: Any, input: Any) -> Any:
        """Return the first tensor, which PyTorch calls input."""
        if given is not None or input is None:
            name = self.signature.tensors[0]
            both = f"{name} and input are one argument, and both are given"
            missing = f"the argument {name} is missing"
            check(False, self.name, missing if input is None else both, TypeError)
        return input


def aligned(module: str, name: str, given: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return a tensor of one dimension, or of one number, in a shape that aligns it with a dimension."""
    if is_symbolic(given, x):  # whose shapes are known when the recorded call runs
        return calling(aligned, module, name, given, x, dim)
    checks.check_along(module, name, given, x, dim)
    return given.reshape((-1,) + (1,) * (x.dim() - dim - 1) if x.dim() > dim else (1,) * x.dim())


def calling(function: "Callable[..., Any]", *arguments: Any) -> Any:
    """Return the Proxy of a call that torch.fx records as it is."""
    tracer = next(a for a in arguments if is_symbolic(a)).tracer
    return tracer.create_proxy("call_function", function, arguments, {})
