"""The C++ of a module's own: headers, kernels, launch tables and the method of each width, as text.

`KernelText` says how results come about; here each method gets the name of its C++ type.
"""

from __future__ import annotations

from textwrap import wrap
from typing import Any

from fusegen.codegen.render import curve_types, includes, launches, python
from fusegen.codegen.render.texts import KernelText, Method16, Method32, Texts, ThinText
from fusegen.core.dtypes import ELEMENTS
from fusegen.core.ir import Device
from fusegen.core.spec import Spec

# where float loses too many digits
DEFAULT = "Formula<float>, Formula<float>, Formula<double>"  # methods that a type need not name
WIDTH = 120  # of a line


def shared(spec: Spec, texts: Texts) -> dict[str, Any]:
    """Return the values for the template of functions: those that both devices have in common."""
    kernels = [
        {"notes": kernel.notes[None], "definitions": kernel.shared}
        for kernel in (texts.forward, texts.backward)
        if kernel.shared
    ]
    given = python.param_names(spec)
    return {"scalars": texts.scalars, "given": given, "uniforms": texts.uniforms, "kernels": kernels}


def cuda(spec: Spec, texts: Texts) -> dict[str, Any]:
    """Return the values for the template of kernels on CUDA."""
    kernels = (texts.forward, texts.backward)
    tables, taken = launches.members(kernels)
    members = {
        kernel.functor: [*taken[kernel.functor], *_on_cuda(spec, texts, kernel)] for kernel in kernels
    }
    context = _kernels(spec, texts, Device.CUDA, members)
    context["kernels"][:0] = curve_types.kernels(texts.curves)
    launchers = [_launchers(spec)]
    if texts.mask:
        of_output = "true" if texts.from_output else "false"
        launchers += [f"FUSEGEN_BITMASK_KERNELS({spec.name}, {of_output})"]
        context["kernels"] += _bitmask(spec, texts)
        context["headers"] += ["cuda/bitmask.cuh"]
    if spec.bias is not None:
        launchers += [f"FUSEGEN_TRANSPOSED({spec.name})"]
        context["headers"] += ["cuda/channels_last.cuh"]
    return context | {"tables": tables, "launchers": launchers}


def convolution(spec: Spec, thin: ThinText) -> str:
    """Return the C++ of a library of its own, behind that of the kernels on CUDA."""
    tables, named = launches.thin(thin)
    notes = [f"// {line}" for line in wrap(thin.note, WIDTH - len("// "))]
    rows = [table.replace("Launch", "fusegen::Launch").replace("ANY", "fusegen::ANY") for table in tables]
    lines = [includes.INCLUDE.format("cuda/thin_launch.cuh").rstrip(), *notes, *rows]
    lines += [f"FUSEGEN_CONVOLVED({spec.name}, Forward, {', '.join(named)})"]
    return "\n".join(lines) + "\n"


def cpu(spec: Spec, texts: Texts) -> dict[str, Any]:
    """Return the values for the template of kernels on the CPU."""
    members = {kernel.functor: _on_cpu(spec, texts, kernel) for kernel in (texts.forward, texts.backward)}
    return _kernels(spec, texts, Device.CPU, members) | {"tables": [], "launchers": [_launchers(spec)]}


def _launchers(spec: Spec) -> str:
    """Return the macros that define the functions that the binding calls."""
    return f"FUSEGEN_{'BROADCASTING_' * (len(spec.tensors) > 1)}KERNELS({spec.name})"


def methods(texts: Texts, kernel: KernelText, device: Device) -> tuple[str, str, str]:
    """Return the C++ types of the methods of a kernel, of 16, 32 and 64 bits."""
    if device is Device.CPU:
        return ON_CPU_16[kernel.method_16[device]], ON_CPU_32[kernel.method_32[device]], "Formula<double>"
    widened = f"Widened<{'PlainDouble' if kernel.plain_double else 'double'}>"
    return _of_16(texts, kernel, widened), _of_32(kernel, widened), "Formula<double>"


ON_CPU_16 = {
    Method16.FORMULA: "Formula<float>",
    Method16.VERIFIED: "Verified<float, double>",
    Method16.OCTAVES: "PiecewiseOctaves",
    Method16.DOUBLE: "Formula<double>",
}
ON_CPU_32 = {
    Method32.FORMULA: "Formula<float>",
    Method32.OCTAVES: "PiecewiseOctaves",
    Method32.DOUBLE: "Formula<double>",
}


def _of_16(texts: Texts, kernel: KernelText, widened: str) -> str:
    of_16 = kernel.method_16[Device.CUDA]
    fast = of_16 is Method16.FAST or (of_16 is Method16.TABLE and texts.fast)
    by_table = of_16 in (Method16.TABLE, Method16.TABLE_AT_DEFAULTS, Method16.TABLE_ELSE_DOUBLE)
    if by_table and not texts.declared:
        return "Table"
    by_double = of_16 in (Method16.DOUBLE, Method16.TABLE_ELSE_DOUBLE)
    if of_16 in (Method16.VERIFIED, Method16.TABLE_AT_DEFAULTS):
        other = "Verified<FastFloat, double>"
    else:
        other = widened if by_double else f"Formula<{'FastFloat' if fast else 'float'}>"
    return f"AtDefaults<Table, {other}>" if by_table else other


