"""Models as functions of their tensors only, and these tensors: numbers and masks."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from torch import Tensor, nn

from fusegen.core.poolings import is_reduced
from fusegen.core.spec import Input, Param, Spec
from fusegen.errors import FusegenError, RefusedShape, Span
from fusegen.evidence.bench.case import Case, written


def of_tensors(spec: Spec, model: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a model as a function of its tensors; its other arguments are the numbers of `get_inputs`."""
    if not spec.numbers:
        return model

    def function(*tensors: Tensor) -> Tensor:
        rest = iter(tensors)
        return model(*(a.default if isinstance(a, Param) else next(rest) for a in spec.arguments))

    return function


def listed(made: Any) -> tuple[Tensor, ...]:
    """Return several results as they are, and one as a tuple."""
    return made if isinstance(made, tuple) else (made,)


def with_gradients(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors of numbers; a mask has no gradient."""
    return [t for t in tensors if t.is_floating_point()]


def in_double(tensor: Tensor) -> Tensor:
    """Return numbers in double; a mask as it is."""
    return tensor.detach().double() if tensor.is_floating_point() else tensor


def read(module: Any, model: nn.Module, of: Input, first: Tensor, path: str) -> Tensor:
    """Return a parameter or a buffer at a path of a model as formulas read it, along the first tensor."""
    held: Tensor = attrgetter(path)(model)
    if of.along is None:
        return held
    found: Tensor = module.KERNELS.along(of.name, held, first, of.along)
    return found


def refused(spec: Spec, case: Case, error: Exception) -> FusegenError:
    """Return the error of inputs that a model does not take."""
    shape, own = map(written, (case.shape, spec.inputs[0].shape))
    why = (str(error).splitlines() or [type(error).__name__])[0]
    return RefusedShape(Span(f"--shape {shape}"), name=spec.name, why=why, own=own)


def first_off(found: Tensor, real: Tensor, tolerance: float) -> int | None:
    """The first place at which numbers are further off than is allowed, absolutely and of themselves."""
    right = (found - real).abs() <= tolerance * (1 + real.abs())
    right |= (found == real) | (found.isnan() & real.isnan())
    return None if bool(right.all()) else int((~right).int().argmax())


def is_elementwise(spec: Spec, inputs: Sequence[Tensor]) -> bool:
    """Return True if an element of the output comes from those at the same place of the inputs."""
    alike = len(spec.tensors) == len(inputs) and len({t.shape for t in inputs}) == 1
    viewed = any(each.is_viewed for each in spec.tensors)
    return alike and not (spec.layers or viewed or is_reduced(spec))
