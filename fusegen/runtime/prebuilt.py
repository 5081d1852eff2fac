"""The libraries that ``fusegen compile`` built ahead of time.

They lie in ``_libraries`` beside the runtime, and in the folders of the environment variable
FUSEGEN_LIBRARIES; if that is "none", no such library is used. The name of one is
NAMESPACE_KERNEL_DEVICE_TARGETS_CONTENT.so, where CONTENT is a digest of the sources without comments, and
of the flags that do not depend on the target. A library that others can write is not loaded.
"""

import logging
import os
import pathlib
from typing import Any, Dict, Iterator, List, Tuple

import torch

from . import library_names, targets
from .cache import load_whole

FOLDER, VARIABLE, NONE = "_libraries", "FUSEGEN_LIBRARIES", "none"


def file_name(of: "Tuple[str, str, str]", built_for: "Tuple[str, ...]", content: str) -> str:
    """Return the name of a library.

    Args:
        of: the namespace of the operators, the kernel and the device.
        built_for: the targets.
        content: the digest of what it was built from.
    """
    return "_".join((*of, *built_for, content)) + ".so"


def folders() -> "Iterator[pathlib.Path]":
    """Yield the folders that have libraries."""
    if os.environ.get(VARIABLE) == NONE:
        return
    for folder in os.environ.get(VARIABLE, "").split(os.pathsep):
        if folder:
            yield pathlib.Path(folder)
    place = globals().get("__file__")  # which a standalone file need not have
    if place:
        yield pathlib.Path(place).parent.parent / FOLDER


def load(
    module: str, of: "Tuple[str, str, str]", content: str, instead: str = "the kernel is built here"
) -> bool:
    """Loads the library of a kernel if there is one that runs here; says in a warning why others do not.

    Args:
        module: its name.
        of: the namespace of the operators, the kernel and the device.
        content: the digest of what it has to be built from.
        instead: what happens where others do not.
    """
    present = targets.here(of[-1])
    reasons: "Dict[str, str]" = {}
    for path, built_for, made_of in _found(of):
        reason = _mismatch(of[-1], (built_for, made_of), (present, content))
        if not reason and load_whole(path, "", library_names.encoded(of[0], module)):
            return True
        damaged = "it is damaged, renamed or writable by others"
        reasons[str(path)] = reason or f"{damaged}, or does not load in PyTorch {torch.__version__}"
    for path_, reason in reasons.items():
        logging.getLogger("fusegen").warning("%s: %s is not used: %s; %s", module, path_, reason, instead)
    return False


def _mismatch(device: str, has: "Tuple[Any, str]", needs: "Tuple[Any, str]") -> str:
    """Return the reason why a library does not run here, if there is one."""
    (built_for, made_of), (present, content) = has, needs
    if made_of != content:
        return "it was compiled from another version of the module"
    if not targets.serves(device, built_for, present):
        return f"it was compiled for {_words(built_for)}, and this is {_words(present)}"
    return ""


def _words(names: "Tuple[str, ...]") -> str:
    """Return targets as people write them."""
    return ", ".join(f"sm_{name}" if name[0].isdigit() else name for name in names)


def _found(of: "Tuple[str, str, str]") -> "List[Tuple[pathlib.Path, Tuple[str, ...], str]]":
    """The libraries of a kernel, with targets and contents; those for more vector instructions first."""
    prefix, found = "_".join(of) + "_", []
    for folder in folders():
        for path in sorted(folder.glob(f"{prefix}*.so")):
            *built_for, content = path.stem[len(prefix) :].split("_")
            found.append((path, tuple(built_for), content))
    return sorted(found, key=lambda each: _rank(each[1]), reverse=True)


def _rank(built_for: "Tuple[str, ...]") -> int:
    known = [targets.VECTORS.index(target) for target in built_for if target in targets.VECTORS]
    return max(known, default=0)
