"""The modules of specs, as `build`, `check` and `list` need them: compiled once, then remembered.

A module is remembered by its spec's text and path, by all specs that it may name (those beside it, and
fusegen's), by the launch table beside it, and by the compiler. What is not remembered is compiled, on all
processors where that is worth it.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fusegen.codegen.printed import Binding
from fusegen.core import config, launch
from fusegen.core.manifest import Kernels, kernels_of
from fusegen.core.timing import LOG, timed
from fusegen.errors import FusegenError
from fusegen.language.library import above, origin, place, shipped
from fusegen.project import compile_cache

LARGEST = 2**20  # bytes of a file that may decide a module; specs have fewer
FEW = 4  # modules that one processor compiles sooner than others can be started


@dataclass(frozen=True)
class Built:
    """The module of a spec."""

    text: str  # of its module
    apart: Mapping[
        str, str
    ]  # of a module of each kernel alone, by its name; none of a module of one kernel
    kernels: Kernels  # the digests of its kernels
    remarks: tuple[str, ...]  # what `build` says of it
    warned: bool = False  # whether that is of a promise, too
    # of these, by key of `accept`, those which say that it accepts nothing
    unneeded: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """A module to make."""

    spec: Path  # the file of its spec
    output: Path  # the folder of the modules
    binding: Binding  # its binding

    @property
    def module(self) -> Path:
        """The file of the module."""
        return self.output / f"{place(self.spec)}.py"


Keys = Mapping[Job, str | None]  # what decides each module; none where that cannot be read


def built(specs: Sequence[Path], output: Path, binding: Binding = Binding.STABLE) -> dict[Path, Built]:
    """Return the modules of some specs with a binding, under the path that each belongs to.

    Raises:
        SpecErrors: every mistake in all of the specs.
    """
    jobs = [Job(spec, output, binding) for spec in specs]
    if len({job.module for job in jobs}) < len(jobs):  # which the compiler refuses
        return {job.module: found for job, found in _one_by_one(jobs).items()}
    keys = _keys(jobs)
    known = {job: found for job in jobs if (found := _recalled(keys[job]))}
    due = [job for job in jobs if job not in known]
    LOG.info("%d of %d modules from the cache", len(known), len(jobs))
    made = timed("compile on all processors", _on_all_processors, due) if len(due) > FEW else {}
    left = [job for job in due if job not in made]
    made |= _one_by_one(left) if left else {}
    if made:
        _remember(made, keys)
    return {job.module: (known | made)[job] for job in jobs}


def _recalled(key: str | None) -> Built | None:
    match compile_cache.recall(key) if key else None:
        case {
            "text": str(text),
            "apart": {**apart},
            "kernels": kernels,
            "remarks": [*remarks],
            "warned": bool(warned),
            "unneeded": {**unneeded},
        }:
            with contextlib.suppress(ValueError):
                texts, keys = ({str(k): str(v) for k, v in each.items()} for each in (apart, unneeded))
                return Built(text, texts, kernels_of(kernels), tuple(map(str, remarks)), warned, keys)
    return None


def _remember(made: Mapping[Job, Built], before: Keys) -> None:
    """Keep modules, but for those whose files changed while they were made."""
    after = _keys(list(made))
    for job, found in made.items():
        if (key := after[job]) and key == before[job]:
            compile_cache.remember(key, asdict(found))


def _on_all_processors(jobs: Sequence[Job]) -> dict[Job, Built]:
    """Return the modules of the specs without mistakes; none where processes cannot be had."""
    try:
        count, given = min(len(jobs), len(os.sched_getaffinity(0))), (config.current(),)
        with ProcessPoolExecutor(count, initializer=config.use, initargs=given) as pool:
            return {job: found for job, found in zip(jobs, pool.map(_made, jobs), strict=True) if found}
    except (OSError, ImportError, BrokenProcessPool):
        return {}


def _made(job: Job) -> Built | None:
    """Return the module of a spec; none if it has mistakes."""
    try:
        return next(iter(_one_by_one((job,)).values()))
    except FusegenError:
        return None


def _one_by_one(jobs: Sequence[Job]) -> dict[Job, Built]:
    """Return the modules of some specs, compiled in this process."""
    from fusegen.compiler.pipeline import Compiled
    from fusegen.language.ambiguous_shapes import two_fits
    from fusegen.project import (
        build,  # which takes longer to import than modules that are known to be found
    )
    from fusegen.project.spec_warnings import Warned, shadows, warned

    found = build.built({job.spec: job.binding for job in jobs}, jobs[0].output)
    made = {}
    for job, one in zip(jobs, found.values(), strict=True):
        said = warned(one.compiled) if isinstance(one.compiled, Compiled) else Warned((), {})
        beside = (*dict.fromkeys(shadows(one.compiled)), *two_fits(one.compiled.spec))
        remarks, promises = (*beside, *said.sentences), (bool(said.promises), said.unneeded)
        made[job] = Built(one.text, one.apart, one.kernels, remarks, *promises)
    return made


def _keys(jobs: Sequence[Job]) -> Keys:
    beside = {folder: _beside(folder) for folder in {job.spec.parent for job in jobs}}
    return {job: _key(job, beside[job.spec.parent]) for job in jobs}


def _key(job: Job, beside: str | None) -> str | None:
    """Return the key of a module, by the digest of the files beside its spec that decide it."""
    text = _bytes(job.spec)
    if text is None or beside is None:
        return None
    where = job.spec.as_posix(), origin(job.spec), place(job.spec).as_posix()
    return compile_cache.key("module", *where, job.binding.name, beside, text)


def _beside(folder: Path) -> str | None:
    """The digest of the specs that one of a folder may name, and of the launch tables there and above."""
    specs = (path for named in dict.fromkeys((folder, shipped())) for path in sorted(named.glob("*.yaml")))
    tables = (path for each in above(folder) if os.path.lexists(path := each / launch.OWN))
    files = {path: _bytes(path) for path in (*specs, *tables)}
    if None in files.values():
        return None
    return compile_cache.key(
        *(part for path, text in files.items() for part in (path.as_posix(), text or b""))
    )


def _bytes(path: Path) -> bytes | None:
    """Return the bytes of a file; none where it cannot be read, is no file, or is too large for a spec."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            return None
        return path.read_bytes()
    except OSError:
        return None
