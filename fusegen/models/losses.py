"""The losses of torch.nn on the library's kernels: each class is torch.nn's own, with another forward.

So the constructor, its arguments, buffers, `state_dict` and repr are PyTorch's. What has no kernel, as
targets that are probabilities of classes, shapes that broadcast or tensors of several dtypes, runs
PyTorch's forward. So does what PyTorch refuses, for its message.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.models.patch.library import module

Choice = Callable[
    ..., "tuple[Any, ...] | None"
]  # of a layer and its tensors: a kernel's name and arguments

# Modules are imported here, since Dynamo does not trace an import by name.
MODULES = (
    *("rows.cross_entropy", "rows.nll", "losses.weighted_cross_entropy", "losses.weighted_nll"),
    *("losses.mse_loss", "losses.l1_loss", "losses.smooth_l1_loss", "losses.huber_loss", "losses.kl_div"),
    *("losses.kl_div_of_logs", "losses.bce_with_logits_loss", "losses.weighted_bce_with_logits_loss"),
    *("losses.soft_margin_loss", "losses.hinge_embedding_loss", "losses.margin_ranking_loss"),
    *("losses.triplet_margin_loss", "losses.cosine_embedding_loss"),
)
FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    name: getattr(module(path), name) for path in MODULES for name in [path.rpartition(".")[2]]
}


def _alike(*tensors: Tensor) -> bool:
    """Return True if tensors have one shape and dtype."""
    return all((t.shape, t.dtype) == (tensors[0].shape, tensors[0].dtype) for t in tensors)


def _same(name: str, *numbers: str) -> Choice:
    """Return the choice of a kernel of tensors of one shape, with attributes of the layer as numbers."""

    def choice(own: Any, *tensors: Tensor) -> tuple[Any, ...] | None:
        return (name, *tensors, *(getattr(own, number) for number in numbers)) if _alike(*tensors) else None

    return choice


def _smooth_l1(own: Any, *tensors: Tensor) -> tuple[Any, ...] | None:
    if own.beta == 0:
        return _same("l1_loss")(own, *tensors)
    return _same("smooth_l1_loss", "beta")(own, *tensors) if own.beta > 0 else None


def _huber(own: Any, *tensors: Tensor) -> tuple[Any, ...] | None:
    return _same("huber_loss", "delta")(own, *tensors) if own.delta > 0 else None


def _bce_with_logits(own: Any, x: Tensor, target: Tensor) -> tuple[Any, ...] | None:
    weights = [own.weight, own.pos_weight]
    if weights == [None, None]:
        return _same("bce_with_logits_loss")(own, x, target)
    held = [x.new_ones(()) if weight is None else weight for weight in weights]
    fits = all(weight.dtype == x.dtype and _broadcasts(weight.shape, x.shape) for weight in held)
    return ("weighted_bce_with_logits_loss", x, target, *held) if fits and _alike(x, target) else None


def _broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    """Return True if a tensor of a shape broadcasts to another shape, which stays as it is."""
    return len(shape) <= len(to) and all(
        a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False)
    )


def _kl_div(own: Any, *tensors: Tensor) -> tuple[Any, ...] | None:
    return _same("kl_div_of_logs" if own.log_target else "kl_div")(own, *tensors)


def _triplet(own: Any, *tensors: Tensor) -> tuple[Any, ...] | None:
    is_usual = own.p == 2 and not own.swap and tensors[0].dim() > 0
    return _same("triplet_margin_loss", "margin", "eps")(own, *tensors) if is_usual else None


def _cosine_embedding(own: Any, a: Tensor, b: Tensor, target: Tensor) -> tuple[Any, ...] | None:
    if a.dim() != 2 or not _alike(a, b) or target.shape != a.shape[:1]:
        return None
    return ("cosine_embedding_loss", a, b, target.to(a.dtype), own.margin)


def _of_classes(name: str) -> Choice:
    """Return the choice of a kernel of the classes of rows, which are the last dimension."""

    def choice(own: Any, x: Tensor, target: Tensor) -> tuple[Any, ...] | None:
        if target.dtype != torch.int64 or x.dim() != 2 or target.shape != x.shape[:1]:
            return None
        smoothing = getattr(own, "label_smoothing", 0.0)
        if not 0 <= smoothing <= 1:
            return None
        if own.weight is None and not smoothing:
            return (name, x, target)
        weight = x.new_ones(x.shape[1]) if own.weight is None else own.weight
        if weight.dtype != x.dtype or weight.shape != x.shape[1:] or weight.requires_grad:
            return None
        return (f"weighted_{name}", x, weight, target, *[smoothing] * (name == "cross_entropy"))

    return choice


LOSSES: dict[str, Choice] = {
    "MSELoss": _same("mse_loss"),
    "L1Loss": _same("l1_loss"),
    "SmoothL1Loss": _smooth_l1,
    "HuberLoss": _huber,
    "BCEWithLogitsLoss": _bce_with_logits,
    "KLDivLoss": _kl_div,
    "SoftMarginLoss": _same("soft_margin_loss"),
    "HingeEmbeddingLoss": _same("hinge_embedding_loss", "margin"),
    "MarginRankingLoss": _same("margin_ranking_loss", "margin"),
    "TripletMarginLoss": _triplet,
    "CosineEmbeddingLoss": _cosine_embedding,
    "CrossEntropyLoss": _of_classes("cross_entropy"),
    "NLLLoss": _of_classes("nll"),
}


def _kinds(names: Iterable[str]) -> dict[str, type[nn.Module]]:
    """Return the classes of some losses by their names."""
    return {name: _kind(getattr(nn, name), LOSSES[name]) for name in names}


def _kind(base: Any, choice: Choice) -> type[nn.Module]:
    """Return a class of torch.nn's with a forward that runs the kernel of a choice."""

    def run(own: Any, *tensors: Tensor) -> Tensor:
        found = choice(own, *tensors) if _are_plain(tensors) and _has_reduction(own) else None
        if found is None:
            result: Tensor = base.forward(own, *tensors)
            return result
        name, *arguments = found
        words = {"reduction": own.reduction}
        words |= {"ignore_index": own.ignore_index} if hasattr(own, "ignore_index") else {}
        result = FUNCTIONS[name](*arguments, **words)
        return result

    words = {"forward": _forward(base, run), "__module__": __name__, "__doc__": base.__doc__}
    return type(base.__name__, (base,), words)


