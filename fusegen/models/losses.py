"""The losses of torch.nn on the library's kernels: each class is torch.nn's own, with another forward.

So the constructor, its arguments, buffers, `state_dict` and repr are PyTorch's. What has no kernel, as
targets that are probabilities of classes, shapes that broadcast or tensors of several dtypes, runs
PyTorch's forward. So does what PyTorch refuses, for its message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.models.nn_classes import Run, functions, kind, no_kernel

Choice = Callable[
    ..., "tuple[Any, ...] | None"
]  # of a layer and its tensors: a kernel's name and arguments

FUNCTIONS = functions(
    (
        *("rows.cross_entropy", "rows.nll", "losses.weighted_cross_entropy", "losses.weighted_nll"),
        *("losses.mse_loss", "losses.l1_loss", "losses.smooth_l1_loss", "losses.huber_loss"),
        *("losses.kl_div", "losses.kl_div_of_logs", "losses.bce_with_logits_loss"),
        *("losses.weighted_bce_with_logits_loss", "losses.soft_margin_loss"),
        *("losses.hinge_embedding_loss", "losses.margin_ranking_loss", "losses.triplet_margin_loss"),
        *("losses.cosine_embedding_loss", "losses.weighted_cross_entropy_in_float32"),
        *("rows.cross_entropy_in_float32", "rows.nll_in_float32", "losses.weighted_nll_in_float32"),
    )
)


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


def _in_float32(choice: Choice) -> Choice:
    """Return the choice under autocast, whose result is in float32: of logits of 16 bits, as they are."""

    def of_16_bits(own: Any, x: Tensor, target: Tensor) -> tuple[Any, ...] | None:
        found = choice(own, x, target) if x.dtype in (torch.float16, torch.bfloat16) else None
        return found and (f"{found[0]}_in_float32", *found[1:])

    return of_16_bits


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


def _run(choice: Choice) -> Run:
    """Return what runs the kernel of a choice."""

    def run(own: Any, *tensors: Tensor) -> Tensor | None:
        found = choice(own, *tensors) if _has_reduction(own) else None
        if found is None:
            return None
        name, *arguments = found
        words = {"reduction": own.reduction}
        words |= {"ignore_index": own.ignore_index} if hasattr(own, "ignore_index") else {}
        return FUNCTIONS[name](*arguments, **words)

    return run


def _has_reduction(own: Any) -> bool:
    """Return True if the reduction is one that torch.nn's class has."""
    known = ("none", "mean", "sum", *["batchmean"] * isinstance(own, nn.KLDivLoss))
    return own.reduction in known


UNDER_AUTOCAST = {name: _in_float32(LOSSES[name]) for name in ("CrossEntropyLoss", "NLLLoss")}
globals().update(
    {
        name: kind(getattr(nn, name), _run(choice), __name__, _run(UNDER_AUTOCAST.get(name, no_kernel)))
        for name, choice in LOSSES.items()
    }
)
__all__ = [*LOSSES]
