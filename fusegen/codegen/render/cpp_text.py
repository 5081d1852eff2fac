"""The C++ of a module's own: headers, kernels, launch tables and methods, as text."""

from __future__ import annotations

from textwrap import wrap
from typing import Any

from fusegen.codegen.render import curve_types, includes, launches, python
from fusegen.codegen.render.texts import KernelText, PartText, Texts
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
    own = [each for each in texts.forms if not each.form.base and not each.form.rows]
    context["kernels"] += [_part(spec, texts, part) for each in own for part in each.parts]
    context["headers"] += [each.form.header for each in own]
    return context | {"tables": tables}


def library(spec: Spec, texts: Texts) -> str:
    """Return the C++ of a library beside that of the kernels on CUDA; empty if there is none."""
    own = texts.library
    if own is None:
        return ""
    tables, named = launches.library(own)
    notes = [f"// {line}" for line in wrap(own.note, WIDTH - len("// "))]
    rows = [table.replace("Launch", "fusegen::Launch").replace("ANY", "fusegen::ANY") for table in tables]
    lines = [includes.INCLUDE.format(own.form.header).rstrip(), *notes, *rows]
    lines += [own.form.macro.format(name=spec.name, tables=", ".join(named))]
    return "\n".join(lines) + "\n"


def _cpu(spec: Spec, texts: Texts, device: Device) -> dict[str, Any]:
    members = {
        each.functor: _on_cpu(spec, each.methods[device]) for each in (texts.forward, texts.backward)
    }
    return _kernels(spec, texts, device, members) | {"tables": []}


FAMILIES = {"cuda": _cuda, "cpu": _cpu}


def _launchers(spec: Spec, texts: Texts, device: Device) -> list[str]:
    """Return the macros that define the functions that the binding calls."""
    forms = [
        each.form for each in texts.forms if device.family in each.form.families and not each.form.rows
    ]
    from_output = "true" if texts.from_output else "false"
    return [form.macro.format(name=spec.name, from_output=from_output) for form in forms]


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
    return {"headers": headers, "kernels": kernels, "launchers": _launchers(spec, texts, device)}


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
    name = next(each.form.base for each in texts.forms if each.form.base)
    return f"{name}<{_arguments(spec, texts, len(kernel.inputs), len(kernel.outputs))}>"


def _part(spec: Spec, texts: Texts, part: PartText) -> dict[str, Any]:
    """Return the values for the template of a kernel that a form has of its own."""
    head = f"{part.functor} : Elementwise<{_arguments(spec, texts, part.inputs, 1)}>"
    return {
        "functor": part.functor,
        "notes": (part.note,),
        "remarks": (),
        "definitions": part.definitions,
        "struct": _struct(head, _elements(spec), part.element),
    }
