"""The C++ of a module's own: headers, kernels, launch tables and methods, as text."""

from __future__ import annotations

from textwrap import wrap
from typing import Any

from fusegen.codegen.render import curve_types, includes, launches, python
from fusegen.codegen.render.texts import KernelText, Texts, ThinText
from fusegen.core.dtypes import ELEMENTS
from fusegen.core.spec import Spec
from fusegen.core.targets import Device

DEFAULT = "ByWidth<Formula<float>, Formula<float>, Formula<double>>"  # methods of call.h, not named again
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


def kernels(spec: Spec, texts: Texts, device: Device) -> dict[str, Any]:
    """Return the values for the template of kernels on a device."""
    return FAMILIES[device.family](spec, texts, device)


def _cuda(spec: Spec, texts: Texts, device: Device) -> dict[str, Any]:
    kernels = (texts.forward, texts.backward)
    tables, taken = launches.members(kernels)
    members = {
        kernel.functor: [*taken[kernel.functor], *_on_cuda(spec, texts, kernel.methods[device], kernel)]
        for kernel in kernels
    }
    context = _kernels(spec, texts, device, members)
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


def _cpu(spec: Spec, texts: Texts, device: Device) -> dict[str, Any]:
    members = {
        each.functor: _on_cpu(spec, each.methods[device]) for each in (texts.forward, texts.backward)
    }
    return _kernels(spec, texts, device, members) | {"tables": [], "launchers": [_launchers(spec)]}


FAMILIES = {"cuda": _cuda, "cpu": _cpu}


def _launchers(spec: Spec) -> str:
    """Return the macros that define the functions that the binding calls."""
    return f"FUSEGEN_{'BROADCASTING_' * (len(spec.tensors) > 1)}KERNELS({spec.name})"


def _on_cuda(spec: Spec, texts: Texts, methods: str, kernel: KernelText) -> list[str]:
    """Return the members of a kernel's type."""
    lines = _elements(spec)
    if "AtDefaults" in methods:
        lines += [f"static constexpr double DEFAULTS[] = {{{', '.join(texts.declared)}}}"]
    if kernel.grid and "PiecewiseUniform" in methods:
        sides = (kernel.grid.above, kernel.grid.below)
        grid = ", ".join(f"{{1 / {1 / side.step}f, {side.last}}}" for side in sides)
        lines += [f"static constexpr UniformGrid GRID = {{{grid}}}"]
    lines += [f"using Methods = {methods}"]
    return [*lines, *curve_types.members(kernel.curves)]


def _on_cpu(spec: Spec, methods: str) -> list[str]:
    return [*_elements(spec), *([f"using Methods = {methods}"] if methods != DEFAULT else [])]


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
