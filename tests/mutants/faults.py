"""Plant faults around a subject's function, which is not compiled again: in its value or its gradients."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fusegen.evidence.certify.findings import Function, Subject

Tensors = tuple[Tensor, ...]
Change = Callable[[Tensor], Tensor]
Where = Callable[[Tensors, Mapping[str, Any]], "Tensor | bool"]  # of a call's tensors and keywords
VALUE, GRADIENT, TANGENT = "value", "gradient", "tangent"


def everywhere(tensors: Tensors, keywords: Mapping[str, Any]) -> bool:
    return True


@dataclass(frozen=True)
class Fault:
    """A fault."""

    name: str  # what is wrong, and where
    part: str  # ``value``, ``gradient`` of every input, or ``tangent`` in forward mode
    change: Change  # what becomes of a right result, or of an incoming gradient
    rule: str  # an expression that the sentence has to match that tells of it
    where: Where = everywhere  # at which calls, or at which of their elements
    at: Callable[[Mapping[str, float]], bool] = lambda params: True  # at which values of the parameters


class _Value(torch.autograd.Function):
    """A changed value with the gradient of the right one."""

    generate_vmap_rule = True

    @staticmethod
    def forward(y: Tensor, mask: Tensor, change: Change) -> Tensor:
        return torch.where(mask, change(y), y)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return tangent.clone()


class _Gradient(torch.autograd.Function):
    """The value with a changed incoming gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(y: Tensor, mask: Tensor, change: Change) -> Tensor:
        return y.view_as(y)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.save_for_forward(inputs[1])
        ctx.change = inputs[2]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        [mask] = ctx.saved_tensors
        return torch.where(mask, ctx.change(grad), grad), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return tangent.view_as(tangent)  # as the value is a view


class _Tangent(_Gradient):
    """The value with a changed derivative in forward mode."""

    @staticmethod
    def forward(y: Tensor, mask: Tensor, change: Change) -> Tensor:
        return y.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        [mask] = ctx.saved_tensors
        return torch.where(mask, ctx.change(tangent), tangent)


PARTS: dict[str, Any] = {VALUE: _Value, GRADIENT: _Gradient, TANGENT: _Tangent}


def planted(subject: Subject, fault: Fault) -> Subject:
    with_params = subject.with_params
    again = None if with_params is None else lambda params: planted(with_params(params), fault)
    params = {name: float(value) for name, value in subject.params.items()}
    given = _faulty(subject.given, fault) if fault.at(params) else subject.given
    return replace(subject, given=given, with_params=again)


def _faulty(given: Function, fault: Fault) -> Function:
    def function(*tensors: Tensor, **keywords: Any) -> Tensor:
        where = fault.where(tensors, keywords)  # before a call overwrites its input
        y = given(*tensors, **keywords)
        if where is False:
            return y
        mask = where if isinstance(where, Tensor) else torch.ones((), dtype=torch.bool, device=y.device)
        if not keywords:
            found: Tensor = PARTS[fault.part].apply(y, mask, fault.change)
            return found
        if fault.part == VALUE:
            with torch.no_grad():
                y.copy_(torch.where(mask, fault.change(y), y))
        return y

    return function
