"""Libraries of modules, compiled ahead of time on a machine that need not have a GPU.

A library has the kernel of one pass for one device. Its sources and flags are those of a build on first
use, but for the targets, so that its results are the same bits. `runtime/prebuilt.py` finds it.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import cpu_count
from pathlib import Path
from types import ModuleType
from typing import Any

from fusegen import toolkit
from fusegen.access import refused
from fusegen.certify.host import compiler
from fusegen.errors import NoArchitecture, NoNvcc, NotAnArchitecture, NotCompiled, Span
from fusegen.runtime import build, cache, prebuilt, targets
from fusegen.steps import LOG, step

SCHEMAS = """\
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
static const bool defined = [] {{
  TorchLibraryHandle library;
  aoti_torch_library_init_def("{namespace}", __FILE__, __LINE__, &library);
{definitions}
  return true;
}}();
"""
HOST = ("-std=c++17", "-fPIC")
LINKED = {"cpu": ("torch_cpu", "c10"), "cuda": ("torch_cpu", "c10", "torch_cuda")}  # PyTorch's libraries


@dataclass(frozen=True)
class Library:
    """A library to compile.

    Attributes:
        module: the name of its module.
        path: where it goes.
        kernel: of the pass, or ``schemas``.
        device: that it runs on.
        recipe: the sources and the flags, as of `runtime/build.py`.
    """

    module: str
    path: Path
    kernel: str
    device: str
    recipe: dict[str, Any]

    @property
    def outdated(self) -> list[Path]:
        """The libraries of this kernel, device and targets that were compiled from other sources."""
        prefix = self.path.stem.rpartition("_")[0]
        found = sorted(self.path.parent.glob(f"{prefix}_*.so"))
        return [each for each in found if each != self.path and each.stem.rpartition("_")[0] == prefix]


def architectures(listed: str | None) -> tuple[str, ...]:
    """The GPU architectures to compile for: those listed, of TORCH_CUDA_ARCH_LIST, or of the GPUs here.

    Args:
        listed: compute capabilities, as in ``8.0,9.0+PTX``.

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
    device: str | None, listed: str | None, vectors: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The devices to compile for, each with the targets of one library.

    Args:
        device: one of them, or None for the CPU, and CUDA where nvcc and an architecture are known.
        listed: GPU architectures, as of `architectures`.
        vectors: the CPU's vector instructions; those of this CPU if there are none.

    Raises:
        NotAnArchitecture, NoArchitecture: as of `architectures`.
    """
    if device != "cuda":
        for name in vectors or targets.here("cpu"):
            yield "cpu", (name,)
    if device == "cuda" or (device is None and toolkit.home() and (listed or targets.wanted("cuda"))):
        yield "cuda", architectures(listed)


def libraries(module: ModuleType, device: str, chosen: tuple[str, ...], folder: Path) -> Iterator[Library]:
    """The libraries of a module for a device, and that of its schemas.

    Args:
        module: as imported.
        device: ``cpu`` or ``cuda``.
        chosen: the targets.
        folder: where they go.
    """
    kernels = module.KERNELS
    namespace = kernels.signature.namespace
    for kernel, *_ in kernels.signature.kernels:
        recipe = build.recipe_of(kernels.texts(), kernel, device, namespace)
        name = prebuilt.file_name((namespace, kernel, device), chosen, build.content_of(recipe))
        recipe = {**recipe, "targets": targets.flags_of(device, chosen)}
        yield Library(kernels.name, folder / name, kernel, device, recipe)
    if device == "cpu":
        path = folder / f"{namespace}_schemas.so"
        yield Library(kernels.name, path, "schemas", device, {"cpp_sources": [_schemas(kernels)]})


def _schemas(kernels: Any) -> str:
    """The C++ that defines the operators of a module's kernels, for programs without Python."""
    operators = kernels.operators
    names = [
        f"{kernels.name}_{kernel}{form}"
        for kernel, *_ in kernels.signature.kernels
        for form in ("", "_out")
    ]
    schemas = (str(getattr(operators, name).default._schema).partition("::")[2] for name in names)
    definitions = "\n".join(f'  aoti_torch_library_def(library, "{schema}");' for schema in schemas)
    return SCHEMAS.format(namespace=kernels.signature.namespace, definitions=definitions)


