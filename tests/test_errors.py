"""Every bad input ends with one clear message at its place, exit status 2, and nothing written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from budget import budget, examples
from conftest import GOLDEN, ROOT, Workshop
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fusegen.compiler.pipeline import compiled
from fusegen.core.ops import FUNCTIONS
from fusegen.core.spec import Spec
from fusegen.errors import FusegenError, SpecErrors, absent, meant
from fusegen.errors.base import distance
from fusegen.language.library import Library
from fusegen.language.parse import parse_spec
from fusegen.language.schema import json_schema
from fusegen.project import build

MISTAKES = GOLDEN / "mistakes.txt"
CASE = re.compile(
    r"^=== (?P<title>.+)\n(?P<body>(?:.*\n)*?)--- says\n(?P<says>(?:(?!=== ).*\n)*)", re.MULTILINE
)
CASES = {case["title"]: case for case in CASE.finditer(MISTAKES.read_text(encoding="utf-8"))}
FIELD = json_schema()["properties"]
CALLS = 10_000_000  # of Python functions, in a build: seven times as many as the longest needs


@pytest.mark.together
@pytest.mark.parametrize("title", CASES)
def test_a_mistake_gets_its_message_and_nothing_is_written(
    title: str, workshop: Workshop, request: pytest.FixtureRequest
) -> None:
    body, says = CASES[title]["body"], CASES[title]["says"]
    _, _, file = title.partition(" | ")
    stem = file.removesuffix(".yaml") or "gate"
    workshop.spec(stem, body, head=not file)
    before = workshop.files()
    result = workshop.run("build", f"specs/{stem}.yaml")
    if request.config.getoption("--update-golden"):
        text = MISTAKES.read_text(encoding="utf-8")
        old, new = f"--- says\n{says}", f"--- says\n{result.output}\n"
        start = text.index(f"=== {title}\n")
        MISTAKES.write_text(
            text[:start] + text[start:].replace(old, new, 1), encoding="utf-8", newline="\n"
        )
        says = f"{result.output}\n"
    assert result.output + "\n" == says
    assert result.exit_code == 2
    assert result.stdout == ""
    assert workshop.files() == before


def test_every_mistake_has_a_place_a_caret_and_a_hint() -> None:
    for title, case in CASES.items():
        heads = [line for line in case["says"].splitlines() if line and not line.startswith(" ")]
        carets = re.findall(r"^ {4} *\^$", case["says"], re.MULTILINE)
        hints = re.findall(r"^  hint: \S", case["says"], re.MULTILINE)
        assert heads, title
        assert len(heads) == len(carets) == len(hints), title
        assert all(re.match(r"specs/\w+\.yaml:\d+:\d+: [^ ].*[^. ]$", head) for head in heads), title


def test_mistakes_come_in_the_order_of_their_places() -> None:
    for title, case in CASES.items():
        places = re.findall(r"^specs/\w+\.yaml:(\d+):(\d+):", case["says"], re.MULTILINE)
        numbers = [(int(line), int(column)) for line, column in places]
        assert numbers == sorted(numbers), title


def says(workshop: Workshop, body: str) -> str:
    """The message of a build of a spec with this body; it has to fail, soon, and to write nothing."""
    workshop.spec("gate", body)
    before = workshop.files()
    with budget(CALLS):
        result = workshop.run("build", "gate")
    assert result.exit_code == 2, result.output
    assert workshop.files() == before
    return result.output


@pytest.mark.together
@pytest.mark.parametrize(
    ("formula", "place", "message"),
    [
        ("(" * 1000 + "x" + ")" * 1000, 10 + 64, "the formula has more than 64 nested parentheses"),
        ("'" + "-" * 4000 + "x'", 11, "the formula has more than 100 nested operations"),
        ("'x" + " + x" * 900 + "'", 11, "the formula has more than 100 nested operations"),
        ("'x" + "**x" * 900 + "'", 11, "the formula has more than 100 nested operations"),
        (
            "'" + "-" * 5000 + "x'",
            11,
            "the formula is too large: 5,001 characters, where at most 4,096 are allowed",
        ),
        ("x + " + "y" * 2000, 14, f"'{'y' * 60}...' is neither an input"),
        ("x + 1" + "0" * 400, 14, f"the number 1{'0' * 39}... does not fit in float64"),
        (str(2**1024 - 1) + " * x", 10, f"the number {str(2**1024)[:40]}... does not fit in float64"),
        ("x * " + "square(" * 60 + "1.5" + ")" * 60, None, "square(2.07706e+180) does not fit in float64"),
        ("x * " + "cube(" * 60 + "(1/3)" + ")" * 60, None, "cube(1.14693e-116) does not fit in float64"),
        ("x + 2.0**-(10**10)", 14, "pow(2, -1e+10) does not fit in float64"),
        ("x + 0.5**(2**200)", 14, "pow(0.5, 1.60694e+60) does not fit in float64"),
        ("x + erfc(10**200)", 14, "erfc(1e+200) does not fit in float64"),
        ("x + 1e-300 * 1e-300", 14, "a value of about 10^-600 does not fit in float64"),
        ("x - 1e300 * 1e300", 14, "a value of about 10^600 does not fit in float64"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_a_formula_of_immense_size_is_refused_at_once(
    workshop: Workshop, formula: str, place: int | None, message: str
) -> None:
    first = says(workshop, f"formula: {formula}").splitlines()[0]
    assert message in first
    assert place is None or first.startswith(f"specs/gate.yaml:3:{place}: ")


IMMENSE = {  # what a parameter is initialised by, and what is told
    "1 * " * 900 + "randn(1)": "is no number",
    "-" * 400 + "randn(1)": "makes no tensor",
    "randn(1) * (" + "-" * 400 + "1)": "this cannot be an argument of an initialiser",
    "a" + ".a" * 1500 + "(1)": "is none of the functions",
    "randn(" + "1, " * 100 + "1)": "randn takes a shape, by place",
    "randn(1" + "0" * 3000 + ")": "the shape is too large: 1",
    "full(1, 1" + "0" * 3000 + ")": "makes a tensor of whole numbers",
    "1" + "0" * 3000 + " * randn(1)": "the number does not fit in float64",
    "tensor(1e999)": "the number does not fit in float64",
}


@pytest.mark.together
@pytest.mark.parametrize("initialiser", IMMENSE, ids=lambda value: value[:24])
@pytest.mark.parametrize("init", ["init: {n: 1}", "init: {n: no}"])
def test_an_initialiser_of_immense_size_is_refused_at_once(
    workshop: Workshop, initialiser: str, init: str
) -> None:
    body = f"{init}\nlayers: [bias: 'Parameter({initialiser})']\nformula: x * bias"
    [*_, told] = [
        line for line in says(workshop, body).splitlines() if line.startswith("specs/gate.yaml:4:")
    ]
    assert IMMENSE[initialiser] in told
    assert len(told) < 400


@pytest.mark.parametrize("formula", ["x + sin(10**300)", "x * cos(exp(700))", "x + 1.0000001**(10**9)"])
def test_a_constant_of_immense_cost_is_computed_soon(workshop: Workshop, formula: str) -> None:
    workshop.spec("gate", f"dtypes: [float64]\nformula: {formula}")
    with budget(CALLS):
        assert workshop.run("build", "gate").exit_code == 0


def test_a_chain_through_another_spec_back_to_itself_names_the_way(workshop: Workshop) -> None:
    workshop.spec("first", "chain: [relu, second]")
    workshop.spec("second", "formula: third(x) + 1")
    workshop.spec("third", "chain: [first]")
    result = workshop.run("build", "first")
    assert result.exit_code == 2
    assert result.output == (
        "specs/third.yaml:3:9: the spec refers to itself: first -> second -> third -> first\n"
        "    chain: [first]\n"
        "            ^\n"
        "  hint: write the step out as an expression in x\n"
    )


def test_chains_that_double_at_every_spec_end_at_a_limit(workshop: Workshop) -> None:
    workshop.spec("chain0", "chain: [relu, relu]")
    for depth in range(1, 40):
        workshop.spec(f"chain{depth}", f"chain: [chain{depth - 1}, chain{depth - 1}]")
    with budget(CALLS):
        result = workshop.run("build", "chain39")
    assert result.exit_code == 2
    assert "the chain has more than 500 steps" in result.output.splitlines()[0]


@pytest.mark.full
def test_formulas_that_double_at_every_line_stay_small(workshop: Workshop) -> None:
    lines = ", ".join(f"u{i}: u{i - 1} * u{i - 1}" for i in range(1, 60))
    workshop.spec("gate", f"where: {{u0: x + 1, {lines}}}\nformula: u59")
    with budget(10 * CALLS):  # a fifth is needed
        assert workshop.run("build", "gate").exit_code == 0


def test_a_broken_spec_inside_a_chain_is_told_at_its_own_place(workshop: Workshop) -> None:
    workshop.spec("inner", "formula: x + bb")
    assert says(workshop, "chain: [relu, inner]") == (
        "specs/inner.yaml:3:14: 'bb' is neither an input, a parameter, a named step nor a constant\n"
        "    formula: x + bb\n"
        "                 ^\n"
        "  hint: declare it under `inputs`, `params` or `where`\n"
    )


def test_mistakes_of_several_specs_are_told_together_and_no_module_is_written(workshop: Workshop) -> None:
    workshop.spec("good", "formula: x + 1")
    workshop.spec("one", "formula: x + bb")
    workshop.spec("two", "formula: x + cc")
    before = workshop.files()
    result = workshop.run("build")
    assert result.exit_code == 2
    assert re.findall(r"^specs/(\w+)\.yaml:3:14:", result.output, re.MULTILINE) == ["one", "two"]
    assert workshop.files() == before


@pytest.mark.full
def test_thousands_of_mistakes_are_counted_behind_the_first_twenty(workshop: Workshop) -> None:
    steps = ", ".join(["1 + 1"] * 3000)
    text = says(workshop, f"chain: [{steps}]")
    assert text.count("does not use the running value") == 20
    assert text.splitlines()[-1] == "and 2980 more mistakes"


FILES = {
    "missing": (None, "there is no such file", "check the path"),
    "empty": (b"", "the file is empty", "'fusegen new NAME' writes one to start from"),
    "blank": (b" \n\n", "the file is empty", "'fusegen new NAME' writes one to start from"),
    "latin": (
        b"name: latin\nsummary: caf\xe9\n",
        "the file is not UTF-8 text (byte 24)",
        "save it as UTF-8",
    ),
    "large": (
        b"name: large\n" + b"#" * 10_000_000,
        "the spec is too large: 10,000,012 bytes, where at most 65,536 are allowed",
        "a spec is a page of text",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_a_spec_is_named_without_a_line(workshop: Workshop, name: str) -> None:
    data, sentence, hint = FILES[name]
    if data is not None:
        workshop.file(f"specs/{name}.yaml", data)
    result = workshop.run("build", f"specs/{name}.yaml")
    assert result.output == f"specs/{name}.yaml: {sentence}\n  hint: {hint}\n"
    assert result.exit_code == 2
    assert not Path("generated").exists()


def test_a_folder_is_not_a_spec(workshop: Workshop) -> None:
    workshop.file("specs/inner/one.yaml", "name: one\n")
    result = workshop.run("build", "specs/inner")
    assert result.exit_code == 2
    assert result.output == "specs/inner: this is a folder\n  hint: name a file in it, such as relu.yaml\n"


def test_a_spec_that_does_not_exist_gets_the_nearest_name(workshop: Workshop) -> None:
    result = workshop.run("build", "hardwish")
    assert result.exit_code == 2
    assert result.output == "hardwish: there is no spec 'hardwish'\n  hint: did you mean 'hardswish'?\n"


def test_a_folder_without_specs_is_told(workshop: Workshop) -> None:
    result = workshop.run("build")
    assert result.exit_code == 2
    assert result.output == (
        "specs: there are no specs here\n"
        "  hint: run fusegen in the folder above specs/, set 'specs' in [tool.fusegen], or name a spec\n"
    )


@pytest.mark.parametrize("code", ["0007", "0000", "000B", "FFFE"])
def test_a_character_that_yaml_refuses_has_a_place(workshop: Workshop, code: str) -> None:
    first = says(workshop, f"formula: x {chr(int(code, 16))} + 1").splitlines()[0]
    assert first == (
        f"specs/gate.yaml:3:12: this is not valid YAML: the character U+{code} is not allowed in it"
    )


@pytest.mark.together
@pytest.mark.parametrize("code", ["2028", "2029", "202E", "2066", "200B", "FEFF", "00AD"])
@pytest.mark.parametrize("key", ["summary", "source"])
def test_an_invisible_character_is_refused_as_it_stands(workshop: Workshop, code: str, key: str) -> None:
    head = "" if key == "source" else "name: gate\n"
    text = f"{key}: 'a{chr(int(code, 16))}b'\nformula: x + 1\n"
    if key == "source":
        head = "name: gate\nsummary: A test.\n"
    workshop.spec("gate", head + text, head=False)
    result = workshop.run("build", "gate")
    assert result.exit_code == 2
    what = f"the character U+{code}"
    assert (
        f"{key} holds {what}, which could end or disguise a comment in the generated code" in result.output
    )


def test_lines_are_counted_as_editors_count_them(workshop: Workshop) -> None:
    text = says(workshop, "# a\u2028# b\u2029# c\x85# d\nformula: x + bb")
    assert text.startswith("specs/gate.yaml:4:14: 'bb' is neither")
    crlf = "name: gate\r\nsummary: A test.\r\nformula: x + bb\r\n"
    workshop.spec("gate", crlf, head=False)
    first, line, caret, _ = workshop.run("build", "gate").output.splitlines()
    assert first.startswith("specs/gate.yaml:3:14: 'bb' is neither")
    assert (line, caret) == ("    formula: x + bb", "                 ^")


def parsed(name: str, body: str) -> Spec:
    """The spec of this name with this body, which has to be without mistakes."""
    return parse_spec(f"name: {name}\nsummary: A test.\n{body}\n", f"specs/{name}.yaml")


@pytest.mark.parametrize(
    "written",
    [
        "torch.f(mode='fast')",
        'torch.f(mode="fast")',
        "torch.f(mode='fast', way='up')",
        "torch.f(mode='fast',way=\"up\")",
    ],
)
def test_a_reference_may_have_words_as_arguments_and_is_kept_in_single_quotes(written: str) -> None:
    both = "torch.f(mode='fast', way='up')"
    expected = both if "way" in written else "torch.f(mode='fast')"
    quoted = json.dumps(written)  # JSON is YAML
    assert parsed("gate", f"reference: {quoted}\nformula: x + 1").reference == expected
    jsonschema.Draft202012Validator(FIELD["reference"]).validate(written)


@pytest.mark.parametrize("split", [-64, -1, 0, 63])
def test_the_second_of_two_inputs_may_be_a_half_of_the_first(split: int) -> None:
    spec = parsed("gate", f"inputs: {{x: {{}}, y: {{split: {split}}}}}\nformula: x * y")
    assert [given.split for given in spec.inputs] == [None, split]


def test_a_spec_named_like_a_function_may_add_parameters_to_it() -> None:
    for body in (
        "params: {beta: 1}\nformula: softplus(x * beta) / beta",
        "params: {beta: 1}\nwhere: {u: softplus(x * beta)}\nformula: u / beta",
    ):
        assert [param.name for param in parsed("softplus", body).params] == ["beta"]


def test_a_parameter_may_be_called_as_its_spec() -> None:
    spec = parsed("threshold", "params: {threshold: 0}\nformula: where(x > threshold, x, 0)")
    assert [param.name for param in spec.params] == [spec.name]


@pytest.mark.together
@pytest.mark.parametrize("path", sorted((ROOT / "specs").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_spec_of_the_library_is_without_mistakes(path: Path) -> None:
    assert parse_spec(path.read_text(encoding="utf-8"), path.as_posix()).name == path.stem


PIECES = st.sampled_from(
    [
        *"abxyu01(){}[]:,'\"#&*!|>%@`-+/.\\?=<>\n\t \u2028\u00e9\0",
        "name: gate\n", "summary: s\n", "formula: ", "chain: [", "where: {", "inputs: {x: ", "params: {a: ",
        "shape: [", "fill: uniform(", "relu", "clamp(", "where(", "x", " x > 0", "**", "1e999", "10**10",
        "hardtanh(min_val=", "assume: {x: '[0, inf)'}", "layers: [", "Conv2d(", "init: {", "- ", "? ",
        "---\n", "Parameter(", "Buffer(", "randn(", "full(", "{unread: ",
        "<<: ", "&a ", "*a", "!!python/object:x ", "0x", "lambda: ", "torch.", "reference: ",
        "dtypes: ", "split: ", "y: {split: -1}", "(approximate='tanh')",
    ]
)  # fmt: skip


def compiled_or_refused(text: str) -> None:
    """Compile a text as far as a module; only fusegen's own errors may come out."""
    try:
        with budget(CALLS):
            spec = parse_spec(text, "specs/gate.yaml")
            module = build.module(compiled(spec, Library(ROOT / "specs")))
    except (SpecErrors, FusegenError) as error:
        told = str(error)
    else:
        told = "specs/gate.yaml"
        compile(module, "gate.py", "exec")
    assert told.startswith("specs/gate.yaml")


