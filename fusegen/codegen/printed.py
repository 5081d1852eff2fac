"""C++ as it is printed: the types of a module's kernels with their functions and comments, by device."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from fusegen.core.launch import Launches
from fusegen.core.method import Pass
from fusegen.core.targets import Device

FUNCTORS = {Pass.FORWARD: "Forward", Pass.BACKWARD: "Backward"}  # the types of the passes


class Binding(Enum):
    """The interface between a module's kernels and Python."""

    STABLE = "stable"  # PyTorch's stable ABI, from 2.10 on
    PYBIND = "pybind"  # pybind11 functions, from PyTorch 2.0 on


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The launch plan of dense tensors on CUDA.

    Attributes:
        bits: of an element.
        instructions: the instructions of an element.
        cost: the launch class.
        rows: the class whose rows of the launch table apply.
        launches: these rows, by chip, oldest first.
        broadcast: its own rows for tensors that are not all dense in one layout, if it has any.
    """

    bits: int
    instructions: int
    cost: str
    rows: str
    launches: dict[int, Launches]
    broadcast: dict[int, Launches]


@dataclass(frozen=True, slots=True)
class Printed:
    """A C++ type with its functions, or functions alone.

    Attributes:
        functor: the name of the type; of functions alone, that of the type which calls them.
        definitions: the functions.
        notes: the lines of the comment above them.
        struct: the type.
        remarks: the lines of the comment above it.
    """

    functor: str
    definitions: tuple[str, ...]
    notes: tuple[str, ...]
    struct: str = ""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cpp:
    """The C++ of a module on a device.

    Attributes:
        headers: that it includes.
        tables: of launches.
        kernels: the types.
        launchers: the macros that define the functions which the binding calls.
        library: the text behind all this of a library of its own; empty where there is none.
    """

    headers: list[str]
    tables: list[str]
    kernels: list[Printed]
    launchers: list[str]
    library: str


@dataclass(frozen=True, slots=True)
class Sources:
    """The C++ of a module.

    Attributes:
        scalars: the names of the scalars that the kernels read.
        given: those of the scalars of a call.
        uniforms: C++ statements for those that are computed from others.
        shared: the functions of both devices.
        devices: the rest, by device.
    """

    scalars: tuple[str, ...]
    given: list[str]
    uniforms: tuple[str, ...]
    shared: list[Printed]
    devices: Mapping[Device, Cpp]
