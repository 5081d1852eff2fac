"""Plain scalars of a spec: YAML 1.2's core schema, and refusals of ambiguous ones."""

import math
import struct

import pytest
from conftest import Workshop
from parsed import spec as parsed

from fusegen.algebra.simplify.constants import in_float32
from fusegen.errors import FusegenError, Span, SpecErrors
from fusegen.language.parse import parse_spec, scalars
from fusegen.language.parse.document import Scalar

SPAN = Span("specs/gate.yaml")


def scalar(text: str, *, quoted: bool = False) -> Scalar:
    return Scalar(text, quoted, SPAN, lambda _: SPAN)


SAYS = {
    "null": None, "Null": None, "NULL": None, "~": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    "0": 0, "-0": 0, "7": 7, "+3": 3, "-12": -12, "0x10": 16, "0xFf": 255, "0o17": 15,
    "123456789012345678901234567890": 123456789012345678901234567890,
    "1.0": 1.0, "0.5": 0.5, ".5": 0.5, "+.5": 0.5, "5.": 5.0, "-1.5": -1.5, "1e3": 1e3, "1E-3": 1e-3,
    "-2.5e+2": -250.0, "5e-324": 5e-324,
    "zeros": "zeros", "none": "none", "y": "y", "n": "n", "tRue": "tRue", "a1.b-c": "a1.b-c",
}  # fmt: skip


@pytest.mark.together
@pytest.mark.parametrize("written", SAYS)
def test_a_plain_scalar_says_what_the_core_schema_says(written: str) -> None:
    found = scalars.value(scalar(written), "bias")
    assert (type(found), found) == (type(SAYS[written]), SAYS[written])


@pytest.mark.together
@pytest.mark.parametrize("written", [*SAYS, "no", "010"])
def test_a_quoted_scalar_is_a_text(written: str) -> None:
    assert scalars.value(scalar(written, quoted=True), "bias") == written
    assert scalars.whole(scalar(written, quoted=True)) is None


TRUE, FALSE = "write true, or quote a word", "write false, or quote a word"
ZERO, LOOKS = (
    "write it without a leading zero, or in octal as 0o17",
    "write a finite number such as 0.5, -3 or 1e-6, or quote a word",
)
AMBIGUOUS = {
    **dict.fromkeys(("yes", "Yes", "YES", "on", "On", "ON"), TRUE),
    **dict.fromkeys(("no", "No", "NO", "off", "Off", "OFF"), FALSE),
    "None": "write null, or quote a word",
    **dict.fromkeys(("010", "-010", "+08", "00", "00.5", "0_1", "01e2"), ZERO),
    **dict.fromkeys(("1_000", "1_0.5", "-1__0"), "write a number without underscores"),
    **dict.fromkeys(("1:30", "-190:20:30", "1:30.5"), "write a number without colons"),
    **dict.fromkeys((".inf", "-.Inf", "inf", "Infinity", ".nan", "NaN", "nan"), scalars.FINITE),
    **dict.fromkeys(
        ("0b101", "0X10", "0O7", "-0x10", "1.2.3", "2024-01-01", "3px", "1e", "+", "-x", ".x", "1e1000",
         "1" * 101, "١٦", "１"), LOOKS),
}  # fmt: skip


@pytest.mark.together
@pytest.mark.parametrize("written", AMBIGUOUS)
def test_an_ambiguous_scalar_is_refused_with_what_to_write_instead(written: str) -> None:
    with pytest.raises(FusegenError) as told:
        scalars.value(scalar(written), "bias")
    assert told.value.message == f"{written[:80]!r} is not a valid value of bias"
    assert str(told.value).endswith(f"hint: {AMBIGUOUS[written]}")


@pytest.mark.parametrize("written", ["1e400", "-1e309", "1e-400", "-1e-324"])
def test_a_number_that_float64_loses_is_refused(written: str) -> None:
    for read in (
        lambda: scalars.value(scalar(written), "a"),
        lambda: scalars.real(written, SPAN, "a"),
        lambda: scalars.exact(written, SPAN, "a"),
    ):
        with pytest.raises(FusegenError) as told:
            read()
        assert told.value.message == f"the number {written} does not fit in float64"


@pytest.mark.parametrize("written", ["-0.0", "-0", "-0e5"])
def test_a_parameter_keeps_the_sign_of_a_zero(written: str) -> None:
    [param] = parsed(f"params: {{a: {written}}}\nformula: x + a").params
    assert (param.default, math.copysign(1, param.default)) == (0.0, -1.0)


@pytest.mark.together
@pytest.mark.parametrize(
    ("written", "literal"),
    [
        *((word, "False") for word in ("false", "False", "FALSE")),
        *((word, "None") for word in ("null", "~")),
        ("0x10", "16"), ("+3", "3"), ("-0.0", "-0.0"), ("1e3", "1000.0"), ("'no'", '"no"'), ("'1'", '"1"'),
        ("zeros", '"zeros"'), ("[1, 0x2, [true]]", "(1, 2, (True,))"),
    ],
)  # fmt: skip
def test_init_holds_the_python_literal_of_what_is_said(written: str, literal: str) -> None:
    [argument] = parsed(f"init: {{a: {written}}}\nformula: x + 1").init
    assert (argument.name, argument.text) == ("a", literal)


@pytest.mark.parametrize("written", ["16", "0x10", "0o20", "+16"])
def test_a_size_takes_every_form_of_a_whole_number(written: str) -> None:
    [given] = parsed(f"inputs: {{x: {{shape: [{written}]}}}}\nformula: x + 1").inputs
    assert given.shape == (16,)


def test_a_list_of_ambiguous_values_is_told_where_it_is_wrong() -> None:
    with pytest.raises(SpecErrors) as told:
        parsed("init: {a: [1, no]}\nformula: x + 1")
    assert str(told.value).startswith("specs/gate.yaml:3:15: 'no' is not a valid value of a\n")


@pytest.mark.parametrize(
    ("number", "fits"),
    [
        ("0.0", True), ("-0.0", True), ("3.4028235e38", True), ("-3.4028235e38", True),
        ("3.4028235677973366e38", False), ("-1e39", False), ("1e300", False),
        ("7.01e-46", True), ("7.006492321624085e-46", False), ("-1e-300", False),
    ],
)  # fmt: skip
def test_float32_loses_what_it_rounds_to_infinity_or_zero(number: str, fits: bool) -> None:
    assert in_float32(float(number)) == fits
    try:
        [held] = struct.unpack("f", struct.pack("f", float(number)))
    except OverflowError:
        held = math.inf
    assert (math.isfinite(held) and (held != 0 or float(number) == 0)) == fits


def test_a_version_that_no_integer_holds_is_refused() -> None:
    with pytest.raises(SpecErrors) as told:
        parse_spec(f"%YAML 1.{'9' * 5000}\n---\nname: gate\n", "specs/gate.yaml")
    start = "specs/gate.yaml:1:9: this is not valid YAML: this number is too large\n"
    assert str(told.value).startswith(start)


@pytest.mark.parametrize("body", ["formula: x * 1e300 / 1e300", "params: {a: 1e39}\nformula: x + a"])
def test_float64_alone_takes_numbers_beyond_float32(workshop: Workshop, body: str) -> None:
    workshop.build("gate", f"dtypes: [float64]\n{body}")


def test_a_parameter_of_minus_zero_is_the_default_of_the_function(workshop: Workshop) -> None:
    workshop.build("gate", "params: {value: -0.0}\nformula: where(x > 1, x, value)")
    assert b"value: float = -0.0, " in workshop.files()["generated/gate.py"]
