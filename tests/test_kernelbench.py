"""The harness for problems in the form of KernelBench: what it accepts, and what it says of wrong ones."""

import ast
import json
import math
from collections.abc import Callable
from dataclasses import astuple
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from conftest import ROOT, Workshop
from torch import Tensor

from benchmarks.kernelbench import candidates, problem, report, session, timing
from benchmarks.kernelbench.__main__ import main
from benchmarks.kernelbench.accuracy import SLOPES, VALUES
from benchmarks.kernelbench.candidates import Made
from benchmarks.kernelbench.errors import Errors, Size, Turned, errors
from benchmarks.kernelbench.errors import turned as turned_elements
from benchmarks.kernelbench.session import FAILS, RIGHT, WRONG, Options, Outcome
from benchmarks.kernelbench.timing import COMPILED, EAGER, OURS, RECORDED, Times
from benchmarks.kernelbench.trials import MODES, Models, Place
from fusegen.evidence.bench import clock
from fusegen.evidence.bench.clock import Spread

PROBLEMS = ROOT / "tests" / "problems"
CPU = Place("cpu", torch.float32)
HEAD = "import torch\nfrom torch import nn\nclass ModelNew(nn.Module):\n"
SILU = (
    HEAD
    + """
    def __init__(self, in_features, out_features, factor=0.5):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.factor = factor
    def forward(self, x):
        y = self.linear(x) * self.factor
        return y * torch.sigmoid(y)
"""
)
SHIFT = (
    HEAD
    + """
    def __init__(self, channels, filters, kernel_size, shape):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size)
        self.shift = nn.Parameter(torch.randn(shape))
    def forward(self, x):
        return torch.relu(self.conv(x)) + self.shift
"""
)
RESIDUAL = (
    HEAD
    + """
    def __init__(self, channels, filters, kernel_size):
        super().__init__()
        self.conv = nn.ConvTranspose2d(channels, filters, kernel_size, stride=2)
    def forward(self, x):
        y = self.conv(x)
        return torch.tanh(y) + y.detach()
"""
)
SCALE = (
    HEAD
    + """
    def forward(self, a, s):
        return a * s
"""
)
STANDALONE = {
    "2_Linear_Scale_Silu": SILU,
    "3_Conv2d_Relu_Shift": SHIFT,
    "4_ConvTranspose2d_Residual": RESIDUAL,
    "5_Scale_By_Number": SCALE,
}


def outcome(name: str, text: str, *, dtype: torch.dtype = torch.float32) -> Outcome:
    path = PROBLEMS / f"{name}.py"
    options = Options(Place("cpu", dtype), "tiny", (EAGER, OURS), 0)
    [found] = session.outcomes((path,), {path: Made(Path("candidate.py"), text)}, options)
    return found


def told(found: Outcome) -> list[str]:
    return [f"{finding.check}: {finding.said}" for finding in found.findings]


def run(*arguments: str) -> Result:
    common = ("--shapes", "tiny", "--device", "cpu", "--no-compile", "--rounds", "2", "--jobs", "1")
    return CliRunner().invoke(main, [*arguments, *common], catch_exceptions=False)


# Right ones


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, torch.float32) for name in STANDALONE),
        *(("2_Linear_Scale_Silu", dtype) for dtype in (torch.bfloat16, torch.float16)),
        ("4_ConvTranspose2d_Residual", torch.bfloat16),
    ],
)
def test_a_right_module_is_right(name: str, dtype: torch.dtype) -> None:
    found = outcome(name, STANDALONE[name], dtype=dtype)
    assert (told(found), found.state) == ([], RIGHT)


