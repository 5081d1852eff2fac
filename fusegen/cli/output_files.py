"""The text files that commands write where an option says."""

from pathlib import Path


def save(path: Path, text: str, mode: str) -> None:
    """Write or append to a file, in new folders if need be.

    Args:
        path: the file.
        text: the characters to write, as UTF-8.
        mode: ``w`` to replace the file, ``a`` to append to it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode, encoding="utf-8") as file:
        file.write(text)
