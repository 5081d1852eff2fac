"""The values that the printers hand to the templates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from fusegen.core.cubic import UniformGrid
from fusegen.core.launch import Launches
from fusegen.core.targets import Device
from fusegen.schedule.forms import Form


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
class CurveText:
    """The text of one curve of a kernel.

    Attributes:
        functor: the C++ type that its pieces are fitted of.
        value: its expression in u, in double, which may call the function.
        notes: comment lines above the function.
        definition: the function; empty if the expression says all.
        grid: the step of its centres, and the first and the last of them in steps.
    """

    functor: str
    value: str
    notes: tuple[str, ...]
    definition: str
    grid: tuple[float, int, int]


@dataclass(frozen=True, slots=True)
class CurvesText:
    """The texts of a kernel by curves.

    Attributes:
        definition: the function that calls the curves.
        element: the statement that calls this function.
        functors: the C++ types of its curves, in the order of their numbers.
    """

    definition: str
    element: str
    functors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelText:
    """The texts of one kernel.

    Attributes:
        name: the operator's name.
        functor: the C++ type that the kernel's template takes.
        inputs, outputs: the names of the tensors; of a gradient that several have, the first of these.
        notes: per device, comment lines above its functions; without one, above that of both devices.
        remarks: per device, comment lines above the type of the kernel.
        shared: the function of one element, if there is one for both devices.
        definitions: per device, the other functions, in a math type or in both.
        elements: per device, the statement that calls the function.
        others: per device, the statements that call functions of other names, each by its condition.
        launch_plans: of dense tensors on CUDA, one for each width of elements.
        methods: per device, the C++ type of its methods.
        grid: of a piecewise cubic in even steps, if one is faster.
        curves: the kernel by curves, if they give float32 results on CUDA.
    """

    name: str
    functor: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    notes: Mapping[Device | None, tuple[str, ...]]
    remarks: Mapping[Device, tuple[str, ...]]
    shared: tuple[str, ...]
    definitions: dict[Device, tuple[str, ...]]
    elements: dict[Device, str]
    others: dict[Device, dict[str, str]]
    launch_plans: tuple[LaunchPlan, ...]
    methods: dict[Device, str]
    grid: UniformGrid | None
    curves: CurvesText | None


@dataclass(frozen=True, slots=True)
class PartText:
    """The text of a kernel that a form has beside those of the passes.

    Attributes:
        functor: its C++ type.
        note: the comment above it.
        inputs: the number of tensors that it reads.
        element: the statement that calls its function.
        definitions: the function, in each math type.
    """

    functor: str
    note: str
    inputs: int
    element: str
    definitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FormText:
    """The text of a form of the kernels.

    Attributes:
        form: its row.
        note: the sentences on it.
        parts: the kernels that it has of its own.
        launches: of a library of its own, by the width of elements, then by chip, oldest first.
    """

    form: Form
    note: str
    parts: tuple[PartText, ...]
    launches: dict[int, dict[int, Launches]]


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of one spec.

    Attributes:
        notation: the formula in mathematical notation.
        counts: a line for each kernel that counts its operations.
        forward, backward: the kernels.
        curves: those of both kernels.
        forms: of the kernels.
        headers: per device, the families of headers that define what the kernels call.
        scalars: the names of the scalars that the kernels read.
        bounds: the names of those that a clamp takes as a bound.
        declared: the values that the spec gives to its scalars, in C++.
        uniforms: C++ statements for those of them that are computed from parameters.
        plain_double_bits: the accurate bits of PlainDouble, if a kernel on CUDA takes it.
        rounds: whether operations are followed by eager's rounding.
        eager: Python lines that compute the same by PyTorch's own operations.
        eager_gradient: likewise for the gradient, where these operations say it; else it is eager's own.
        from_output: whether the gradient is read off the output.
        unread: the inputs that the gradient does not read.
        detached: the inputs through which eager's operations record no gradient.
        gradients: for each tensor, the output that is its gradient; empty where each has its own.
        autocast: whether eager computes this in float32 under CUDA's autocast.
    """

    notation: str
    counts: tuple[str, ...]
    forward: KernelText
    backward: KernelText
    curves: tuple[CurveText, ...]
    forms: tuple[FormText, ...]
    headers: dict[Device, tuple[str, ...]]
    scalars: tuple[str, ...]
    bounds: tuple[str, ...]
    declared: tuple[str, ...]
    uniforms: tuple[str, ...]
    plain_double_bits: str
    rounds: bool
    eager: tuple[str, ...]
    eager_gradient: tuple[str, ...]
    from_output: bool
    unread: tuple[str, ...]
    detached: tuple[str, ...]
    gradients: tuple[int, ...]
    autocast: bool

    @property
    def library(self) -> FormText | None:
        """The form that is a library of its own, if there is one."""
        return next((each for each in self.forms if each.form.rows), None)