@settings(max_examples=examples(300))
@given(st.lists(PIECES, max_size=40).map("".join))
@example("name: gate\nsummary: s\nformula: where(x > 0, x, 10**10)\n")
def test_random_text_is_compiled_or_refused(text: str) -> None:
    compiled_or_refused(text)


@settings(max_examples=examples(150))
@given(st.lists(PIECES, max_size=12).map("".join))
def test_random_formulas_are_compiled_or_refused(formula: str) -> None:
    compiled_or_refused(f"name: gate\nsummary: s\nformula: x + {formula}\n")


COMMITTED = sorted((ROOT / "specs").glob("*.yaml"))


@settings(max_examples=examples(300))
@given(st.data())
def test_mutated_specs_are_compiled_or_refused(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(COMMITTED)).read_text(encoding="utf-8")
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 6)))
        text = text[:start] + data.draw(PIECES | st.characters()) + text[end:]
    compiled_or_refused(text)


def edits(word: str) -> set[str]:
    """Words of one edit: a letter is left out, exchanged with the next, changed, or added."""
    cuts = [(word[:k], word[k:]) for k in range(len(word) + 1)]
    fewer = {a + b[1:] for a, b in cuts if b}
    turned = {a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1}
    others = {a + c + b[1:] for a, b in cuts if b for c in "ab"}
    return (fewer | turned | others | {a + c + b for a, b in cuts for c in "ab"}) - {word}


