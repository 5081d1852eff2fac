"""The text files that commands write where an option says."""

from pathlib import Path


def save(path: Path, text: str, mode: str) -> None:
    """Write (mode ``w``) or append (``a``) text to a file as UTF-8, in new folders if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode, encoding="utf-8") as file:
        file.write(text)
