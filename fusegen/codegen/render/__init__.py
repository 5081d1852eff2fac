"""The shell of a module's text; the only file that knows jinja2.

Templates hold the shell of a file and receive finished strings: nothing is decided in them but what is
there and what is not. A name that a template uses and the context lacks is an error.
"""

import functools
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta

from fusegen.codegen.printed import Binding
from fusegen.codegen.render import long_lines
from fusegen.core.targets import Device

__all__ = ["JOINT", "NAMESPACE", "Binding", "fill", "in_parts"]

NAMESPACE = "namespace fusegen { namespace {"
JOINT = '""" + SHARED_SOURCE + r"""\n'  # between the headers of a device and its kernels


def fill(template: str, context: dict[str, Any]) -> str:
    """Return a template filled in; the context has every name that the template uses."""
    compiled, wanted = _template(template)
    assert wanted <= set(context), f"{template} wants {sorted(wanted - set(context))}"
    return compiled.render(context)


def in_parts(
    shared: str,  # the C++ of both devices
    own: Mapping[Device, str],  # that of each
    headers: Callable[[Device], str],  # the lines that include those of a device
    last: Callable[[Device], str],  # the line that defines its kernels
) -> dict[str, str]:
    """Return the C++ of a module in parts, as its template takes them."""
    found = {"shared_source": long_lines.cpp(shared), "joint": JOINT if shared else "", "convolution": ""}
    for device in Device:
        found[f"{device.name}_headers"] = headers(device) + f"{NAMESPACE}\n"
        text = long_lines.cpp(own[device])
        found[f"{device.name}_source"] = f"{text}}}}}  // namespace fusegen\n{last(device)}\n"
    return found


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
    inside = Path(str(resources.files("fusegen"))) / "templates"
    return inside if inside.is_dir() else inside.parent.parent / "templates"
