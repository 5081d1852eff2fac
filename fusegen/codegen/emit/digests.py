"""The digests of a module's kernels, by which `check --stat` tells what a change of a module touches."""

from collections.abc import Sequence
from typing import Any

from fusegen.codegen.printed import FUNCTORS, Cpp, Sources
from fusegen.core.digest import digest
from fusegen.core.manifest import Kernels

DIGITS = 16  # of a digest in hexadecimal


def digests(of: Sources) -> dict[str, tuple[str, str]]:
    """The digests of the C++ of the forward pass and of the gradient, by device; comments do not count.

    What belongs to no single pass (headers, launch tables, curves, bitmasks) counts for both.
    """
    scalars = [of.scalars, of.given, of.uniforms]
    shared = {each.functor: each.definitions for each in of.shared}
    forward, backward = FUNCTORS.values()
    return {
        device.name: (
            _digest(scalars, shared.get(forward, ()), _parts(found, backward), found.library),
            _digest(scalars, shared.get(backward, ()), _parts(found, forward)),
        )
        for device, found in of.devices.items()
    }


def joined(several: Sequence[Kernels]) -> Kernels:
    """Return the digests of kernels that run one after the other."""
    first, *others = several
    if not others:
        return first
    return {
        device: (
            _digest(*(each[device][0] for each in several)),
            _digest(*(each[device][1] for each in several)),
        )
        for device in first
    }


def _parts(of: Cpp, other: str) -> list[Any]:
    """Return the C++ of a device without that of the other pass, whose type is given."""
    own = [(each.definitions, each.struct) for each in of.kernels if each.functor != other]
    return [of.headers, of.tables, of.launchers, own]


def _digest(*parts: Any) -> str:
    return digest(repr(parts), DIGITS)