@pytest.mark.full
def test_a_folder_of_standalone_files_gives_a_table_and_json(tmp_path: Path) -> None:
    for name, text in STANDALONE.items():
        (tmp_path / f"{problem.key(name)}.py").write_text(text)
    result = run(str(PROBLEMS), "--standalone", str(tmp_path), "--json", str(tmp_path / "found.json"))
    lines = result.stdout.splitlines()
    assert lines[0].split()[:3] == ["problem", "class", "result"]
    rows = [line.split()[:3] for line in lines[1:7]]
    assert rows == [
        ["1_HardSigmoid", "no", "module"],
        ["2_Linear_Scale_Silu", "linear", "right"],
        ["3_Conv2d_Relu_Shift", "convolution", "right"],
        ["4_ConvTranspose2d_Residual", "convolution", "right"],
        ["5_Scale_By_Number", "pointwise", "right"],
        ["6_Softmax", "no", "module"],
    ]
    assert lines[-1] == "4 right, 3 no module"
    assert result.exit_code == 0
    read = json.loads((tmp_path / "found.json").read_text())
    states = ["no module", *["right"] * 4, *["no module"] * 2]
    assert [one["state"] for one in read["problems"]] == states
    assert {"torch", "device", "cudnn.allow_tf32", "cuda.matmul.allow_tf32"} <= read["environment"].keys()
    silu = read["problems"][1]
    assert silu["times"]["spreads"].keys() == {EAGER, OURS, RECORDED}
    assert silu["ratios"].keys() == {"eager/ours"}
    checks = [measured["check"] for measured in silu["accuracy"]["measured"]]
    assert checks == [
        "signed",
        "signed, times 1e-3",
        "signed, times 30",
        "signed, times 1e4",
        "randomised parameters",
        "gradient of input 0",
        "gradient of linear.weight",
        "gradient of linear.bias",
    ]
    kinds = [(mean["kind"], mean["problems"]) for mean in read["geometric means"]]
    assert kinds == [("convolution", 2), ("linear", 1), ("pointwise", 1), ("all", 4)]


@pytest.mark.full
def test_a_spec_of_the_same_name_is_the_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = run(str(PROBLEMS), "--only", "HardSigmoid", "--only", "6")
    assert result.stdout.splitlines()[1].split()[:3] == ["1_HardSigmoid", "pointwise", "right"]
    assert result.stdout.splitlines()[2].split() == ["6_Softmax", "no", "module"]
    assert result.exit_code == 0


def test_a_name_that_is_listed_wins_over_the_problems_own(workshop: Workshop) -> None:
    for place in ("specs", "specs/kernelbench"):
        workshop.file(f"{place}/relu.yaml", "")
    workshop.file("specs/matrix_relu.yaml", "")
    workshop.file("names.json", json.dumps({"7_Other": "relu", "8_File": "own/file.yaml"}))
    known = candidates.found(None, Path("names.json"))
    assert {name: known.of(name) for name in ("19_ReLU", "21_ReLU", "7_Other", "8_File", "9_None")} == {
        "19_ReLU": Path("specs/matrix_relu.yaml"),  # of names.json
        "21_ReLU": Path("specs/kernelbench/relu.yaml"),
        "7_Other": Path("specs/kernelbench/relu.yaml"),
        "8_File": Path("own/file.yaml"),
        "9_None": None,
    }


def test_each_known_problem_has_a_spec_name_of_its_own() -> None:
    names = json.loads(candidates.NAMES.read_text(encoding="utf-8"))
    assert len(names) == len(set(names.values())) == 143
    assert all(name.isidentifier() and name.islower() for name in names.values())


# Wrong ones: the problem, what is replaced in its candidate and by what, and what is said

