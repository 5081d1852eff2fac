"""A shared library of one kernel: its files, and the commands that compile it."""

import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusegen.core.access import refused
from fusegen.core.timing import LOG, step
from fusegen.errors import FusegenError, NotCompiled, Span
from fusegen.evidence.certify.host import compiler
from fusegen.project import toolkit
from fusegen.runtime import cache, direct, library_names, tools

HOST = ("-std=c++17", "-fPIC")
LINKED = {"cpu": ("torch_cpu", "c10"), "cuda": ("torch_cpu", "c10", "torch_cuda")}  # PyTorch's libraries


@dataclass(frozen=True)
class Library:
    """A library to compile."""

    module: str  # the name of its module
    path: Path  # where it goes
    kernel: str  # of the pass, or ``schemas``
    device: str  # that it runs on
    recipe: dict[str, Any]  # the sources and the flags, as of `runtime/recipe.py`
    namespace: str = ""  # of the operators; empty where the sources name it

    @property
    def code(self) -> str:
        """One text for all libraries that differ in their names only, which decides the code."""
        return repr((self.kernel, self.device, self.recipe) if self.namespace else self.path)

    @property
    def names(self) -> str:
        """The C++ that gives the library its names."""
        return library_names.definition(self.namespace, self.module) if self.namespace else ""

    def named(self, content: bytes) -> bytes:
        """Return the bytes of a library of the same code, under the names of this one."""
        made = library_names.renamed(content, self.namespace, self.module) if self.namespace else content
        assert made is not None, "a library has its names"
        return made

    @property
    def others(self) -> list[Path]:
        """The libraries of this kernel, device and targets that were compiled from other sources."""
        prefix = self.path.stem.rpartition("_")[0]
        found = sorted(self.path.parent.glob(f"{prefix}_*.so"))
        return [each for each in found if each != self.path and each.stem.rpartition("_")[0] == prefix]

    @property
    def whole(self) -> bool:
        """True if the library is there as it was compiled.

        Raises:
            NoAccess: it cannot be read.
        """
        try:
            return self.path.with_suffix(".sum").read_bytes() == cache.checksum(
                self.path, self.path.read_bytes()
            )
        except FileNotFoundError:
            return False
        except OSError as error:
            raise refused(error, self.path, "read") from None


def keep(path: Path, library: bytes) -> None:
    """Write a library, and its size and digest beside it; the log of an earlier failure goes."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        cache.publish(path, library)
        cache.publish(path.with_suffix(".sum"), cache.checksum(path, library))
        path.with_suffix(".log").unlink(missing_ok=True)
    except OSError as error:
        raise refused(error, path, "written") from None


def remove(path: Path) -> None:
    """Remove a library, and its size and digest."""
    try:
        path.with_suffix(".sum").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise refused(error, path, "removed") from None


def compiled(of: Library) -> bytes:
    """Return the bytes of a library."""
    LOG.info("compiling %s_%s for %s as %s", of.module, of.kernel, of.device, of.path)
    with step(f"{of.module}: compile {of.kernel} for {of.device}"), tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        if of.device == "cpu" and of.namespace:
            return _direct(of, folder)
        made = place / "library.so"
        kinds = ("cpp", "cu") if of.device == "cuda" else ("cpp",)
        objects = [str(_object(of, place, kind)) for kind in kinds]
        _run(of, [*compiler(), "-shared", *objects, *_libraries(of, place), "-o", str(made)])
        return made.read_bytes()


def _direct(of: Library, folder: str) -> bytes:
    """Return the bytes of a library for the CPU, which is built as on first use."""
    flags = [*of.recipe["extra_cflags"], *of.recipe["targets"]]
    try:
        place = direct.Folder(folder, list(compiler()), 1)  # libraries are built side by side already
        return direct.build({**of.recipe, "extra_cflags": flags}, of.names, place)
    except OSError as error:  # there is no such compiler
        raise _failed(of, f"{' '.join(compiler())} is not run: {error}\n") from None
    except RuntimeError as error:
        raise _failed(of, str(error)) from None


def _object(of: Library, place: Path, kind: str) -> Path:
    """Return the object file of the C++ or of the CUDA sources."""
    from torch.utils import cpp_extension

    source, made = place / f"main.{kind}", place / f"{kind}.o"
    includes = [f"-I{folder}" for folder in cpp_extension.include_paths()]
    flags = of.recipe.get("targets", [])
    if kind == "cpp":
        source.write_text("\n".join([of.names, *of.recipe["cpp_sources"]]), encoding="utf-8")
        command = [*compiler(), *HOST, *_accepted(of, place)]
    else:
        source.write_text("\n".join(of.recipe["cuda_sources"]), encoding="utf-8")
        home = toolkit.home()
        assert home is not None
        own = [*cpp_extension.COMMON_NVCC_FLAGS, *of.recipe["extra_cuda_cflags"], *flags]
        command = [*toolkit.nvcc(home), "-std=c++17", "--compiler-options=-fPIC", *own]
    _run(of, [*command, *includes, "-c", str(source), "-o", str(made)])
    return made


def _accepted(of: Library, place: Path) -> list[str]:
    """Return the flags of the C++ compiler, without those only for speed that it refuses."""
    with suppress(OSError):  # there is no such compiler, as is reported when it compiles
        return tools.accepted(of.recipe.get("extra_cflags", ["-O1"]), list(compiler()), str(place))
    return []


def _libraries(of: Library, place: Path) -> list[str]:
    """Return the linker's flags for PyTorch's libraries, and that of CUDA.

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
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="backslashreplace")
    except OSError as error:  # there is no such compiler
        done = subprocess.CompletedProcess(command, 127, "", f"{error}\n")
    if done.returncode != 0:
        raise _failed(of, f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def _failed(of: Library, told: str) -> FusegenError:
    """Return the error of a library, beside which what a compiler said is kept."""
    log = of.path.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(told, encoding="utf-8")
    span = Span(of.path.as_posix())
    return NotCompiled(span, kernel=of.kernel, name=of.module, device=of.device, log=log.as_posix())
