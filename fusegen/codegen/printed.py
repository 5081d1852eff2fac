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
    """The launch plan of dense tensors on CUDA."""

    bits: int  # of an element
    instructions: int  # the instructions of an element
    cost: str  # the launch class
    rows: str  # the class whose rows of the launch table apply
    launches: dict[int, Launches]  # these rows, by chip, oldest first
    # its own rows for tensors that are not all dense in one layout, if it has any
    broadcast: dict[int, Launches]


@dataclass(frozen=True, slots=True)
class Printed:
    """A C++ type with its functions, or functions alone."""

    functor: str  # the name of the type; of functions alone, that of the type which calls them
    definitions: tuple[str, ...]  # the functions
    notes: tuple[str, ...]  # the lines of the comment above them
    struct: str = ""  # the type
    remarks: tuple[str, ...] = ()  # the lines of the comment above it


@dataclass(frozen=True, slots=True)
class Cpp:
    """The C++ of a module on a device."""

    headers: list[str]  # that it includes
    tables: list[str]  # of launches
    kernels: list[Printed]  # the types
    launchers: list[str]  # the macros that define the functions which the binding calls
    library: str  # the text behind all this of a library of its own; empty where there is none


@dataclass(frozen=True, slots=True)
class Sources:
    """The C++ of a module."""

    scalars: tuple[str, ...]  # the names of the scalars that the kernels read
    given: list[str]  # those of the scalars of a call
    uniforms: tuple[str, ...]  # C++ statements for those that are computed from others
    shared: list[Printed]  # the functions of both devices
    devices: Mapping[Device, Cpp]  # the rest, by device
