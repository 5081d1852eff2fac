"""From printed functions to the text of a module; the only file that knows jinja2.

Templates hold the shell of a file and receive finished strings: nothing is decided in them but what is
there and what is not. A name that a template uses and the context lacks is an error.
"""

from __future__ import annotations

import functools
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta

from fusegen.elements import ELEMENTS
from fusegen.ir import Device
from fusegen.launch import MOST_THREADS
from fusegen.pieces import Centres
from fusegen.render import python
from fusegen.render.texts import Binding, Halves, KernelText, MaskText, Share, Singles, Texts
from fusegen.spec import Spec

__all__ = [
    "FITTED",
    "Binding",
    "Halves",
    "KernelText",
    "MaskText",
    "Share",
    "Singles",
    "Texts",
    "fill",
    "module",
    "sources",
]

MODULE = "module.py.j2"
INTERFACE = 1  # of modules and their runtime, which has it too
BINDINGS = {Binding.STABLE: "binding.cpp.j2", Binding.PYBIND: "binding_pybind.cpp.j2"}
SIMPLE = {Singles.COMPUTED, Singles.PIECES}  # what float computes, or could
FITTED = {Singles.CUBICS, Singles.DECLARED}  # what double fits
QUALIFIERS = {Device.CUDA: "__device__ __forceinline__", Device.CPU: "inline"}


def sources(spec: Spec, texts: Texts, binding: Binding) -> dict[str, str]:
    """The C++ texts of a module, by the part of it they are."""
    elements = [ELEMENTS[dtype] for dtype in spec.dtypes]
    headers = [e.header if binding is Binding.STABLE else e.classic_header for e in elements]
    shared = {
        "name": spec.name,
        "elements": elements,
        "headers": list(filter(None, headers)),
        "float16": "float16" in spec.dtypes,
        "halves": any(element.halves for element in elements),
        "given": python.param_names(spec),
        "scalars": texts.scalars,
        "uniforms": texts.uniforms,
        "approximations": texts.approximations,
        "rounds": texts.rounds,
        "two_words": texts.two_words,
        "stored": "decltype(load(T()))(out[k])" if texts.approximations or texts.ample else "out[k]",
        "dtypes": python.either(spec.dtypes),
        "most_threads": MOST_THREADS,
        "kernels": [_counts(kernel) for kernel in (texts.forward, texts.backward)],
        "mask": texts.mask,
        "from_output": texts.from_output,
    }
    both = (texts.forward, texts.backward)
    halves = {kernel.halves for kernel in both}
    tested = not halves.isdisjoint({Halves.TESTED, Halves.DECLARED})
    looked_up = not halves.isdisjoint({Halves.LOOKED_UP, Halves.DECLARED})
    ways = {device: {kernel.singles[device] for kernel in both} for device in Device}
    has_singles = any(element.bits == 32 for element in elements)
    singles = {device: not SIMPLE.issuperset(several) for device, several in ways.items()}
    settled, cuda = any(kernel.settled for kernel in both), ways[Device.CUDA]
    cubics = not cuda.isdisjoint(FITTED)
    polynomials = cubics or Singles.PIECES in cuda
    # of a slope that reads no scalar, too, what is not looked up with other ones
    by_double = Singles.DOUBLE in cuda or (cubics and bool(texts.declared))
    shared |= {"table": looked_up, "tested": tested}
    shared["declared"] = texts.declared
    shared["halves_declared"] = Halves.DECLARED in halves
    shared["scalars_of"] = "Scalars" if tested and texts.scalars else "Params"
    shared["rounded_once"] = "stored<T>" if singles[Device.CPU] else "T"
    shared["by_double"] = looked_up or tested or settled or any(singles.values())
    by_cubics = any(not several.isdisjoint(FITTED) for several in ways.values())
    shared["fitted"] = _part("cubics.h.j2", shared) if by_cubics else ""
    shared["looked_up_in_double"] = bool(texts.declared) and any(
        kernel.halves is Halves.LOOKED_UP and kernel.singles[Device.CUDA] is Singles.DOUBLE
        for kernel in both
    )
    shared["kept"] = Singles.DECLARED in cuda
    shared["ahead"] = _asks_ahead(both)
    shared["ample"] = texts.ample if by_double else ""
    parts = {
        "filled": looked_up or polynomials,
        "settle": tested or polynomials or by_double,
        "tested": tested,
        "table": looked_up,
        "as_declared": bool(texts.declared) and (looked_up or Singles.DECLARED in cuda),
        "pieces": Singles.PIECES in cuda,
        "cubics": cubics,
        "doubles": by_double,
    }
    on_cuda = {part: _part(f"{part}.cu.j2", shared | parts) if has else "" for part, has in parts.items()}
    on_cpu = dict.fromkeys(parts, "")
    if Singles.CUBICS in ways[Device.CPU]:
        on_cpu["cubics"] = _part("cubics.cpp.j2", shared)
    on_cuda_in_double = singles[Device.CUDA] and (has_singles or shared["looked_up_in_double"])
    on = {
        Device.CUDA: shared | on_cuda | {"settled": False, "singles": on_cuda_in_double},
        Device.CPU: shared | on_cpu | {"settled": settled, "singles": singles[Device.CPU]},
    }
    return {
        "call": fill("call.h.j2", shared),
        "arithmetic": fill("arithmetic.h.j2", shared),
        "layout": fill("layout.cpp.j2", shared),
        "launch": fill("launch.cu.j2", shared | _launches(both)),
        "cuda_prelude": fill("prelude.cu.j2", on[Device.CUDA]),
        "cuda": _kernels(Device.CUDA, texts, on[Device.CUDA]),
        "mask": fill("mask.cu.j2", shared) if texts.mask else "",
        "cpu_prelude": fill("prelude.cpp.j2", on[Device.CPU]),
        "cpu": _kernels(Device.CPU, texts, on[Device.CPU]),
        "binding": fill(BINDINGS[binding], shared | {"kernels": _functions(spec, texts)}),
    }


