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

from fusegen.mask import LARGE
from fusegen.render import cpp, python
from fusegen.render.texts import Binding, Halves, KernelText, MaskText, Share, Singles, Texts
from fusegen.runtime.headers import inlined
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
FITTED = {Singles.CUBICS, Singles.DECLARED}  # what double fits
INCLUDE = Path(__file__).parents[1] / "runtime" / "include"


def sources(spec: Spec, texts: Texts, binding: Binding) -> dict[str, str]:
    """The C++ texts of a module, by the part of it they are, as they are compiled."""
    own = short(spec, texts)
    return {
        "cuda": inlined(own["cuda"], INCLUDE),
        "cpu": inlined(own["cpu"], INCLUDE),
        "binding": inlined(_binding(spec, texts, binding), INCLUDE),
    }


def short(spec: Spec, texts: Texts) -> dict[str, str]:
    """The C++ of the module's own: what it includes, and its kernels."""
    return {
        "cuda": fill("kernels.j2", cpp.cuda(spec, texts)),
        "cpu": fill("kernels.j2", cpp.cpu(spec, texts)),
    }


def _binding(spec: Spec, texts: Texts, binding: Binding) -> str:
    """The headers that bind kernels to PyTorch, and the lines that register them."""
    expected = f"expected {python.either(spec.dtypes)} tensors, all of one dtype"
    header = (
        ("stable_abi_bitmask.h" if texts.mask else "stable_abi.h")
        if binding is Binding.STABLE
        else "pybind.h"
    )
    lines = [
        f'#define FUSEGEN_NAME "{spec.name}"',
        f'#define FUSEGEN_EXPECTED "{expected}"',
        f"#define FUSEGEN_DTYPES {cpp.dtypes(spec, 'fusegen::')}",
        f'#include "{header}"',
        "",
    ]
    for kernel in (texts.forward, texts.backward):
        counts = f"{len(kernel.inputs)}, {len(kernel.outputs)}, {len(spec.params)}"
        functor = kernel.functor
        lines += [f"#ifndef WITHOUT_{functor.upper()}"]
        if binding is Binding.STABLE:
            lines += [f'FUSEGEN_REGISTER("NAMESPACE", "KEY", {kernel.name}, {counts})']
        else:
            lines += [f"FUSEGEN_FUNCTIONS({kernel.name}, {functor.lower()}, {counts})"]
        if texts.mask:
            of = f'("NAMESPACE", "KEY", {spec.name}, {len(spec.params)})'
            lines += [f"FUSEGEN_REGISTER_BITMASK_{functor.upper()}{of}"]
        lines += ["#endif"]
    return "\n".join(lines) + "\n"


def module(spec: Spec, texts: Texts, binding: Binding) -> str:
    """The whole text of a generated module."""
    context = {
        "name": spec.name,
        "digest": spec.digest,
        "build_options": binding.options,
        "classic": binding is Binding.PYBIND,
        "large": LARGE,
        "build_source": _part("build.py.j2", {"name": spec.name, "classic": binding is Binding.PYBIND}),
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
        "masked": texts.mask is not None,
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


def _folder() -> Path:
    """The templates: inside the installed package, or beside it in a checkout."""
    inside = Path(str(resources.files("fusegen"))) / "templates"
    return inside if inside.is_dir() else inside.parent.parent / "templates"
