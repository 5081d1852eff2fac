"""Words, truths, None, functions and lengths of the constructor: required, or without effect."""

# ruff: noqa: E501  # models stand as they are

from pathlib import Path
from typing import Any

import pytest
import torch
from test_lift import lift as lift_whole
from test_lift import problem
from test_partial import lift, with_formulas

from fusegen.errors import FusegenError
from fusegen.models.lift.argument_reads import reads
from fusegen.models.lift.load import executed, read
from fusegen.project.loader import imported

IMPORTS = "import enum, functools\nfrom dataclasses import dataclass\n"
MORE = """

@dataclass
class Settings:
    n: int
    kind: str


class Plain:
    def __init__(self, kind):
        self.kind, self.scale = kind, 2.0


class Gate(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        return getattr(torch, self.kind)(x) * 2


class Kind(enum.Enum):
    A = 1
    B = 2


def gated(x):
    return torch.relu(x) * 2


def other(x):
    return torch.tanh(x) * 2
"""
BEGIN = "y = torch.cumsum(torch.tanh(x) * 2, 1); "
CHOICE = BEGIN + "return torch.relu(y) * 2 if {} else y"
CALL = BEGIN + "return self.a(y) * 2"
REQUIRED = {  # the constructor, forward, the arguments of the lift, others, and what is required
    "a word": ("a|self.a = a", CHOICE.format("self.a == 'relu'"), "'relu'", "'tanh'", "a='relu'"),
    "a word with a quote": ("a|self.a = a", CHOICE.format("self.a"), "'a\"b'", "''", "a='a\"b'"),
    "a truth": ("a|self.a = a", CHOICE.format("self.a"), "True", "False", "a=True"),
    "two truths together": ("a, b|self.a, self.b = a, b", CHOICE.format("self.a and self.b"), "False, False", "True, True", "b=False"),
    "a truth in the constructor": ("a|self.a = nn.ReLU() if a else nn.Tanh()", CALL, "True", "False", "a=True"),
    "None": ("a|self.a = a", CHOICE.format("self.a is None"), "None", "0.5", "a=None"),
    "a number that may be None": ("a|self.a = a", CHOICE.format("self.a is None"), "0.5", "None", "a=0.5"),
    "a key": ("a|self.a = {'relu': F.relu, 'tanh': torch.tanh}[a]", CALL, "'relu'", "'tanh'", "a='relu'"),
    "the name of a function": ("a|self.a = getattr(F, a)", CALL, "'relu'", "'silu'", "a='relu'"),
    "a function": ("a|self.a = a", CALL, "F.relu", "F.silu", "a=F.relu"),
    "a function of the file": ("a|self.a = a", CALL, "gated", "other", "a=gated"),
    "a function with an argument": ("a|self.a = a", CALL, "functools.partial(F.elu, alpha=0.5)", "functools.partial(F.elu, alpha=1.5)", "a.keywords={'alpha': 0.5}"),
    "a class": ("a|self.a = a()", CALL, "nn.ReLU", "nn.SiLU", "a=nn.ReLU"),
    "a module": ("a|self.a = a", CALL, "nn.ReLU()", "nn.SiLU()", "a=ReLU()"),
    "a module of the file": ("a|self.a = a", CALL, "Gate('relu')", "Gate('tanh')", "a.kind='relu'"),
    "the length of a list": ("a|self.a = a", BEGIN + "for k in self.a: y = torch.relu(y) * k;return y", "[2, 3]", "[2, 3, 4]", "a as a list of length 2"),
    "a list or a tuple": ("a|self.a = a", CHOICE.format("isinstance(self.a, list)"), "[2, 3]", "(2, 3)", "a as a list of length 2"),
    "the number of layers": ("a|self.a = nn.ModuleList([nn.Linear(8, 8) for _ in a])", BEGIN + "return torch.relu(y) * len(self.a) * 3", "(1, 2)", "(1, 2, 3)", "a as a tuple of length 2"),
    "words of a list": ("a|self.a = a", BEGIN + "for a in self.a: y = getattr(torch, a)(y) * 2;return y", "['relu', 'tanh']", "['relu', 'sigmoid']", "a[1]='tanh'"),
    "keys": ("a|self.a = a", CHOICE.format("'k' in self.a"), "{'s': 2.0}", "{'k': 2.0}", "a as a dict with the keys ['s']"),
    "a word of a dict": ("a|self.a = a", CHOICE.format("self.a['k'] == 'b'"), "{'k': 'b'}", "{'k': 'c'}", "a['k']='b'"),
    "a number of a dict": ("a|self.a = nn.ReLU() if a['n'] > 2 else nn.Tanh()", CALL, "{'n': 3}", "{'n': 1}", "a['n']=3"),
    "a dataclass": ("a|self.a = a", CHOICE.format("self.a.kind == 'b'"), "Settings(3, 'b')", "Settings(3, 'c')", "a.kind='b'"),
    "a number of a dataclass": ("a|self.a = nn.ReLU() if a.n > 2 else nn.Tanh()", CALL, "Settings(3, 'b')", "Settings(1, 'b')", "a.n=3"),
    "a plain object": ("a|self.a = a", CHOICE.format("self.a.kind == 'b'"), "Plain('b')", "Plain('c')", "a.kind='b'"),
    "an enumeration": ("a|self.a = a", CHOICE.format("self.a.name == 'A'"), "Kind.A", "Kind.B", "a=<Kind.A: 1>"),
    "a set": ("a|self.a = a", CHOICE.format("'b' in self.a"), "{'a', 'b'}", "{'a'}", "a={'a', 'b'}"),
    "a dtype": ("a|self.a = a", CHOICE.format("self.a == torch.float32"), "torch.float32", "torch.int8", "a=torch.float32"),
    "the slope of an activation": ("a|self.a = nn.LeakyReLU(a[0])", CALL, "[0.01]", "[0.5]", "self.a.negative_slope=0.01"),
    "a word behind another attribute": ("a|self.a = a; self.b = self.a", CHOICE.format("self.b == 'relu'"), "'relu'", "'tanh'", "a='relu'"),
}  # fmt: skip
FREE = {  # as above, without what is required
    "a truth of a layer": ("a|self.fc = nn.Linear(8, 8, bias=a)", BEGIN + "return torch.relu(self.fc(y)) * 2", "True", "False"),
    "a number by a truth": ("a|self.a = 2 if a else 3", BEGIN + "return torch.relu(y) * self.a + 1", "True", "False"),
    "what nothing reads": ("a, b|self.a, self.b = a, b", BEGIN + "return torch.relu(y) * 2", "'word', None", "'other', True"),
    "numbers of a list": ("a|self.a = a", BEGIN + "for k in self.a: y = torch.relu(y) * k;return y", "[2, 3]", "[5, -1]"),
    "numbers of a dict": ("a|self.a = a", BEGIN + "return torch.relu(y) * self.a['s'] + 1", "{'s': 2.0}", "{'s': 3.0}"),
    "numbers of a dataclass": ("a|self.a = a", BEGIN + "return torch.relu(y) * self.a.n + 1", "Settings(3, 'b')", "Settings(5, 'b')"),
}  # fmt: skip


