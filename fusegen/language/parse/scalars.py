"""The forms of a plain scalar: YAML 1.2's core schema, for every field that holds a value.

A quoted scalar is a text. A plain scalar that YAML 1.1 reads as another value, or that looks like a number
and is none, is refused with what to write instead.
"""

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from fusegen.errors import NumberOutOfRange, Span, WrongValue
from fusegen.language.parse.document import Scalar

MAX_LENGTH = 100
MAX_SHOWN = 80
FINITE = "write a finite number such as 0.5, -3 or 1e-6"

Value = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class _Ambiguous:
    """A form that two readers read as two values: its pattern, and what to write instead."""

    pattern: re.Pattern[str]
    remedy: str


WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("null", "Null", "NULL", "~"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
WHOLE: dict[re.Pattern[str], int] = {  # and the base that each is written in
    re.compile(r"[-+]?(0|[1-9][0-9]*)"): 10,
    re.compile(r"0x[0-9a-fA-F]+"): 16,
    re.compile(r"0o[0-7]+"): 8,
}
REAL = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,3})?")
AMBIGUOUS = (
    _Ambiguous(re.compile(r"[yY]es|YES|[oO]n|ON"), "write true, or quote a word"),
    _Ambiguous(re.compile(r"[nN]o|NO|[oO]ff|OFF"), "write false, or quote a word"),
    _Ambiguous(re.compile(r"None"), "write null, or quote a word"),
    _Ambiguous(re.compile(r"[-+]?0[0-9_].*"), "write it without a leading zero, or in octal as 0o17"),
    _Ambiguous(re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?"), "write a number without underscores"),
    _Ambiguous(re.compile(r"[-+]?[0-9]+(:[0-9]+)+(\.[0-9]*)?"), "write a number without colons"),
    _Ambiguous(re.compile(r"[-+]?\.?([iI]nf|INF|[iI]nfinity)|\.?(nan|NaN|NAN)"), FINITE),
    _Ambiguous(re.compile(r"[-+.\d].*", re.DOTALL), f"{FINITE}, or quote a word"),
)
_FIELDS = AMBIGUOUS[3:6]  # what a field of numbers tells of; the rest is no number in any reading


def value(scalar: Scalar, key: str) -> Value:
    """Return the value of a scalar: null, a truth, a whole number, a real one in float64, or a text.

    Raises:
        WrongValue: it is ambiguous.
        NumberOutOfRange: float64 holds an infinity or a zero in its place.
    """
    written = scalar.text
    if scalar.quoted:
        return written
    if written in WORDS:
        return WORDS[written]
    number = _number(written)
    if isinstance(number, Fraction):
        return _fitting(written, number, scalar.span)
    if number is not None:
        return number
    for form in AMBIGUOUS:
        if form.pattern.fullmatch(written):
            what = f"value of {key}"
            raise WrongValue(scalar.span, value=written[:MAX_SHOWN], key=what, remedy=form.remedy)
    return written


def whole(scalar: Scalar) -> int | None:
    """Return the whole number that a scalar says, or nothing where it says something else."""
    number = None if scalar.quoted else _number(scalar.text)
    return number if isinstance(number, int) else None


def real(written: str, span: Span, key: str) -> float:
    """Return the number that a text says, as float64 holds it; a zero keeps its sign.

    Raises:
        WrongValue: it is no number, or ambiguous.
        NumberOutOfRange: float64 holds an infinity or a zero in its place.
    """
    return _fitting(written, exact(written, span, key), span)


def exact(written: str, span: Span, key: str) -> Fraction:
    """Return the number that a text says.

    Raises:
        WrongValue, NumberOutOfRange: as of `real`.
    """
    found = _number(written)
    if found is None:
        remedies = [form.remedy for form in _FIELDS if form.pattern.fullmatch(written)]
        remedy = next(iter(remedies), FINITE)
        raise WrongValue(span, value=written[:MAX_SHOWN], key=f"number for {key}", remedy=remedy)
    _fitting(written, Fraction(found), span)
    return Fraction(found)


def _number(written: str) -> int | Fraction | None:
    """Return a whole or a real number exactly, or nothing where the text is none."""
    if len(written) > MAX_LENGTH:
        return None
    for pattern, base in WHOLE.items():
        if pattern.fullmatch(written):
            return int(written, base)
    return Fraction(written) if REAL.fullmatch(written) else None


def _fitting(written: str, number: Fraction, span: Span) -> float:
    """Return the nearest float64, with the sign as written."""
    try:
        nearest = float(number)
    except OverflowError:
        nearest = math.inf
    if math.isinf(nearest) or (nearest == 0 and number != 0):
        raise NumberOutOfRange(span, what=f"the number {written}")
    return math.copysign(nearest, -1.0 if written.startswith("-") else 1.0)
