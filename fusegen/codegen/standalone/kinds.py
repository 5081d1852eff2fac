"""The kinds of standalone files: which modules they are of, and what their templates name."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from fusegen.codegen.standalone import (
    channel_file,
    part_file,
    row_file,
    scan_file,
    several_file,
    text,
    window_file,
)
from fusegen.core.dtypes import ELEMENTS

Context = Callable[[str, list[str]], dict[str, Any]]
KINDS: tuple[tuple[Callable[[str], bool], Context], ...] = (
    (text.is_light, text.context),
    (row_file.is_light, row_file.context),
    (scan_file.is_light, scan_file.context),
    (window_file.is_light, window_file.context),
    (channel_file.is_light, channel_file.context),
    (part_file.is_light, part_file.context),
)


def context_of(modules: Mapping[str, str], dtypes: Collection[str]) -> dict[str, Any] | None:
    """Return what the templates of a file name; None where the file has the runtime inside.

    Args:
        modules: the text of a module of each kernel alone, by the kernel's name.
        dtypes: that the file takes.
    """
    made, ordered = {}, [d for d in ELEMENTS if d in dtypes]
    for name, one in modules.items():
        context = next((context for is_light, context in KINDS if is_light(one)), None)
        if context is None:
            return None
        made[name] = context(one, ordered)
    return several_file.context(made) if len(made) > 1 else next(iter(made.values()))
