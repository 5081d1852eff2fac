"""From printed functions to the text of a module; the only file that knows jinja2.

Templates hold the shell of a file and receive finished strings: nothing is decided in them but what is
there and what is not. A name that a template uses and the context lacks is an error.
"""

from __future__ import annotations

import functools
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

import jinja2
import jinja2.meta

from fusegen.codegen.render import cpp_text, includes, module_class, python
from fusegen.codegen.render.texts import (
    Binding,
    CurvesText,
    CurveText,
    FormText,
    KernelText,
    LaunchPlan,
    PartText,
    Texts,
)
from fusegen.core.spec import Spec
from fusegen.core.targets import Device

__all__ = [
    "Binding",
    "CurveText",
    "CurvesText",
    "FormText",
    "KernelText",
    "LaunchPlan",
    "PartText",
    "Texts",
    "fill",
    "module",
    "sources",
]

MODULE = "module.py.j2"
INTERFACE = 3  # of modules and their runtime, which has it too
NAMESPACE = "namespace fusegen { namespace {"
JOINT = '""" + SHARED_SOURCE + r"""\n'  # between the headers of a device and its kernels


def sources(spec: Spec, texts: Texts) -> dict[str, str]:
    """Return the C++ of a module, by device: the headers that it includes, and its kernels."""
    parts = _parts(spec, texts)
    both = parts["shared_source"]
    return {
        device.name: "".join([parts[f"{device.name}_headers"], both, parts[f"{device.name}_source"]])
        for device in Device
    }


def _parts(spec: Spec, texts: Texts) -> dict[str, str]:
    """Return the C++ of a module in parts: what both devices share, and the headers and kernels of each."""
    both = cpp_text.shared(spec, texts)
    shared = fill("functions.j2", both) if both["scalars"] or both["kernels"] else ""
    parts = {"shared_source": shared, "joint": JOINT if shared else ""}
    for device in Device:
        context = cpp_text.kernels(spec, texts, device)
        headers = map(includes.INCLUDE.format, context.pop("headers"))
        parts[f"{device.name}_headers"] = "".join(headers) + f"{NAMESPACE}\n"
        parts[f"{device.name}_source"] = fill("kernels.j2", context)
    return parts | {"convolution": cpp_text.library(spec, texts)}


def module(spec: Spec, texts: Texts, where: tuple[PurePosixPath, str]) -> str:
    """Return the whole text of a generated module.

    Args:
        spec: what it is made of.
        texts: what the printers wrote for it.
        where: the module's place in the folder that has the runtime, and the spec's path in the project.
    """
    place, origin = where
    context = {
        "name": spec.name,
        "origin": origin,
        "dots": "." * len(place.parts),
        "digest": spec.digest,
        "summary": spec.summary,
        "source": spec.source,
        "notation": texts.notation,
        "counts": texts.counts,
        "autocasts": texts.autocast,
        **python.tensors_and_scalars(spec, texts),
        **module_class.model(spec, texts),
        **python.function(spec, texts),
        **python.gradient(spec, texts),
        "registration": python.registration(spec, texts, INTERFACE),
        **_parts(spec, texts),
        "runtime_class": "Activation",
    }
    return fill(MODULE, context)


def fill(template: str, context: dict[str, Any]) -> str:
    """Return a template filled in; the context has every name that the template uses."""
    compiled, wanted = _template(template)
    assert wanted <= set(context), f"{template} wants {sorted(wanted - set(context))}"
    return compiled.render(context)


@functools.cache
def _template(name: str) -> tuple[jinja2.Template, frozenset[str]]:
    """Return a template, and the names that it uses."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    text = (_folder() / name).read_text(encoding="utf-8")
    wanted = jinja2.meta.find_undeclared_variables(environment.parse(text))
    return environment.from_string(text), frozenset(wanted)


def _folder() -> Path:
    """Return the templates: inside the installed package, or beside it in a checkout."""
    inside = Path(str(resources.files("fusegen"))) / "templates"
    return inside if inside.is_dir() else inside.parent.parent / "templates"