@given(st.text("ab", max_size=5))
def test_a_distance_of_one_is_one_edit(word: str) -> None:
    assert distance(word, word) == 0
    assert {distance(word, other) for other in edits(word)} <= {1}
    assert {
        distance(word, other) for once in edits(word) for other in edits(once) - edits(word) - {word}
    } <= {2}


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("rleu", "relu"),
        ("hardwish", "hardswish"),
        ("leaky_rleu", "leaky_relu"),
        ("ReLU6", "relu6"),
        ("LeakyReLU", "leaky_relu"),
        ("silu_", "silu"),
        ("sqroot", ""),  # sounds like sqrt
        ("clip", ""),
        ("power", ""),
        ("hardrelu", ""),
    ],
)
def test_a_hint_names_a_misspelled_function_and_no_other_that_sounds_alike(name: str, known: str) -> None:
    every = ("relu", "relu6", "hardswish", "leaky_relu", "silu", "sqrt", "pow", "clamp", "hardtanh", "celu")
    assert meant(name, every) == known


def test_no_function_that_formulas_lack_is_one_that_they_have() -> None:
    """Specs of rows, and of whole tensors, are none: a formula cannot call them."""
    texts = {path.stem: path.read_text("utf-8") for path in (ROOT / "specs").rglob("*.yaml")}
    shipped = {
        name
        for name, text in texts.items()
        if not {"\nover:", "\nreduction:"} & {*re.findall(r"\n\w+:", text)}
    }
    assert (absent.LACKS.keys() | absent.INSTEAD.keys()) & (FUNCTIONS.keys() | shipped) == set()
    assert len(absent.LACKS) == sum(len(family.names) for family in absent.FAMILIES)


WRITTEN = {name: hint.removeprefix("write  ") for name, hint in absent.INSTEAD.items() if "write" in hint}


@pytest.mark.few(3)
@pytest.mark.together
@pytest.mark.parametrize("name", WRITTEN)
def test_what_a_hint_writes_instead_is_a_formula(name: str) -> None:
    used = sorted(set(re.findall(r"\b(a|b|x|y|weight|value|mask)\b", WRITTEN[name])))
    inputs = ", ".join(f"{each}: {{{'dtype: bool' if each == 'mask' else ''}}}" for each in used)
    text = f"name: gate\nsummary: A test.\ninputs: {{{inputs}}}\nformula: {WRITTEN[name]}\n"
    assert compiled(parse_spec(text, "gate.yaml"), Library(ROOT / "specs")).kernels
