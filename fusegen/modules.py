"""The modules of specs, as `build`, `check` and `list` need them: compiled once, then remembered.

A module is remembered by its spec's text and path, by the specs that it names, by the launch table beside
it, and by the compiler. What is not remembered is compiled, on all processors where that is worth it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fusegen import cache, launch
from fusegen.errors import FusegenError
from fusegen.library import shipped
from fusegen.render.texts import Binding
from fusegen.write import head

FEW = 4  # modules that one processor compiles sooner than others can be started


@dataclass(frozen=True)
class Built:
    """What is made of a spec.

    Attributes:
        text: of its module.
        remarks: what `build` says of it.
    """

    text: str
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """A module to make.

    Attributes:
        spec: the file of its spec.
        output: the folder of the modules.
        binding: its binding.
        around: the digest of what decides it beside its spec.
    """

    spec: Path
    output: Path
    binding: Binding
    around: str

    @property
    def module(self) -> Path:
        """The file of the module."""
        return self.output / f"{self.spec.stem}.py"

    @cached_property
    def key(self) -> str | None:
        """What decides the module; none where a file cannot be read."""
        try:
            text = self.spec.read_bytes() if self.spec.is_file() else None
        except OSError:
            return None
        said = ("module", self.spec.as_posix(), self.binding.name, self.around)
        return None if text is None else cache.key(*said, text)

    def recalled(self) -> Built | None:
        """The module, if it is known."""
        match cache.recall(self.key) if self.key else None:
            case {"text": str(text), "remarks": [*remarks]} if all(isinstance(one, str) for one in remarks):
                return Built(text, tuple(remarks))
        return None


def built(specs: Sequence[Path], output: Path, binding: Binding | None = None) -> dict[Path, Built]:
    """What is made of some specs, under the path that each module belongs to.

    Args:
        specs: their files.
        output: the folder of the modules.
        binding: that of all modules, or None to leave each module the one that it has.

    Raises:
        SpecErrors: every mistake in all of the specs.
    """
    around = {folder: _around(folder) for folder in {spec.parent for spec in specs}}
    own = [binding or _binding_of(output / f"{spec.stem}.py") for spec in specs]
    jobs = [Job(spec, output, each, around[spec.parent]) for spec, each in zip(specs, own, strict=True)]
    known = {job: found for job in jobs if (found := job.recalled())}
    due = [job for job in jobs if job not in known]
    if len({job.module for job in jobs}) < len(jobs):
        due = jobs  # two specs of one name are a mistake, which the compiler tells
    made = _on_all_processors(due) if len(due) > FEW else {}
    left = [job for job in due if job not in made]
    made |= _one_by_one(left) if left else {}
    for job, found in made.items():
        if job.key:
            cache.remember(job.key, {"text": found.text, "remarks": found.remarks})
    return {job.module: (known | made)[job] for job in jobs}


def _on_all_processors(jobs: Sequence[Job]) -> dict[Job, Built]:
    """What is made of some specs that have no mistakes."""
    with ProcessPoolExecutor(min(len(jobs), os.cpu_count() or 1)) as pool:
        return {job: found for job, found in zip(jobs, pool.map(_made, jobs), strict=True) if found}


def _made(job: Job) -> Built | None:
    """What is made of a spec; none if it has mistakes."""
    try:
        return next(iter(_one_by_one((job,)).values()))
    except FusegenError:
        return None


def _one_by_one(jobs: Sequence[Job]) -> dict[Job, Built]:
    """What is made of some specs of one folder.

    Raises:
        SpecErrors: every mistake in them.
    """
    from fusegen import pipeline  # which takes longer to import than modules that are known to be found
    from fusegen.doubts import doubt, shadows

    found = pipeline.compilations({job.spec: job.binding for job in jobs}, jobs[0].output)
    remarks = [[*dict.fromkeys(shadows(one)), *filter(None, [doubt(one)])] for one in found.values()]
    return {
        job: Built(one.module, tuple(said))
        for job, one, said in zip(jobs, found.values(), remarks, strict=True)
    }


def _around(folder: Path) -> str:
    """The digest of what decides a module beside its spec: the specs that it may name, the launch table."""
    specs = (path for place in dict.fromkeys((folder, shipped())) for path in sorted(place.glob("*.yaml")))
    files = [path for path in (*specs, folder / launch.OWN) if path.is_file()]
    try:
        return cache.key(*(part for path in files for part in (path.as_posix(), path.read_bytes())))
    except OSError as error:
        return f"unknown: {error}"


def _binding_of(module: Path) -> Binding:
    """The binding that a module says it was built with; the usual one where there is none."""
    said = head(module)
    return next((each for each in Binding if f"build{each.options} specs/" in said), Binding.STABLE)
