"""The modules of spec files: each is compiled with the specs beside it and emitted."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fusegen.codegen import (
    channel_cpp,
    channel_text,
    module_text,
    row_cpp,
    row_text,
    runtime_text,
    window_cpp,
    window_text,
)
from fusegen.codegen.emit import kernel_text
from fusegen.codegen.emit.digests import joined
from fusegen.codegen.printed import Binding, LaunchPlan
from fusegen.codegen.render import python, whole
from fusegen.compiler.channel_kernels import CompiledChannels, compiled_channels
from fusegen.compiler.pipeline import Compiled, compiled
from fusegen.compiler.row_kernels import CompiledRows, compiled_rows
from fusegen.compiler.window_kernels import CompiledWindows, compiled_windows
from fusegen.core.header_files import inlined
from fusegen.core.kernel_order import title
from fusegen.core.launch import OWN, Table, beside
from fusegen.core.manifest import Kernels
from fusegen.core.method import Both
from fusegen.core.poolings import window_of
from fusegen.core.spec import Spec
from fusegen.core.timing import timed
from fusegen.errors import FusegenError, NotOneKernel, SpecErrors, TooMany, TwoOfOneName
from fusegen.language.library import Library, above, find_all, load

AnyCompiled = Compiled | CompiledRows | CompiledWindows
FRAMES = 4  # of Python's stack that a nested operation takes


@dataclass(frozen=True)
class Module:
    """A module.

    Attributes:
        compiled: its spec after all stages; with rows it has others.
        text: of the module.
        apart: of a module of each kernel alone, by its name; none of a module of one kernel.
        kernels: the digests of its kernels.
    """

    compiled: AnyCompiled
    text: str
    apart: Mapping[str, str]
    kernels: Kernels


def compiled_file(path: Path) -> Compiled:
    """Return the spec in a file after all stages; the specs that it names are looked up beside it.

    Raises:
        SpecErrors: every mistake in it.
    """
    spec = timed(f"{path.stem}: parse", load, path)
    if spec.front:
        raise NotOneKernel(spec.span, name=spec.name)
    return compiled(spec, Library(path.parent))


def alone(named: tuple[str, ...], folder: Path) -> tuple[AnyCompiled, ...]:
    """Return the specs that a user means after all stages; by no names, every spec of one kernel.

    Raises:
        SpecErrors: every mistake in them.
        NotOneKernel: one that is named has kernels in front of its own.
    """
    specs = [(path, load(path)) for path in find_all(named, folder)]
    for _, spec in specs:
        if named and spec.front:
            raise NotOneKernel(spec.span, name=spec.name)
    return tuple(compiled_either(path) for path, spec in specs if not spec.front)


def kernels(of: AnyCompiled) -> tuple[AnyCompiled, ...]:
    """Return the kernels of a module, in the order in which they run, after all stages."""
    return (*(_compiled(spec, of.library) for spec in of.spec.kernels[:-1]), of)


def compiled_either(path: Path) -> AnyCompiled:
    """Return the spec in a file after all stages: those of elements, of rows or of windows.

    Raises:
        SpecErrors: every mistake in it.
    """
    return _compiled(timed(f"{path.stem}: parse", load, path), Library(path.parent))


def _compiled(spec: Spec, library: Library) -> AnyCompiled:
    if window_of(spec) is not None:
        return compiled_windows(spec, library)
    if spec.over is None:
        return compiled(spec, library)
    return compiled_channels(spec, library) if spec.over.of_channel else compiled_rows(spec, library)


def launches(of: Compiled) -> Table:
    """The launch table for the specs of a library's folder: of it, or of the nearest above that has one."""
    folders = above(of.library.folders[0])
    return beside(next((folder for folder in folders if (folder / OWN).is_file()), folders[0]))


def module(of: AnyCompiled, binding: Binding = Binding.STABLE) -> str:
    """Return the text of a spec's module."""
    return rendered(of, binding).text


def rendered(of: AnyCompiled, binding: Binding = Binding.STABLE) -> Module:
    """Return a spec's module."""
    every = [_content(each, binding) for each in kernels(of)]
    *ahead, (own, _) = every
    names = [title(spec, of.spec) for spec in of.spec.kernels[:-1]]
    fronts = {name: context for name, (context, _) in zip(names, ahead, strict=True)}
    apart = whole.apart(own, fronts) if fronts else {}
    return Module(of, whole.module(own, fronts), apart, joined([digests for _, digests in every]))


def _content(of: AnyCompiled, binding: Binding) -> tuple[python.Context, Kernels]:
    """Return what the templates of modules take of a kernel, and the digests of its passes."""
    name = f"{of.spec.name}: emit"
    if isinstance(of, CompiledChannels):
        return timed(name, channel_text.rendered, of, binding)
    if isinstance(of, CompiledRows):
        return timed(name, row_text.rendered, of, binding)
    if isinstance(of, CompiledWindows):
        return timed(name, window_text.rendered, of, binding)
    return timed(name, module_text.rendered, of, binding, launches(of))


def sources(of: AnyCompiled) -> dict[str, str]:
    """Return the C++ of a spec's module, by device."""
    match of:
        case CompiledChannels():
            return row_text.sources(channel_cpp.parts(of))
        case CompiledRows():
            return row_text.sources(row_cpp.parts(of))
        case CompiledWindows():
            return row_text.sources(window_cpp.parts(of))
    return module_text.cpp(of, launches(of))


def text_of(of: Compiled, device: str) -> str:
    """Return the C++ of a spec's module for ``cpu`` or ``cuda``, with every header in its place."""
    return inlined(sources(of)[device], runtime_text.header)


def launch_plans(of: Compiled) -> Both[tuple[LaunchPlan, ...]]:
    """Return the launch plans of the kernels of both passes."""
    return Both.of(lambda which: kernel_text.launch_plans(of, which, launches(of)))


def built(bindings: Mapping[Path, Binding], output: Path) -> dict[Path, Module]:
    """Return the module of every spec with its binding, by path in the folder; nothing is written.

    Raises:
        SpecErrors: every mistake in all of the specs.
    """
    found: dict[Path, Module] = {}
    errors: list[FusegenError] = []
    for path, binding in bindings.items():
        try:
            new = _built(path, binding)
            spec = new.compiled.spec
            module = new.compiled.module(output)
            if module in found:
                first = found[module].compiled.spec.span.file
                raise TwoOfOneName(spec.span, name=spec.name, first=first, module=module.as_posix())
            found[module] = new
        except SpecErrors as several:
            errors += several.errors
        except FusegenError as error:
            errors.append(error)
    if errors:
        raise SpecErrors(errors)
    return found


def _built(path: Path, binding: Binding) -> Module:
    try:
        return rendered(compiled_either(path), binding)
    except RecursionError:
        limit = sys.getrecursionlimit() // FRAMES
        remedy = "split it into several specs"
        raise TooMany(
            load(path).span, what="the spec", limit=limit, parts="nested operations", remedy=remedy
        ) from None