RETURN = "        return y * torch.sigmoid(y)\n"
WRONG_ONES: dict[str, tuple[str, str, str, list[str]]] = {
    "another constant": (
        "2_Linear_Scale_Silu",
        "* self.factor",
        "* 0.75",
        [
            "trials: it gives * for * at element 0",
            "gradient mode: it gives * for * at element 0",
            "evaluation mode: it gives * for * at element 0",
        ],
    ),
    "wrong in evaluation mode": (
        "2_Linear_Scale_Silu",
        RETURN,
        "        return y * torch.sigmoid(y) if self.training else y\n",
        ["evaluation mode: it gives * for * at element 0"],
    ),
    "without gradients": (
        "2_Linear_Scale_Silu",
        "    def forward",
        "    @torch.no_grad()\n    def forward",
        ["gradient mode: requires_grad of its result is False, of the problem's True"],
    ),
    "writes to its input": (
        "5_Scale_By_Number",
        "return a * s",
        "return a.mul_(s)",
        [f"{mode}: it writes to input 0" for mode in MODES],
    ),
    "writes to its parameters": (
        "2_Linear_Scale_Silu",
        RETURN,
        "        self.linear.bias.data += 1\n" + RETURN,
        [
            "trials: it gives * for * at element 0",
            "gradient mode: it gives * for * at element 0",
            "evaluation mode: it gives * for * at element 0",
            "parameters: it writes to its parameter linear.bias",
        ],
    ),
    "a flat result": (
        "5_Scale_By_Number",
        "return a * s",
        "return (a * s).flatten()",
        [f"{mode}: it gives float32 (192,) for float32 (16, 12)" for mode in MODES],
    ),
    "no tensor": (
        "5_Scale_By_Number",
        "return a * s",
        "return (a * s,)",
        [f"{mode}: it gives a tuple, not a tensor" for mode in MODES],
    ),
    "fails": (
        "5_Scale_By_Number",
        "return a * s",
        "return a @ a",
        ["trials: it fails: RuntimeError: mat1 and mat2 shapes cannot be multiplied (*)"],
    ),
    "another name in its state": (
        "3_Conv2d_Relu_Shift",
        "        self.shift = nn.Parameter(torch.randn(shape))\n",
        "        self.bias = nn.Parameter(torch.randn(shape))\n        self.shift = 0\n",
        [
            "state_dict: its state_dict has bias, conv.weight, conv.bias, the problem's shift, *",
            *(f"{mode}: it gives * for * at element 0" for mode in MODES),
        ],
    ),
    "another shape in its state": (
        "3_Conv2d_Relu_Shift",
        "torch.randn(shape)",
        "torch.randn(shape)[None]",
        ["state_dict: shift is float32 (1, 20, 1, 1) in its state_dict, * (20, 1, 1) in the problem's"],
    ),
    "other random numbers": (
        "3_Conv2d_Relu_Shift",
        "        super().__init__()\n",
        "        super().__init__()\n        torch.randn(1)\n",
        [
            "state_dict: shift has other values after the same seed",
            *(f"{mode}: it gives * for * at element 0" for mode in MODES),
        ],
    ),
    "a buffer for a parameter": (
        "3_Conv2d_Relu_Shift",
        "self.shift = nn.Parameter(torch.randn(shape))",
        "self.register_buffer('shift', torch.randn(shape))",
        ["state_dict: *"],
    ),
    "a little less accurate": (
        "5_Scale_By_Number",
        "return a * s",
        "return a * s * (1 + 1e-5)",
        [
            *(
                f"{check}: it is less accurate than eager: largest error *, eager's *"
                for check in ("signed", "signed, times 1e-3", "signed, times 30", "signed, times 1e4")
            ),
            "gradient of input 0: it is less accurate than eager: typical error *, eager's *",
        ],
    ),
    "right for positive inputs": (
        "5_Scale_By_Number",
        "return a * s",
        "return a.abs() * s",
        [
            "signed: it is wrong: *% of the elements are beyond *, 0.00% of eager's; *",
            "signed, times 1e-3: it is wrong: *",
            "signed, times 30: it is wrong: *",
            "signed, times 1e4: it is wrong: *",
            "NaN in the input: it gives * for -* at element *",
            "infinities in the input: it gives * for -* at element *",
            "gradient of input 0: it is wrong: *% of the elements *",
        ],
    ),
    "overflows": (
        "2_Linear_Scale_Silu",
        RETURN,
        "        return y * torch.exp(y) / (1 + torch.exp(y))\n",
        [
            "signed, times 1e4: it is wrong: *% of the elements are beyond *, 0.00% of eager's; *",
            "infinities in the input: it gives nan for * at element *",
        ],
    ),
    "loses NaN": (
        "5_Scale_By_Number",
        "return a * s",
        "return torch.where(a.isnan(), 0, a * s)",
        ["NaN in the input: it gives 0 for nan at element 64"],
    ),
    "keeps a parameter's first value": (
        "3_Conv2d_Relu_Shift",
        "+ self.shift",
        "+ self.__dict__.setdefault('first', self.shift.detach().clone()) + 0 * self.shift",
        ["randomised parameters: it is wrong: *", "gradient of shift: it is wrong: *"],
    ),
    "another gradient": (
        "4_ConvTranspose2d_Residual",
        "y.detach()",
        "y",
        [
            f"gradient of {name}: it is wrong: *% of the elements are beyond *, 0.00% of eager's; *"
            for name in ("input 0", "conv.weight", "conv.bias")
        ],
    ),
    "no gradient of a parameter": (
        "3_Conv2d_Relu_Shift",
        "+ self.shift",
        "+ self.shift.detach()",
        ["gradient of shift: it gives none where the problem does"],
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("case", WRONG_ONES)
def test_a_wrong_module_is_told(case: str) -> None:
    name, right, wrong, expected = WRONG_ONES[case]
    text = STANDALONE[name]
    assert text.count(right) == 1
    found = outcome(name, text.replace(right, wrong))
    said = told(found)
    assert found.state == WRONG
    assert len(said) == len(expected), said
    for line, pattern in zip(said, expected, strict=True):
        assert fnmatch(line, pattern), line


FAILING = {
    "batch = 3\n" + SILU: "the candidate changes batch, which the problem reads when it is called",
    "a = __file__\n"
    + SILU: "the candidate fails when it is executed: NameError: name '__file__' is not defined",
    "import torch\n": "the candidate defines no ModelNew",
    SILU.replace("factor=0.5", "factor"): "",
    SILU.replace(", factor=0.5", ""): (
        "TypeError: ModelNew.__init__() takes 3 positional arguments but 4 were given"
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("text", FAILING)
def test_a_candidate_that_cannot_be_made_is_told(text: str) -> None:
    found = outcome("2_Linear_Scale_Silu", text)
    said = FAILING[text]
    assert told(found) == ([f"loading: {said}"] if said else [])
    assert found.state == (FAILS if said else RIGHT)


@pytest.mark.full
def test_a_refused_spec_and_an_unreadable_file_are_told(workshop: Workshop) -> None:
    workshop.spec("softmax", "formula: x + ")
    workshop.file("specs/kernelbench/softmax.yaml", "name: softmax\nsummary: A test.\nformula: y + 1\n")
    workshop.file("names.json", json.dumps({"5_Scale_By_Number": "none.py"}))
    result = run(str(PROBLEMS), "--only", "6_Softmax", "--only", "5", "--names", "names.json")
    lines = result.stdout.splitlines()
    assert [line.split()[1] for line in lines[1:3]] == ["REFUSED", "REFUSED"]
    assert lines[4] == "5_Scale_By_Number: fusegen: [Errno 2] No such file or directory: 'none.py'"
    assert lines[5].startswith("6_Softmax: fusegen: specs/kernelbench/softmax.yaml:3:10: ")
    assert lines[-1] == "2 REFUSED"
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "silu"), "Invalid value for --only: there is no problem silu"),
        (("--names", "names.json"), "Invalid value for --names: names.json should be a JSON object"),
        (("--device", "cuda"), "Invalid value for --device: PyTorch finds no CUDA device"),
        (("--rounds", "1"), "Invalid value for '--rounds': 1 has no spread; give 0, or 2 and more"),
    ],
)
def test_arguments_that_do_not_fit_are_told(
    arguments: tuple[str, ...], said: str, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.file("names.json", "[]")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(main, [str(PROBLEMS), *arguments])
    assert said in result.stderr
    assert result.exit_code == 2


# Sizes

SMALL = {
    "1_HardSigmoid": ([(12, 16)], []),
    "2_Linear_Scale_Silu": ([(12, 16)], [16, 20, 1.5]),
    "3_Conv2d_Relu_Shift": ([(16, 12, 24, 24)], [12, 20, 11, (20, 1, 1)]),
    "4_ConvTranspose2d_Residual": ([(12, 16, 24, 24)], [16, 20, 3]),
    "5_Scale_By_Number": ([(16, 12), 3.14], []),
    "6_Softmax": ([(12, 16)], []),
}


@pytest.mark.parametrize("name", SMALL)
def test_sizes_are_small_and_differ_as_before(name: str) -> None:
    own: dict[str, Any] = {}
    exec(problem.read(PROBLEMS / f"{name}.py", "tiny").code, own)
    inputs, arguments = SMALL[name]
    drawn = [tuple(v.shape) if isinstance(v, Tensor) else v for v in own["get_inputs"]()]
    assert (drawn, own["get_init_inputs"]()) == (inputs, arguments)


def test_a_size_keeps_its_remainder_and_what_it_is_multiplied_by() -> None:
    tree = ast.parse("n = 513\nm: int = 126 * 4\nstride_of = 99\nclass Model:\n    n = 513\n")
    assert ast.unparse(problem.shrunk(tree)) == (
        "n = 17\nm: int = 14 * 4\nstride_of = 99\n\nclass Model:\n    n = 513"
    )


# Errors

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("found", "exact", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], Errors(0.0, 0.0, 0.0)),
        ([1.0, 2.5], [1.0, 2.0], Errors(0.5, 0.0, 0.5)),
        ([2.0625, 2.0625], [2.0, 2.0], Errors(0.0625, 0.0625, 0.0)),
        ([NAN, INF, -INF], [NAN, INF, -INF], Errors(0.0, 0.0, 0.0)),
        ([NAN, 1.0], [1.0, 1.0], Errors(INF, 0.0, 0.5)),
        ([1.0, 1.0], [NAN, INF], Errors(INF, 0.0, 1.0)),
        ([INF], [1e39], Errors(0.0, 0.0, 0.0)),  # beyond float32
        ([], [], Errors(0.0, 0.0, 0.0)),
    ],
)
def test_errors_are(found: list[float], exact: list[float], expected: Errors) -> None:
    real = torch.tensor(exact, dtype=torch.float64)
    given = torch.tensor(found)
    assert errors(given, given, real, Size(1.0, 0.0), 0.1) == (expected, expected)


