"""The attributes of the model around the kernel, for an explanation."""

from collections.abc import Collection, Iterator

from fusegen.core.constructor import Layer
from fusegen.core.spec import Spec
from fusegen.schedule.forms import LINEAR, THIN_CONVOLUTION, Form
from fusegen.schedule.thin_convolution import (
    LEAST_WORTH,
    MEASURED,
    MOST_WORTH,
    OF_MEASURED,
    TERAFLOPS,
    obstacle,
    thin,
)

Row = tuple[str, str, str]  # the attribute, its constructor call, and its use
BEFORE = "runs on {} before the kernel"
HOLDS = "is computed by the kernel, which reads its parts"
OPERAND = "a tensor of the kernel, of the shape {}"
UNREAD = "is only held"
AHEAD = "belongs to a kernel in front of the last one"
SCALAR = "a scalar of the kernel"
APART = "{} is PyTorch's convolution: {}."
TWO = "{} and the kernel are two: it takes halves, masks or views, or no formula computes it in float32."
NOT_IN_FLOAT = "the forward kernel on CUDA is not the formula in float in all dtypes"
LIMITS = "sm_{}: float32 takes at least {:.3f} ms of the tensor cores and {:.3f} ms of the memory."
TOOK = "sm_{}: it was measured at {:.3f} ms, which is {:.0%} of the speed of the {}."
SMALL = "A call takes it from {} columns and {:,} elements of the output on; else PyTorch's runs."
WARPGROUPS = "On sm_90 float32 runs by warpgroups (wgmma), all else by warps (mma.sync)."
WARPS = "Each chip and dtype runs by warps (mma.sync)."
SLOWER = "No call takes it: with more than {} input channels or {} products PyTorch's was faster."


def held(spec: Spec) -> Iterator[Row]:
    """Yield the attributes of the model, in the constructor's order."""
    ahead = {item.attribute for kernel in spec.kernels[:-1] for item in kernel.layers}
    for item in spec.layers:
        if item.attribute in ahead and isinstance(item, Layer):
            yield item.attribute, f"{item.kind}({', '.join(item.args)})", AHEAD
        elif isinstance(item, Layer):
            use = BEFORE.format(spec.inputs[0].name) if item.runs else HOLDS
            yield item.attribute, f"{item.kind}({', '.join(item.args)})", use
        elif item.path:
            yield item.path, item.kind.value, OPERAND.format(item.shape)
        else:
            use = (
                OPERAND.format(item.shape) if item.is_read else AHEAD if item.attribute in ahead else UNREAD
            )
            yield item.attribute, f"{item.kind.value}({item.initialiser})", use
    if spec.layers or spec.init:
        yield from ((scalar.name, f"{scalar.default:.15g}", SCALAR) for scalar in spec.scalars)


def in_front(spec: Spec, forms: Collection[Form]) -> Iterator[str]:
    """Yield the sentences on a Linear or a convolution in front of the kernel on CUDA."""
    layer, found = spec.producer, thin(spec) if THIN_CONVOLUTION in forms else None
    if layer is None:
        return
    if layer.kind == "Linear" or layer.is_of_pixels:
        yield LINEAR.sentence(spec) if LINEAR in forms else TWO.format(layer.attribute)
        return
    if layer.kind != "Conv2d":
        return
    if found is None:
        yield APART.format(layer.attribute, obstacle(spec) or NOT_IN_FLOAT)
        return
    yield THIN_CONVOLUTION.sentence(spec)
    if found.has_few_terms:
        yield SMALL.format(*LEAST_WORTH)
        yield WARPGROUPS if found.is_by_warpgroups else WARPS
    else:
        yield SLOWER.format(*MOST_WORTH)
    for chip in TERAFLOPS:
        if limits := found.limits(chip):
            yield LIMITS.format(chip, *limits)
    limits = found.limits(OF_MEASURED)
    if found in MEASURED and limits is not None:
        largest, name = max(zip(limits, ("tensor cores", "memory"), strict=True))
        yield TOOK.format(OF_MEASURED, MEASURED[found], largest / MEASURED[found], name)
