"""Files that the system refuses to read or write, as errors with a sentence and a remedy."""

import errno
import os
import stat
import tempfile
from pathlib import Path

from fusegen.errors import FusegenError, NoAccess, Span

REMEDIES = {
    errno.EACCES: "change its permissions, or choose another place",
    errno.EPERM: "change its permissions, or choose another place",
    errno.EROFS: "the file system is read-only; choose another place",
    errno.ENOSPC: "free some space, or choose another place",
    errno.EDQUOT: "free some space, or choose another place",
    errno.EISDIR: "this is a folder; give the name of a file",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOENT: "check the name",
}
OTHERWISE = "choose another place"


def refused(error: OSError, path: Path, act: str) -> FusegenError:
    """Return what the system answered as an error of an act: ``read``, ``written`` or ``removed``."""
    for parent in path.parents:
        if os.path.exists(parent) and not os.path.isdir(parent):  # which never raise, as Path's may
            why, remedy = "it is a file, where a folder is needed", "name a folder"
            return NoAccess(Span(parent.as_posix()), act="used", why=why, remedy=remedy)
    reason = os.strerror(error.errno) if error.errno else str(error)
    why = reason[:1].lower() + reason[1:]
    remedy = REMEDIES.get(error.errno or 0, OTHERWISE)
    return NoAccess(Span(path.as_posix()), act=act, why=why, remedy=remedy)


def require_writable(*paths: Path) -> None:
    """Check that some files can be written, with new folders around them; nothing is left behind.

    Raises:
        NoAccess: for the first that cannot.
    """
    for path in paths:
        try:
            _probe(path)
        except OSError as error:
            raise refused(error, path, "written") from None


def _probe(path: Path) -> None:
    """Do what writing needs: open the file that is there, or make one in the nearest folder."""
    mode = path.stat().st_mode if _exists(path) else None
    if mode is None:
        folder = next(parent for parent in path.absolute().parents if _exists(parent))
        with tempfile.TemporaryFile(dir=folder):
            return
    if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
        with path.open("r+b"):
            return
    if not os.access(path, os.W_OK):  # a device or a pipe, whose opening may wait for a reader
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