def test_errors_are_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.kernelbench.errors.CHUNK", 2)
    exact = torch.tensor([[1.0, -3.0, 0.0], [1.0, 1.0, 1.0]], dtype=torch.float64).T
    found = (exact + torch.tensor([0.0, 0.5, 0.25]).double()[:, None]).float()
    size = Size(1.0, 1.0)  # of the errors 0, 0.125, 0.25, 0, 0.25, 0.125
    assert astuple(errors(found, found, exact, size, 0.2)[0]) == pytest.approx(
        (0.25, 0.125 / math.sqrt(2), 1 / 3)
    )


EPS = 1e-7


@pytest.mark.parametrize(
    ("limits", "ours", "said"),
    [
        (VALUES, Errors(1.2e-6, 1.05e-7, 0.0), ""),
        (
            VALUES,
            Errors(2e-6, 1e-7, 0.0),
            "it is less accurate than eager: largest error 2e-06, eager's 1e-06",
        ),
        (
            VALUES,
            Errors(1e-6, 2e-7, 0.0),
            "it is less accurate than eager: typical error 2e-07, eager's 1e-07",
        ),
        (SLOPES, Errors(1.0, 1e-7, 0.004), ""),  # kinks
        (
            SLOPES,
            Errors(1.0, 2e-7, 0.0),
            "it is less accurate than eager: typical error 2e-07, eager's 1e-07",
        ),
    ],
)
def test_ours_may_be_as_far_off_as_eager(limits: Any, ours: Errors, said: str) -> None:
    assert limits.broken(Errors(1e-6, 1e-7, 0.0), ours, EPS) == said