def module(spec: Spec, texts: Texts, binding: Binding) -> str:
    """The whole text of a generated module."""
    context = {
        "name": spec.name,
        "digest": spec.digest,
        "interface": INTERFACE,
        "summary": spec.summary,
        "source": spec.source,
        "notation": texts.notation,
        "counts": texts.counts,
        "dtype_names": spec.dtypes,
        **python.tensors_and_scalars(spec, texts),
        **python.model(spec),
        **python.function(spec, texts),
        **python.gradient(spec, texts),
        **python.operators(spec, texts),
        **{f"{part}_source": text for part, text in sources(spec, texts, binding).items()},
    }
    return fill(MODULE, context)


def fill(template: str, context: dict[str, Any]) -> str:
    """A template filled in; the context has every name that the template uses."""
    compiled, wanted = _template(template)
    assert wanted <= set(context), f"{template} wants {sorted(wanted - set(context))}"
    return compiled.render(context)


@functools.cache
def _template(name: str) -> tuple[jinja2.Template, frozenset[str]]:
    """A template, and the names that it uses."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    text = (_folder() / name).read_text(encoding="utf-8")
    wanted = jinja2.meta.find_undeclared_variables(environment.parse(text))
    return environment.from_string(text), frozenset(wanted)


def _part(template: str, context: dict[str, Any]) -> str:
    """A template filled in that is a part of another."""
    return fill(template, context).rstrip("\n")


def _kernels(device: Device, texts: Texts, shared: dict[str, Any]) -> str:
    """The functions, formulas and launchers of a device."""
    rows = [
        _counts(kernel)
        | {
            "notes": kernel.notes[device],
            "definitions": kernel.definitions[device],
            "element": kernel.elements[device],
            "short": kernel.short[device],
            "halves": kernel.halves.name,
            "settled": kernel.settled,
            "singles": kernel.singles[device].name,
            "centres": _centres(kernel.centres),
            "enough": "Ample" if kernel.ample else "double",
        }
        for kernel in (texts.forward, texts.backward)
    ]
    own = {
        "kernels": rows,
        "functions": texts.functions[device],
        "namespace": "approximate" if device is Device.CUDA else "math",
        "library": texts.approximations if device is Device.CUDA else texts.vectorised,
        "qualifier": QUALIFIERS[device],
        "launches": device is Device.CUDA,
    }
    return fill("kernel.j2", shared | own)


def _centres(of: Centres | None) -> str:
    """Where pieces are, in C++."""
    sides = (of.above, of.below) if of else ()
    return "{" + ", ".join(f"{{1 / {1 / side.step}f, {side.last}}}" for side in sides) + "}"


def _launches(kernels: tuple[KernelText, ...]) -> dict[str, Any]:
    """How dense tensors are shared out: each table of rows once, and which one a kernel takes."""
    names: dict[tuple[str, tuple[str, ...]], str] = {}
    rows = []
    for kernel in kernels:
        taken = []
        for share in kernel.shares:
            table = tuple(
                f"{chip}, {row.kib or 'ANY'}, {row.threads}, {row.vectors}"
                + (f", {row.ahead}" if row.ahead else "")
                for chip, launches in share.launches.items()
                for row in launches
            )
            cost = share.cost.upper()
            free = (cost, f"{cost}_{share.bits}", f"{cost}_{share.bits}_{kernel.functor.upper()}")
            name = next(name for name in free if name not in names.values())
            name = names.setdefault((cost, table), name)
            taken.append(f"*BITS{share.bits} = {name}")
        rows.append({"functor": kernel.functor, "launches": ", ".join(taken)})
    tables = [{"name": name, "rows": table} for (_, table), name in names.items()]
    return {"kernels": rows, "tables": tables}


def _asks_ahead(kernels: tuple[KernelText, ...]) -> bool:
    """Whether any launch asks the second cache for what later blocks will read."""
    taken = (
        launches for kernel in kernels for share in kernel.shares for launches in share.launches.values()
    )
    return any(row.ahead for launches in taken for row in launches)


def _functions(spec: Spec, texts: Texts) -> list[dict[str, Any]]:
    """The kernels as C++ functions of tensors and scalars."""
    scalars = [f"double {name}" for name in python.param_names(spec)]
    rows = []
    for kernel in (texts.forward, texts.backward):
        given = [*kernel.inputs, *(f"OUT{k}" for k in range(len(kernel.outputs)))]
        tensors = [f"const at::Tensor& {name}" for name in given]
        count = len(kernel.inputs)
        rows.append(
            _counts(kernel)
            | {
                "signature": ", ".join([*tensors[:count], *scalars]),
                "tensor_names": ", ".join(given[:count]),
                "out_signature": ", ".join([*tensors[:count], *scalars, *tensors[count:]]),
                "out_tensor_names": ", ".join(given),
            }
        )
    return rows


def _counts(kernel: KernelText) -> dict[str, Any]:
    inputs, outputs = len(kernel.inputs), len(kernel.outputs)
    named = {"name": kernel.name, "functor": kernel.functor}
    return named | {"inputs": inputs, "outputs": outputs, "tensors": inputs + outputs}


def _folder() -> Path:
    """The templates: inside the installed package, or beside it in a checkout."""
    inside = Path(str(resources.files("fusegen"))) / "templates"
    return inside if inside.is_dir() else inside.parent.parent / "templates"