def _of_32(kernel: KernelText, widened: str) -> str:
    return {
        Method32.FORMULA: "Formula<float>",
        Method32.SEGMENTED: curve_types.method(kernel),
        Method32.UNIFORM: "PiecewiseUniform",
        Method32.OCTAVES: "PiecewiseOctaves",
        Method32.OCTAVES_AT_DEFAULTS: f"AtDefaults<PiecewiseOctaves, {widened}>",
        Method32.DOUBLE: widened,
    }[kernel.method_32[Device.CUDA]]


def _on_cuda(spec: Spec, texts: Texts, kernel: KernelText) -> list[str]:
    """Return the members of a kernel's type."""
    lines = _elements(spec)
    if any("AtDefaults" in method for method in methods(texts, kernel, Device.CUDA)):
        lines += [f"static constexpr double DEFAULTS[] = {{{', '.join(texts.declared)}}}"]
    if kernel.grid:
        sides = (kernel.grid.above, kernel.grid.below)
        grid = ", ".join(f"{{1 / {1 / side.step}f, {side.last}}}" for side in sides)
        lines += [f"static constexpr UniformGrid GRID = {{{grid}}}"]
    lines += [f"using Methods = ByWidth<{', '.join(methods(texts, kernel, Device.CUDA))}>"]
    return [*lines, *curve_types.members(kernel.curves)]


def _on_cpu(spec: Spec, texts: Texts, kernel: KernelText) -> list[str]:
    found = ", ".join(methods(texts, kernel, Device.CPU))
    own = [f"using Methods = ByWidth<{found}>"] if found != DEFAULT else []
    return [*_elements(spec), *own]


def _elements(spec: Spec) -> list[str]:
    if set(spec.dtypes) == ELEMENTS.keys():
        return []
    return [f"using Elements = {dtypes(spec)}"]


def dtypes(spec: Spec, within: str = "") -> str:
    """Return the element types in C++, whose names stand behind `within`."""
    if set(spec.dtypes) == ELEMENTS.keys():
        return "AllDtypes"
    return f"Dtypes<{', '.join(within + dtype.upper() for dtype in spec.dtypes)}>"


def _kernels(spec: Spec, texts: Texts, device: Device, members: dict[str, list[str]]) -> dict[str, Any]:
    """Return the values that the kernels of a device have in common."""
    kernels = [
        {
            "functor": kernel.functor,
            "notes": kernel.notes[device],
            "remarks": kernel.remarks[device],
            "definitions": kernel.definitions[device],
            "struct": _struct(
                f"{kernel.functor} : {_base(spec, texts, kernel)}",
                members[kernel.functor],
                _element(kernel, device),
            ),
        }
        for kernel in (texts.forward, texts.backward)
    ]
    named = "Formula" + "".join(line for lines in members.values() for line in lines)
    headers = includes.headers(texts, device, named, len(spec.tensors))
    return {"headers": headers, "kernels": kernels}


def _element(kernel: KernelText, device: Device) -> str:
    """Return the statement that calls the function of a kernel, or one of several by their conditions."""
    chosen = [f"if constexpr ({condition}) {call}" for condition, call in kernel.others[device].items()]
    return f";\n{'':18}else ".join([*chosen, kernel.elements[device]])


def _struct(head: str, members: list[str], element: str) -> str:
    """Return the type of a kernel, on one line if that is all that it has."""
    call = f"FUSEGEN_ELEMENT({element})"
    line = f"struct {head} {{ {call} }};"
    if not members and len(line) <= WIDTH:
        return line
    return "\n".join([f"struct {head} {{", *(f"  {member};" for member in members), f"  {call}", "};"])


def _arguments(spec: Spec, texts: Texts, inputs: int, outputs: int) -> str:
    """Return the arguments of a kernel's base type."""
    count = len(spec.scalars)
    if not count:
        return f"{inputs}, {outputs}"
    return f"{inputs}, {outputs}, {'Scalars' if texts.scalars else 'NoParams'}, {count}"


def _base(spec: Spec, texts: Texts, kernel: KernelText) -> str:
    """Return the base type of a kernel's type."""
    name = "Broadcasting" if len(spec.tensors) > 1 else "Elementwise"
    return f"{name}<{_arguments(spec, texts, len(kernel.inputs), len(kernel.outputs))}>"


def _bitmask(spec: Spec, texts: Texts) -> list[dict[str, Any]]:
    """Return the kernels of a gradient that a bit decides: of the bit, and of the gradient."""
    assert texts.mask is not None
    parts = (
        ("Bit", 1, texts.mask.bit, texts.mask.of_bit),
        ("FromBit", 2, texts.mask.taken, texts.mask.of_taken),
    )
    return [
        {
            "functor": functor,
            "notes": (note,),
            "remarks": (),
            "definitions": definitions,
            "struct": _struct(
                f"{functor} : Elementwise<{_arguments(spec, texts, inputs, 1)}>", _elements(spec), element
            ),
        }
        for (functor, inputs, element, definitions), note in zip(
            parts,
            (
                "Whether the gradient is the first of two multiples of the incoming one.",
                "The gradient from this bit.",
            ),
            strict=True,
        )
    ]
