"""The targets: a row for each device that kernels are made for, and what a reader of it has to know.

A stage asks the row and not which device it is, so that a further one is a further row. `Device` has the
rows of `TARGETS` as an enumeration has its members: `for device in Device`, `Device.CUDA`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

TARGETS: dict[str, Device] = {}  # by name


class _Rows(type):
    """The type of `Device`, which yields its rows."""

    def __iter__(cls) -> Iterator[Device]:
        """Yield the rows, in order."""
        return iter(TARGETS.values())


@dataclass(frozen=True)
class Device(metaclass=_Rows):
    """A device that kernels run on; two are the same if their names are.

    Attributes:
        name: of the target, which is that of the folder of its headers and of a module's C++.
        family: the name of the target whose budgets, methods and launches it takes; its own if it has them.
        suffix: of its headers.
        headers: of its methods, by a part of the C++ type; each begins with launcher.h.
        broadcast: the header of tensors of several shapes.
        wider: the C++ type of a formula in double of elements that have fewer bits.
        single_words: whether functions give single words in float, as two would outlast a copy
        libm: whether the math library's functions are taken for single words.
        reciprocals: whether PyTorch divides by a number as it multiplies by the rounded inverse.
        steps_of_16_bits: whether eager has steps of its own in 16 bits, such as a rounded square in a cube.
        rounds_numbers: whether eager rounds a number to the type of the tensor that it is added to.
        fast_types: whether FastFloat and PlainDouble stand for float and double where these take long.
        launched: whether a kernel is launched, as its module's tables say.
    """

    name: str
    family: str = field(compare=False)
    suffix: str = field(compare=False)
    headers: Mapping[str, str] = field(compare=False, repr=False)
    broadcast: str = field(compare=False)
    wider: str = field(compare=False)
    single_words: bool = field(compare=False)
    libm: bool = field(compare=False)
    reciprocals: bool = field(compare=False)
    steps_of_16_bits: bool = field(compare=False)
    rounds_numbers: bool = field(compare=False)
    fast_types: bool = field(compare=False)
    launched: bool = field(compare=False)
    CUDA: ClassVar[Device]
    CPU: ClassVar[Device]

    @property
    def has_curves(self) -> bool:
        """True if curves may give its results."""
        return "PiecewiseSegments" in self.headers

    @property
    def like(self) -> Device:
        """The target whose tables it takes."""
        return TARGETS[self.family]


Device.CUDA = Device(
    name="cuda",
    family="cuda",
    suffix=".cuh",
    headers={
        "Table": "cuda/table.cuh",
        "Verified": "cuda/verified.cuh",
        "FastFloat": "cuda/fast_functions.cuh",
        "PiecewiseUniform": "cuda/piecewise_uniform.cuh",
        "PiecewiseSegments": "cuda/piecewise_segments.cuh",
        "PiecewiseOctaves": "cuda/piecewise_octaves.cuh",
        "AtDefaults": "cuda/lazy_init.cuh",
        "Widened": "cuda/in_double.cuh",
        "Formula": "cuda/pointwise.cuh",
    },
    broadcast="cuda/reduce.cuh",
    wider="Widened",
    single_words=True,
    libm=True,
    reciprocals=True,
    steps_of_16_bits=True,
    rounds_numbers=False,
    fast_types=True,
    launched=True,
)
Device.CPU = Device(
    name="cpu",
    family="cpu",
    suffix=".h",
    headers={
        "Verified": "cpu/verified.h",
        "PiecewiseOctaves": "cpu/piecewise_octaves.h",
        "Formula": "cpu/loops.h",
    },
    broadcast="cpu/reduce.h",
    wider="Formula",
    single_words=False,
    libm=False,
    reciprocals=False,
    steps_of_16_bits=False,
    rounds_numbers=True,
    fast_types=False,
    launched=False,
)
TARGETS |= {row.name: row for row in (Device.CUDA, Device.CPU)}
