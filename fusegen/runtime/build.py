"""The build of a kernel on first use, unless this machine has built it before."""

import contextlib
import functools
import logging
import os
import pathlib
import tempfile
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from . import flags, flavour, launcher, prebuilt, targets, together, tools
from .cache import OneLineErrors, cache_folder, checksum, digest, load_whole, locked, publish
from .checks import check
from .headers import without_comments
from .progress import Progress
from .sources import Texts
from .turns import OF_BUILDS, taken

PARTS = {  # of a text, in the library of a kernel
    "forward": ("WITHOUT_BACKWARD",),
    "backward": ("WITHOUT_FORWARD",),
    "convolved": ("WITHOUT_FORWARD", "WITHOUT_BACKWARD", "WITH_CONVOLVED"),
}


class Wanted(NamedTuple):
    """A library that a build makes.

    Attributes:
        kernels, operators: of the module.
        kernel, device: what it computes, and where.
        recipe: the sources and the flags.
        library: its path.
        made_by: a line on the tools.
    """

    kernels: Any
    operators: Any
    kernel: str
    device: str
    recipe: "Dict[str, Any]"
    library: pathlib.Path
    made_by: str

    def implement(self, built: Any) -> None:
        """Register the kernels of the library, which was loaded."""
        flavour.implement(self.operators, self.kernels.name, built, self.kernel, self.device.upper())


def load(kernels: Any, operators: Any, kernel: str, device: str) -> None:
    """Load a kernel, forward or backward, for a device, built unless this machine has built it before.

    The same kernel of the module's companions is loaded, too: what is missing is built side by side.

    Builds are kept by content. To load one takes no lock. To build one, a process takes a lock that the
    system frees when its holder ends and that a fork does not inherit.
    """
    oldest = ".".join(map(str, flavour.MINIMUM))
    recent = tuple(map(int, torch.__version__.split(".")[:2])) >= flavour.MINIMUM
    check(recent, kernels.name, f"needs PyTorch {oldest} or newer, and this is {torch.__version__}")
    several = {(operators.name, kernel): (kernels, operators, kernel)}  # errors of the first are raised
    for each, each_pass in together.companions(kernels, kernel):
        if not _is_loaded(each, each.operators, each_pass, device):
            several.setdefault((each.operators.name, each_pass), (each, each.operators, each_pass))
    holders = {one.name: one for _, one, _ in several.values()}
    with contextlib.ExitStack() as stack:
        for name in sorted(holders):  # one order for all threads: one at a time loads a module's kernels
            stack.enter_context(taken(holders[name]))
        first = _wanted(kernels, operators, kernel, device)
        if first is None:
            return
        others = [_wanted_or_none(*of, device) for of in [*several.values()][1:]]
        _build([first, *filter(None, others)])


def _is_loaded(kernels: Any, operators: Any, kernel: str, device: str) -> bool:
    name = f"{operators.name}::{kernels.name}_{kernel}"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, device.upper()))


def _wanted(kernels: Any, operators: Any, kernel: str, device: str) -> "Optional[Wanted]":
    """Return the library to build of a kernel; None where it is loaded, perhaps now."""
    if _is_loaded(kernels, operators, kernel, device):
        return None
    name, namespace = kernels.name, operators.name
    recipe = recipe_of(kernels.texts(), kernel, device, namespace)
    if prebuilt.load(name, (namespace, kernel, device), content_of(recipe)):
        return None
    if device == "cuda" and tools.cuda_compiler(name) == "nvrtc":
        launcher.implement(kernels, operators, kernel)
        return None
    recipe = for_targets(recipe, device, targets.wanted(device))
    library = cache_folder(name) / file_name(namespace, (kernel, device), recipe)
    wanted = Wanted(kernels, operators, kernel, device, recipe, library, tools.made_by(device))
    return None if _found(wanted) else wanted


def _wanted_or_none(*of: Any) -> "Optional[Wanted]":
    """Return the library to build of a companion, whose own first use tells what is wrong with it."""
    with contextlib.suppress(Exception):
        return _wanted(*of)
    return None


def _found(wanted: Wanted) -> bool:
    """Return True if a library is in the folder of builds; it is loaded."""
    built = load_whole(wanted.library, wanted.made_by)
    if built:
        wanted.implement(built)
    return bool(built)


@functools.lru_cache(None)
def can_load(kernels: Any, operators: Any, kernel: str) -> bool:
    """True if there is a library of a kernel for CUDA, which it then loads, or an nvcc that builds one."""
    if tools.cuda_compiler(kernels.name) == "nvcc" and tools.has_nvcc():
        return True
    recipe = recipe_of(kernels.texts(), kernel, "cuda", operators.name)
    return prebuilt.load(kernels.name, (operators.name, kernel, "cuda"), content_of(recipe))


