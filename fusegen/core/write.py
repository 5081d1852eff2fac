"""From texts to files: replaced whole, and only when their bytes change; or compared with them."""

import difflib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fusegen.core.access import refused


@dataclass(frozen=True, slots=True)
class Change:
    """A file that is, or would be, written or removed."""

    path: Path  # the file
    before: str | None  # its text, or None where it does not exist
    after: str | None  # the text it should have, or None where it should not exist

    @property
    def kind(self) -> str:
        """``new``, ``changed`` or ``removed``."""
        if self.before is None:
            return "new"
        return "removed" if self.after is None else "changed"

    def diff(self) -> str:
        """Return a unified diff from the file to the text it should have."""
        lines = difflib.unified_diff(
            (self.before or "").splitlines(keepends=True),
            (self.after or "").splitlines(keepends=True),
            str(self.path) if self.before is not None else "/dev/null",
            f"{self.path} (regenerated)" if self.after is not None else "/dev/null",
        )
        return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def changes(texts: dict[Path, str]) -> tuple[Change, ...]:
    """Return the files whose bytes differ from the given texts, in the order given.

    Raises:
        NoAccess: a file cannot be read.
    """
    found = ((path, _read(path), text) for path, text in texts.items())
    return tuple(Change(path, before, text) for path, before, text in found if before != text)


def removal(path: Path) -> Change:
    """Return the removal of a file.

    Raises:
        NoAccess: it cannot be read.
    """
    return Change(path, _read(path), None)


def text_of(path: Path) -> str:
    """Return the text of a file; an empty one where there is none.

    Raises:
        NoAccess: it cannot be read.
    """
    return _read(path) or ""


def head(path: Path) -> str:
    """Return the lines of a module above its docstring; nothing where there are none.

    Raises:
        NoAccess: the file cannot be read.
    """
    return text_of(path).partition('"""')[0]


def apply(change: Change) -> None:
    """Make a file what it should be.

    Raises:
        NoAccess: it cannot be written or removed.
    """
    act = "removed" if change.after is None else "written"
    try:
        if change.after is None:
            change.path.unlink()
        else:
            _replace(change.path, change.after.encode())
    except OSError as error:
        raise refused(error, change.path, act) from None


def replaced(path: Path, content: bytes) -> None:
    """Replace a file whole, and make its folder.

    Raises:
        NoAccess: it cannot be written.
    """
    try:
        _replace(path, content)
    except OSError as error:
        raise refused(error, path, "written") from None


def _replace(path: Path, content: bytes) -> None:
    """Replace a file whole: readers see the old content or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused(error, path, "read") from None
