"""Libraries of modules, compiled ahead of time on a machine that need not have a GPU.

A library has the kernel of one pass for one device. Its sources and flags are those of a build on first
use, but for the targets, so that its results are the same bits. `runtime/prebuilt.py` finds it.
"""

from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from os import cpu_count
from pathlib import Path
from sys import modules as imported
from types import ModuleType
from typing import Any

from fusegen.codegen.runtime_text import shared_by
from fusegen.core.access import require_writable
from fusegen.core.write import text_of
from fusegen.errors import NoArchitecture, NoNvcc, NotAnArchitecture, Span
from fusegen.evidence.certify.host import compiler
from fusegen.project import toolkit
from fusegen.runtime import prebuilt, recipe, targets
from fusegen.tools.compile_ahead.shared_library import Library, compiled, keep, remove

OF_PROGRAMS = "schemas"  # of operators, for programs without Python
OWN = "KERNELS"  # what a module calls its kernels; those in front of it have a name before that
SCHEMAS = """\
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
static const bool defined = [] {{
  TorchLibraryHandle library;
  aoti_torch_library_init_def("{namespace}", __FILE__, __LINE__, &library);
{definitions}
  return true;
}}();
"""


def architectures(
    listed: str | None,  # compute capabilities, as in ``8.0,9.0+PTX``
) -> tuple[str, ...]:
    """The GPU architectures to compile for: those listed, of TORCH_CUDA_ARCH_LIST, or of the GPUs here.

    Raises:
        NotAnArchitecture: one of them is none.
        NoArchitecture: there is none.
    """
    names = [name for name in targets.SEPARATOR.split(listed or "") if name]
    for name in names:
        if targets.architecture(name) is None:
            raise NotAnArchitecture(Span("--arch"), name=name)
    found = sorted({str(targets.architecture(name)) for name in names}) or targets.wanted("cuda")
    if not found:
        raise NoArchitecture(Span("--device cuda"))
    return tuple(found)