def models(folder: Path, case: tuple[str, ...]) -> tuple[Any, Any]:
    """The modules of a file that was lifted in part and of its model, which have ModelNew and Model."""
    found = lift(folder, text_of(case), 1)
    with_formulas(found, folder / "generated")
    return imported(folder / "generated" / f"{found.name}.py"), imported(folder / "3_Some_Block.py")


def text_of(case: tuple[str, ...]) -> str:
    init, forward, own, *_ = case
    return IMPORTS + problem(init, forward, arguments=own) + MORE


def arguments(text: str, of: Any) -> list[Any]:
    """Arguments as Python, in the names of a module."""
    return list(eval(f"[{text}]", vars(of)))


def assert_same(own: Any, theirs: Any, text: str) -> None:
    results = []
    for make in (own.ModelNew, theirs.Model):
        torch.manual_seed(0)
        results.append(make(*arguments(text, theirs)).double()(torch.randn(4, 8, dtype=torch.float64) * 2))
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", REQUIRED)
def test_a_file_requires_what_its_model_decides_by(kind: str, tmp_path: Path) -> None:
    case = REQUIRED[kind]
    own, theirs = models(tmp_path, case)
    assert_same(own, theirs, case[2])
    with pytest.raises(ValueError, match="forward was traced with") as refused:
        own.ModelNew(*arguments(case[3], theirs))(torch.ones(4, 8))
    assert str(refused.value) == f"forward was traced with {case[4]}"


@pytest.mark.parametrize("kind", FREE)
def test_a_file_takes_other_arguments_that_decide_nothing(kind: str, tmp_path: Path) -> None:
    case = FREE[kind]
    own, theirs = models(tmp_path, case)
    for given in case[2:]:
        assert_same(own, theirs, given)


NOT_VARIED = {  # types whose numbers have no labels
    "a tuple with names": ("a|self.a = nn.ReLU() if a.n > 2 else nn.Tanh()", "Pair(3)", "Pair(1)"),
    "a number of numpy": ("a|self.a = nn.ReLU() if a > 2 else nn.Tanh()", "np.float64(3)", "np.float64(1)"),
}  # fmt: skip


@pytest.mark.parametrize("kind", NOT_VARIED)
def test_a_file_requires_numbers_without_labels(kind: str, tmp_path: Path) -> None:
    init, first, second = NOT_VARIED[kind]
    imports = "import collections\nimport numpy as np\nPair = collections.namedtuple('Pair', 'n')\n"
    found = lift(tmp_path, imports + text_of((init, CALL, first)), 1)
    with_formulas(found, tmp_path / "generated")
    own = imported(tmp_path / "generated" / f"{found.name}.py")
    [value] = arguments(first, own)
    assert own.ModelNew(value)(torch.ones(4, 8)).shape == (4, 8)
    with pytest.raises(ValueError, match="forward was traced with") as refused:
        own.ModelNew(*arguments(second, own))
    assert str(refused.value) == f"forward was traced with a={value!r}"


