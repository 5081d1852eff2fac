"""The build of a kernel on first use, unless this machine has built it before."""

import contextlib
import functools
import itertools
import logging
import os
import pathlib
import tempfile
from typing import Any, List, Sequence, Tuple

import torch

from . import (
    by_dtype,
    compiled_call,
    direct,
    flavour,
    launched,
    library_names,
    prebuilt,
    targets,
    together,
    tools,
)
from .cache import OneLineErrors, cache_folder, checksum, load_whole, locked, publish, read_whole
from .checks import check
from .progress import Progress
from .recipe import content_of, file_name, for_targets, recipe_of, recipe_of_part
from .turns import OF_BUILDS, taken
from .wanted import Wanted


def load(kernels: Any, operators: Any, kernel: str, device: str, dtype: Any = None) -> None:
    """Load a kernel, forward or backward, for a device, built unless this machine has built it before.

    On the CPU it is loaded for a dtype, or for all. The same kernel of the module's companions is loaded,
    too: what is missing is built side by side.

    Builds are kept by content. To load one takes no lock. To build one, a process takes a lock that the
    system frees when its holder ends and that a fork does not inherit.
    """
    oldest = ".".join(map(str, flavour.MINIMUM))
    recent = tuple(map(int, torch.__version__.split(".")[:2])) >= flavour.MINIMUM
    check(recent, kernels.name, f"needs PyTorch {oldest} or newer, and this is {torch.__version__}")
    compiled_call.begin()
    several = {(operators.name, kernel): (kernels, operators, kernel)}  # errors of the first are raised
    for each, each_pass in together.companions(kernels, kernel):
        several.setdefault((each.operators.name, each_pass), (each, each.operators, each_pass))
    holders = {one.name: one for _, one, _ in several.values()}
    with contextlib.ExitStack() as stack:
        for name in sorted(holders):  # one order for all threads: one at a time loads a module's kernels
            stack.enter_context(taken(holders[name]))
        first = _wanted(kernels, operators, kernel, (device, dtype))
        if first:
            others = [_wanted_or_none(*of, (device, dtype)) for of in [*several.values()][1:]]
            _build([*first, *itertools.chain(*others)])


def load_library(kernels: Any, operators: Any, kernel: str, device: str, dtype: Any = None) -> None:
    """Load the library of a kernel, in place of Python's launches if there is an nvcc."""
    if device == "cuda" and tools.begins_by_nvrtc():
        with taken(kernels):
            launched.remove(operators, kernel)
    load(kernels, operators, kernel, device, dtype)


def missing(kernels: Any, operators: Any, kernel: str, device: str) -> "List[Wanted]":
    """Return the libraries of a kernel that are to be built; it is loaded if there are none."""
    with taken(kernels):
        return _wanted(kernels, operators, kernel, (device, None))


def is_loaded(kernels: Any, operators: Any, kernel: str, device: str) -> bool:
    """Return True if PyTorch has a kernel for a device."""
    name = f"{operators.name}::{kernels.name}_{kernel}"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, device.upper()))


def _wanted(kernels: Any, operators: Any, kernel: str, of: "Tuple[str, Any]") -> "List[Wanted]":
    """Return the libraries to build of a kernel for a device and a dtype; others are loaded now."""
    (device, dtype), name, namespace = of, kernels.name, operators.name
    has_kernel = is_loaded(kernels, operators, kernel, device)
    has_parts = tools.is_direct(device)
    parts = by_dtype.parts(kernels.dtypes, dtype)[int(has_kernel) :] if has_parts else [""]
    if has_kernel and (not has_parts or all(by_dtype.is_loaded(operators, kernel, part) for part in parts)):
        return []
    texts = kernels.texts()
    content = "" if has_kernel else content_of(recipe_of(texts, kernel, device))
    if content and prebuilt.load(name, (namespace, kernel, device), content):
        return []
    if device == "cuda" and tools.cuda_compiler(name) == "nvrtc":
        kernels.by_nvrtc(operators, kernel)
        return []
    missing, folder, made_by = [], cache_folder(name), tools.made_by(device)
    if has_parts:
        load_dtype = functools.partial(load, kernels, operators, kernel, device)
        by_dtype.divide(kernels, operators, kernel, load_dtype)
    for part in parts:
        if has_parts and by_dtype.is_loaded(operators, kernel, part):
            continue
        recipe = recipe_of_part(texts, kernel, part) if part else recipe_of(texts, kernel, device)
        recipe = for_targets(recipe, device, targets.wanted(device))
        library = folder / file_name(namespace, (kernel, device), recipe)
        wanted = Wanted(kernels, operators, kernel, device, part, recipe, library, made_by)
        if not (_found(wanted) or _is_launched(wanted)):
            missing.append(wanted)
    return missing


def _is_launched(wanted: Wanted) -> bool:
    """Return True if NVRTC compiles a kernel, until a call needs the library, in a tenth of its time."""
    of = wanted.kernels, wanted.operators, wanted.kernel
    removed = launched.is_removed(*of[1:])
    if wanted.device != "cuda" or removed or not tools.begins_by_nvrtc():
        return False
    if wanted.kernel not in getattr(wanted.kernels, "launches", ()):
        return False
    wanted.kernels.by_nvrtc(*of[1:], functools.partial(load_library, *of, "cuda"))
    return True


def _wanted_or_none(*of: Any) -> "List[Wanted]":
    """Return the libraries to build of a companion, whose own first use tells what is wrong with it."""
    with contextlib.suppress(Exception):
        return _wanted(*of)
    return []


