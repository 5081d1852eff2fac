"""The constructor of a ModelNew as values: its arguments, and the attributes that it makes, in order."""

from dataclasses import dataclass
from enum import Enum

from fusegen.core.layer_arguments import dimensions
from fusegen.errors import Span

CONVOLUTIONS = "Conv1d", "Conv2d", "Conv3d"
FEW_CHANNELS = 16  # of an input, up to which a convolution may be a thin one
OF_PIXELS = {"stride": 1, "padding": 0, "groups": 1, "padding_mode": "zeros"}
Value = bool | int | float | str | None | tuple["Value", ...]
Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of the constructor."""

    name: str  # it has in Python
    default: Value  # its value where none is given
    span: Span  # where it is written
    symbol: str  # the name by which formulas read it

    @property
    def text(self) -> str:
        """The default as a Python literal."""
        return literal(self.default)


def literal(value: Value) -> str:
    """Return a value as Python writes it; words stand in double quotes, and are plain ones."""
    if isinstance(value, tuple):
        return f"({', '.join(map(literal, value))}{',' if len(value) == 1 else ''})"
    return f'"{value}"' if isinstance(value, str) else repr(value)


@dataclass(frozen=True, slots=True)
class Layer:
    """A torch.nn layer in front of the chain."""

    attribute: str  # its name in the module
    kind: str  # its class
    args: tuple[str, ...]  # its arguments in Python, literals or names from `init`
    # their values, as far as the constructor's defaults are known, by the names of the signature
    given: tuple[tuple[str, Value], ...]
    span: Span  # where it is written
    runs: bool = True  # in front of the kernel; it does not where formulas read its parts

    @property
    def holder(self) -> str:
        """The kind of its holder, as error messages name it."""
        return "a layer"

    @property
    def bias(self) -> Sizes | None:
        """The shape of a convolution's bias, as it broadcasts with the output; None where it has none."""
        if not self.kind.startswith("Conv") or ("bias", False) in self.given:
            return None
        channels = dict(self.given).get("out_channels")
        return (channels if isinstance(channels, int) else 1, *[1] * dimensions(self.kind))

    @property
    def is_of_pixels(self) -> bool:
        """True for a convolution of single pixels that is not thin, as far as `init` tells."""
        given, count = {"kernel_size": None, **OF_PIXELS, **dict(self.given)}, dimensions(self.kind)
        alike = (given[name] in (value, (value,) * count) for name, value in OF_PIXELS.items())
        few = given.get("in_channels") in range(FEW_CHANNELS + 1)
        return (
            self.kind in CONVOLUTIONS
            and given["kernel_size"] in (1, (1,) * count)
            and all(alike)
            and not few
        )


class Kind(Enum):
    """The kinds of tensors that a module holds."""

    PARAMETER = "Parameter"  # trained
    BUFFER = "Buffer"  # not trained; saved with the parameters


@dataclass(frozen=True, slots=True)
class StateTensor:
    """A tensor of the module's state: a parameter or a buffer of its own."""

    attribute: str  # its name in the module and in formulas
    kind: Kind  # whether it is trained
    initialiser: str  # as the spec writes it
    text: str  # the Python expression that makes it
    shape: Sizes  # its shape, at the defaults of the constructor
    is_read: bool  # whether formulas read it
    span: Span  # where it is written
    along: int | None = None  # the dimension of the first input that it runs along, if formulas say so
    path: str = ""  # its place in a layer that has it, as norm.weight; empty where the module has it itself

    @property
    def holder(self) -> str:
        """The kind of its holder, as error messages name it."""
        return f"a {self.kind.value}"

    def aligned(self, rank: int) -> Sizes:
        """Return the shape as formulas read it beside a first input of some rank."""
        return self.shape if self.along is None else (*self.shape, *[1] * (rank - self.along - 1))


Item = Layer | StateTensor
