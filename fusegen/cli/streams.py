"""Streams that cannot hold every letter: a plain spelling takes the place of `·` or `Φ`.

click writes UTF-8 to a stream whose encoding is ASCII, rich raises an error there, and both raise one at an
encoding such as Latin-1. With this file every stream prints, and only what it can hold.
"""

import codecs
import io
import re
import sys
from collections.abc import Callable

SPELLED = {
    **{"·": "*", "×": "x", "±": "+-", "√": "sqrt", "Φ": "Phi", "π": "pi", "µ": "u", "∞": "inf"},
    **{"≤": "<=", "≥": ">=", "≠": "!=", "→": "->", "…": "..."},
}
POWERS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-", strict=True))
ERRORS = "fusegen.spelled"  # the name of the handler of letters that an encoding lacks
ASCII = "fusegen_ascii"  # a name of ASCII that click does not take for a misconfigured stream


def use_plain_letters() -> Callable[[], None]:
    """Let the standard streams spell the letters that they cannot hold.

    Returns:
        What sets the streams as they were.
    """
    codecs.register_error(ERRORS, _spelled)
    codecs.register(_found)
    before = [(stream, stream.encoding, stream.errors) for stream in _streams()]
    for stream, encoding, _ in before:
        stream.reconfigure(
            encoding=ASCII if codecs.lookup(encoding).name == "ascii" else encoding, errors=ERRORS
        )

    def undo() -> None:
        for stream, encoding, errors in before:
            stream.reconfigure(encoding=encoding, errors=errors)

    return undo


def holds(text: str) -> bool:
    """Return True if the standard output can hold every letter of a text."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _streams() -> list[io.TextIOWrapper]:
    """Return the standard streams whose encoding is less than Unicode."""
    found = [each for each in (sys.stdout, sys.stderr) if isinstance(each, io.TextIOWrapper)]
    return [each for each in found if not each.encoding.lower().startswith("utf")]


def _found(name: str) -> codecs.CodecInfo | None:
    """Return the codec of ASCII under its other name."""
    if name != ASCII:
        return None
    plain = codecs.lookup("ascii")
    coders = (plain.incrementalencoder, plain.incrementaldecoder)
    return codecs.CodecInfo(
        plain.encode, plain.decode, plain.streamreader, plain.streamwriter, *coders, ASCII
    )


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """Return the spelling of letters that an encoding lacks, and the place behind them."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    powers = re.sub(
        f"[{''.join(POWERS)}]+", lambda run: "^" + "".join(POWERS[power] for power in run[0]), letters
    )
    plain = "".join(SPELLED.get(letter, letter) for letter in powers)
    return plain.encode("ascii", "backslashreplace").decode("ascii"), error.end
