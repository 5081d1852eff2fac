"""Programs kept finite: finite inputs give what they gave, infinite ones their limits, NaN gives NaN."""

import math
import struct
from collections.abc import Iterable, Mapping
from functools import cache

import pytest
from budget import examples
from conftest import ROOT
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fusegen.algebra.limits import finite
from fusegen.algebra.limits.clamps import FLOAT
from fusegen.algebra.limits.evaluation import Evaluation
from fusegen.compiler import stages
from fusegen.compiler.stages import Algebra
from fusegen.core.method import Both
from fusegen.core.term import Apply, Let, Name, Program, Term, applied, call
from fusegen.language.library import Library
from fusegen.language.parse import parse_spec
from fusegen.project.build import compiled_file

INFINITY, NAN = math.inf, math.nan
DOUBLE_RANGE = INFINITY


class Float32(Evaluation):
    """The values of terms in float32, each operation rounded."""

    def __call__(self, term: Term) -> float:
        """The value of a term."""
        if isinstance(term, Apply):
            places = [Name(f"argument {k}") for k in range(len(term.args))]
            values = [self(arg) for arg in term.args]
            self.known.update(zip((place.name for place in places), values, strict=True))
            term = Apply(term.op, tuple(places))
        found = super().__call__(term)
        try:
            return float(struct.unpack("f", struct.pack("f", found))[0])
        except OverflowError:
            return math.copysign(INFINITY, found)

    def define(self, lets: Iterable[Let]) -> Evaluation:
        """The same, with the values of some lets."""
        for let in lets:
            self.known[let.name] = self(let.term)
        return self


def evaluation(known: Mapping[str, float], dtype: str) -> Evaluation:
    """An evaluation in the digits and the range of a dtype; 16-bit types compute in float32."""
    return Evaluation(dict(known)) if dtype == "float64" else Float32(dict(known), FLOAT)


def results(program: Program, known: Mapping[str, float], dtype: str = "float64") -> list[float]:
    """The values of a program's results."""
    found = evaluation(known, dtype).define(program.lets)
    return list(map(found, program.results))


SPECS = {
    "quotient": "inputs: {x: {}, y: {}}\nformula: x / sqrt(x * x + y * y)\n",
    "rsqrt": "inputs: {x: {}, y: {}}\nformula: x * rsqrt(x * x + y)\n",
    "saturating": "params: {y: 1.0}\nformula: x * x / (x * x + y)\n",
    "contrast": "inputs: {x: {}, y: {}}\nformula: (x - y) / (abs(x) + abs(y))\n",
    "swish": "params: {y: 1.0}\nformula: x * sigmoid(y * x)\n",
    "capped": "params: {y: 30.0}\nformula: y * tanh(x / y)\n",
    "biased_gelu": "inputs: {x: {}, y: {}}\nformula: gelu(x + y)\n",
    "biased_mish": "inputs: {x: {}, y: {}}\nformula: mish(x + y)\n",
    "waves": "inputs: {x: {}, y: {}}\nformula: x + sin(x) + cos(y)\n",
    "modulated": "inputs: {x: {}, y: {}}\nformula: x + sin(x * y)\n",
    "snake": "params: {y: 1.0}\nformula: x + sin(y * x) ** 2 / y\n",
    "gated": "inputs: {x: {}, y: {}}\nformula: silu(x) * y\n",
    "tanh_gated": "inputs: {x: {}, y: {}}\nformula: gelu_tanh(x) * y\n",
    "quartic": "formula: x * x / sqrt(1 + x * x * x * x)\n",
    "late": "formula: 1 + x / (1e30 + abs(x))\n",
    "scaled_waves": "inputs: {x: {}, y: {}}\nformula: cos(y) * (x + sin(x))\n",
    "reglu": "inputs: {x: {}, y: {}}\nformula: relu(x) * y\n",
    "shifted_gate": "inputs: {x: {}, y: {}}\nformula: silu(x) + y\n",
}


