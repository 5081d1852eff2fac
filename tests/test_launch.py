"""Launches: the table's language, who takes which row, and the classes of costs that rows are for."""

import re
from pathlib import Path

import pytest
from conftest import ROOT, Workshop, library_spec
from parsed import spec_file

from fusegen.codegen import module_text
from fusegen.core import launch
from fusegen.core.instructions import INSTRUCTIONS, SPECIAL
from fusegen.core.ir import Body, Call, Kernel, Let, Math, Ref, Word
from fusegen.core.launch import Launch, LaunchClass, Table
from fusegen.core.method import Arithmetic, AtDefaults, Method, Pass, Verified
from fusegen.core.method import Table as Tabulated
from fusegen.core.ops import ROWS
from fusegen.core.targets import Device
from fusegen.errors import FusegenError
from fusegen.project import build
from fusegen.schedule.cost import cost, instructions, instructions_in_plain_double

HEADERS = ROOT / "fusegen" / "runtime" / "include"
ONE, TWO = Launch(None, 128, 1), Launch(None, 128, 2)
SMALL = Launch(16384, 128, 1)
HEAD = "[sm_90]\nsource = 'here'\n[sm_90.light]\n"

# --- the table ------------------------------------------------------------------------------------------


def test_the_shipped_table_has_every_class_for_its_oldest_chip_and_what_was_measured() -> None:
    table = launch.shipped()
    for name in ("light", "medium", "heavy"):
        for bits in launch.BITS:
            assert (min(table.chips), name, bits) in table.rows
    assert sorted(table.chips) == [80, 89, 90, 100]
    assert "H200" in table.chips[90]


def test_a_table_reads_back_as_it_was_written() -> None:
    table = launch.shipped()
    assert launch.parse(launch.text(table)) == table
    assert launch.text(table) == launch.SHIPPED.read_text(encoding="utf-8")


MISTAKES = {
    "[sm_90": "Expected ']' at the end of a table declaration (at end of document)",
    "[hopper]": "hopper is no chip such as [sm_90]",
    "[sm_9000]": "sm_9000 is no chip such as [sm_90]",
    "x = " + "[" * 5000: "it is nested too deeply",
    "sm_90 = 1": "sm_90 is no chip such as [sm_90]",
    "[sm_90]\nlight = 1": "sm_90.light is no table",
    HEAD + "float32 = []": "sm_90.light.float32 is none of bits16, bits32 and bits64",
    HEAD + "bits32 = []": "sm_90.light.bits32 has no rows",
    HEAD + "bits32 = 1": "sm_90.light.bits32 has no rows",
    HEAD + "bits32 = [1]":
        "a row of sm_90.light.bits32 needs threads and vectors, and may have kib and ahead",
    HEAD + "bits32 = [{ threads = 128, vectors = 1, ahead = 1.5 }]":
        "sm_90.light.bits32 is 1.5 blocks ahead, and not 0 to 65536",
    HEAD + "bits32 = [{ threads = 128 }]":
        "a row of sm_90.light.bits32 needs threads and vectors, and may have kib and ahead",
    HEAD + "bits32 = [{ threads = 128, vectors = 1, blocks = 2 }]":
        "a row of sm_90.light.bits32 needs threads and vectors, and may have kib and ahead",
    HEAD + "bits32 = [{ threads = 100, vectors = 1 }]":
        "sm_90.light.bits32 has 100 threads, and not a multiple of 32 up to 256",
    HEAD + "bits32 = [{ threads = 512, vectors = 1 }]":
        "sm_90.light.bits32 has 512 threads, and not a multiple of 32 up to 256",
    HEAD + "bits32 = [{ threads = '128', vectors = 1 }]":
        "sm_90.light.bits32 has '128' threads, and not a multiple of 32 up to 256",
    HEAD + "bits32 = [{ threads = 128, vectors = 3 }]":
        "sm_90.light.bits32 has 3 vectors, and not 1, 2 or 4",
    HEAD + "bits32 = [{ kib = 0, threads = 128, vectors = 1 }]": "sm_90.light.bits32 has a kib of 0",
    HEAD + "bits32 = [{ kib = 1.5, threads = 128, vectors = 1 }]": "sm_90.light.bits32 has a kib of 1.5",
    HEAD + "bits32 = [{ kib = 1099511627777, threads = 128, vectors = 1 }]":
        "sm_90.light.bits32 has a kib of 1099511627777",
    HEAD + "bits32 = [{ kib = 4, threads = 128, vectors = 1 }]":
        "the rows of sm_90.light.bits32 have no growing kib, and none in the last",
    HEAD + "bits32 = [{ threads = 128, vectors = 1 }, { threads = 128, vectors = 1 }]":
        "the rows of sm_90.light.bits32 have no growing kib, and none in the last",
    HEAD + "bits32 = [{ kib = 8, threads = 64, vectors = 1 }, { kib = 4, threads = 64, vectors = 1 }, "
    "{ threads = 64, vectors = 1 }]":
        "the rows of sm_90.light.bits32 have no growing kib, and none in the last",
}  # fmt: skip