def targets_of(
    # one of them, or None for the CPU, and CUDA where nvcc and an architecture are known
    device: str | None,
    listed: str | None,  # GPU architectures, as of `architectures`
    vectors: tuple[str, ...],  # the CPU's vector instructions; those of this CPU if there are none
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the devices to compile for, each with the targets of one library.

    Raises:
        NotAnArchitecture, NoArchitecture: as of `architectures`.
    """
    if device != "cuda":
        for name in vectors or targets.here("cpu"):
            yield "cpu", (name,)
    if device == "cuda" or (device is None and toolkit.home() and (listed or targets.wanted("cuda"))):
        yield "cuda", architectures(listed)


def libraries(
    kernels: Any,  # of a module
    device: str,  # ``cpu`` or ``cuda``
    chosen: tuple[str, ...],  # the targets
    folder: Path,  # where they go
) -> Iterator[Library]:
    """Yield the libraries of kernels for a device, and that of their schemas."""
    namespace = kernels.signature.namespace
    passes = [kernel for kernel, *_ in kernels.signature.kernels]
    joined = getattr(kernels.sources, "joined", "")  # which older runtimes lack
    passes += [joined] * bool(device == "cuda" and joined)
    for kernel in passes:
        built_from = recipe.recipe_of(kernels.texts(), kernel, device)
        name = prebuilt.file_name((namespace, kernel, device), chosen, recipe.content_of(built_from))
        built_from = {**built_from, "targets": targets.flags_of(device, chosen, kernel)}
        yield Library(kernels.name, folder / name, kernel, device, built_from, namespace)
    if device == "cpu":
        path = folder / f"{namespace}_schemas.so"
        yield Library(kernels.name, path, OF_PROGRAMS, device, {"cpp_sources": [_schemas(kernels)]})


def every(
    modules: Iterable[ModuleType], chosen: Iterable[tuple[str, tuple[str, ...]]], folder: Path
) -> Iterator[Library]:
    """Return the libraries of some modules for some devices, each with its targets (`targets_of`)."""
    several, chosen = tuple(modules), tuple(chosen)
    for kernels, (device, which) in product([one for each in several for one in _kernels(each)], chosen):
        yield from libraries(kernels, device, which, folder)
    shared = {id(of): of for each in several for of in _shared(each)}
    for of, (device, which) in product(shared.values(), chosen):
        if device == "cuda" and any(runs_on(of.CHIPS, target) for target in which):
            yield from _of_shared(of, which, folder)


def runs_on(chips: Iterable[tuple[int, int]] | None, target: str) -> bool:
    """Return True if a target has machine code of its own for one of some chips, or none is needed."""
    return chips is None or target.removesuffix("ptx") in ["{}{}".format(*chip) for chip in chips]


def _of_shared(of: ModuleType, chosen: tuple[str, ...], folder: Path) -> Iterator[Library]:
    """Yield the libraries of kernels that the modules of a runtime share."""
    for kernel in of.KERNELS:
        built_from = recipe.recipe_of(of.texts_of_kernels(), kernel, "cuda")
        name = prebuilt.file_name((of.SPACE, kernel, "cuda"), chosen, recipe.content_of(built_from))
        built_from = {**built_from, "targets": targets.flags_of("cuda", chosen, kernel)}
        yield Library(of.NAME, folder / name, kernel, "cuda", built_from, of.SPACE)


def _shared(module: ModuleType) -> list[ModuleType]:
    """Return the files of a module's runtime whose kernels it shares with others."""
    runtime = type(_kernels(module)[0]).__module__.rpartition(".")[0]
    return [imported[f"{runtime}.{name}"] for name in shared_by(text_of(Path(str(module.__file__))))]


def _kernels(module: ModuleType) -> list[Any]:
    return [held for name, held in vars(module).items() if name == OWN or name.endswith(f"_{OWN}")]


def _schemas(kernels: Any) -> str:
    """Return the C++ that defines the operators of a module's kernels, for programs without Python."""
    operators = kernels.operators
    names = [
        f"{kernels.name}_{kernel}{form}"
        for kernel, *_ in kernels.signature.kernels
        for form in ("", "_out")
    ]
    schemas = (str(getattr(operators, name).default._schema).partition("::")[2] for name in names)
    definitions = "\n".join(f'  aoti_torch_library_def(library, "{schema}");' for schema in schemas)
    return SCHEMAS.format(namespace=kernels.signature.namespace, definitions=definitions)


def compile_all(
    wanted: Iterable[Library],  # the libraries to compile
    kept: Collection[Path] = (),  # libraries that stay, of modules of the same names
) -> Iterator[tuple[str, Path]]:
    """Compile libraries in parallel, and remove those that they replace; those that are whole are left.

    Yields:
        ``new``, ``unchanged`` or ``removed``, and the library, as soon as it is; each path once.

    Raises:
        NotCompiled: a compiler refused one.
        NoNvcc, NoCudart: one is for CUDA, and the toolkit is not whole.
        NotACommand: the environment's compiler.
        NoAccess: one cannot be read, written or removed.
    """
    every = {each.path: each for each in wanted}
    _require_tools({each.device for each in every.values()})
    missing: dict[str, list[Library]] = {}
    for library in every.values():
        if not library.whole:
            missing.setdefault(library.code, []).append(library)
    made_now = {library.path for alike in missing.values() for library in alike}
    require_writable(*sorted(made_now))
    yield from (("unchanged", path) for path in every if path not in made_now)
    with ThreadPoolExecutor(cpu_count()) as pool:
        made = pool.map(compiled, [first for first, *_ in missing.values()])
        for alike, content in zip(missing.values(), made, strict=True):
            for library in alike:
                keep(library.path, library.named(content))
                yield "new", library.path
                for path in library.others:
                    if path not in every and path not in kept:
                        remove(path)
                        yield "removed", path


def _require_tools(devices: Collection[str]) -> None:
    compiler()
    if "cuda" in devices:
        home = toolkit.home()
        if home is None:
            raise NoNvcc(Span("--device cuda"))
        toolkit.nvcc(home)
        toolkit.cudart(home)
