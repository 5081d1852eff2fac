"""A convolution or a linear layer and the activation behind it in an nn.Sequential, as one kernel.

PyTorch adds the bias of a convolution on CUDA in a pass of its own over the output. The kernel of a pair
adds it, and writes over the output where no gradient is recorded. A convolution of few channels can be one
kernel with the activation, and so can a large linear layer, or convolution of single pixels, in float32.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from torch import float32, nn

from fusegen.core import write
from fusegen.errors import OtherSpec, Span
from fusegen.models.lift.regions import builds
from fusegen.models.patch.activations import Function, function_of
from fusegen.models.patch.derived import Plain, bare, derive, is_derived
from fusegen.models.patch.library import numbers_of
from fusegen.models.patch.paired import KERNEL, InRow, Kernel, kernel_of
from fusegen.models.reader.layer_calls import attributes
from fusegen.project.loader import imported
from fusegen.runtime.linear_operator import MOST, is_worth
from fusegen.runtime.pixels import is_of_pixels
from fusegen.runtime.producers import leaves_bias
from fusegen.schedule.thin_convolution import obstacle_of, sized

ARGUMENTS = "in_channels out_channels kernel_size stride padding dilation groups padding_mode".split()
SPEC = """\
name: {name}
summary: {summary}, as one kernel.
source: fusegen.patch
inputs: {inputs}
{params}formula: {function}({arguments})
"""
# How the name of a kernel begins, what it computes first, of which inputs and layers, and the first
# argument of the function. A call knows the other sizes.
Front = tuple[str, str, str, str]
BIAS: Front = (
    "bias",
    "the bias of a convolution",
    "{x: {shape: [8, 64, 32, 32], fill: randn}, bias: {shape: [64, 1, 1], fill: randn}}",
    "x + bias",
)
LINEAR: Front = (
    "linear",
    "a linear layer",
    '{x: {shape: [1024, 1024], fill: randn}}\nlayers: [linear: "Linear(1024, 1024)"]',
    "x",
)
POINTWISE: Front = (
    "conv1x1",
    "a convolution of single pixels",
    '{x: {shape: [16, 1024, 8, 8], fill: randn}}\nlayers: [conv: "Conv2d(1024, 1024, 1)"]',
    "x",
)
CONVOLUTION: Front = (
    "conv{0.kernel[0]}x{0.kernel[1]}_{0.channels}",
    "a convolution of {0.channels} channels",
    "{{x: {{shape: [8, {0.channels}, 32, 32], fill: randn}}}}\n"
    'layers: [conv: "Conv2d({0.channels}, 64, {0.kernel})"]',
    "x",
)


@dataclass(frozen=True)
class Pair:
    """A convolution or a linear layer and the activation behind it."""

    holder: nn.Sequential  # the nn.Sequential
    path: str  # of the first one in the model
    # layer, activation: the two
    layer: nn.Module
    activation: nn.Module
    of: Function  # the function of the activation

    @property
    def front(self) -> Front:
        """Return what the kernel computes in front of the activation."""
        if _is_large(self.layer):
            return LINEAR if type(self.layer) is nn.Linear else POINTWISE
        given = {name: getattr(self.layer, name) for name in ARGUMENTS}
        if type(self.layer) is not nn.Conv2d or obstacle_of(given) or not sized(given).has_few_terms:
            return BIAS
        name, what, inputs, first = (each.format(sized(given)) for each in CONVOLUTION)
        return name, what, inputs, first

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return f"{self.front[0]}_{self.of.name}"

    def join(self, module: ModuleType) -> None:
        """Give both layers the kernel of a module; they stay in their places."""
        plain = Plain.of(self.activation, self.of)
        kernel = Kernel(Path(str(module.__file__)), module.KERNELS, type(self.layer), plain)
        vars(self.layer)[KERNEL] = kernel
        if not is_derived(self.holder):
            derive(self.holder, InRow())


def pairs(model: nn.Module) -> Iterator[Pair]:
    """Yield pairs that a kernel can compute, of layers with one place in the model and in no pair yet."""
    every = [layer for holder in model.modules() for layer in holder._modules.values()]
    for path, holder in model.named_modules():
        if bare(type(holder)) is not nn.Sequential or not isinstance(holder, nn.Sequential):
            continue
        for (first, layer), (_, activation) in itertools.pairwise(holder._modules.items()):
            if layer is None or activation is None or every.count(layer) > 1:
                continue
            of = _function(activation) if leaves_bias(layer) or _is_large(layer) else None
            if of is not None and kernel_of(layer, activation) is None:
                yield Pair(holder, f"{path}.{first}".lstrip("."), layer, activation, of)


def _is_large(layer: nn.Module) -> bool:
    """Return True if the kernels of linear layers compute a layer, for inputs of enough rows or pixels."""
    if type(layer) is not nn.Linear and not (is_of_pixels(layer) and leaves_bias(layer)):
        return False
    weight = layer.get_parameter("weight")
    return weight.dtype == float32 and is_worth(MOST, weight)


def _function(activation: nn.Module) -> Function | None:
    """Return the function of an activation of one tensor whose numbers are attributes of it."""
    of = function_of(activation)
    if isinstance(of, str) or activation._parameters or of.name == "glu":
        return None
    own = dict(attributes(activation))
    return of if all(own.get(name) == value for name, value in of.numbers) else None


def built(of: Iterable[Pair], folder: Path) -> Mapping[str, ModuleType]:
    """Return the modules of pairs, by name; those that are in the folder are used again.

    Raises:
        OtherSpec: a spec of one of the names computes something else.
        FusegenError, SpecErrors: a file is refused.
    """
    texts = {folder / f"{pair.name}.yaml": _spec(pair) for pair in of}
    changes = write.changes(texts)
    others = [change.path for change in changes if change.before is not None]
    if others:
        raise OtherSpec(Span(others[0].as_posix()), writer="fusegen.patch")
    for change in changes:
        write.apply(change)
    builds.build([*texts], folder, folder)
    return {path.stem: imported(path.with_suffix(".py")) for path in texts}


def _spec(pair: Pair) -> str:
    """Return the spec of a pair's kernel, whose numbers are parameters."""
    numbers, (_, what, inputs, first) = numbers_of(pair.of.name), pair.front
    values = ", ".join(f"{name}: {value!r}" for name, value in numbers.items())
    return SPEC.format(
        name=pair.name,
        summary=f"{what.capitalize()}, then {pair.of.name}",
        inputs=inputs,
        params=f"params: {{{values}}}\n" if values else "",
        function=pair.of.name,
        arguments=", ".join([first, *(f"{name}={name}" for name in numbers)]),
    )