@pytest.mark.parametrize(
    ("eager", "turned", "is_wrong"),
    [
        (0.4, Turned(1040, 960), False),  # 80 of 2000: 1.8 deviations
        (0.4, Turned(1100, 900), True),  # 200 of 2000: 4.5 deviations
        (0.4, Turned(17, 0), True),
        (0.4, Turned(9, 0), False),
        (0.0, Turned(1, 0), True),  # none of eager's
    ],
)
def test_chance_may_put_a_few_more_elements_beyond_the_tolerance(
    eager: float, turned: Turned, is_wrong: bool
) -> None:
    beside, ours = Errors(0.5, 0.0, eager), Errors(0.5, 0.0, eager + 1e-5)
    assert VALUES.broken(beside, ours, EPS, turned).startswith("it is wrong") == is_wrong


def test_elements_are_compared_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.kernelbench.errors.CHUNK", 2)
    exact = torch.zeros(5, dtype=torch.float64)
    ours, eager = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0]), torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0])
    assert turned_elements(ours, eager, exact, Size(1.0, 0.0), 0.5) == Turned(2, 1)


def test_elements_beyond_the_tolerance_are_counted_against_eagers() -> None:
    wrong = Errors(1.0, 0.0, 0.01)
    assert VALUES.broken(wrong, wrong, EPS) == ""
    assert VALUES.broken(Errors(0.5, 0.0, 0.005), wrong, EPS) == (
        "it is wrong: 1.00% of the elements are beyond the tolerance, 0.50% of eager's; "
        "largest error 1, eager's 0.5"
    )


