"""The kernels of a module, each by the text of a module of it alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from benchmarks.same_kernels.renames import Renames, same_but_for
from benchmarks.same_kernels.text import python_of
from fusegen.core.spec import Spec
from fusegen.evidence.certify import module_kernels
from fusegen.evidence.certify.digest import deciding
from fusegen.language.library import load

SPECS = Path("specs")


@cache
def spec_of(name: str) -> Spec | None:
    """Return the spec of a module; none of one that a spec of this folder did not make."""
    path = SPECS / f"{name}.yaml"
    return load(path) if path.is_file() else None


def parts(name: str, text: str) -> dict[str, str]:
    """Return the texts of a module's kernels, each as one of a module of it alone, by their titles."""
    spec = spec_of(name)
    if spec is None or spec.front is None:
        return {module_kernels.LAST: text}
    return {title: module_kernels.text_of(text, spec, title) for title in module_kernels.titles(spec)}


def same_text(
    texts: tuple[str, str],
    runtimes: tuple[Mapping[str, str], Mapping[str, str]],
    device: str,
    renames: Renames,
) -> bool:
    """Return True if two texts of a kernel have the same Python and flags, and C++ but for its names."""
    both = zip(texts, runtimes, strict=True)
    old, now = (deciding(text, device, runtime) for text, runtime in both)
    is_same = python_of(texts[0]) == python_of(texts[1]) and old[1] == now[1]
    return is_same and same_but_for(renames, old[2], now[2], device)
