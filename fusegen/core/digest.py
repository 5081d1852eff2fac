"""The digest by which a text is known again."""

import hashlib
from collections.abc import Mapping

DIGITS = 64  # of a SHA-256 in hexadecimal


def digest(text: str | bytes, digits: int = DIGITS) -> str:
    """Return the first hexadecimal digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:digits]


def of_files(texts: Mapping[str, str]) -> str:
    """Return the digest of files, by path: of their paths and texts."""
    return digest("".join(f"{path}\0{text}\0" for path, text in sorted(texts.items())))
