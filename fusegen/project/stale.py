"""Compiled kernels that `clean` removes: those that no module of a folder loads any more.

The folder of builds is shared by the projects of a user: libraries of modules that are not here are left.
"""

import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fusegen.codegen import runtime_text
from fusegen.core.write import text_of
from fusegen.errors import NotOwn, OtherRuntime, Span
from fusegen.project import library_folder, loader
from fusegen.project.outputs import Outputs

DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Loaded:
    """The libraries that modules load, as digests by ``NAMESPACE_KERNEL_DEVICE``; several may share one."""

    # those that are built on first use, on this machine
    built: Mapping[str, Collection[str]] = field(default_factory=dict)
    # those that are compiled ahead of time, for whatever targets
    ahead: Mapping[str, Collection[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """The contents of a folder of libraries."""

    # the files of each library to remove, or a temporary folder
    outdated: tuple[tuple[Path, ...], ...] = ()
    others: int = 0  # the number of libraries of modules that are not here, and of interval filters


def loaded(folder: Outputs) -> Loaded:
    """The libraries that the modules of a folder load; a module that was changed by hand is left out.

    Raises:
        OtherRuntime: the runtime beside the modules is another one, whose libraries have other names.
        ModuleNotFoundError: there is no torch.
    """
    unchanged = [
        folder.path(name) for name, digest in folder.present.items() if digest == folder.owned[name].sha256
    ]
    if unchanged and folder.runtime({}):
        raise OtherRuntime(Span(folder.folder.as_posix()))
    built: dict[str, set[str]] = defaultdict(set)
    ahead: dict[str, set[str]] = defaultdict(set)
    for path in unchanged:
        for library in _libraries(path):
            of, targets = "_".join((library.namespace, *library.of)), library.file("targets")
            ahead[of].add(library.file("recipe").content_of(_recipe(library, "")))
            if targets.here(library.of[1]):  # else the builds are another machine's
                built[of].update(_content(library, part) for part in library.parts)
    return Loaded(built, ahead)


@dataclass(frozen=True)
class _Library:
    """A library of a module, or of kernels that modules share."""

    runtime: str  # the package of the runtime
    namespace: str  # of the operators
    texts: Any  # with their headers
    of: tuple[str, str]  # the kernel and the device
    parts: tuple[str, ...] = ("",)  # that are libraries of their own

    def file(self, name: str) -> Any:
        """Return a file of the runtime, as a module."""
        return sys.modules[f"{self.runtime}.{name}"]


def _libraries(path: Path) -> Iterator[_Library]:
    """Yield the libraries that a module loads."""
    kernels = loader.imported(path).KERNELS
    runtime, sources = type(kernels).__module__.rpartition(".")[0], kernels.sources
    several = [(kernel, device) for kernel, *_ in kernels.signature.kernels for device in DEVICES]
    several += [(sources.joined, "cuda")] * bool(sources.joined)
    is_direct = sys.modules[f"{runtime}.tools"].is_direct
    apart = tuple(sys.modules[f"{runtime}.by_dtype"].parts(kernels.dtypes, None))
    for of in several:
        parts = apart if is_direct(of[1]) else ("",)
        yield _Library(runtime, kernels.signature.namespace, kernels.texts(), of, parts)
    for name in runtime_text.shared_by(text_of(path)):
        shared = sys.modules[f"{runtime}.{name}"]
        texts = shared.texts_of_kernels()
        yield from (_Library(runtime, shared.SPACE, texts, (kernel, "cuda")) for kernel in shared.KERNELS)


def _recipe(library: _Library, part: str) -> Any:
    """Return the sources and the flags of a library, or of a part of one."""
    recipe, (kernel, device) = library.file("recipe"), library.of
    if part:
        return recipe.recipe_of_part(library.texts, kernel, part)
    return recipe.recipe_of(library.texts, kernel, device)


def _content(library: _Library, part: str) -> str:
    """Return the digest of a library that is built on first use."""
    recipe, (_, device) = library.file("recipe"), library.of
    targets = library.file("targets").wanted(device)
    wanted = recipe.for_targets(_recipe(library, part), device, targets)
    return Path(recipe.file_name(library.namespace, library.of, wanted)).stem.rpartition("_")[2]


def require_own(folder: Path) -> None:
    """Refuse a folder that is another user's, that others can write, or that is a link.

    Raises:
        NotOwn: it is.
    """
    if not library_folder.is_own(folder):
        raise NotOwn(Span(folder.as_posix()))


def of_builds(folder: Path, loads: Mapping[str, Collection[str]]) -> Found:
    """Return the outdated libraries of the folder of builds on first use; for `loads` see `Loaded`."""
    outdated: list[tuple[Path, ...]] = [(path,) for path in library_folder.abandoned(folder)]
    others = 0
    for stem, files in library_folder.libraries(folder).items():
        kernel = library_folder.KERNEL.fullmatch(stem)
        known = loads.get(kernel["of"]) if kernel else None
        if kernel and known and kernel["content"] not in known and not library_folder.in_use(files):
            outdated.append(files)
        others += known is None and bool(kernel or library_folder.FILTER.fullmatch(stem))
    return Found(tuple(outdated), others)


def every_build(folder: Path) -> Found:
    """Return all libraries of the folder of builds, those that are being built left out."""
    return Found(tuple(_every(folder)))


def _every(folder: Path) -> Iterator[tuple[Path, ...]]:
    yield from ((path,) for path in library_folder.abandoned(folder))
    for stem, files in library_folder.libraries(folder).items():
        own = any(kind.fullmatch(stem) for kind in library_folder.KINDS)
        if own and not library_folder.in_use(files):
            yield files


def of_libraries(folder: Path, loads: Mapping[str, Collection[str]]) -> Found:
    """Return the libraries that `compile` would replace, of other sources than modules have."""
    outdated = []
    for stem, files in library_folder.files(folder).items():
        kernel = library_folder.AHEAD.fullmatch(stem)
        if kernel and kernel["content"] not in loads.get(kernel["of"], {kernel["content"]}):
            outdated.append(files)
    return Found(tuple(outdated))
