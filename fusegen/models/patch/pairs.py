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
from fusegen.schedule.thin_convolution import Thin, obstacle_of, sized

ARGUMENTS = "in_channels out_channels kernel_size stride padding dilation groups padding_mode".split()
SPEC = """\
name: {name}
summary: {summary}, as one kernel.
source: fusegen.patch
{inputs}
{params}formula: {function}({arguments})
"""
BIAS = "inputs: {x: {shape: [8, 64, 32, 32], fill: randn}, bias: {shape: [64, 1, 1], fill: randn}}"
CONVOLUTION = """\
inputs: {{x: {{shape: [8, {of.channels}, 32, 32], fill: randn}}}}
layers: [conv: "Conv2d({of.channels}, 64, {of.kernel})"]"""  # a call knows the other sizes
LINEAR = """\
inputs: {x: {shape: [1024, 1024], fill: randn}}
layers: [linear: "Linear(1024, 1024)"]"""  # a call knows the sizes

POINTWISE = """\
inputs: {x: {shape: [16, 1024, 8, 8], fill: randn}}
layers: [conv: "Conv2d(1024, 1024, 1)"]"""


@dataclass(frozen=True)
class Pair:
    """A convolution or a linear layer and the activation behind it."""

    holder: nn.Sequential  # the nn.Sequential
    names: tuple[str, str]  # of the two in it
    path: str  # of the first one in the model
    # layer, activation: the two
    layer: nn.Module
    activation: nn.Module
    of: Function  # the function of the activation

    @property
    def thin(self) -> Thin | None:
        """The convolution, if it can be one kernel with the activation."""
        if type(self.layer) is not nn.Conv2d:
            return None
        given = {name: getattr(self.layer, name) for name in ARGUMENTS}
        if obstacle_of(given):
            return None
        of = sized(given)
        return of if of.has_few_terms else None

    @property
    def name(self) -> str:
        """The name of the kernel."""
        of = self.thin
        front = "bias" if of is None else f"conv{of.kernel[0]}x{of.kernel[1]}_{of.channels}"
        if _is_large(self.layer):
            front = "linear" if type(self.layer) is nn.Linear else "conv1x1"
        return f"{front}_{self.of.name}"

    @property
    def plain(self) -> Plain:
        """The activation, without the layer."""
        return Plain.of(self.activation, self.of)

    def join(self, module: ModuleType) -> None:
        """Give both layers the kernel of a module; they stay in their places."""
        vars(self.layer)[KERNEL] = Kernel(
            Path(str(module.__file__)), module.KERNELS, type(self.layer), self.plain
        )
        if not is_derived(self.holder):
            derive(self.holder, InRow())


def pairs(model: nn.Module) -> Iterator[Pair]:
    """Yield pairs that a kernel can compute, of layers with one place in the model and in no pair yet."""
    every = [layer for holder in model.modules() for layer in holder._modules.values()]
    for path, holder in model.named_modules():
        if bare(type(holder)) is not nn.Sequential or not isinstance(holder, nn.Sequential):
            continue
        for (first, layer), (second, activation) in itertools.pairwise(holder._modules.items()):
            if layer is None or activation is None or every.count(layer) > 1:
                continue
            of = _function(activation) if leaves_bias(layer) or _is_large(layer) else None
            if of is not None and kernel_of(layer, activation) is None:
                yield Pair(holder, (first, second), f"{path}.{first}".lstrip("."), layer, activation, of)


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
    numbers, of = numbers_of(pair.of.name), pair.thin
    front = ("the bias of a convolution", BIAS, "x + bias")
    if of is not None:
        front = (f"a convolution of {of.channels} channels", CONVOLUTION.format(of=of), "x")
    if _is_large(pair.layer):
        front = ("a convolution of single pixels", POINTWISE, "x")
    if type(pair.layer) is nn.Linear:
        front = ("a linear layer", LINEAR, "x")
    what, inputs, first = front
    values = ", ".join(f"{name}: {value!r}" for name, value in numbers.items())
    return SPEC.format(
        name=pair.name,
        summary=f"{what.capitalize()}, then {pair.of.name}",
        inputs=inputs,
        params=f"params: {{{values}}}\n" if values else "",
        function=pair.of.name,
        arguments=", ".join([first, *(f"{name}={name}" for name in numbers)]),
    )
