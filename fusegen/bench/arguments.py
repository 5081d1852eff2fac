"""Models as functions of their tensors only."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from fusegen.spec import Param, Spec


def of_tensors(spec: Spec, model: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A model as a function of its tensors; its other arguments are the numbers of `get_inputs`."""
    if not spec.numbers:
        return model

    def function(*tensors: Tensor) -> Tensor:
        rest = iter(tensors)
        return model(*(a.default if isinstance(a, Param) else next(rest) for a in spec.arguments))

    return function
