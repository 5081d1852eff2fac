"""Models as functions of their tensors only, and these tensors: numbers and masks."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from fusegen.core.spec import Input, Param, Spec


def of_tensors(spec: Spec, model: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a model as a function of its tensors; its other arguments are the numbers of `get_inputs`."""
    if not spec.numbers:
        return model

    def function(*tensors: Tensor) -> Tensor:
        rest = iter(tensors)
        return model(*(a.default if isinstance(a, Param) else next(rest) for a in spec.arguments))

    return function


def with_gradients(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors of numbers; a mask has no gradient."""
    return [t for t in tensors if t.is_floating_point()]


def in_double(tensor: Tensor) -> Tensor:
    """Return numbers in double; a mask as it is."""
    return tensor.detach().double() if tensor.is_floating_point() else tensor


def read(module: Any, model: nn.Module, of: Input, first: Tensor) -> Tensor:
    """Return a parameter or a buffer of a model as formulas read it, along the first tensor."""
    held: Tensor = getattr(model, of.name)
    if of.along is None:
        return held
    found: Tensor = module.KERNELS.along(of.name, held, first, of.along)
    return found
