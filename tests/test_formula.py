"""The formula language: what each construction means, which numbers it reads, and how it groups."""

import re
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from parsed import parsed

from fusegen.core.ops import CONSTANTS, FUNCTIONS, OPS
from fusegen.core.term import Apply, Name, Number, SpecCall, Term, walk
from fusegen.errors import FusegenError


def of(op: str, *args: Term | int | str) -> Apply:
    """A call of a row; a text is a name, an int a number."""
    terms = (Number(Fraction(arg)) if isinstance(arg, int) else arg for arg in args)
    return Apply(op, tuple(Name(term) if isinstance(term, str) else term for term in terms))


ROWS: dict[str, Term] = {
    "x": Name("x"),
    "(x)": Name("x"),
    "+x": Name("x"),
    "-x": of("neg", "x"),
    "--x": of("neg", of("neg", "x")),
    "-3": Number(Fraction(-3)),
    "- 3": Number(Fraction(-3)),
    "-3 * x": of("mul", -3, "x"),
    "x + y": of("add", "x", "y"),
    "x - y - 1": of("sub", of("sub", "x", "y"), 1),
    "x - (y - 1)": of("sub", "x", of("sub", "y", 1)),
    "x / y / 2": of("div", of("div", "x", "y"), 2),
    "x + y * 2": of("add", "x", of("mul", "y", 2)),
    "(x + y) * 2": of("mul", of("add", "x", "y"), 2),
    "x ** y ** 2": of("pow", "x", of("pow", "y", 2)),
    "-x ** 2": of("neg", of("pow", "x", 2)),
    "2 ** -x": of("pow", 2, of("neg", "x")),
    "x * -y": of("mul", "x", of("neg", "y")),
    "pi": of("pi"),
    "e": of("e"),
    "relu(x)": of("relu", "x"),
    "relu(relu(x))": of("relu", of("relu", "x")),
    "where(x > 0, x, y)": of("where", of("gt", "x", 0), "x", "y"),
    "where(x < y, 1, 2)": of("where", of("lt", "x", "y"), 1, 2),
    "where(x <= y, 1, 2)": of("where", of("le", "x", "y"), 1, 2),
    "where(x >= y, 1, 2)": of("where", of("ge", "x", "y"), 1, 2),
    "where(x == y, 1, 2)": of("where", of("eq", "x", "y"), 1, 2),
    "where(x != y, 1, 2)": of("where", of("ne", "x", "y"), 1, 2),
    "where(other=1, input=2, condition=x > y)": of("where", of("gt", "x", "y"), 2, 1),
    "clamp(x, 0, 1)": of("clamp", "x", 0, 1),
    "clamp(x, min=0, max=1)": of("clamp", "x", 0, 1),
    "clamp(x, max=1, min=0)": of("clamp", "x", 0, 1),
    "clamp(max=1, x=x, min=0)": of("clamp", "x", 0, 1),
    "clamp(x, 0)": of("clamp_min", "x", 0),
    "clamp(x, min=0)": of("clamp_min", "x", 0),
    "clamp(x, max=1)": of("clamp_max", "x", 1),
    "clamp_min(x, 0)": of("clamp_min", "x", 0),
    "maximum(x, y)": of("maximum", "x", "y"),
    "maximum(b=x, a=y)": of("maximum", "y", "x"),
    "pow(x, 2)": of("pow", "x", 2),
    "gate(x)": SpecCall("gate", (Name("x"),)),
    "gate(x + 1, slope=2)": SpecCall("gate", (of("add", "x", 1),), (("slope", Number(Fraction(2))),)),
    " x\n  +\r\n  y ": of("add", "x", "y"),
}


@pytest.mark.together
@pytest.mark.parametrize("text", ROWS, ids=repr)
def test_a_construction_means_its_term(text: str) -> None:
    assert parsed(text) == ROWS[text]


@pytest.mark.together
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_may_be_called_in_order_or_by_keywords(name: str) -> None:
    args = FUNCTIONS[name].args
    values = ["x > 0" if arg == "condition" else f"x + {index}" for index, arg in enumerate(args)]
    term = parsed(f"{name}({', '.join(values)})")
    assert isinstance(term, Apply)
    assert (term.op, len(term.args)) == (name, len(args))
    backwards = [f"{arg}={value}" for arg, value in zip(args, values, strict=True)][::-1]
    assert parsed(f"{name}({', '.join(backwards)})") == term


@pytest.mark.together
@pytest.mark.parametrize("name", sorted(set(OPS) - set(FUNCTIONS) - set(CONSTANTS)))
def test_what_the_compiler_adds_cannot_be_called_in_a_formula(name: str) -> None:
    assert not any(isinstance(part, Apply) for part in walk(parsed(f"{name}(x)")))


