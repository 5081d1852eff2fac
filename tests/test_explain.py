"""Explanations: steps with their preconditions and savings, costs and errors, in every format."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Workshop, library_spec
from kernels import NAMES, by_class, with_runtime
from parsed import parsed, spec_file

from fusegen.codegen.printers import latex
from fusegen.core.facts import Roundoff
from fusegen.core.instructions import INSTRUCTIONS
from fusegen.core.method import Grid
from fusegen.core.ops import OPS
from fusegen.core.term import Name, call
from fusegen.errors import FusegenError
from fusegen.evidence.certify import error_plot
from fusegen.evidence.certify.certificate import Certificate, Claim, Kernel, Machine
from fusegen.evidence.certify.findings import Accuracy, Evidence, Output, Worst
from fusegen.evidence.explain import FORMATS, Explanation, writing, written
from fusegen.evidence.explain.writing import EXPECTED, OF_DOUBLE
from fusegen.project.build import compiled_file, module, sources
from fusegen.schedule.sentences import GRIDS, LOST, TABLE, VERIFIED

pytestmark = pytest.mark.usefixtures("exact_eager")


def erring(ulp: float) -> Accuracy:
    return Accuracy((Worst(("0x1p+0",), ulp, "", ""),))


VALUE = Output("value", erring(2.9683), erring(52.01))
FOUND = Evidence(
    "float32", 2**16, True, 0, (VALUE, Output("gradient of x", erring(3.5), erring(float("inf"))))
)
KERNEL = Kernel("cuda", "1234", Machine("a chip", "2.13.0", "c++"))
NONE = Certificate()
CERTIFICATE = NONE.with_evidence(Claim("mish", "", ("float32",)), KERNEL, FOUND)


def explanation(name: str, certificate: Certificate = NONE) -> Explanation:
    return Explanation(library_spec(name), certificate, {})


def test_the_whole_text(golden: Callable[[str, str], None]) -> None:
    golden("explain.txt", written(explanation("relu_hardswish"), "text"))


@pytest.mark.full
def test_a_table_is_told_of_where_there_is_one() -> None:
    told = [written(explanation(name), "text") for name in ("mish_mish", "silu", "relu")]
    assert [TABLE in text for text in told] == [True, False, False]
    assert [f"CUDA    16-bit: {VERIFIED}" in text for text in told] == [False, True, False]
    rows = [line.split()[3:] for line in told[0].splitlines() if "float16, bfloat16" in line]
    assert rows == [["7", "22", "32", "20", "table"], ["12", "33", "47", "30", "table"]]


def test_polynomials_are_told_of_where_there_are_any() -> None:
    told = [written(explanation(name), "text") for name in ("mish_mish", "mish")]
    assert [GRIDS[Grid.UNIFORM] in text for text in told] == [True, False]
    rows = re.findall(r"(forward|backward) +float32 +(\d+) .* (\w+)", told[0])
    assert rows == [("forward", "30", "cubic"), ("backward", "33", "cubic_slope")]


@pytest.mark.full
def test_one_word_of_double_is_told_of_where_it_is_taken(workshop: Workshop) -> None:
    formula = "sigmoid(x) * y + (1 - sigmoid(x)) * z"
    path = workshop.spec("update", f"inputs: {{x: {{}}, y: {{}}, z: {{}}}}\nformula: {formula}")
    told = written(Explanation(compiled_file(path), NONE, {}), "text")
    assert OF_DOUBLE in told
    assert OF_DOUBLE not in written(explanation("mish_mish"), "text")
    assert re.findall(r"forward +float32 +(\d+) .* (\w+)", told) == [("214", "plain_double")]


IN_DOUBLE = f"the formula in double, {LOST}"
HARD = "chain: [x * 1.3 + 0.1, gelu_tanh, squared_relu, tanh, sigmoid]"


WHENCE = r" at \S+, mostly by \w+(?: \w+)*"


def foreseen(text: str, device: str) -> list[tuple[str, ...]]:
    """The expectation on a device: value and whence, slope and whence."""
    table = text.split(EXPECTED)[1].split("\n\n")[0]
    return re.findall(rf"  {device} +(\S+)({WHENCE})? +(\S+)({WHENCE})?", table)


@pytest.mark.full
def test_what_float_may_err_by_is_told_where_no_certificate_is(workshop: Workshop) -> None:
    compiled = compiled_file(workshop.spec("hard", HARD))
    text = written(Explanation(compiled, NONE, {}), "text")
    for device in ("CPU", "CUDA"):
        [(value, there, slope, where)] = foreseen(text, device)
        assert float(value) < 4.75 < float(slope)
        assert not there
        assert where
    fitted = f"float32: {GRIDS[Grid.OCTAVES]}; where no piece fits, the formula in double."
    for place in ("backward  CPU   ", "backward  CUDA  "):
        assert f"  {place}  {fitted}" in text
    even = f"float32: {GRIDS[Grid.UNIFORM]}; where no piece fits, the formula in float."
    assert f"  forward   CUDA    {even}" in text  # each pass has its own grid
    assert f"  forward   CPU     {fitted}" not in text
    certified = written(Explanation(compiled, CERTIFICATE, {"cuda": "current"}), "text")
    assert foreseen(certified, "CPU")
    assert not foreseen(certified, "CUDA")
    stale = written(Explanation(compiled, CERTIFICATE, {"cuda": "stale"}), "text")
    assert foreseen(stale, "CUDA")


@pytest.mark.full
@pytest.mark.parametrize(
    ("body", "told"),
    [
        (f"params: {{a: 1}}\n{HARD[:-1]}, a * x]", f"backward  CPU     float32 and 16-bit: {IN_DOUBLE}."),
        (
            "chain: [softsign, silu, mish, quick_gelu, tanhshrink]",
            f"forward   CUDA    float32: {GRIDS[Grid.OCTAVES]}",
        ),
        ("formula: x ** 20 / (x ** 20 + 1 + abs(x))", "too large for a float"),
        (
            f"params: {{a: 1}}\n{HARD[:-1]}, a * x]",
            f"backward  CUDA    float32: {GRIDS[Grid.OCTAVES]}; where no piece fits, the formula in "
            "single-word double; with other parameters than the defaults, the formula in single-word",
        ),
        (
            f"inputs: {{x: {{}}, y: {{}}}}\n{HARD[:-1]}, x * y]",
            "backward  CUDA    float32 and 16-bit: the formula in ",
        ),
        (
            "inputs: {x: {}, y: {}}\nformula: x * 1e37 * y * 1e-37",
            f"CPU     float32 and 16-bit: {IN_DOUBLE}",
        ),
    ],
)
def test_why_float_is_not_enough_is_told(body: str, told: str, workshop: Workshop) -> None:
    assert told in written(Explanation(compiled_file(workshop.spec("hard", body)), NONE, {}), "text")


def test_a_step_saves_what_its_functions_cost() -> None:
    forward, _ = explanation("mish").parts
    names = [step.rewrite.rule for step in forward.steps]
    assert names == ["tanh of softplus", "x times tanh of softplus"]
    saved = INSTRUCTIONS["tanh"][0] + INSTRUCTIONS["softplus"][0] - INSTRUCTIONS["tanh_softplus"][0]
    assert forward.steps[0].saved == saved
    text = written(explanation("mish"), "text")
    assert f"1. tanh of softplus: tanh(softplus(x)) as one function, tanh_softplus; saves {saved}\n" in text


def test_what_a_certificate_holds_is_told() -> None:
    text = written(explanation("mish", CERTIFICATE), "text")
    assert "\n  CUDA    float32  2.968 / 52.01  3.5 / inf\n" in text
    of_value = replace(FOUND, dtype="float64", outputs=(VALUE,))
    less = CERTIFICATE.with_evidence(Claim("mish", "", ("float32",)), KERNEL, of_value)
    assert "\n  CUDA    float64  2.968 / 52.01  -\n" in written(explanation("mish", less), "text")
    stale = Explanation(library_spec("mish"), CERTIFICATE, {"cuda": "stale"})
    assert "\n  CUDA (an earlier kernel)  float32  2.968 / 52.01  3.5 / inf\n" in written(stale, "text")


def test_arithmetic_is_told_from_what_approximates() -> None:
    assert "these are the bits of PyTorch's own kernels" in written(explanation("relu"), "text")
    assert "Double-word arithmetic" not in written(explanation("relu"), "text")
    assert "Double-word arithmetic" in written(explanation("gelu"), "text")


def comment_above(text: str, kernel: str) -> str:
    """The comment above the type of a kernel, on one line."""
    lines = text[: text.index(f"struct {kernel} ")].splitlines()
    start = next(k for k in range(len(lines), 0, -1) if not lines[k - 1].startswith("//"))
    return " ".join(line.removeprefix("// ") for line in lines[start:])


@pytest.mark.few(1)
@pytest.mark.parametrize("name", by_class(NAMES))
def test_the_module_says_the_same_of_its_kernels(name: str) -> None:
    """A remark stands above the type of the kernel, in the same words; one on both, above the first."""
    compiled = library_spec(name)
    own, remarks = sources(compiled), Explanation(compiled, NONE, {}).remarks
    for device in ("cpu", "cuda"):
        said = {
            kernel: {r.sentence for r in remarks if (r.device, r.kernel) == (device.upper(), kernel)}
            for kernel in ("forward", "backward")
        }
        above = {kernel: comment_above(own[device], kernel.capitalize()) for kernel in said}
        for sentence in said["forward"] | said["backward"]:
            found = {kernel: above[kernel].count(sentence) for kernel in said}
            first = sentence in said["forward"]
            assert found == {"forward": int(first), "backward": int(not first)}, sentence


@pytest.mark.together
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", by_class(NAMES))
def test_every_spec_is_explained_in_every_format(name: str, form: str) -> None:
    text = written(explanation(name, CERTIFICATE if "x" in name else NONE), form)
    assert text.endswith("\n")
    assert "\n\n\n\n" not in text
    assert all(part in text for part in ("Forward", "Gradient", "float64"))
    if form == "latex":
        assert_whole(text)
    if form == "markdown":
        tables = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
        assert tables
        for table in tables:
            assert len({line.count("|") for line in table.splitlines()}) == 1


def assert_whole(text: str) -> None:
    """LaTeX whose braces, brackets and environments are closed, and whose signs are escaped."""
    bare = re.sub(r"\\[{}_%&#$]", "", text)
    depth = 0
    for sign in bare:
        depth += {"{": 1, "}": -1}.get(sign, 0)
        assert depth >= 0
    assert depth == 0
    assert bare.count(r"\left") == bare.count(r"\right")
    begun, ended = (sorted(re.findall(rf"\\{word}\{{(\w+)\}}", bare)) for word in ("begin", "end"))
    assert begun == ended
    outside = re.sub(
        r"\$[^$]*\$|\\\[.*\\\]|\\begin\{tabular\}.*?\\end\{tabular\}", "", bare, flags=re.DOTALL
    )
    assert not set("_&#$^") & set(outside)


@pytest.mark.together
@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("x * 2 + 1", r"x \cdot 2 + 1"),
        ("x * (2 + y)", r"x \cdot \left(2 + y\right)"),
        ("x / (1 + abs(x))", r"\frac{x}{1 + \left|x\right|}"),
        ("exp(-x) * sqrt(y)", r"e^{-x} \cdot \sqrt{y}"),
        ("square(x + 1)", r"\left(x + 1\right)^2"),
        ("x ** 2.5", "x^{2.5}"),
        ("-(x + y)", r"-\left(x + y\right)"),
        ("x - (y - 1)", r"x - \left(y - 1\right)"),
        ("clamp(x, -1, 2)", r"\min\left(\max\left(x, -1\right), 2\right)"),
        ("softplus(x)", r"\operatorname{softplus}\left(x\right)"),
        ("where(x > 0, x, y)", r"\begin{cases} x & x > 0 \\ y & \text{otherwise} \end{cases}"),
        ("where(x <= 0, x, y) + 1",
         r"\left(\begin{cases} x & x \le 0 \\ y & \text{otherwise} \end{cases}\right) + 1"),
        ("pi * x", r"\pi \cdot x"),
        ("square(x / y)", r"\left(\frac{x}{y}\right)^2"),
        ("exp(x) ** 3", r"\left(e^{x}\right)^{3}"),
    ],
)  # fmt: skip
def test_formulas_in_latex(formula: str, expected: str) -> None:
    assert latex.term(parsed(formula)) == expected


@pytest.mark.together
@pytest.mark.parametrize("op", [row.name for row in OPS.values()])
def test_every_operation_has_latex(op: str) -> None:
    text = latex.term(call(op, *(Name(f"arg_{k}") for k in range(len(OPS[op].args)))))
    assert_whole(f"${text}$")
    assert text.count(r"\mathrm{arg\_") >= len(OPS[op].args)


def test_the_verb(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: clamp(relu(x), -1, 1)\ndtypes: [float32]")
    printed = workshop.done("explain", "gate")
    expected = (
        "1. dead lower bound: min(max(relu(x), -1), 1) is min(relu(x), 1), since relu(x) lies in [0, inf]"
    )
    assert expected in printed
    assert "Largest errors" not in printed
    assert r"\subsection*{Forward}" in workshop.run("explain", "gate", "--format", "latex").stdout
    assert workshop.run("explain", "gait").exit_code == 2
    assert not Path(workshop.folder / "generated").exists()


def test_the_words_of_a_spec_cannot_command(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: x / 2\nsource: '50 % of {a}_b & ~a^2, <b>`c`</b> | [d](e)'")
    as_latex = workshop.run("explain", "gate", "--format", "latex").stdout
    assert r"50 \% of \{a\}\_b \& \textasciitilde{}a\textasciicircum{}2, <b>`c`</b> | [d](e)" in as_latex
    as_markdown = workshop.run("explain", "gate", "--format", "markdown").stdout
    assert r"50 % of {a}\_b & ~a^2, \<b\>\`c\`\</b\> \| \[d\](e)" in as_markdown
    assert FORMATS["latex"].word(r"\input{x}") == r"\textbackslash{}input\{x\}"  # which no spec may say


def test_an_eager_spec_shows_its_roundings(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: (x + 1) * 3\nnumerics: eager\ndtypes: [float16]")
    stdout = workshop.run("explain", "gate").stdout
    assert "round_to_storage(round_to_storage(x + 1) · 3)" in stdout


# --- the picture ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> error_plot.ErrorPlot:
    """Of a formula of two inputs that eager computes badly for small ones: its terms cancel."""
    folder = tmp_path_factory.mktemp("drawn")
    body = "inputs: {a: {}, b: {}}\ndtypes: [float32]\nformula: (a - tanh(a)) * b"
    compiled = compiled_file(spec_file(folder, "gate", body))
    (with_runtime(folder) / "gate.py").write_text(module(compiled), encoding="utf-8")
    return error_plot.error_plot(compiled, folder)


def test_a_plot_is_of_real_numbers_and_errors(drawn: error_plot.ErrorPlot) -> None:
    assert drawn.outputs == ("value", "gradient of a", "gradient of b")
    x = drawn.x.double()
    for found, real in zip(drawn.values, (x - x.tanh(), x.tanh() ** 2, x - x.tanh()), strict=True):
        assert torch.allclose(found, real, rtol=1e-9, atol=1e-15)
    small = (x.abs() < 0.1) & (x != 0)
    assert float(drawn.ours[0].max()) < 2
    assert float(drawn.eager[0][small].max()) > 1000
    assert all(len(errors) == len(x) for errors in (*drawn.ours, *drawn.eager))


def test_a_picture_has_the_function_and_a_panel_of_errors_for_each_output(
    drawn: error_plot.ErrorPlot,
) -> None:
    figure: Any = error_plot.draw(drawn)
    width, height = figure.get_size_inches()
    assert height > width == 5
    [legend] = figure.legends
    told = ["gate, largest errors in ulp"]
    for name, panels in (("value", slice(0, 1)), ("gradient", slice(1, None))):
        ours, eager = (
            max(float(errors.max()) for errors in of[panels]) for of in (drawn.ours, drawn.eager)
        )
        told.append(f"{name}: {ours:.2g}, eager's {eager:.2g}")
    assert legend.get_title().get_text() == "\n".join(told)
    above, *below = figure.axes
    assert [line.get_label() for line in above.lines] == list(drawn.outputs)
    assert [axes.get_ylabel() for axes in below] == [f"{name}:\nerror in ulp" for name in drawn.outputs]
    for axes in below:
        assert [line.get_label() for line in axes.lines] == ["eager", "fusegen"]
        assert axes.get_yscale() == "log"


@pytest.mark.full
@pytest.mark.parametrize("kind", ["svg", "png"])
def test_a_picture_has_the_same_bytes_each_time(
    drawn: error_plot.ErrorPlot, kind: str, tmp_path: Path
) -> None:
    paths = [tmp_path / f"{name}.{kind}" for name in ("a", "b")]
    for path in paths:
        error_plot.save(drawn, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_what_cannot_be_drawn_is_told(drawn: error_plot.ErrorPlot, workshop: Workshop) -> None:
    with pytest.raises(FusegenError) as told:
        error_plot.save(drawn, Path("gate.jpeg"))
    hint = "  hint: name a spec with float32 and a file.svg or file.png"
    assert str(told.value) == f"gate.jpeg: there is no picture of this: a picture is .svg or .png\n{hint}"
    workshop.build("gate", "formula: x / 2\ndtypes: [float64]")
    result = workshop.run("explain", "gate", "--plot", "gate.svg")
    assert result.exit_code == 2
    assert result.stderr == f"gate: there is no picture of this: it is not made for float32\n{hint}\n"


@pytest.mark.full
def test_the_verb_draws(workshop: Workshop) -> None:
    workshop.build("gate", "formula: x / 2\ndtypes: [float32]")
    workshop.done("explain", "gate", "--plot", "gate.svg")
    assert (workshop.folder / "gate.svg").read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("by", "told"),
    [
        ("narrow", "9 at x = 2, y = 1, mostly by rounding to one float on the way"),
        ("add", "9 at x = 2, y = 1, mostly by a sum"),
        ("exp", "9 at x = 2, y = 1, mostly by exp"),
        ("", "9 at x = 2, y = 1, too large for a float"),
    ],
)
def test_the_operation_that_errs_most_is_told_in_words(by: str, told: str) -> None:
    assert writing.foreseen(Roundoff(9.0, {"x": 2.0, "y": 1.0}, by)) == told
    assert writing.foreseen(Roundoff(0.5, {"x": 2.0, "y": 1.0}, by)) == "0.5"
