"""The constructor of a ModelNew, and the lines that run its layers."""

from fusegen.core.constructor import Item, Kind, Layer
from fusegen.core.poolings import is_reduced
from fusegen.core.spec import Spec

FRESH = ("Linear", "Conv")  # layers whose output nothing else holds

MADE = {Kind.PARAMETER: "self.{} = nn.Parameter({})", Kind.BUFFER: 'self.register_buffer("{}", {})'}


def arguments(spec: Spec) -> list[str]:
    """Return the arguments that `init` declares, with their defaults."""
    return [f"{argument.name}={argument.text}" for argument in spec.init]


def layer_lines(spec: Spec) -> list[str]:
    """Return the lines that run the layers; the last one leaves its bias to the kernel."""
    first = spec.inputs[0].name
    layers = spec.producers
    called = ["KERNELS.linear" if of.kind == "Linear" or of.is_of_pixels else "" for of in layers]
    lines = [
        f"{first} = {call}(self.{of.attribute}, {first})"
        if call
        else f"{first} = self.{of.attribute}({first})"
        for call, of in zip(called, layers, strict=True)
    ]
    if spec.bias:
        call = "linear_without_bias" if called[-1] else "without_bias"
        lines[-1] = f"{first}, {spec.bias.name} = KERNELS.{call}(self.{layers[-1].attribute}, {first})"
    return lines


def reuses(spec: Spec) -> bool:
    """Return True if the kernel of elements may write over the output of the layer in front of it."""
    producer = spec.producer
    is_fresh = producer is not None and producer.kind.startswith(FRESH)
    return is_fresh and spec.inputs[-1].split is None and not is_reduced(spec)


def lines(spec: Spec, kept: dict[str, str]) -> list[str]:
    """Return the lines that make layers, parameters and buffers, then those that keep arguments."""
    own = [item for item in spec.layers if isinstance(item, Layer) or not item.path]
    return [*map(_made, own), *(f"self.{name} = {taken}" for name, taken in kept.items())]


def _made(item: Item) -> str:
    if isinstance(item, Layer):
        return f"self.{item.attribute} = nn.{item.kind}({', '.join(item.args)})"
    return MADE[item.kind].format(item.attribute, item.text)