@pytest.mark.together
@pytest.mark.parametrize("text", MISTAKES)
def test_what_is_wrong_with_a_table_is_told(text: str, tmp_path: Path) -> None:
    (tmp_path / launch.OWN).write_text(text, encoding="utf-8")
    with pytest.raises(FusegenError) as caught:
        launch.beside(tmp_path)
    shown = (tmp_path / launch.OWN).as_posix()
    hint = "  hint: leave it to 'fusegen tune', or see fusegen/core/launch.toml"
    assert str(caught.value) == f"{shown}: this is no table of launches: {MISTAKES[text]}\n{hint}"


# --- who takes which row --------------------------------------------------------------------------------

ROWS_OF = Table(
    {80: "", 89: "", 90: "", 100: ""},
    {
        (80, "light", 32): (ONE,),
        (90, "light", 32): (SMALL, TWO),
        (90, "relu_forward", 32): (TWO,),
        (100, "light", 32): (SMALL, TWO),
    },
)


@pytest.mark.parametrize(
    ("chip", "kernel", "expected"),
    [
        (70, "silu_forward", (ONE,)),  # older than all
        (80, "silu_forward", (ONE,)),
        (86, "silu_forward", (ONE,)),
        (89, "silu_forward", (ONE,)),  # which says nothing of it
        (90, "silu_forward", (SMALL, TWO)),
        (90, "relu_forward", (TWO,)),  # its own
        (89, "relu_forward", (ONE,)),
        (100, "relu_forward", (SMALL, TWO)),
        (120, "silu_forward", (SMALL, TWO)),
    ],
)
def test_a_kernel_takes_the_rows_of_its_chip(chip: int, kernel: str, expected: launch.Launches) -> None:
    assert ROWS_OF.at(chip, kernel, "light", 32) == expected


def test_a_chip_that_does_as_the_one_before_is_left_out() -> None:
    assert list(ROWS_OF.chosen("silu_forward", "light", 32)) == [80, 90]
    assert list(ROWS_OF.chosen("relu_forward", "light", 32)) == [80, 90, 100]


def test_a_project_has_its_own_rows_over_the_shipped_ones(tmp_path: Path) -> None:
    own = Table({90: "mine", 120: "new"}, {(90, "light", 32): (TWO,), (120, "heavy", 32): (ONE,)})
    (tmp_path / launch.OWN).write_text(launch.text(own), encoding="utf-8")
    table, shipped = launch.beside(tmp_path), launch.shipped()
    assert table.at(90, "x", "light", 32) == (TWO,)
    assert table.at(90, "x", "heavy", 16) == shipped.at(90, "x", "heavy", 16)
    assert table.at(120, "x", "heavy", 32) == (ONE,)
    assert table.at(120, "x", "heavy", 16) == shipped.at(100, "x", "heavy", 16)
    assert (table.chips[90], table.chips[80]) == ("mine", shipped.chips[80])


def test_a_module_launches_as_the_table_beside_its_spec_says(tmp_path: Path) -> None:
    spec = spec_file(tmp_path, "gate", "formula: x / 2\ndtypes: [float32]")
    before = build.sources(build.compiled_file(spec))["cuda"]
    own = Table({90: ""}, {(90, "gate_forward", 32): (Launch(64, 256, 1), Launch(None, 96, 4))})
    (tmp_path / launch.OWN).write_text(launch.text(own), encoding="utf-8")
    after = build.sources(build.compiled_file(spec))["cuda"]
    assert "{90, 64, 256, 1}, {90, ANY, 96, 4}," in after
    assert "256, 1" not in before
    other = re.compile(r"constexpr (?:const )?Launch [^;]*;\s*")
    assert other.sub("", after) == other.sub("", before)


