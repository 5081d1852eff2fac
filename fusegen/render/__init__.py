"""From printed functions to the text of a module; the only file that knows jinja2.

Templates hold the shell of a file and receive finished strings: nothing is decided in them but what is
there and what is not. A name that a template uses and the context lacks is an error.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta

from fusegen.elements import ELEMENTS
from fusegen.ir import Device
from fusegen.launch import MOST_THREADS
from fusegen.render import python
from fusegen.render.texts import Binding, Halves, KernelText, Share, Singles, Texts
from fusegen.spec import Spec

__all__ = ["Binding", "Halves", "KernelText", "Share", "Singles", "Texts", "fill", "module", "sources"]

MODULE = "module.py.j2"
BINDINGS = {Binding.STABLE: "binding.cpp.j2", Binding.PYBIND: "binding_pybind.cpp.j2"}
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
        "given": python.param_names(spec),
        "scalars": texts.scalars,
        "uniforms": texts.uniforms,
        "approximations": texts.approximations,
        "rounds": texts.rounds,
        "two_words": texts.two_words,
        "stored": "decltype(load(T()))(out[k])" if texts.approximations else "out[k]",
        "dtypes": python.either(spec.dtypes),
        "most_threads": MOST_THREADS,
        "kernels": [_counts(kernel) for kernel in (texts.forward, texts.backward)],
    }
    both = (texts.forward, texts.backward)
    looked_up, tested = (
        any(kernel.halves is how for kernel in both) for how in (Halves.LOOKED_UP, Halves.TESTED)
    )
    pieced = any(kernel.pieced for kernel in both)
    parts = {
        "filled": looked_up or pieced,
        "settle": tested or pieced,
        "tested": tested,
        "table": looked_up,
        "pieces": pieced,
    }
    shared["settled"] = any(kernel.settled for kernel in both)
    shared["singles"] = any(kernel.singles is not Singles.COMPUTED for kernel in both)
    shared["rounded_once"] = "stored<T>" if shared["singles"] else "T"
    shared["by_double"] = looked_up or tested or shared["settled"] or shared["singles"]
    shared["declared"] = texts.declared
    shared["scalars_of"] = "Scalars" if tested and texts.scalars else "Params"
    shared |= {
        part: fill(f"{part}.cu.j2", shared).rstrip("\n") if has else "" for part, has in parts.items()
    }
    by_cubics = any(kernel.singles is Singles.CUBICS for kernel in both)
    shared["cubics"] = fill("cubics.cpp.j2", shared).rstrip("\n") if by_cubics else ""
    return {
        "call": fill("call.h.j2", shared),
        "arithmetic": fill("arithmetic.h.j2", shared),
        "layout": fill("layout.cpp.j2", shared),
        "launch": fill("launch.cu.j2", _launches((texts.forward, texts.backward)) | {"table": looked_up}),
        "cuda_prelude": fill("prelude.cu.j2", shared),
        "cuda": _kernels(Device.CUDA, texts, shared),
        "cpu_prelude": fill("prelude.cpp.j2", shared),
        "cpu": _kernels(Device.CPU, texts, shared),
        "binding": fill(BINDINGS[binding], shared | {"kernels": _functions(spec, texts)}),
    }


def module(spec: Spec, texts: Texts, binding: Binding) -> str:
    """The whole text of a generated module."""
    context = {
        "name": spec.name,
        "digest": spec.digest,
        "build_options": binding.options,
        "classic": binding is Binding.PYBIND,
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
    environment = _environment()
    text = (_folder() / template).read_text(encoding="utf-8")
    wanted = jinja2.meta.find_undeclared_variables(environment.parse(text))
    assert wanted <= set(context), f"{template} wants {sorted(wanted - set(context))}"
    return environment.from_string(text).render(context)


def _kernels(device: Device, texts: Texts, shared: dict[str, Any]) -> str:
    """The functions, formulas and launchers of a device."""
    rows = [
        _counts(kernel)
        | {
            "notes": kernel.notes[device],
            "definitions": kernel.definitions[device],
            "element": kernel.elements[device],
            "short": kernel.short if device is Device.CPU else "",
            "halves": kernel.halves.name,
            "settled": kernel.settled,
            "pieced": kernel.pieced,
            "singles": kernel.singles.name,
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
        **{part: shared[part] if device is Device.CUDA else "" for part in ("table", "tested", "pieces")},
        **{part: device is Device.CPU and shared[part] for part in ("settled", "singles")},
    }
    return fill("kernel.j2", shared | own)


def _launches(kernels: tuple[KernelText, ...]) -> dict[str, Any]:
    """How dense tensors are shared out: each table of rows once, and which one a kernel takes."""
    names: dict[tuple[str, tuple[str, ...]], str] = {}
    rows = []
    for kernel in kernels:
        taken = []
        for share in kernel.shares:
            table = tuple(
                f"{chip}, {row.kib or 'ANY'}, {row.threads}, {row.vectors}"
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


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
    )


def _folder() -> Path:
    """The templates: inside the installed package, or beside it in a checkout."""
    inside = Path(str(resources.files("fusegen"))) / "templates"
    return inside if inside.is_dir() else inside.parent.parent / "templates"