NUMBERS: dict[str, int | Fraction] = {
    "0": 0, "7": 7, "1_000": 1000, "0x10": 16, "0b101": 5, "0o17": 15, "0.1": Fraction(1, 10),
    ".5": Fraction(1, 2), "5.": 5, "1e3": 1000, "1E-3": Fraction(1, 1000), "1_0.2_5": Fraction(41, 4),
    "0.0": 0, "0e99999": 0,
    "0.30000000000000004": Fraction(30000000000000004, 10**17), "5e-324": Fraction(5, 10**324),
    "1.7976931348623157e308": Fraction(17976931348623157) * 10**292,
    "123456789012345678901234567890": 123456789012345678901234567890,
}  # fmt: skip


@pytest.mark.together
@pytest.mark.parametrize("text", NUMBERS)
def test_a_number_is_exactly_what_is_written(text: str) -> None:
    assert parsed(text) == Number(Fraction(NUMBERS[text]))
    assert parsed(f"-{text}") == Number(-Fraction(NUMBERS[text]))


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=0))
def test_a_float_that_python_prints_is_read_as_that_decimal(value: float) -> None:
    term = parsed(repr(value))
    assert term == Number(Fraction(repr(value)))
    assert float(Fraction(repr(value))) == value


@pytest.mark.parametrize("text", ["1e309", "1.7976931348623159e308", "1e-324", "2e-324", str(2**1024)])
def test_a_number_that_rounds_to_infinity_or_zero_is_refused(text: str) -> None:
    with pytest.raises(FusegenError, match="does not fit in float64"):
        parsed(text)


def expressions() -> st.SearchStrategy[str]:
    """Arithmetic with every kind of grouping, as text."""
    leaves = st.sampled_from(["x", "y", "2", "3", "0.5", "7"])

    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        binary = st.tuples(inner, st.sampled_from([" + ", " - ", "*", " / "]), inner).map("".join)
        return st.one_of(
            binary,
            inner.map("-{}".format),
            inner.map("+ {}".format),
            inner.map("({})".format),
            st.tuples(inner, st.sampled_from(["**2", " ** 3", "**-1", "**2**2"])).map("".join),
        )

    return st.recursive(leaves, grown, max_leaves=12)


def value(term: Term, values: dict[str, Fraction]) -> Fraction:
    """The exact value of a term of arithmetic."""
    match term:
        case Number(number):
            return number
        case Name(name):
            return values[name]
        case Apply("pow", (base, exponent)):
            power = value(exponent, values)
            assume(abs(power) < 50)
            return Fraction(value(base, values) ** int(power))
        case Apply(op, args):
            left, *right = (value(arg, values) for arg in args)
            if op == "neg":
                return -left
            if op == "div":
                return left / right[0]
            return {"add": left + right[0], "sub": left - right[0], "mul": left * right[0]}[op]
    raise AssertionError(term)


@given(expressions(), st.fractions(-9, 9, max_denominator=16), st.fractions(-9, 9, max_denominator=16))
def test_arithmetic_groups_as_in_python(text: str, x: Fraction, y: Fraction) -> None:
    try:
        found = value(parsed(text), {"x": x, "y": y})
    except ZeroDivisionError:
        assume(False)
    exact = re.sub(r"\*\*(\s*-?)(\d+)|(\d+(?:\.\d+)?)", _exact, text)
    assert found == eval(exact, {"Fraction": Fraction, "x": x, "y": y})


def _exact(match: re.Match[str]) -> str:
    """Numbers as fractions, but exponents as whole numbers."""
    return match[0] if match[2] else f"Fraction('{match[3]}')"


def test_each_part_knows_its_place() -> None:
    text = "  relu(x) + clamp(y, 0, max=12) * gate(x)"
    for part in walk(parsed(text)):
        span = part.span
        assert text[span.column - 1 :].startswith(_start(part)), (part, span)


def _start(part: Term) -> str:
    starts = {"add": "relu(x) +", "mul": "clamp(y", "relu": "relu", "clamp": "clamp"}
    match part:
        case Number(number):
            return f"{float(number):g}"
        case Name(name):
            return name
        case Apply(op, _):
            return starts[op]
        case SpecCall(spec):
            return spec
    raise AssertionError(part)


def test_terms_are_equal_whatever_their_place() -> None:
    assert parsed("x+1") == parsed("   x +  1")
    assert hash(parsed("x+1")) == hash(parsed("x  + 1"))
    assert parsed("x + 1") != parsed("1 + x")


@pytest.mark.parametrize("depth", [60, 64])
def test_nesting_is_allowed_up_to_the_limit(depth: int) -> None:
    assert parsed("(" * depth + "x" + ")" * depth) == Name("x")


def test_a_long_sum_is_allowed_up_to_the_limit() -> None:
    assert sum(part == Name("x") for part in walk(parsed(" + ".join(["x"] * 100)))) == 100
