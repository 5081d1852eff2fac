"""The plan in words: the sentences that a module's comments, `explain` and `show --stage plan` share."""

from collections.abc import Iterator, Mapping

from fusegen.core.dtypes import ELEMENTS
from fusegen.core.method import (
    DOUBLE,
    FAST,
    FLOAT,
    PLAIN,
    SINGLE_WORD,
    Arithmetic,
    AtDefaults,
    Formula,
    Grid,
    Method,
    Piecewise,
    Segmented,
    Table,
    Verified,
)

WIDTHS = {64: "float64", 32: "float32", 16: "16-bit"}
SERIES = "series where double would lose the result"
ARITHMETICS = {
    Arithmetic.FLOAT: "the formula in float",
    Arithmetic.FAST_FLOAT: "the formula in float, by faster functions",
    Arithmetic.SINGLE_WORD: "the formula in float, by single-word functions",
    Arithmetic.SINGLE_RESULT: "the formula in single-word float, but for arguments",
    Arithmetic.DOUBLE: "the formula in double",
    Arithmetic.PLAIN_DOUBLE: "the formula in single-word double",
    Arithmetic.SERIES: f"the formula in double, {SERIES}",
}
TABLE = "a table of all 65,536 results, cheaper than correctly rounded evaluation"
LOST = "since float exceeds the error budget"
GRIDS = {
    Grid.UNIFORM: "a piecewise cubic fitted in double, faster than the formula",
    Grid.OCTAVES: f"a piecewise cubic fitted in double, {LOST}",
}
SEGMENTED = "piecewise cubics for functions of one value"
VERIFIED = (
    "rounding is verified; where float's error bound leaves it undecided, the result is recomputed "
    "in double"
)
VERIFIED_SINGLE_WORD = f"{VERIFIED}; verified results use the single-word functions"
EXPECTED = (FLOAT, FAST)  # of dtypes that are computed in float


def sentence(method: Method) -> str:
    """Return the way in which a method obtains a result."""
    match method:
        case Formula(arithmetic):
            return ARITHMETICS[arithmetic]
        case Table(Arithmetic.SERIES):
            return f"{TABLE}, {SERIES}"
        case Table():
            return TABLE
        case Piecewise(grid, otherwise):
            return f"{GRIDS[grid]}; where no piece fits, {sentence(otherwise)}"
        case Segmented(otherwise):
            return f"{SEGMENTED}; where no piece fits, {sentence(otherwise)}"
        case Verified(Formula() as fast):
            return VERIFIED_SINGLE_WORD if fast == SINGLE_WORD else VERIFIED
        case Verified(Piecewise() as fitted):
            return f"{sentence(fitted)}; {VERIFIED}"
        case AtDefaults(then, otherwise):
            return f"{sentence(then)}; with other parameters than the defaults, {sentence(otherwise)}"
    raise NotImplementedError(method)


def told(methods: Mapping[str, Method]) -> Iterator[str]:
    """Yield a line for each method of a kernel, by dtype, after the dtypes that it is of."""
    widths: dict[str, list[int]] = {}
    for dtype, method in methods.items():
        bits = ELEMENTS[dtype].bits
        lost = bits < 64 and method in (DOUBLE, PLAIN)
        own = widths.setdefault(f"{sentence(method)}, {LOST}" if lost else sentence(method), [])
        own += [bits] if bits not in own else []
    for text, several in widths.items():
        yield f"{' and '.join(WIDTHS[bits] for bits in sorted(several, reverse=True))}: {text}."


def noteworthy(methods: Mapping[str, Method]) -> dict[str, Method]:
    """Return the methods of a kernel but for the formula in the arithmetic that a dtype has anyway."""
    return {
        dtype: method
        for dtype, method in methods.items()
        if method not in (EXPECTED if ELEMENTS[dtype].bits < 64 else (DOUBLE,))
    }