def _found(wanted: Wanted) -> bool:
    """Return True if a library is in the folder of builds; it is loaded."""
    built = load_whole(wanted.library, wanted.made_by, wanted.encoded)
    if built:
        wanted.implement(built)
    return bool(built)


def _found_alike(wanted: Wanted) -> bool:
    """Return True if a library has other names; one with these names is made of it, and loaded."""
    for path in sorted(wanted.library.parent.glob(f"*_{wanted.alike}.so")):
        content = read_whole(path, wanted.made_by)
        made = content and wanted.named(content)
        if made:
            made_by = path.with_suffix(".sum").read_text().partition("\n")[2]
            with OneLineErrors(wanted.kernels.name, path.parent):
                keep(wanted.library, made, made_by)
            return _found(wanted)
    return False


@functools.lru_cache(None)
def can_load(kernels: Any, operators: Any, kernel: str) -> bool:
    """True if there is a library of a kernel for CUDA, which it then loads, or an nvcc that builds one."""
    if tools.cuda_compiler(kernels.name) == "nvcc" and tools.has_nvcc():
        return True
    content = content_of(recipe_of(kernels.texts(), kernel, "cuda"))
    instead = "PyTorch runs in its place, since there is no nvcc"
    return prebuilt.load(kernels.name, (operators.name, kernel, "cuda"), content, instead)


def _build(several: "Sequence[Wanted]") -> None:
    """Build libraries side by side, unless another process builds them first, and load them.

    Raises:
        RuntimeError: the kernel of the first one cannot be built; another's own first use tells so.
    """
    first = several[0]
    with contextlib.ExitStack() as stack:
        for stem in sorted({wanted.alike for wanted in several}):  # one order for all processes
            lock = first.library.with_name(f"{stem}.lock")
            stack.enter_context(locked(first.kernels.name, lock))
        stack.enter_context(taken(torch.ops, OF_BUILDS))  # which sets the process's variables
        missing = [wanted for wanted in several if not (_found(wanted) or _found_alike(wanted))]
        if not missing:
            return
        chosen = {wanted.alike: wanted for wanted in reversed(missing)}
        different = [wanted for wanted in missing if wanted is chosen[wanted.alike]]
        titles = [each.title for each in different if each.part != by_dtype.BINDING] or [first.title]
        found = tools.compilers(first.kernels.name, first.device, tools.place_of(first.library.parent))
        most = together.jobs() // len(different)  # of each
        with found as words, Progress(titles) as progress:
            for wanted, built in together.each(lambda one: build_library(one, words, most), different):
                progress.done(wanted.part != by_dtype.BINDING)
                if not isinstance(built, Exception):
                    wanted.implement(built)
                elif wanted.of == first.of:
                    raise built
        for wanted in missing:
            if wanted is not chosen[wanted.alike]:
                _found_alike(wanted)


def build_library(wanted: Wanted, words: "List[str]", most: int) -> Any:
    """Build and load a library, and keep it, with its size and digest beside it.

    Args:
        wanted: the library.
        words: of the C++ compiler's command, which the environment has.
        most: compilers that may run at once.
    """
    module, kernel, device = wanted.kernels.name, wanted.kernel, wanted.device
    library = wanted.library
    root, log = library.parent, library.with_suffix(".log")
    executable = not os.statvfs(root).f_flag & os.ST_NOEXEC
    noexec = f"{root} is mounted noexec; set TORCH_EXTENSIONS_DIR to a folder that is not"
    check(executable, module, noexec)
    logging.getLogger("fusegen").info("building %s_%s for %s as %s", module, kernel, device, library)
    failure = f"the {kernel} kernel did not compile for {device}; the compiler's output is in {log}"
    temporary = tempfile.TemporaryDirectory(dir=tools.place_of(root))
    with OneLineErrors(module, root, failure, log), temporary as folder:
        if not tools.is_direct(device):
            return _built_by_torch(wanted, words, folder)
        names = library_names.definition(*wanted.names)
        keep(
            library, direct.build(wanted.recipe, names, direct.Folder(folder, words, most)), wanted.made_by
        )
        return flavour.loaded(library)


def _built_by_torch(wanted: Wanted, words: "List[str]", folder: str) -> Any:
    """Build and load a library by PyTorch's functions, and keep it."""
    from torch.utils import cpp_extension

    recipe, toolkit = wanted.recipe, cpp_extension.CUDA_HOME
    for_cuda = tools.split_compile(str(toolkit)) if wanted.device == "cuda" else []
    built = cpp_extension.load_inline(
        name=flavour.extension(wanted.library),
        cpp_sources=[library_names.definition(*wanted.names), *recipe["cpp_sources"]],
        cuda_sources=recipe["cuda_sources"],
        extra_cflags=tools.accepted(recipe["extra_cflags"], words, folder),
        extra_cuda_cflags=recipe["extra_cuda_cflags"] + for_cuda,
        build_directory=folder,
        **flavour.inline_options(wanted.kernel),
    )
    [made] = pathlib.Path(folder).glob("*.so")
    keep(flavour.kept_as(wanted.library, made), made.read_bytes(), wanted.made_by)
    return built


def keep(library: pathlib.Path, content: bytes, made_by: str) -> None:
    """Write a library, and its size, its digest and the tools that made it beside it."""
    publish(library, content)
    publish(library.with_suffix(".sum"), checksum(library, content) + made_by.encode())