@cache
def stages_of(name: str) -> tuple[Algebra, Both[Program]]:
    """The derived and the limited programs of a spec, which may call those of the library."""
    spec = parse_spec(f"name: tried\nsummary: A test.\n{SPECS[name]}", "tried.yaml")
    declared = stages.declared(spec, Library(ROOT / "specs"))
    algebra = stages.derived(declared)
    return algebra, stages.limited(declared, algebra)


@pytest.mark.few(2)
@pytest.mark.together
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "x", "y", "expected"),
    [
        # finite inputs are never touched
        ("quotient", 3e12, 4e12, 0.6),
        ("quotient", -3e18, 4e18, -0.6),
        ("rsqrt", 3e14, 1e29, 3 / math.sqrt(19)),
        ("saturating", 3e13, 1e27, 9 / 19),
        ("contrast", 2e38, 1e38, 1 / 3),
        ("swish", 3e38, -1.0, 0.0),
        ("swish", -3e38, -1.0, -3e38),
        ("swish", 3e38, 0.0, 1.5e38),
        ("capped", 3e38, 1e38, 1e38 * math.tanh(3.0)),
        ("biased_gelu", 3e38, -3e38, 0.0),
        ("biased_gelu", -3e38, 3.2e38, 2e37),
        ("biased_mish", 3e38, -2e38, 1e38),
        # limits, where there is one
        ("quotient", INFINITY, 4e30, 1.0),
        ("quotient", -INFINITY, 0.0, -1.0),
        ("quotient", 2.0, -INFINITY, 0.0),
        ("rsqrt", -INFINITY, 1.0, -1.0),
        ("saturating", -INFINITY, 1e27, 1.0),
        ("contrast", INFINITY, -1e38, 1.0),
        ("contrast", 1e38, INFINITY, -1.0),
        ("swish", INFINITY, 1.0, INFINITY),
        ("swish", -INFINITY, 1.0, 0.0),
        ("swish", INFINITY, -1.0, 0.0),
        ("swish", -INFINITY, -1.0, -INFINITY),
        ("swish", INFINITY, 0.0, INFINITY),
        ("capped", -INFINITY, 30.0, -30.0),
        ("biased_gelu", -INFINITY, 5.0, 0.0),
        ("biased_gelu", INFINITY, 5.0, INFINITY),
        ("biased_mish", -INFINITY, -3e38, 0.0),
        ("waves", INFINITY, 0.0, INFINITY),
        ("waves", -INFINITY, 0.0, -INFINITY),
        ("modulated", -INFINITY, 3.0, -INFINITY),
        ("snake", INFINITY, 0.5, INFINITY),
        ("gated", -INFINITY, 3.0, 0.0),
        ("gated", INFINITY, -3.0, -INFINITY),
        ("shifted_gate", -INFINITY, 3.0, 3.0),
        ("quartic", -INFINITY, 0.0, 1.0),
        ("late", 1e35, 0.0, 1 + 1 / 1.00001),
        ("late", INFINITY, 0.0, 2.0),
        ("scaled_waves", INFINITY, 0.0, INFINITY),
        # NaN, where there is none
        ("scaled_waves", INFINITY, INFINITY, NAN),
        ("scaled_waves", 1.0, INFINITY, NAN),
        ("quotient", INFINITY, -INFINITY, NAN),
        ("quotient", INFINITY, NAN, NAN),
        ("contrast", -INFINITY, INFINITY, NAN),
        ("contrast", NAN, INFINITY, NAN),
        ("saturating", INFINITY, NAN, NAN),
        ("swish", -INFINITY, NAN, NAN),
        ("swish", NAN, 1.0, NAN),
        ("biased_gelu", -INFINITY, INFINITY, NAN),
        ("waves", 1.0, INFINITY, NAN),
        ("waves", INFINITY, INFINITY, NAN),
        ("modulated", 1.0, INFINITY, NAN),
        ("snake", INFINITY, NAN, NAN),
        ("gated", -INFINITY, INFINITY, NAN),
        ("gated", -INFINITY, NAN, NAN),
    ],
)
def test_values_and_limits(name: str, x: float, y: float, expected: float, dtype: str) -> None:
    [found] = results(stages_of(name)[1].forward, {"x": x, "y": y}, dtype)
    assert found == pytest.approx(expected, rel=2e-6, nan_ok=True)