def test_a_module_asks_ahead_where_the_table_says_so(tmp_path: Path) -> None:
    spec = spec_file(tmp_path, "gate", "formula: x / 2\ndtypes: [float32]")
    before = build.sources(build.compiled_file(spec))["cuda"]
    own = Table({90: ""}, {(90, "light_unary", 32): (Launch(None, 128, 2, ahead=7),)})
    (tmp_path / launch.OWN).write_text(launch.text(own), encoding="utf-8")
    compiled = build.compiled_file(spec)
    after = build.sources(compiled)["cuda"]
    assert "{90, ANY, 128, 2, 7}," in after
    assert "constexpr PrefetchLaunch " in after
    assert "constexpr PrefetchLaunch " not in before
    [forward], [backward] = build.launch_plans(compiled)
    assert (forward.rows, backward.rows) == ("light_unary", "light")


def test_what_reads_one_tensor_has_rows_of_its_own() -> None:
    rows, own = (Launch(None, 128, 1),), (Launch(None, 128, 2, ahead=9),)
    table = Table(
        {80: ""}, {(80, "heavy", 32): rows, (80, "heavy_unary", 32): own, (80, "light", 32): rows}
    )
    assert table.at(90, "x", launch.class_of(LaunchClass.HEAVY, 1), 32) == own
    assert table.at(90, "x", launch.class_of(LaunchClass.HEAVY, 2), 32) == rows
    assert table.at(90, "x", launch.class_of(LaunchClass.LIGHT, 1), 32) == rows
    project = Table({80: ""}, {(80, "heavy", 32): (TWO,)})
    assert project.over(table).at(90, "x", launch.class_of(LaunchClass.HEAVY, 1), 32) == (TWO,)


# --- costs ----------------------------------------------------------------------------------------------


def kernel(op: str, math: Math = Math.FLOAT) -> Kernel:
    """One operation of numbers that are read."""
    args = ROWS[op].args
    return Kernel("of", Device.CUDA, math, args, (), (), (Call(op, tuple(map(Ref, args))),))


def test_every_function_of_the_table_that_is_no_single_instruction_has_a_row() -> None:
    single = {"add", "sub", "mul", "neg", "abs", "square", "fma", "where"}
    single |= {"lt", "le", "gt", "ge", "eq", "ne", "pi", "e"}
    assert set(INSTRUCTIONS) == set(ROWS) - single


@pytest.mark.parametrize(
    ("op", "math", "arithmetic", "expected"),
    [
        ("mul", Math.FLOAT, Arithmetic.FLOAT, 4 + 3 + 1),
        ("relu", Math.FLOAT, Arithmetic.FLOAT, 4 + 2 + 2),
        ("sigmoid", Math.FLOAT, Arithmetic.FLOAT, 4 + 2 + 26),
        ("sigmoid", Math.FLOAT, Arithmetic.FAST_FLOAT, 4 + 2 + 7),
        ("sigmoid", Math.DOUBLE, Arithmetic.DOUBLE, 4 + 2 + 3 * 26),
        ("mul", Math.DOUBLE, Arithmetic.DOUBLE, 4 + 3 + 1),
    ],
)
def test_an_element_costs_what_its_operations_do(
    op: str, math: Math, arithmetic: Arithmetic, expected: int
) -> None:
    assert instructions(kernel(op, math), arithmetic) == expected


