"""The command that compiles libraries ahead of time."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from fusegen.cli.options import DEVICES, FOLDER, SEVERAL_SPECS, WHERE, specs_folder

if TYPE_CHECKING:
    from fusegen.tools.compile_ahead.wheel import Distribution

DIST = Path("dist")  # the folder of wheels
VECTORS = ("DEFAULT", "AVX2", "AVX512")


@click.command("compile")
@SEVERAL_SPECS
@click.option(
    "--device",
    type=click.Choice(DEVICES),
    help="The device; by default the CPU, and CUDA if nvcc is found and an architecture is known.",
)
@click.option(
    "--arch",
    metavar="LIST",
    help="The GPU architectures of a library, such as 8.0,9.0+PTX; by default those of the GPUs present "
    "and of TORCH_CUDA_ARCH_LIST.",
)
@click.option(
    "--isa",
    type=click.Choice(VECTORS),
    multiple=True,
    help="The CPU's vector instructions, a library for each; by default those of this CPU.",
)
@click.option(
    "--into",
    type=FOLDER,
    metavar="DIR",
    help="The folder of the libraries; by default _libraries beside the modules.",
)
@click.option(
    "--wheel",
    metavar="NAME==VERSION",
    help="Write a wheel of the modules with their libraries to dist/, too; on x86-64 it has those for all "
    "vector instructions, unless --isa names some.",
)
@WHERE
def compile_(
    specs: tuple[str, ...], into: Path | None, output: Path, wheel: str | None, **wanted: Any
) -> None:
    """Compile the kernels of modules ahead of time; this needs no GPU.

    SPECs are those of specs/ if none is named; their modules have to be built. A library holds the kernel
    of one pass for one device. Modules load it on first use from _libraries beside their runtime, or from
    the folders of the environment variable FUSEGEN_LIBRARIES. If none fits, they build the kernel.

    With --wheel, pip installs a package of the modules that needs no compiler.
    """
    from fusegen.core import manifest
    from fusegen.errors import NotStable, Span
    from fusegen.language import library
    from fusegen.project import build, library_folder, loader
    from fusegen.tools import compile_ahead
    from fusegen.tools.compile_ahead.wheel import Distribution

    device, arch, isa = (wanted[key] for key in ("device", "arch", "isa"))
    _require_agreement(device, arch, isa)
    named = Distribution.of(wheel) if wheel is not None else None
    if named and not isa and platform.machine() == "x86_64":
        isa = VECTORS
    paths = library.find_all(specs, specs_folder())
    if manifest.read(output).binding != "stable":
        raise NotStable(Span(output.as_posix()), folder=output.as_posix())
    every = [build.compiled_either(path) for path in paths]
    modules = [loader.built(each, output) for each in every]
    folder = into or output / library_folder.LIBRARIES
    targets = tuple(compile_ahead.targets_of(device, arch, tuple(dict.fromkeys(isa))))
    made = tuple(compile_ahead.every(modules, targets, folder))
    kept = {each.path for each in compile_ahead.every(_namesakes(paths, output), targets, folder)}
    _show(compile_ahead.compile_all(made, kept))
    if named:
        texts = {PurePosixPath(each.place): each.module(output) for each in every}
        _pack(named, texts, [each.path for each in made if each.kernel != compile_ahead.OF_PROGRAMS])


def _show(outcomes: Iterable[tuple[str, Path]]) -> None:
    """Print what became of libraries."""
    from fusegen.cli.building import painted

    same = 0
    for kind, path in outcomes:
        if kind == "unchanged":
            same += 1
        else:
            click.echo(f"{painted(kind)} {path}")
    if same:
        click.echo(f"unchanged: {same} librar{'y' if same == 1 else 'ies'}")


def _pack(of: Distribution, modules: Mapping[PurePosixPath, Path], libraries: Iterable[Path]) -> None:
    """Write a wheel of modules, by their paths in its package, and of libraries."""
    from fusegen.cli.building import painted
    from fusegen.core.write import replaced, text_of
    from fusegen.tools.compile_ahead import wheel

    path = DIST / wheel.file_name(of)
    kind = "changed" if path.exists() else "new"
    texts = {place: text_of(module) for place, module in modules.items()}
    replaced(path, wheel.content(of, texts, libraries))
    click.echo(f"{painted(kind)} {path}")


def _namesakes(paths: Collection[Path], output: Path) -> Iterator[ModuleType]:
    """The other modules of the names of some specs, whose libraries may differ in the content only."""
    from fusegen.errors import FusegenError, SpecErrors
    from fusegen.language import library
    from fusegen.project import build, loader

    names, known = {path.stem for path in paths}, {path.resolve() for path in paths}
    for path in library.every(specs_folder()):
        if path.stem in names and path.resolve() not in known:
            with suppress(FusegenError, SpecErrors):  # it is not built as its spec says
                yield loader.built(build.compiled_either(path), output)


def _require_agreement(device: str | None, arch: str | None, isa: tuple[str, ...]) -> None:
    if device == "cpu" and arch is not None:
        raise click.UsageError("--device cpu takes no --arch")
    if device == "cuda" and isa:
        raise click.UsageError("--device cuda takes no --isa")