def test_a_function_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FusegenError) as refused:
        lift(tmp_path, text_of(("a|self.a = a", CALL, "lambda x: x.relu()")), 1)
    assert str(refused.value).partition(": ")[2] == (
        "this is no model to lift: the file cannot name the argument a of the constructor, a function\n"
        "    class Model(nn.Module):\n    ^\n"
        "  hint: define it at the top level of a file, or leave the model to PyTorch"
    )


WHOLE = {  # constructors and forwards of one spec, arguments, and the one that is refused
    "a word": ("a|self.a = a", "return torch.relu(x) * 2 if self.a == 'relu' else torch.tanh(x) * 2", "'relu'", "a = 'relu'"),
    "a truth": ("a|self.a = 2 if a else 3", "return torch.relu(x) * self.a", "True", "a = True"),
    "a truth that a layer has, too": ("a|self.fc = nn.Linear(8, 8, a); self.a = a", "return torch.relu(self.fc(x)) * (2 if self.a else 3)", "True", "a = True"),
    "None": ("a|self.a = a", "return torch.relu(x) * 2 if self.a is None else torch.tanh(x)", "None", "a = None"),
    "a number that may be None": ("a|self.a = a", "return torch.relu(x) * 2 if self.a is None else torch.tanh(x) * 3", "0.5", "a = 0.5"),
    "a number that is a factor or None": ("a|self.a = a", "return torch.relu(x) * 2 if self.a is None else torch.tanh(x) * self.a", "0.5", "a = 0.5"),
    "a length": ("a|self.a = a", "for _ in self.a: x = torch.relu(x) * 3;return x", "[2, 3]", "a = [2, 3]"),
    "the word of an activation": ("a|self.a = nn.GELU(approximate=a)", "return self.a(x) * 2", "'none'", "a = 'none'"),
    "a number of an object": ("a|self.fc = nn.Linear(8, a.n)", "return torch.relu(self.fc(x)) * 2", "Settings(3, 'b')", ""),
}  # fmt: skip


@pytest.mark.parametrize("kind", WHOLE)
def test_a_spec_refuses_what_its_model_decides_by(kind: str, tmp_path: Path) -> None:
    with pytest.raises(FusegenError) as refused:
        lift_whole(tmp_path, text_of(WHOLE[kind]))
    sentence = (
        "{} has no place in a spec: the model reads it otherwise than by arithmetic, so that the spec would "
        "hold for this value alone"
    )
    made = "this is no model to lift: fc is made with a.n, where a spec has arguments and literals"
    first = str(refused.value).partition(": ")[2].splitlines()[0]
    assert first == (sentence.format(WHOLE[kind][3]) if WHOLE[kind][3] else made)


def test_a_spec_has_what_layers_alone_read(tmp_path: Path) -> None:
    init = "a, b, c, d, e|self.fc = nn.Linear(8, 8, bias=a); self.bn = nn.BatchNorm1d(8, momentum=e); self.w = nn.Parameter(torch.randn(d)); self.c = c"
    given = "True, 'b', None, (8,), 0.1"
    found = lift_whole(tmp_path, problem(init, "return self.bn(self.fc(x)) * self.w * 2", arguments=given))
    assert "init: {a: true, b: b, c: null, d: [8], e: 0.1}" in found.text.replace('"', "")


COUNTED = {  # constructors, and how many calls take what they are given
    "pass": 0,
    "self.a = a": 0,
    "self.b, self.a = 1, a": 0,
    "self.fc = nn.Linear(8, 8, bias=a)": 1,
    "self.a = a; self.fc = nn.Linear(8, 8, self.a)": 1,
    "self.a = a; print(self.a, getattr(self, 'a'))": None,
    "self.a = a; self.a += 1": None,
    "self.a = a; self.b = vars(self)": None,
    "self.a = a; print(self)": None,
    "self.training = a": None,
    "self.a = (a, 1)": 0,
    "self.a = (a, 1); self.b = self.a[0]": None,
    "self.a, *self.b = 1, 2, a": None,
    "self.a, b = a, a": None,
    "self.a = not a": None,
    "b = a": None,
    "a()": None,
    "self.a = self.b = a; self.c = not self.b": None,
    "self.a = a; self.b = self.a; self.a = self.b": None,
}


@pytest.mark.parametrize("init", COUNTED)
def test_reads_of_an_argument_are_counted(init: str, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(problem(f"a|{init}", "return x * 2", arguments="True"))
    assert reads(executed(*read(f"{path}:Model")), "a") == COUNTED[init]