def compile_all(wanted: list[Library]) -> Iterator[tuple[str, Path]]:
    """Compile libraries in parallel, and remove those that they replace; those that are there are left.

    Yields:
        ``new`` or ``removed``, and the library, as soon as it is.

    Raises:
        NotCompiled: a compiler refused one.
        NoNvcc: one is for CUDA, and there is no nvcc.
        NoAccess: one cannot be written or removed.
    """
    if any(each.device == "cuda" for each in wanted) and toolkit.home() is None:
        raise NoNvcc(Span("--device cuda"))
    missing = [each for each in wanted if not each.path.with_suffix(".sum").exists()]
    with ThreadPoolExecutor(cpu_count()) as pool:
        for each, made in zip(missing, pool.map(_compiled, missing), strict=True):
            _keep(each.path, made)
            yield "new", each.path
            for path in each.outdated:
                path.with_suffix(".sum").unlink(missing_ok=True)
                path.unlink()
                yield "removed", path


def _keep(path: Path, library: bytes) -> None:
    """Write a library, and its size and digest beside it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        cache.publish(path, library)
        cache.publish(path.with_suffix(".sum"), cache.checksum(library))
    except OSError as error:
        raise refused(error, path, "written") from None


def _compiled(of: Library) -> bytes:
    """The bytes of a library."""
    LOG.info("compiling %s_%s for %s as %s", of.module, of.kernel, of.device, of.path)
    with step(f"{of.module}: compile {of.kernel} for {of.device}"), tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        made = place / "library.so"
        kinds = ("cpp", "cu") if of.device == "cuda" else ("cpp",)
        objects = [str(_object(of, place, kind)) for kind in kinds]
        _run(of, [*compiler(), "-shared", *objects, *_libraries(of, place), "-o", str(made)])
        return made.read_bytes()


def _object(of: Library, place: Path, kind: str) -> Path:
    """The object file of the C++ or of the CUDA sources."""
    from torch.utils import cpp_extension

    source, made = place / f"main.{kind}", place / f"{kind}.o"
    includes = [f"-I{folder}" for folder in cpp_extension.include_paths()]
    flags = of.recipe.get("targets", [])
    if kind == "cpp":
        source.write_text("\n".join(of.recipe["cpp_sources"]), encoding="utf-8")
        own = [*of.recipe.get("extra_cflags", ["-O1"]), *(flags if of.device == "cpu" else ())]
        command = [*compiler(), *HOST, *own]
    else:
        source.write_text("\n".join(of.recipe["cuda_sources"]), encoding="utf-8")
        home = toolkit.home()
        assert home is not None
        own = [*cpp_extension.COMMON_NVCC_FLAGS, *of.recipe["extra_cuda_cflags"], *flags]
        command = [*toolkit.nvcc(home), "-std=c++17", "--compiler-options=-fPIC", *own]
    _run(of, [*command, *includes, "-c", str(source), "-o", str(made)])
    return made


def _libraries(of: Library, place: Path) -> list[str]:
    """The linker's flags for PyTorch's libraries, and that of CUDA.

    A PyTorch without CUDA has no libtorch_cuda: an empty library of its name takes its place.
    """
    from torch.utils import cpp_extension

    folders = [Path(folder) for folder in cpp_extension.library_paths()]
    if of.device == "cuda" and not any((folder / "libtorch_cuda.so").exists() for folder in folders):
        stub = place / "libtorch_cuda.so"
        _run(
            of,
            [*compiler(), "-shared", "-x", "c++", "/dev/null", f"-Wl,-soname,{stub.name}", "-o", str(stub)],
        )
        folders.append(place)
    found = ["-Wl,--no-as-needed", *(f"-L{folder}" for folder in folders)]
    found += [f"-l{name}" for name in LINKED[of.device]]
    home = toolkit.home()
    return [*found, str(toolkit.cudart(home))] if of.device == "cuda" and home else found


def _run(of: Library, command: list[str]) -> None:
    """Run a compiler.

    Raises:
        NotCompiled: it failed; what it said is in a log beside the library.
    """
    done = subprocess.run(command, capture_output=True, text=True, errors="backslashreplace")
    if done.returncode == 0:
        return
    log = of.path.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"{' '.join(command)}\n{done.stdout}{done.stderr}", encoding="utf-8")
    span = Span(of.path.as_posix())
    raise NotCompiled(span, kernel=of.kernel, name=of.module, device=of.device, log=log.as_posix())