X, Y = Ref("x"), Ref("y")


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (Call("mul", (X, Y)), 2),
        (Call("mul", (X, Y), Word.DOUBLE, Body.DOUBLE_WORD), 2),
        (Call("sigmoid", (X,)), 40),
        (
            Call("mul", (Call("sigmoid", (X,)), Call("sigmoid_slope", (Call("prescaled", (X,)),)))),
            40 + 4 + 2,
        ),
        (Call("mul", (Call("sigmoid", (X,)), Call("sigmoid", (Y,)))), 2 * 40 + 2),
        (Call("mul", (Call("tanh", (Ref("t"),)), Call("tanh_slope", (X,)))), 44 + 8 + 6 + 2),
        (Call("erf", (X,)), 2 * 21),
    ],
)
def test_functions_of_an_argument_share_instructions_in_one_word(result: Call, expected: int) -> None:
    steps = (Let("t", Call("narrow", (X,))),)
    one = Kernel("of", Device.CUDA, Math.DOUBLE, ("x", "y"), (), steps, (result,))
    assert instructions_in_plain_double(one) == 4 + 3 * 3 + expected


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("kernels", "bits", "expected"),
    [  # whose best launches on an H200 are of one vector, two, and four
        ("hardsigmoid_forward silu_forward silu_backward", 32, "light"),
        ("geglu_forward hardswish_backward tanhshrink_backward", 16, "light"),
        ("mish_forward elu_forward selu_forward gelu_tanh_backward", 32, "medium"),
        ("tanh_forward subtract_tanh_subtract_forward softsign_forward", 16, "medium"),
        ("gelu_forward gelu_tanh_forward softplus_forward tanhshrink_backward", 32, "heavy"),
        ("gelu_forward", 64, "heavy"),
        ("silu_forward silu_backward glu_backward softplus_backward", 16, "verified"),
        ("serf_forward mish_mish_forward gelu_forward gelu_backward softplus_forward", 16, "table"),
        ("serf_forward mish_mish_forward subtract_mish_forward", 32, "cubic"),
        ("serf_backward mish_mish_backward subtract_mish_backward", 32, "cubic_slope"),
    ],
)
def test_classes_of_costs(kernels: str, bits: int, expected: str) -> None:
    for name, _, which in (kernel.rpartition("_") for kernel in kernels.split()):
        assert class_of(name, which, bits) == expected, name


def test_the_chips_own_functions_are_counted_in_the_cheaper_forms() -> None:
    texts = [
        (HEADERS / "cuda" / name).read_text(encoding="utf-8")
        for name in ("fast_float.cuh", "fast_functions.cuh")
    ]
    found = re.findall(
        r"^HOST_DEVICE FastFloat (\w+)\(.*?\) \{(.*?)\}$", "\n".join(texts), re.DOTALL | re.MULTILINE
    )
    bodies = dict(reversed(found))  # the first of a name; a later one only calls it
    rows = [row for row in ROWS.values() if row.function in bodies]
    assert {row.name for row in ROWS.values() if row.fast} <= {row.name for row in rows}
    for row in rows:
        body = bodies[row.function]
        if (called := re.fullmatch(r" return (\w+)\([\w, ]*\); ", body)) and called[1] in bodies:
            body = bodies[called[1]]
        own = len(re.findall(r"\b(?:ex2|exp4_approx|rcp|erff)\(", body)) + 2 * len(
            re.findall(r"\btanhf\(", body)
        )
        own += body.count(" / ")
        assert not row.fast or SPECIAL.get(row.name, 0) == own, row.name


SLOW = "x * tanh(softplus(x * tanh(softplus(x * tanh(softplus(x))))))"


VERIFIED, TABLE = "Verified", "Table"


def method_name(method: Method | None) -> str | None:
    """The use of double for a method's results: to verify or to tabulate them, or none."""
    match method:
        case Verified():
            return VERIFIED
        case Tabulated() | AtDefaults(Tabulated()):
            return TABLE
    return None


