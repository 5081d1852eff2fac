"""The digests of a module's kernels, by which `check --stat` tells what a change of a module touches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusegen.codegen.render import cpp_text
from fusegen.codegen.render.texts import Texts
from fusegen.core.digest import digest
from fusegen.core.spec import Spec
from fusegen.core.targets import Device

DIGITS = 16  # of a digest in hexadecimal


def digests(spec: Spec, texts: Texts) -> dict[str, tuple[str, str]]:
    """The digests of the C++ of the forward pass and of the gradient, by device; comments do not count.

    What belongs to no single pass (headers, launch tables, curves, bitmasks) counts for both.
    """
    contexts = {device.name: cpp_text.kernels(spec, texts, device) for device in Device}
    of_both = cpp_text.shared(spec, texts)
    scalars = [of_both[key] for key in ("scalars", "given", "uniforms")]
    library = {"cuda": cpp_text.library(spec, texts)}
    forward, backward = texts.forward, texts.backward
    return {
        device: (
            _digest(scalars, forward.shared, _parts(context, backward.functor), library.get(device, "")),
            _digest(scalars, backward.shared, _parts(context, forward.functor)),
        )
        for device, context in contexts.items()
    }


def _parts(context: Mapping[str, Any], other: str) -> list[Any]:
    """Return the C++ of a device without that of the other pass, whose type is given."""
    kernels = [each for each in context["kernels"] if each["functor"] != other]
    own = [(each["definitions"], each["struct"]) for each in kernels]
    return [context["headers"], context["tables"], context["launchers"], own]


def _digest(*parts: Any) -> str:
    return digest(repr(parts), DIGITS)
