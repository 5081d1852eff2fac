"""The specs of regions and their modules, in their folders.

Equal regions share a spec. A spec that is there already is kept if it is of the same region, whatever the
sizes of its inputs.
"""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fusegen.codegen.render import Binding
from fusegen.core import write
from fusegen.models.lift.regions.region_spec import RegionSpec
from fusegen.models.lift.spec_text import specs
from fusegen.project import modules, outputs

VARYING = re.compile(
    r"shape: \[[^\]]*\]|(?<=: )[-+.e0-9]+(?=[,}])|ones\([0-9]+\)|BatchNorm2d\([0-9]+\)"
    r"|^(?:summary|source|name|# yaml).*$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Named:
    """Regions with their specs."""

    names: Mapping[str, str]  # of the specs, by the keys of regions
    texts: Mapping[Path, str]  # of the specs, by their files


def named(regions: Iterable[RegionSpec], folder: Path, source: str, taken: Container[str] = ()) -> Named:
    """Return names for regions that no other spec of the folder has, and that are not taken."""
    names: dict[str, str] = {}
    texts: dict[Path, str] = {}
    for region in regions:
        if region.key in names:
            continue
        for name in region.titles:
            path = folder / f"{name}.yaml"
            text = region.text(name, source)
            before = texts.get(path) or (_read(path) if path.exists() else None)
            is_free = name not in specs() and name not in taken and not region.has_name(name)
            if is_free and (before is None or VARYING.sub("", before) == VARYING.sub("", text)):
                names[region.key], texts[path] = name, before or text
                break
    return Named(names, texts)


def alike(regions: Sequence[RegionSpec]) -> tuple[RegionSpec, ...]:
    """Return regions with their specs: equal ones have that of the first, by whose names it is called."""
    first: dict[str, RegionSpec] = {}
    made = []
    for one in regions:
        of = first.setdefault(one.key, one)
        params = dict(zip(one.params, of.params.values(), strict=True))
        made.append(replace(of, region=one.region, params=params))
    return tuple(made)


def written(of: Named) -> tuple[write.Change, ...]:
    """Return the changes of spec files that are new."""
    return write.changes(dict(of.texts))


def build(paths: Sequence[Path], output: Path, folder: Path) -> tuple[str, ...]:
    """Write the modules of specs, their runtime and the manifest.

    Returns:
        What `build` remarks on them.

    Raises:
        FusegenError, SpecErrors: a spec or a file of the folder is refused.
    """
    opened = outputs.opened(output, folder)
    found: dict[Path, modules.Built] = {}
    for start in range(
        0, len(paths), modules.FEW
    ):  # in this process: the caller's may not be imported again
        found |= modules.built(paths[start : start + modules.FEW], output, Binding(opened.binding))
    texts = {path: one.text for path, one in found.items()}
    opened.require_own(texts)
    for change in (*write.changes(texts), *opened.runtime(texts)):
        write.apply(change)
    kernels = {path: one.kernels for path, one in found.items()}
    for change in outputs.opened(output, folder).manifest(texts, paths, kernels):
        write.apply(change)
    return tuple(remark for one in found.values() for remark in one.remarks)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