@pytest.mark.full
@pytest.mark.parametrize(
    ("body", "forward", "backward"),
    [
        (f"formula: {SLOW}", TABLE, TABLE),
        (f"formula: {SLOW}\ndtypes: [bfloat16, float64]", TABLE, TABLE),
        (f"formula: {SLOW}\ndtypes: [float32, float64]", None, None),  # no 16 bits
        (f"formula: {SLOW}\ndtypes: [bfloat16, float32]", TABLE, TABLE),
        ("formula: x * sigmoid(x)\ndtypes: [bfloat16, float32]", VERIFIED, VERIFIED),
        (f"formula: {SLOW}\nnumerics: eager", None, None),  # rounded between operations
        (f"params: {{a: 2.0}}\nformula: {SLOW} * a", TABLE, TABLE),
        (f"inputs: {{x: {{}}, y: {{}}}}\nformula: {SLOW} * y", None, None),  # too many results
        ("formula: x * sigmoid(x)", VERIFIED, VERIFIED),
        ("formula: x * sigmoid(x)\ndtypes: [float16]", VERIFIED, VERIFIED),
        ("formula: x * sigmoid(x)\nnumerics: eager", None, None),
        ("inputs: {x: {}, y: {}}\nformula: y * sigmoid(x)", VERIFIED, VERIFIED),
        ("inputs: {x: {}, y: {}}\nformula: y * gelu(x)", None, None),  # takes too long in double
        ("formula: gelu(x)", TABLE, TABLE),  # there is no time for the test
        ("formula: tanh(x)", None, VERIFIED),  # the math library's; its slope is not
        ("formula: relu(x) + 0.3", None, None),
    ],
)
def test_what_double_does_for_16_bits(
    workshop: Workshop, body: str, forward: str | None, backward: str | None
) -> None:
    plan = build.compiled_file(workshop.spec("some", body)).plan
    found = [method_name(plan.in_bits(which, Device.CUDA, 16)) for which in Pass]
    assert found == [forward, backward]


@pytest.mark.full
@pytest.mark.parametrize(
    ("body", "forward", "backward"),
    [
        (f"formula: {SLOW}", True, True),
        (f"formula: {SLOW}\ndtypes: [float32, float64]", True, True),
        (f"formula: {SLOW}\ndtypes: [bfloat16, float64]", False, False),  # no float32
        (f"formula: {SLOW}\ndtypes: [bfloat16, float32]", True, True),
        (f"formula: {SLOW}\nnumerics: eager", False, False),
        (f"params: {{a: 2.0}}\nformula: {SLOW} * a", False, False),
        (f"inputs: {{x: {{}}, y: {{}}}}\nformula: {SLOW} * y", False, False),
        ("chain: [silu, hardswish]", False, True),  # whose function takes no longer than a copy
    ],
)
def test_what_is_a_polynomial(workshop: Workshop, body: str, forward: bool, backward: bool) -> None:
    facts = build.compiled_file(workshop.spec("some", body)).facts
    assert [each.piecewise_pays for each in facts] == [forward, backward]


def class_of(name: str, which: str, bits: int) -> str:
    plans = build.launch_plans(library_spec(name))[Pass(which)]
    return {plan.bits: plan.cost for plan in plans}[bits]


def test_the_same_instructions_weigh_more_where_fewer_bytes_are_moved() -> None:
    sigmoid = kernel("sigmoid")
    assert [cost(sigmoid, size, Arithmetic.FLOAT) for size in (2, 4, 8)] == [
        LaunchClass.HEAVY,
        LaunchClass.LIGHT,
        LaunchClass.LIGHT,
    ]


# --- tensors that are not all dense in one layout -------------------------------------------------------


@pytest.mark.parametrize("bits", launch.BITS)
def test_the_runtime_has_the_shipped_rows_of_broadcast_tensors(bits: int) -> None:
    text = (HEADERS / "cuda/broadcasting.cuh").read_text(encoding="utf-8")
    [rows] = re.findall(r"Launch BROADCAST_LAUNCHES\[\] = \{(.*), \{\}\};", text)
    shipped = launch.shipped().chosen(launch.BROADCAST, launch.BROADCAST, bits)
    assert rows == ", ".join(
        f"{{{chip}, {row.kib or 'ANY'}, {row.threads}, {row.vectors}}}"
        for chip, several in shipped.items()
        for row in several
    )


def test_a_module_names_its_own_rows_of_broadcast_tensors_only() -> None:
    own = Table({80: ""}, {(80, "prelu_forward_broadcast", 32): (Launch(None, 256, 1),)})
    compiled = build.compiled_file(ROOT / "specs/prelu.yaml")
    shipped, tuned = (
        module_text.cpp(compiled, table)["cuda"] for table in (launch.shipped(), own.over(launch.shipped()))
    )
    added = [line for line in tuned.splitlines() if line not in shipped.splitlines()]
    assert added == [
        "constexpr Launch BROADCAST[] = {{80, ANY, 256, 1}, {}};",
        "  static constexpr const Launch *BROADCAST32 = BROADCAST;",
    ]
    assert "BROADCAST16" not in tuned
