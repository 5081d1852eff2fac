"""The element types: one row per dtype, with how it meets its math type."""

from dataclasses import dataclass

from fusegen.core.ir import Math


@dataclass(frozen=True, slots=True)
class Element:
    """The elements of one dtype."""

    bits: int  # of one in memory
    compute: Math  # the type arithmetic is done in


ELEMENTS = {
    "float32": Element(32, Math.FLOAT),
    "float16": Element(16, Math.FLOAT),
    "bfloat16": Element(16, Math.FLOAT),
    "float64": Element(64, Math.DOUBLE),
}


def maths(dtypes: tuple[str, ...]) -> tuple[Math, ...]:
    """Return the math types that some dtypes need, each once."""
    return tuple(dict.fromkeys(ELEMENTS[dtype].compute for dtype in dtypes))
