"""The folder of builds: where it is, whom it trusts, and how files in it are written."""

import contextlib
import hashlib
import os
import pathlib
import stat
import tempfile
from typing import Any, Callable, Optional

from . import flavour
from .checks import check


def cache_path(module: str) -> pathlib.Path:
    """The path of the folder of builds, which may not be there."""
    given, cache = (os.environ.get(key, "") for key in ("TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME"))
    if not os.path.isabs(cache):
        cache = os.path.join(os.path.expanduser("~"), ".cache")
    unset = (
        "no folder to build in: neither TORCH_EXTENSIONS_DIR, XDG_CACHE_HOME nor HOME is set; set the first"
    )
    check(given or os.path.isabs(cache), module, unset)
    given = given or os.path.join(cache, "torch_extensions")
    return pathlib.Path(os.path.realpath(os.path.join(given, "fusegen")))


def cache_folder(module: str) -> pathlib.Path:
    """The folder of builds, made if there is none; only this user and root may be able to write it."""
    root = cache_path(module)
    with OneLineErrors(module, root):
        root.mkdir(0o755, parents=True, exist_ok=True)
    mine = "make it yours alone (chown, chmod go-w), or set TORCH_EXTENSIONS_DIR to another folder"
    check(trusted(root, stat.S_ISDIR), module, f"other users can write {root}; {mine}")
    return root


def trusted(path: pathlib.Path, kind: "Callable[[int], bool]" = stat.S_ISREG) -> bool:
    """Return True if a path is a plain file, not a link, that no other user but root can write."""
    found = os.lstat(path)
    return kind(found.st_mode) and found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022


def digest(text: str) -> str:
    """Return the first 16 hexadecimal digits of a text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def checksum(path: pathlib.Path, content: bytes) -> bytes:
    """Return the size and the digest of a library and its name, as they are written beside it.

    The name has the digest of the sources, so that a renamed or swapped library is not used.
    """
    named = hashlib.sha256(path.stem.encode() + b"\n" + content).hexdigest()
    return f"{len(content)} {named}\n".encode()


def read_whole(path: pathlib.Path, made_by: str = "") -> "Optional[bytes]":
    """Return the content of a file if it can be trusted, is as it was built, and was made by these tools.

    Args:
        path: of the file.
        made_by: the line on its tools, as `tools.made_by` has it; empty for any tools.
    """
    with contextlib.suppress(OSError):
        known = path.with_suffix(".sum")
        if trusted(path) and trusted(known):
            content = path.read_bytes()
            wanted = checksum(path, content) + made_by.encode()
            return content if known.read_bytes().startswith(wanted) else None
    return None


def load_whole(library: pathlib.Path, made_by: str, names: bytes) -> Any:
    """Loads a library if it can be trusted, is as it was built, by these tools, and has these names."""
    content = read_whole(library, made_by)
    return flavour.loaded(library) if content is not None and names in content else None


def locked(module: str, path: pathlib.Path) -> Any:
    """Return a lock, held until it is closed; without locks, processes may build the same at once."""
    import fcntl

    with OneLineErrors(module, path.parent):
        if os.path.lexists(path) and not (trusted(path) and os.access(path, os.W_OK)):
            path.unlink()
        lock = open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o644))  # noqa: SIM115
    with contextlib.suppress(OSError):
        fcntl.lockf(lock, fcntl.LOCK_EX)
    return lock


def publish(path: pathlib.Path, content: bytes) -> None:
    """Write a file that is whole when it appears under its name, and takes the place of what was there."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        new = pathlib.Path(folder, path.name)
        new.write_bytes(content)
        new.chmod(new.stat().st_mode & ~0o022)
        os.replace(new, path)


class OneLineErrors:
    """Turns an error of a file, or of a compiler, with a log, into one sentence."""

    def __init__(
        self, module: str, root: pathlib.Path, failure: str = "", log: "Optional[pathlib.Path]" = None
    ) -> None:
        self.module, self.root, self.failure, self.log = module, root, failure, log

    def __enter__(self) -> "OneLineErrors":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, OSError) and error.errno:
            hint = "set TORCH_EXTENSIONS_DIR to a folder that can be written"
            sentence = f"{self.module}: cannot build in {self.root}: {error.strerror}; {hint}"
            raise RuntimeError(sentence) from None
        if self.log and isinstance(error, Exception):
            with OneLineErrors(self.module, self.root):
                publish(self.log, str(error).encode(errors="backslashreplace"))
            raise RuntimeError(f"{self.module}: {self.failure}") from None
