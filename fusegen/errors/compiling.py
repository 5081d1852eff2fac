"""Libraries that cannot be compiled ahead of time."""

from fusegen.errors.base import Sentence

NoArchitecture = Sentence(
    "no GPU architecture to compile for: there is no GPU here, and TORCH_CUDA_ARCH_LIST is not set",
    "name some, as in --arch 8.0,9.0",
)
NotAnArchitecture = Sentence(
    "{name!r} is no GPU architecture",
    "write the compute capability, as 9.0, or 9.0+PTX for newer GPUs, too",
)
NoNvcc = Sentence(
    "there is no nvcc", "install the CUDA toolkit and set CUDA_HOME, or pip install 'fusegen[cuda]'"
)
NoCudart = Sentence(
    "the CUDA toolkit has no libcudart in {folders}",
    "install the CUDA runtime's library, or set CUDA_HOME to a whole toolkit",
)
NotACommand = Sentence("{command!r} is no command: {why}", "write it as for a shell")
NotCompiled = Sentence(
    "the {kernel} kernel of {name} did not compile for {device}", "the compiler's output is in {log}"
)
NotStable = Sentence(
    "the modules of {folder} have the binding pybind, whose libraries fit one PyTorch and one Python",
    "only modules of the binding stable are compiled ahead of time",
)
NotADistribution = Sentence(
    "{text!r} is no name and version of a wheel", "write both, as in --wheel my-kernels==1.0"
)
