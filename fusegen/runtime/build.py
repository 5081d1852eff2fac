"""The build of a kernel on first use, unless this machine has built it before."""

import contextlib
import functools
import logging
import os
import pathlib
import re
import tempfile
from typing import Any, Dict, Tuple

import torch

from . import flags, flavour, launcher, prebuilt, targets, tools
from .cache import OneLineErrors, cache_folder, checksum, digest, load_whole, locked, publish
from .checks import check
from .headers import without_comments
from .sources import Texts
from .turns import OF_BUILDS, taken

PARTS = {  # of a text, in the library of a kernel
    "forward": ("WITHOUT_BACKWARD",),
    "backward": ("WITHOUT_FORWARD",),
    "convolved": ("WITHOUT_FORWARD", "WITHOUT_BACKWARD", "WITH_CONVOLVED"),
}


def load(kernels: Any, operators: Any, kernel: str, device: str) -> None:
    """Loads a kernel, forward or backward, for a device, built unless this machine has built it before.

    Builds are kept by content. To load one takes no lock. To build one, a process takes a lock that the
    system frees when its holder ends and that a fork does not inherit.
    """
    name, namespace, key = kernels.name, operators.name, device.upper()
    oldest = ".".join(map(str, flavour.MINIMUM))
    recent = tuple(map(int, torch.__version__.split(".")[:2])) >= flavour.MINIMUM
    check(recent, name, f"needs PyTorch {oldest} or newer, and this is {torch.__version__}")
    recipe = recipe_of(kernels.texts(), kernel, device, namespace)
    with taken(operators):  # one thread at a time loads this module's kernels
        if torch._C._dispatch_has_kernel_for_dispatch_key(f"{namespace}::{name}_{kernel}", key):
            return
        if prebuilt.load(name, (namespace, kernel, device), content_of(recipe)):
            return
        if device == "cuda" and tools.cuda_compiler(name) == "nvrtc":
            launcher.implement(kernels, operators, kernel)
            return
        built = _built(name, namespace, (kernel, device), recipe)
        flavour.implement(operators, name, built, kernel, key)


@functools.lru_cache(None)
def can_load(kernels: Any, operators: Any, kernel: str) -> bool:
    """True if there is a library of a kernel for CUDA, which it then loads, or an nvcc that builds one."""
    if tools.cuda_compiler(kernels.name) == "nvcc" and tools.has_nvcc():
        return True
    recipe = recipe_of(kernels.texts(), kernel, "cuda", operators.name)
    return prebuilt.load(kernels.name, (operators.name, kernel, "cuda"), content_of(recipe))


def _built(module: str, namespace: str, of: "Tuple[str, str]", recipe: "Dict[str, Any]") -> Any:
    """Return a library from the folder of builds, where it is built first unless it is there."""
    recipe = for_targets(recipe, of[1], targets.wanted(of[1]))
    library = cache_folder(module) / file_name(namespace, of, recipe)
    made_by = tools.made_by(of[1])
    built = load_whole(library, made_by)
    if built:
        return built
    with contextlib.ExitStack() as stack:
        stack.enter_context(locked(module, library.with_suffix(".lock")))
        stack.enter_context(taken(torch.ops, OF_BUILDS))  # which set the process's variables
        return load_whole(library, made_by) or build_library(module, library, of, recipe)


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


def build_library(
    module: str, library: pathlib.Path, of: "tuple[str, str]", recipe: "Dict[str, Any]"
) -> Any:
    """Build and loads a library, and keeps it, with its size and digest beside it.

    Args:
        module: its name.
        library: the path of the library.
        of: the kernel and the device.
        recipe: the sources and the flags.
    """
    from torch.utils import cpp_extension

    kernel, device = of
    root, log = library.parent, library.with_suffix(".log")
    toolkit: Any = cpp_extension.CUDA_HOME
    words, path = tools.find_tools(module, device, toolkit)
    made_by = tools.made_by(device)  # before the build sets CXX
    executable = not os.statvfs(root).f_flag & os.ST_NOEXEC
    noexec = f"{root} is mounted noexec; set TORCH_EXTENSIONS_DIR to a folder that is not"
    check(executable, module, noexec)
    logging.getLogger("fusegen").info("building %s_%s for %s as %s", module, kernel, device, library)
    # ninja takes no other path
    place = root if re.fullmatch(r"[\w./+,=@-]+", str(root), re.ASCII) else None
    failure = f"the {kernel} kernel did not compile for {device}; the compiler's output is in {log}"
    explained, temporary = OneLineErrors(module, root, failure, log), tempfile.TemporaryDirectory(dir=place)
    with explained, temporary as folder, tools.Environment(CXX=tools.one_word(words, folder), PATH=path):
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
        _keep(flavour.kept_as(library, made), made.read_bytes(), made_by)
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
