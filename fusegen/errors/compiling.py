"""Libraries that cannot be compiled ahead of time."""

from __future__ import annotations

from fusegen.errors.base import FusegenError


class NoArchitecture(FusegenError):
    sentence = (
        "no GPU architecture to compile for: there is no GPU here, and TORCH_CUDA_ARCH_LIST is not set"
    )
    hint = "name some, as in --arch 8.0,9.0"


class NotAnArchitecture(FusegenError):
    sentence = "{name!r} is no GPU architecture"
    hint = "write the compute capability, as 9.0, or 9.0+PTX for newer GPUs, too"


class NoNvcc(FusegenError):
    sentence = "there is no nvcc"
    hint = "install the CUDA toolkit and set CUDA_HOME, or pip install 'fusegen[cuda]'"


class NoCudart(FusegenError):
    sentence = "the CUDA toolkit has no libcudart in {folders}"
    hint = "install the CUDA runtime's library, or set CUDA_HOME to a whole toolkit"


class NotACommand(FusegenError):
    sentence = "{command!r} is no command: {why}"
    hint = "write it as for a shell"


class NotCompiled(FusegenError):
    sentence = "the {kernel} kernel of {name} did not compile for {device}"
    hint = "the compiler's output is in {log}"


class NotStable(FusegenError):
    sentence = (
        "the modules of {folder} have the binding pybind, whose libraries fit one PyTorch and one Python"
    )
    hint = "only modules of the binding stable are compiled ahead of time"
