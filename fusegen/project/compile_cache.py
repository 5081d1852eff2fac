"""Results that were computed before, by the digest of all that they were computed from.

They are JSON files in a folder of the user's, below XDG_CACHE_HOME or ~/.cache. A folder that belongs to
somebody else, or that others may write to, is not used; nor is any that the system refuses. Nothing fails
for want of the cache: a result that is not in it is computed again.
"""

import contextlib
import functools
import hashlib
import json
import os
import platform
import sys
import tempfile
import time
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from fusegen.project.library_folder import is_own

LIBRARIES = ("jinja2", "mpmath", "numpy", "pyyaml", "sympy")  # which decide what the compiler makes
DECIDING = (".py", ".j2", ".toml", ".h", ".cuh")  # the files that decide it
APART = ("models", "tools")  # rooms that decide no result, since nothing that computes one imports them
DAYS = 30  # after which a result that nobody asked for is removed
SWEPT = "swept"  # the file whose time says when results were last removed


def key(*parts: bytes | str) -> str:
    """Return the digest of what decides a result, the compiler included."""
    digest = hashlib.sha256(compiler().encode())
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.hexdigest()


def recall(key: str) -> Any:
    """Return a result, or None where it is not known."""
    folder = _folder()
    if folder is None:
        return None
    path = folder / key
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    with contextlib.suppress(OSError):  # of a folder that is only to be read
        os.utime(path)
    return found


def remember(key: str, result: Any) -> None:
    """Keep a result that JSON can express."""
    folder = _folder()
    if folder is None:
        return
    with contextlib.suppress(OSError):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            path = Path(place, key)
            path.write_text(json.dumps(result), encoding="utf-8")
            path.replace(folder / key)
        _sweep(folder)


@functools.cache
def compiler() -> str:
    """Return the digest of the compiler's own files, and of the libraries that it rests on."""
    inside = Path(str(resources.files("fusegen")))
    beside = [inside / "templates", inside.parent / "templates"]
    host = (sys.version, platform.machine(), *platform.libc_ver())
    digest = hashlib.sha256(repr(host).encode())
    for name in LIBRARIES:
        digest.update(_version(name).encode())
    for folder in (inside, *(each for each in beside if each.is_dir())):
        for path in sorted(each for each in folder.rglob("*") if each.suffix in DECIDING):
            place = path.relative_to(folder)
            if place.parts[0] not in APART and path.is_file():
                digest.update(place.as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _version(name: str) -> str:
    """Return the version of an installed library; empty where nothing tells it."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _folder() -> Path | None:
    """Return the folder of results, if it can be used and is the user's own."""
    root = os.environ.get("XDG_CACHE_HOME") or (
        os.environ.get("HOME", "") and f"{os.environ['HOME']}/.cache"
    )
    if not root or not os.path.isabs(root):
        return None
    folder = Path(root, "fusegen")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder if is_own(folder) else None
    except OSError:
        return None


def _sweep(folder: Path) -> None:
    """Remove results that nobody asked for in a while, once a day."""
    mark, now = folder / SWEPT, time.time()
    if mark.exists() and now - mark.stat().st_mtime < 24 * 3600:
        return
    mark.touch()
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if path.is_file() and now - path.stat().st_mtime > DAYS * 24 * 3600:
                path.unlink()
