"""The folders of compiled kernels: where they are, and which of their files are fusegen's. No torch."""

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from fusegen.errors import NoBuildFolder, Span

# as in runtime/prebuilt.py: the folder, the variable that names more, and its value for none at all
LIBRARIES, VARIABLE, NO_LIBRARIES = "_libraries", "FUSEGEN_LIBRARIES", "none"
DIGEST = "[0-9a-f]{16}"
_PASS = "(forward|backward|convolved|multiplied)_(cpu|cuda)"
# kernels that modules share: of layers, of masks, and of copies
_SHARED = "(together|apart|drawn_out|transposed_out)_cuda"
_NAMED = rf"[a-z]\w*_[0-9a-f]{{6}}(_{DIGEST})?_{_PASS}|[a-z]\w*_(linear|mask|layout)(_{DIGEST})?_{_SHARED}"
_OF = rf"(?P<of>{_NAMED})"
_CONTENT = rf"(?P<content>{DIGEST})"
KERNEL = re.compile(f"{_OF}_{_CONTENT}")  # of a library built on first use
AHEAD = re.compile(rf"{_OF}_\w+_{_CONTENT}")  # of a library compiled ahead of time, with its targets
ALIKE = re.compile(f"({_PASS}|{_SHARED})_{DIGEST}")  # of the lock of libraries that differ in names only
PROGRAM = re.compile(
    rf"([a-z]\w*_[0-9a-f]{{6}}(_{DIGEST})?_)?(forward|backward)_\w+_(strided|dense)_sm\d+_{DIGEST}"
)  # of machine code that NVRTC made; older runtimes have the names in it
FILTER = re.compile(rf"interval_filter_(cpu|sm_\d+)_{DIGEST}")
KINDS = KERNEL, ALIKE, PROGRAM, FILTER
SUFFIXES = (".so", ".cubin", ".sum", ".log", ".lock")
TEMPORARY = re.compile(r"tmp[a-z0-9_]{8}")  # a folder that a build works in
A_DAY = 24 * 3600  # seconds after which no build works in such a folder


def build_folder() -> Path:
    """Return the folder of builds of modules and of interval filters; it need not exist.

    Raises:
        NoBuildFolder: the environment names none.
    """
    given, cache = (os.environ.get(key, "") for key in ("TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME"))
    if not os.path.isabs(cache):
        cache = os.path.join(os.path.expanduser("~"), ".cache")
    if not (given or os.path.isabs(cache)):
        raise NoBuildFolder(Span("TORCH_EXTENSIONS_DIR"))
    return Path(given or os.path.join(cache, "torch_extensions")).resolve() / "fusegen"


def named_libraries() -> list[Path]:
    """Return the folders of libraries that the environment names."""
    given = os.environ.get(VARIABLE, "")
    return [Path(each) for each in given.split(os.pathsep) if each not in ("", NO_LIBRARIES)]


def is_trusted(path: Path) -> bool:
    """Return True if a file or folder is the user's or root's, no link, and nobody else can write to it."""
    found = path.lstat()
    others = stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    return found.st_uid in (0, os.geteuid()) and not others and not stat.S_ISLNK(found.st_mode)


def is_own(path: Path) -> bool:
    """Return True if a folder is the user's, no link, and nobody else can write to it."""
    found = path.lstat()
    return is_trusted(path) and stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def files(folder: Path) -> dict[str, tuple[Path, ...]]:
    """The plain files in a folder that have the suffixes of a library, by its stem; links are left out."""
    found: dict[str, tuple[Path, ...]] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in SUFFIXES and stat.S_ISREG(path.lstat().st_mode):
            found[path.stem] = (*found.get(path.stem, ()), path)
    return found


def libraries(folder: Path) -> dict[str, tuple[Path, ...]]:
    """The same, with the lock of libraries of equal kernels among the files of the first of these."""
    found = files(folder)
    for stem in [stem for stem in found if ALIKE.fullmatch(stem)]:
        alike = [other for other in found if KERNEL.fullmatch(other) and other.endswith(f"_{stem}")]
        for first in alike[:1]:
            found[first] += found.pop(stem)
    return found


def abandoned(folder: Path) -> Iterator[Path]:
    """Yield the temporary folders that builds left, as when they were killed; links are left out."""
    for path in sorted(folder.iterdir()):
        found = path.lstat()
        old = time.time() - found.st_mtime > A_DAY
        if TEMPORARY.fullmatch(path.name) and stat.S_ISDIR(found.st_mode) and old:
            yield path


def in_use(files: Iterable[Path]) -> bool:
    """Return True if a process holds the lock among the files of a library, since it builds it."""
    for path in files:
        if path.suffix == ".lock":
            with path.open("ab") as lock:
                try:
                    fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    return error.errno in (errno.EACCES, errno.EAGAIN)
    return False