# Times


def spread(median: float) -> Spread:
    return Spread(median, median, median, 2)


def test_means_are_geometric_and_of_right_problems() -> None:
    def one(kind: str, state: str, *times: float) -> Outcome:
        spreads = dict(zip((EAGER, COMPILED, OURS), map(spread, times), strict=True))
        return Outcome("p", kind, "c", state, times=Times(spreads))

    found = [
        one("linear", RIGHT, 1.0, 3.0, 1.0),
        one("linear", RIGHT, 4.0, 3.0, 1.0),
        one("linear", WRONG, 9.0, 9.0, 1.0),
        one("pointwise", RIGHT, 2.0, 3.0, 1.0),
        Outcome("p", "", "", session.NONE),
    ]
    assert [(m.kind, m.who, round(m.value, 9), m.problems) for m in report.means(found)] == [
        ("linear", EAGER, 2.0, 2),
        ("linear", COMPILED, 3.0, 2),
        ("pointwise", EAGER, 2.0, 1),
        ("pointwise", COMPILED, 3.0, 1),
        ("all", EAGER, 2.0, 3),
        ("all", COMPILED, 3.0, 3),
    ]


def test_everybody_has_a_turn_in_each_round_and_is_first_in_turn() -> None:
    order: list[str] = []
    runs = {name: (lambda name=name: order.append(name)) for name in "abc"}
    found = clock.rounds(runs, "cpu", 4)
    assert "".join(order[3 * clock.WARM_UPS :]) == "abcbcacababc"
    assert {name: of.turns for name, of in found.items()} == dict.fromkeys("abc", 4)


def compiled_to(value: float) -> Callable[[Any], Callable[..., Tensor]]:
    return lambda model: lambda *inputs: model(*inputs) + value


def failing(model: Any) -> Any:
    def compiled(*_: Any) -> Tensor:
        raise RuntimeError("no compiler\nat all")

    return compiled


@pytest.mark.parametrize(
    ("compiler", "said", "timed"),
    [
        (compiled_to(0.0), "", {EAGER, COMPILED, OURS}),
        (compiled_to(1.0), "its result is 0.5 from eager's", {EAGER, COMPILED, OURS}),
        (failing, "it fails: RuntimeError: no compiler", {EAGER, OURS}),
    ],
)
def test_of_torch_compile_is_told(
    compiler: Any, said: str, timed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", compiler)
    model = torch.nn.Identity()
    of = Models(model, model, lambda _: [torch.ones(3)])
    found = timing.times(of, CPU, (EAGER, COMPILED, OURS), 2)
    assert (found.said, set(found.spreads)) == (said, timed)


@pytest.mark.full
def test_an_infinite_error_is_a_word_in_json() -> None:
    found = outcome("5_Scale_By_Number", SCALE.replace("a * s", "torch.where(a < 0, a * torch.nan, a * s)"))
    assert found.state == WRONG
    text = report.as_json({}, [found])
    assert json.loads(text, parse_constant=pytest.fail)["problems"][0]["accuracy"]["measured"][0][
        "ours"
    ] == {"largest": "Infinity", "typical": pytest.approx(0, abs=1e-6), "off": pytest.approx(0.5, abs=0.1)}
