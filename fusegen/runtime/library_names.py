"""The names of a library, apart from its code: modules whose C++ differs in the name only have one code.

A compiler sees the kernels of a module under a symbol that their text decides. The namespace and the name
of the operators lie in an array (``include/names.h``); the library of another module has others there.
"""

import re
from typing import Optional

MARK, FIELD = b"fusegen's names follow:\0", 256  # in front of the names; the bytes of each
# NAME_forward, ..., which a text defines
OWN = "forward|backward|mask|curve[0-9]+|convolved|multiplied|transposed|together|apart|drawn"


def under(symbol: str, text: str, name: str) -> str:
    """Return the C++ of a module with a symbol in place of its name.

    The module's name alone may be that of a function of a header, as ``tanh``: it stays, but in macros.
    """
    own = rf"\b{name}(?=_(?:{OWN}))"
    alone = rf'^(FUSEGEN_\w+\((?:[\w:().]+, "\w+", )?|#define FUSEGEN_SYMBOL "){name}(?=[,)"])'
    return re.sub(alone, rf"\g<1>{symbol}", re.sub(own, symbol, text), flags=re.MULTILINE)


def definition(namespace: str, name: str) -> str:
    """Return the C++ that gives a library its first names."""
    return f'#define FUSEGEN_SPACE "{namespace}"\n#define FUSEGEN_MODULE "{name}"\n'


def encoded(namespace: str, name: str) -> bytes:
    """Return the names as a library has them."""
    return MARK + b"".join(each.encode().ljust(FIELD, b"\0") for each in (namespace, name))


def renamed(library: bytes, namespace: str, name: str) -> "Optional[bytes]":
    """Return a library with other names; None where it has no names, or several."""
    wanted, place = encoded(namespace, name), library.find(MARK)
    if library.count(MARK) != 1 or len(library) < place + len(wanted):
        return None
    return library[:place] + wanted + library[place + len(wanted) :]