def _forward(base: Any, run: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a forward with the arguments that torch.nn's has, by whose number torch.fx goes."""

    def of_two(self: Any, input: Tensor, target: Tensor) -> Tensor:
        return run(self, input, target)

    def of_pairs(self: Any, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return run(self, input1, input2, target)

    def of_triplets(self: Any, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return run(self, anchor, positive, negative)

    kinds = {tuple(inspect.signature(kind).parameters): kind for kind in (of_two, of_pairs, of_triplets)}
    forward = kinds[tuple(inspect.signature(base.forward).parameters)]
    # A code of its own: Dynamo counts recompilations of a code, and would add those of all classes.
    forward.__code__ = forward.__code__.replace(co_name=f"forward_of_{base.__name__}")
    forward.__name__, forward.__qualname__ = "forward", f"{base.__name__}.forward"
    return forward


def _has_reduction(own: Any) -> bool:
    """Return True if the reduction is one that torch.nn's class has."""
    known = ("none", "mean", "sum", *["batchmean"] * isinstance(own, nn.KLDivLoss))
    return own.reduction in known


def _are_plain(tensors: tuple[Any, ...]) -> bool:
    """Return True if all are tensors of one device that has kernels, the first one of floating point."""
    if not all(isinstance(t, Tensor) and type(t) in (Tensor, nn.Parameter) for t in tensors):
        return False
    first, device = tensors[0], tensors[0].device
    if device.type not in ("cpu", "cuda") or any(t.device != device or t.is_sparse for t in tensors):
        return False
    return first.is_floating_point() and not torch.is_autocast_enabled(device.type)


globals().update(_kinds(LOSSES))
__all__ = [*LOSSES]
