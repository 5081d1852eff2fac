"""The attributes of the model around the kernel, for an explanation."""

from __future__ import annotations

from collections.abc import Iterator

from fusegen.constructor import Layer
from fusegen.spec import Spec

Row = tuple[str, str, str]  # the attribute, its constructor call, and its use
BEFORE = "runs on {} before the kernel"
OPERAND = "a tensor of the kernel, of the shape {}"
UNREAD = "is only held"
SCALAR = "a scalar of the kernel"


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