@pytest.mark.together
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "x", "y", "expected"),
    [
        ("quotient", 3.0, 4.0, (0.128, -0.096)),
        ("quotient", INFINITY, 4.0, (0.0, 0.0)),
        ("quotient", 3.0, INFINITY, (0.0, 0.0)),
        ("quotient", INFINITY, NAN, (NAN, NAN)),
        ("saturating", -INFINITY, 1e27, (0.0,)),
        ("contrast", 1.0, -INFINITY, (0.0, 0.0)),
        ("swish", INFINITY, 1.0, (1.0,)),
        ("swish", INFINITY, 0.0, (0.5,)),
        ("swish", INFINITY, -1.0, (0.0,)),
        ("swish", 1e38, -1.0, (0.0,)),
        ("biased_gelu", INFINITY, 1.0, (1.0, 1.0)),
        ("biased_gelu", -3e38, 3.2e38, (1.0, 1.0)),
        ("shifted_gate", INFINITY, 3.0, (1.0, 1.0)),
        ("gated", INFINITY, 3.0, (3.0, INFINITY)),
        ("gated", -INFINITY, 3.0, (0.0, 0.0)),
        ("tanh_gated", INFINITY, 3.0, (3.0, INFINITY)),
        ("tanh_gated", 1e30, 3.0, (3.0, 1e30)),
        ("tanh_gated", -1e30, 3.0, (0.0, 0.0)),
        ("modulated", INFINITY, 1.0, (NAN, NAN)),
    ],
)
def test_gradients(name: str, x: float, y: float, expected: tuple[float, ...], dtype: str) -> None:
    program = stages_of(name)[1].backward
    found = results(program, {program.inputs[0]: 1.0, "x": x, "y": y}, dtype)
    assert found == pytest.approx(list(expected), rel=2e-6, nan_ok=True)


@pytest.mark.parametrize("name", ["capped", "reglu"])
def test_a_program_that_needs_no_guard_has_none(name: str) -> None:
    algebra, limited = stages_of(name)
    assert limited == algebra.derivations.map(lambda each: each.program)


def test_a_function_of_a_sum_has_a_clamp_and_no_selection() -> None:
    _, programs = stages_of("biased_gelu")
    operations = {op for program in programs for op in applied(program.terms)}
    assert {"clamp_to_lowest", "clamp_to_highest"} < operations
    assert "where" not in operations


NAMES = ("x", "y", "c")
FUNCTIONS = (
    "sigmoid",
    "tanh",
    "times_ndtr",
    "soft_sign",
    "abs",
    "neg",
    "square",
    "softplus",
    "sin",
    "relu",
)
OPERATIONS = ("add", "sub", "mul", "div")
LEAVES = st.sampled_from(
    [*map(Name, NAMES), Name("x"), call("add", 0, 1).args[1], call("add", 0, 3).args[1]]
)
TERMS = st.recursive(
    LEAVES,
    lambda part: (
        st.builds(call, st.sampled_from(FUNCTIONS), part)
        | st.builds(call, st.sampled_from(OPERATIONS), part, part)
        | st.builds(lambda a, b: a * call("sigmoid", b), part, part)
        | st.builds(lambda a, b: a / call("sqrt", 1 + a * a + b * b), part, part)
    ),
    max_leaves=6,
)
FINITE = [s * v for s in (1.0, -1.0) for v in (0.5, 1.0, 20.0, 1e6, 3e12, 1e13, 4e19, 1e30, 1e38, 3e38)]
VALUES = st.sampled_from([0.0, *FINITE])
ANY = VALUES | st.sampled_from([INFINITY, -INFINITY])


