"""The attributes of the model around the kernel, for an explanation."""

from __future__ import annotations

from collections.abc import Iterator

from fusegen.constructor import Layer
from fusegen.notes import convolution
from fusegen.spec import Spec
from fusegen.thin import TERAFLOPS, Thin, obstacle

Row = tuple[str, str, str]  # the attribute, its constructor call, and its use
BEFORE = "runs on {} before the kernel"
OPERAND = "a tensor of the kernel, of the shape {}"
UNREAD = "is only held"
SCALAR = "a scalar of the kernel"
APART = "{} is PyTorch's convolution: {}."
NOT_IN_FLOAT = "the forward kernel on CUDA is not the formula in float in all dtypes"
LIMITS = "sm_{}: float32 takes at least {:.3f} ms of the tensor cores and {:.3f} ms of the memory."


def held(spec: Spec) -> Iterator[Row]:
    """The attributes of the model, in the constructor's order."""
    for item in spec.layers:
        if isinstance(item, Layer):
            use = BEFORE.format(spec.inputs[0].name)
            yield item.attribute, f"{item.kind}({', '.join(item.args)})", use
        else:
            use = OPERAND.format(item.shape) if item.is_read else UNREAD
            yield item.attribute, f"{item.kind.value}({item.initialiser})", use
    if spec.layers or spec.init:
        yield from ((scalar.name, f"{scalar.default:.15g}", SCALAR) for scalar in spec.scalars)


def in_front(spec: Spec, thin: Thin | None) -> Iterator[str]:
    """The sentences on a Conv2d in front of the kernel on CUDA.

    Args:
        spec: of the model.
        thin: the convolution that is one kernel with the forward one, if there is one.
    """
    layer = spec.producer
    if layer is None or layer.kind != "Conv2d":
        return
    if thin is None:
        yield APART.format(layer.attribute, obstacle(spec) or NOT_IN_FLOAT)
        return
    yield convolution(thin)
    for chip in TERAFLOPS:
        if limits := thin.limits(chip):
            yield LIMITS.format(chip, *limits)
