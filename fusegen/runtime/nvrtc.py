"""The compilation of kernels by NVRTC, NVIDIA's compiler as a library, which PyTorch's wheels bring."""

import contextlib
import ctypes
import functools
import importlib.util
import os
import pathlib
import re
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

import torch

from .checks import check
from .flags import CUDA_FLAGS

NAME = re.compile(r"libnvrtc\.so\.(\d+)")
OPTIONS = ["--std=c++17", "-default-device", "-w"] + [flag for flag in CUDA_FLAGS if flag != "-O3"]
# Headers of the C++ library and of nvcc that kernels include; nvrtc/standard.h has what they use of them.
LEFT_OUT = ["algorithm", "atomic", "cmath", "cstdint", "cstring", "tuple", "type_traits"]
LEFT_OUT += ["cuda_pipeline_primitives.h"]


class CompileError(Exception):
    """The output of NVRTC on a text that it refuses."""


class Nvrtc(NamedTuple):
    """A library of NVRTC, with its version."""

    library: Any
    version: "Tuple[int, int]"
    path: str


def cuda_major() -> int:
    """Return the major version of PyTorch's CUDA; 0 if it has none."""
    return int((torch.version.cuda or "0").split(".")[0])


def wheel(part: str) -> str:
    """Return the command that installs a part of PyTorch's CUDA."""
    major = cuda_major()
    return f"pip install 'nvidia-cuda-{part}{'-cu12' if major == 12 else ''}=={major}.*'"


@functools.lru_cache(maxsize=None)
def found() -> "Optional[Nvrtc]":
    """Return the NVRTC of PyTorch's CUDA; else one of another version; None if there is none."""
    wanted = cuda_major()
    paths = [path for folder in _folders("lib") for path in sorted(folder.iterdir()) if _major(path)]
    paths.sort(key=lambda path: _major(path) != wanted)
    for path in (*map(str, paths), f"libnvrtc.so.{wanted}"):
        loaded = _loaded(path)
        if loaded:
            return loaded
    return None


def required(module: str) -> Nvrtc:
    """Return the NVRTC to compile a module with; refuses one of another CUDA than PyTorch's."""
    have, remedy = found(), wheel("nvrtc")
    check(have, module, f"no NVRTC; {remedy}")
    assert have is not None
    other = f"NVRTC in {have.path} is of CUDA {have.version[0]}.{have.version[1]}"
    same = have.version[0] == cuda_major()
    check(same, module, f"{other}, and this PyTorch has CUDA {torch.version.cuda}; {remedy}")
    return have


def compiled(nvrtc: Nvrtc, text: str, architecture: str, includes: "List[str]") -> bytes:
    """Return the machine code of a text for a GPU architecture.

    Args:
        nvrtc: that compiles it.
        text: CUDA C++ without headers of the C++ library.
        architecture: as 90 of sm_90.
        includes: the folders of CUDA's headers.

    Raises:
        CompileError: NVRTC refuses the text, or does not know the architecture.
    """
    library, program = nvrtc.library, ctypes.c_void_p()
    options = [*OPTIONS, f"--gpu-architecture=sm_{architecture}", *(f"-I{folder}" for folder in includes)]
    names = (ctypes.c_char_p * len(LEFT_OUT))(*(name.encode() for name in LEFT_OUT))
    empty = (ctypes.c_char_p * len(LEFT_OUT))(*(b"" for _ in LEFT_OUT))
    source = text.encode("ascii", "backslashreplace")
    library.nvrtcCreateProgram(ctypes.byref(program), source, b"kernel.cu", len(names), empty, names)
    words = (ctypes.c_char_p * len(options))(*map(os.fsencode, options))
    status = library.nvrtcCompileProgram(program, len(options), words)
    result = _read(library, program, "CUBIN" if status == 0 else "ProgramLog")
    library.nvrtcDestroyProgram(ctypes.byref(program))
    if status != 0:
        raise CompileError(result.rstrip(b"\0").decode(errors="replace"))
    return result


def include_folders(module: str) -> "List[str]":
    """Return the folder of CUDA's headers for NVRTC, which PyTorch's wheels bring along."""
    first = _headers()
    check(first, module, f"no cuda_fp16.h; {wheel('runtime')}")
    return [str(first)]


def has_headers() -> bool:
    """Return True if CUDA's headers are there."""
    return _headers() is not None


def _headers() -> "Optional[pathlib.Path]":
    has = (folder for folder in _folders("include") if (folder / "cuda_fp16.h").is_file())
    return next(has, None)


def _read(library: Any, program: Any, what: str) -> bytes:
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    content = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, content)
    return content.raw


def _major(path: pathlib.Path) -> int:
    """Return the major version that the name of a library says; 0 if it is no NVRTC."""
    named = NAME.fullmatch(path.name)
    return int(named[1]) if named else 0


def _loaded(path: str) -> "Optional[Nvrtc]":
    """A library of NVRTC and its version, if it can be loaded; its other part has to be there before."""
    beside = sorted(pathlib.Path(path).parent.glob("libnvrtc-builtins.so*")) if "/" in path else []
    versions = [ctypes.c_int(), ctypes.c_int()]
    for other in beside:
        _opened(str(other))
    library: Any = _opened(path)
    if library is None or library.nvrtcVersion(*map(ctypes.byref, versions)) != 0:
        return None
    major, minor = versions
    return Nvrtc(library, (major.value, minor.value), path)


def _opened(path: str) -> Any:
    """Return a shared library; None where the dynamic linker does not find or refuses it."""
    opened: "List[Any]" = []
    with contextlib.suppress(OSError):
        opened.append(ctypes.CDLL(path))
    return opened[0] if opened else None


def _folders(kind: str) -> "Iterator[pathlib.Path]":
    """The folders of libraries or of headers of CUDA: those of pip, of CUDA_HOME, and the usual one."""
    packages = importlib.util.find_spec("nvidia")
    for root in (packages.submodule_search_locations if packages else None) or ():
        majors = (f"cu{cuda_major()}", "cuda_nvrtc", "cuda_runtime")
        yield from (path for name in majors for path in [pathlib.Path(root, name, kind)] if path.is_dir())
    homes = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    kinds = ("lib64", "lib") if kind == "lib" else (kind,)
    for home in filter(None, homes):
        yield from (path for name in kinds for path in [pathlib.Path(home, name)] if path.is_dir())