def _build(several: "Sequence[Wanted]") -> None:
    """Build libraries side by side, unless another process builds them first, and load them.

    Raises:
        RuntimeError: the first one cannot be built; another's own first use tells so.
    """
    first = several[0]
    with contextlib.ExitStack() as stack:
        for wanted in sorted(several, key=lambda each: each.library):  # one order for all processes
            lock = wanted.library.with_suffix(".lock")
            stack.enter_context(locked(first.kernels.name, lock))
        stack.enter_context(taken(torch.ops, OF_BUILDS))  # which sets the process's variables
        missing = [wanted for wanted in several if not _found(wanted)]
        if not missing:
            return
        titles = [f"{each.kernels.name} {each.kernel} for {each.device}" for each in missing]
        found = tools.compilers(first.kernels.name, first.device, tools.place_of(first.library.parent))
        with found as words, Progress(titles) as progress:
            for wanted, built in together.each(lambda one: build_library(one, words), missing):
                progress.done()
                if not isinstance(built, Exception):
                    wanted.implement(built)
                elif wanted is first:
                    raise built


def file_name(namespace: str, of: "Tuple[str, str]", recipe: "Dict[str, Any]") -> str:
    """Return the name of a library in the folder of builds.

    Args:
        namespace: of the operators.
        of: the kernel and the device.
        recipe: the sources and the flags, with those of the targets.
    """
    content = digest(repr((torch.__version__, os.uname().machine, _bare(recipe))))
    return "_".join((namespace, *of, content)) + ".so"


def recipe_of(of: Texts, kernel: str, device: str, namespace: str) -> "Dict[str, Any]":
    """Return the sources and the flags of a kernel, without those of its targets."""
    without = "\n".join(f"#define {part}" for part in PARTS[kernel])
    cpp, cuda, cuda_flags = [without, of.binding, of.cpu], [], []
    if device == "cuda":
        text = of.convolution if kernel == "convolved" else of.cuda
        cpp, cuda = [without, "#define ON_CUDA", of.binding], [without, text]
        cuda_flags = list(flags.CUDA_FLAGS)
    cpp = flavour.in_namespace(cpp, namespace, device.upper())
    return {
        "kernel": kernel,
        "cpp_sources": [_in_ascii(text) for text in cpp],
        "cuda_sources": [_in_ascii(text) for text in cuda],
        "extra_cflags": list(flavour.CPU_FLAGS),
        "extra_cuda_cflags": cuda_flags,
    }


def for_targets(recipe: "Dict[str, Any]", device: str, chosen: "Tuple[str, ...]") -> "Dict[str, Any]":
    """Return a recipe with the flags of its targets; the code of the host is for the CPU that is here."""
    host = targets.flags_of("cpu", chosen if device == "cpu" else targets.here("cpu"))
    chips = targets.flags_of("cuda", chosen, recipe["kernel"]) if device == "cuda" else []
    cflags, cuda_cflags = recipe["extra_cflags"] + host, recipe["extra_cuda_cflags"] + chips
    return {**recipe, "extra_cflags": cflags, "extra_cuda_cflags": cuda_cflags}


def content_of(recipe: "Dict[str, Any]") -> str:
    """Return the digest of what a library is built from, whatever its targets."""
    return digest(repr((os.uname().machine, _bare(recipe))))


def build_library(wanted: Wanted, words: "List[str]") -> Any:
    """Build and load a library, and keep it, with its size and digest beside it.

    Args:
        wanted: the library.
        words: of the C++ compiler's command, which the environment has.
    """
    from torch.utils import cpp_extension

    module, kernel, device = wanted.kernels.name, wanted.kernel, wanted.device
    library, recipe = wanted.library, wanted.recipe
    root, log = library.parent, library.with_suffix(".log")
    executable = not os.statvfs(root).f_flag & os.ST_NOEXEC
    noexec = f"{root} is mounted noexec; set TORCH_EXTENSIONS_DIR to a folder that is not"
    check(executable, module, noexec)
    logging.getLogger("fusegen").info("building %s_%s for %s as %s", module, kernel, device, library)
    failure = f"the {kernel} kernel did not compile for {device}; the compiler's output is in {log}"
    temporary = tempfile.TemporaryDirectory(dir=tools.place_of(root))
    with OneLineErrors(module, root, failure, log), temporary as folder:
        toolkit: Any = cpp_extension.CUDA_HOME
        for_cuda = tools.split_compile(toolkit) if device == "cuda" else []
        built = cpp_extension.load_inline(
            name=library.stem,
            cpp_sources=recipe["cpp_sources"],
            cuda_sources=recipe["cuda_sources"],
            extra_cflags=tools.accepted(recipe["extra_cflags"], words, folder),
            extra_cuda_cflags=recipe["extra_cuda_cflags"] + for_cuda,
            build_directory=folder,
            **flavour.inline_options(kernel),
        )
        [made] = pathlib.Path(folder).glob("*.so")
        _keep(flavour.kept_as(library, made), made.read_bytes(), wanted.made_by)
    return built


def _keep(library: pathlib.Path, content: bytes, made_by: str) -> None:
    """Write a library, and its size, its digest and the tools that made it beside it."""
    publish(library, content)
    publish(library.with_suffix(".sum"), checksum(library, content) + made_by.encode())


def _bare(recipe: "Dict[str, Any]") -> "Dict[str, Any]":
    """Return a recipe whose sources have no comments, which decide nothing."""
    bare = {key: list(map(without_comments, recipe[key])) for key in ("cpp_sources", "cuda_sources")}
    return {**recipe, **bare}


def _in_ascii(text: str) -> str:
    """Return a source that can be written in any locale: comments have letters that are not ASCII."""
    return text.encode("ascii", "backslashreplace").decode()
