"""The forms of kernels: a row for each loop in which the function of an element may run.

A row says which kernels take the form, and names the C++ of it. A module has one of the forms with a base,
whose loop takes every call, and each other form that takes its kernel, for the calls that it is made for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fusegen.core.dtypes import maths
from fusegen.core.ir import Kernel
from fusegen.core.launch import THIN
from fusegen.core.method import FAST, FLOAT, Formula, Pass, Piecewise, Segmented, Variant
from fusegen.core.spec import Spec
from fusegen.core.targets import Device
from fusegen.schedule.bitmask_gradient import LARGE, masked
from fusegen.schedule.plan import Plan
from fusegen.schedule.thin_convolution import obstacle, thin

LOST = "float does not compute its results"
MASKED = (
    f"From {LARGE:,} elements on, the forward pass saves a bitmask for the gradient, which then reads no "
    "element again: in float32 it moves 8.25 bytes an element instead of 12."
)
CONVOLVED = (
    "A {kernel} convolution of {channels} input channels and the forward kernel as one, on the tensor "
    "cores: sums of {terms} products, in float32 of three TF32 products each, in 16 bits of one, which is "
    "exact. The output of the convolution is never in memory."
)
MULTIPLIED = (
    "The {layer} and the forward kernel as one in float32, by mma.sync on sm_80 and by wgmma on sm_90, "
    "where {where}no gradient is recorded and the layer is large: the function takes each sum, with its "
    "bias, before it is stored, and the result has the bits of the two. The output of the layer is never "
    "in memory."
)


@dataclass(frozen=True, slots=True)
class Planned:
    """A spec, its kernels, and the methods of its passes."""

    spec: Spec
    kernels: Mapping[tuple[Pass, Device, Variant], Kernel]
    plan: Plan


@dataclass(frozen=True, slots=True)
class Part:
    """A kernel that a form has beside those of the passes.

    Attributes:
        functor: its C++ type.
        note: the comment above it.
        kernels: one for each math type.
    """

    functor: str
    note: str
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """A form of kernels.

    Attributes:
        name: in words.
        takes: why it takes no kernel of a spec, in words; None where it does.
        macro: the C++ that defines the functions which the binding calls.
        base: the C++ type that a kernel's type derives from, if it takes every call.
        header: of its own, on CUDA.
        families: of targets that have it.
        keyword: the argument by which a module tells its runtime of it.
        needs_stable_abi: whether only the binding to PyTorch's stable ABI has its functions.
        rows: of the launch table, if it is a library of its own behind that of the kernels.
        call: of the runtime, which runs the layer in front of the kernel and the kernel as one.
        sentence: what a reader should know of it.
        parts: its kernels beside those of the passes.
    """

    name: str
    takes: Callable[[Planned], str | None]
    macro: str
    base: str = ""
    header: str = ""
    families: tuple[str, ...] = ("cuda",)
    keyword: str = ""
    needs_stable_abi: bool = False
    rows: str = ""
    call: str = ""
    sentence: Callable[[Spec], str] = lambda _: ""
    parts: Callable[[Planned], tuple[Part, ...]] = lambda _: ()


def taken(of: Planned) -> tuple[Form, ...]:
    """Return the forms that the kernels of a spec have; no kernel in front of another one joins a layer."""
    return tuple(form for form in FORMS if form.takes(of) is None and not (form.call and of.spec.leads))


def _masked(of: Planned) -> list[tuple[Kernel, Kernel]]:
    """The kernels of the bit that decides a gradient, and of the gradient by it; by math type."""
    variants = map(Variant, maths(of.spec.dtypes))
    found = (masked(of.kernels[Pass.BACKWARD, Device.CUDA, variant]) for variant in variants)
    return [*filter(None, found)]


def _bitmask(of: Planned) -> str | None:
    if not _masked(of):
        return "no bit of an element decides its gradient"
    return None if of.plan.narrow(*Pass) <= {FLOAT, FAST} else LOST


def _bit_kernels(of: Planned) -> tuple[Part, ...]:
    """Return the kernel of the bit, and that of the gradient by it."""
    bits, gradients = zip(*_masked(of), strict=True)
    return (
        Part("Bit", "Whether the gradient is the first of two multiples of the incoming one.", bits),
        Part("FromBit", "The gradient from this bit.", gradients),
    )


def _thin(of: Planned) -> str | None:
    methods = of.plan.narrow(Pass.FORWARD)
    return obstacle(of.spec) or (None if methods and methods <= {FLOAT, FAST} else LOST)


def _convolved(spec: Spec) -> str:
    found = thin(spec)
    assert found is not None
    kernel = " x ".join(map(str, found.kernel))
    return CONVOLVED.format(kernel=kernel, channels=found.channels, terms=found.terms)


def _linear(of: Planned) -> str | None:
    layer, method = of.spec.producer, of.plan.in_bits(Pass.FORWARD, Device.CUDA, 32)
    if layer is None or not (layer.kind == "Linear" or layer.is_of_pixels):
        return "there is no Linear and no 1 x 1 convolution right in front of the kernel"
    if of.spec.inputs[-1].split is not None:
        return "the kernel takes its output in halves"
    if of.spec.is_prepared:
        return "the kernel takes a mask or a view"
    known = isinstance(method, Formula | Piecewise | Segmented)
    return None if known else "no formula computes an element in float32"


def _multiplied(spec: Spec) -> str:
    if spec.producer is None or spec.producer.kind == "Linear":
        return MULTIPLIED.format(layer="linear layer", where="")
    return MULTIPLIED.format(
        layer="1 x 1 convolution", where="the input is channels last, TF32 is not allowed, "
    )


ELEMENTWISE = Form(
    "elements of one tensor",
    lambda of: "it takes several tensors" if len(of.spec.tensors) > 1 else None,
    "FUSEGEN_KERNELS({name})",
    base="Elementwise",
    families=("cuda", "cpu"),
)
BROADCAST = Form(
    "elements of tensors of several shapes",
    lambda of: None if len(of.spec.tensors) > 1 else "it takes one tensor",
    "FUSEGEN_BROADCASTING_KERNELS({name})",
    base="Broadcasting",
    families=("cuda", "cpu"),
)
BITMASK = Form(
    "a bitmask for the gradient",
    _bitmask,
    "FUSEGEN_BITMASK_KERNELS({name}, {from_output})",
    header="cuda/bitmask.cuh",
    keyword="bitmask=True",
    needs_stable_abi=True,
    sentence=lambda _: MASKED,
    parts=_bit_kernels,
)
THIN_CONVOLUTION = Form(
    "a thin convolution with the forward pass behind it",
    _thin,
    "FUSEGEN_CONVOLVED({name}, Forward, {tables})",
    header="cuda/thin_launch.cuh",
    keyword="convolution=CONVOLUTION_SOURCE",
    needs_stable_abi=True,
    rows=THIN,
    call="convolved",
    sentence=_convolved,
)
LINEAR = Form(  # the runtime has its C++
    "a linear layer, or a 1 x 1 convolution, with the forward pass behind it",
    _linear,
    "",
    families=(),
    keyword="product=True",
    call="multiplied",
    needs_stable_abi=True,
    sentence=_multiplied,
)
FORMS = (ELEMENTWISE, BROADCAST, BITMASK, THIN_CONVOLUTION, LINEAR)
