"""The headers that the C++ of a module names."""

from collections.abc import Iterable, Iterator

from fusegen.codegen.runtime_text import header
from fusegen.core.header_files import inlined, without_comments
from fusegen.core.targets import Device

COMMON = ("double_word", "argument")  # families of functions that have no header for each device
INCLUDE = '#include "{}"\n'


def headers(
    device: Device,  # of the kernels
    members: str,  # the text of their types, which names their methods
    further: Iterable[str],  # headers besides those of methods and functions
    families: Iterable[str],  # of functions, which have a header for each device, or one for all
) -> list[str]:
    """Return the headers of a module's methods and functions on a device."""
    found = (file for name, file in device.headers.items() if name in members)
    return needed(dict.fromkeys([*found, *further, *of_families(device, families)]))


def of_families(device: Device, families: Iterable[str]) -> Iterator[str]:
    """Yield the headers of families of functions on a device."""
    for name in families:
        yield f"{name}.h" if name in COMMON else f"{device.family}/{name}{device.suffix}"


def lines(headers: Iterable[str]) -> str:
    """Return the lines that include some headers, each once, but for those that others include."""
    return "".join(map(INCLUDE.format, needed(dict.fromkeys(headers))))


def needed(headers: Iterable[str]) -> list[str]:
    """Return the headers without those that others include in the same place."""
    kept = list(headers)
    for name in reversed(tuple(kept)):
        others = [other for other in kept if other != name]
        if _included(others) == _included(kept):
            kept = others
    return kept


def _included(headers: Iterable[str]) -> str:
    return without_comments(inlined("".join(map(INCLUDE.format, headers)), header))