def programs(inner: Term, outer: Term) -> tuple[Program, Program]:
    """A program with a let, and the same kept finite."""
    program = Program(("x", "y"), ("c",), (Let("t", inner),), (substituted(outer),))
    return program, finite(program, ("x", "y"), {"c": 1.0})


def substituted(term: Term) -> Term:
    """A term that reads the let t where it read y."""
    match term:
        case Name("y"):
            return Name("t")
        case Apply(op, args):
            return Apply(op, tuple(map(substituted, args)))
    return term


def same(a: float, b: float) -> bool:
    return a == b or math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-30) or (math.isnan(a) and math.isnan(b))


@settings(max_examples=examples(150))
@given(inner=TERMS, outer=TERMS, point=st.tuples(VALUES, VALUES, VALUES))
def test_finite_inputs_give_what_they_gave(
    inner: Term, outer: Term, point: tuple[float, float, float]
) -> None:
    """Where a number overflows in float, the value kept finite may also be the one of double."""
    plain, kept = programs(inner, outer)
    known = dict(zip(NAMES, point, strict=True))
    double = Evaluation(dict(known)).define(plain.lets)
    exact = double(plain.results[0])
    for largest in (INFINITY, FLOAT):
        plainly = Evaluation(dict(known), largest).define(plain.lets)
        before = plainly(plain.results[0])
        [after] = map(Evaluation(dict(known), largest).define(kept.lets), kept.results)
        if math.isfinite(before) and not plainly.overflowed:
            assert same(after, before)
        elif math.isfinite(before):
            assert same(after, before) or double.overflowed or same(after, exact)


@settings(max_examples=examples(150))
@given(inner=TERMS, outer=TERMS, point=st.tuples(ANY, ANY, ANY), which=st.integers(0, 2))
def test_nan_stays_nan(inner: Term, outer: Term, point: tuple[float, float, float], which: int) -> None:
    plain, kept = programs(inner, outer)
    nan = {NAMES[which]: NAN}
    assume(math.isnan(results(plain, dict.fromkeys(NAMES, 1.0) | nan)[0]))  # it is read
    known = dict(zip(NAMES, point, strict=True)) | nan
    [before] = results(plain, known)
    [after] = results(kept, known)
    assert same(after, before)


@settings(max_examples=examples(150))
@given(inner=TERMS, outer=TERMS, point=st.tuples(ANY, VALUES, VALUES), sign=st.sampled_from([1.0, -1.0]))
def test_infinity_gives_the_limit_or_what_it_gave(
    inner: Term, outer: Term, point: tuple[float, float, float], sign: float
) -> None:
    plain, kept = programs(inner, outer)
    for name in ("x", "y"):
        known = dict(zip(NAMES, point, strict=True)) | {name: sign * INFINITY}
        [before] = results(plain, known)
        [after] = results(kept, known)
        if not math.isnan(before):
            assert same(after, before)
        elif not math.isnan(after) and all(math.isfinite(known[other]) for other in NAMES if other != name):
            way = [results(plain, known | {name: sign * 2.0**k})[0] for k in (160, 200, 240)]
            settles = same(after, way[-1])
            assert settles or after == math.copysign(INFINITY, way[-1]) or math.isnan(way[-1]), way


@pytest.mark.full
def test_steps_to_several_gradients_are_computed_once() -> None:
    spec = ROOT / "specs" / "kernelbench" / "conv2d_scale_leaky_relu_gelu.yaml"
    of = compiled_file(spec)
    backward = of.programs.backward
    slopes = [let for let in backward.lets if "times_ndtr_slope" in applied((let.term,))]
    assert len(slopes) == 1
    known = {"x": -1.0, "conv_bias": 0.25, "multiplier": INFINITY, backward.inputs[0]: 2.0}
    assert results(backward, known, "float32") == [0.0, 0.0, 0.0]
    known |= {"x": 1.0}
    assert results(backward, known, "float32") == [INFINITY, INFINITY, 2.5]
