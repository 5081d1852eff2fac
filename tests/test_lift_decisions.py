"""Numbers that decide what is made or runs: specs refuse them, partial models require them."""

from pathlib import Path

import pytest
import torch
from test_lift import problem
from test_partial import lift, with_formulas

from fusegen.errors import Differs, NotLifted
from fusegen.models.lift.lifted import lifted
from fusegen.models.lift.partial.partial_model import Partial
from fusegen.models.lift.verify import verified
from fusegen.project.loader import imported

FILE = """\
import math
import torch
from math import exp
from torch import nn


class Model(nn.Module):
    def __init__(self, n, alpha{more}):
        super().__init__()
        self.a = nn.Linear(8, 8)
        {init}
        self.n, self.alpha = n, alpha

    def forward(self, x):
        x = torch.tanh(self.a(x)) * 2
        {line}
        return torch.relu(x) * self.alpha + 1


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return [3, 0.5]
"""
DECIDED = {  # the line, the number, and its value
    "if self.alpha > 0: x = x * 3": ("alpha", 0.5),
    "if self.alpha == 0.5: x = x * 3": ("alpha", 0.5),
    "x = x * 3 if self.n else x": ("n", 3),
    "x = x * 3 if not self.n - 3 else x": ("n - 3", 0),
    "for _ in range(self.n): x = x * 3": ("n", 3),
    "x = x * int(self.alpha * 10)": ("alpha * 10", 5.0),
    "x = x * float(self.n)": ("n", 3),
    "x = x * round(self.alpha)": ("alpha", 0.5),
    "x = x * math.ceil(self.alpha)": ("alpha", 0.5),
    "x = x / math.sqrt(self.alpha)": ("alpha", 0.5),
    "x = x * exp(self.alpha)": ("alpha", 0.5),
    "x = x * max(self.alpha, 0.1)": ("alpha", 0.5),
    "x = x * (self.n & 6)": ("n", 3),
    "x = x * (4 ^ self.n)": ("n", 3),
    "x = x * divmod(self.n, 2)[1]": ("n", 3),
    "x = x * int(f'{self.n}')": ("n", 3),
    "x = x * len([1] * self.n)": ("n", 3),
    "x = x * self.alpha.real": ("alpha", 0.5),
    "x = x * self.n.bit_length()": ("n", 3),
    "x = nn.ModuleList([nn.Tanh()] * 6)[self.n](x)": ("n", 3),
}
KEPT = (
    "x = x * self.n",
    "x = nn.functional.leaky_relu(x, self.alpha)",
    "x = nn.functional.hardtanh(x, -self.alpha, self.alpha)",  # which compares the two itself
    "x = x * max(range(4))",
    "x = x * math.sqrt(2)",
)


MADE = {  # by the constructor: its line and forward's, the number, its value, the line of the refusal
    "branch": ("self.act = nn.ReLU() if alpha > 1 else nn.Tanh()", "x = self.act(x)", "alpha", 0.5, 11),
    "truth": ("self.act = nn.Tanh() if n else nn.ReLU()", "x = self.act(x)", "n", 3, 11),
    "of arithmetic": ("self.act = nn.ReLU() if n % 2 else nn.Tanh()", "x = self.act(x)", "n % 2", 1, 11),
    "count": (
        "self.acts = nn.ModuleList([nn.Tanh() for _ in range(n)])",
        "for act in self.acts: x = act(x)", "n", 3, 11,
    ),
    "repeated": (
        "self.acts = nn.ModuleList([nn.Tanh()] * n)", "for act in self.acts: x = act(x)", "n", 3, 11,
    ),
    "item": ("self.act = [nn.Tanh(), nn.ReLU(), nn.SiLU(), nn.Tanh(), nn.ReLU()][n]", "x = self.act(x)",
             "n", 3, 7),
    "key": ("self.act = {3: nn.Tanh(), 4: nn.ReLU()}[n]", "x = self.act(x)", "n", 3, 11),
    "kept truth": ("self.is_large = alpha > 1", "if self.is_large: x = x * 3", "alpha", 0.5, 11),
    "argument": ("self.act = nn.ReLU() if is_wide else nn.Tanh()", "x = self.act(x)", "is_wide", True, 7),
}  # fmt: skip
KEPT_MADE = {
    "number": ("self.n = n * 2", "x = x * self.n"),
    "refusal": ("if alpha > 1 or n < 0: raise ValueError(alpha)", "x = x * 3"),
    "assertion": ("assert 0 <= alpha <= 1, alpha", "x = x * 3"),
    "nothing": ("words = 'large' if alpha > 1 else 'small'", "x = x * 3"),
}


def text_of(line: str, init: str = "pass") -> str:
    """The file of a model."""
    return FILE.format(line=line, init=init, more=", is_wide=True" if "is_wide" in init else "")


def written(folder: Path, line: str, init: str = "pass") -> Path:
    path = folder / "model.py"
    path.write_text(text_of(line, init), encoding="utf-8")
    return path


def module_of(found: Partial, folder: Path) -> Path:
    """The module of a partial model that was verified."""
    with_formulas(found, folder)
    path = folder / f"{found.name}.py"
    assert list(verified(found, path))
    return path


@pytest.mark.parametrize("line", DECIDED)
def test_a_spec_refuses_a_number_that_decides(line: str, tmp_path: Path) -> None:
    path = written(tmp_path, line)
    text, value = DECIDED[line]
    with pytest.raises(NotLifted) as refused:
        lifted(f"{path}:Model")
    assert str(refused.value) == (
        f"{path}:16:9: {text} = {value!r} has no place in a spec: forward reads it otherwise than by "
        "arithmetic, so that the spec would hold for this value alone\n"
        f"    {line}\n    ^\n  hint: lift with --partial, whose module refuses other values"
    )


@pytest.mark.parametrize("line", KEPT)
def test_arithmetic_and_functions_of_torch_decide_nothing(line: str, tmp_path: Path) -> None:
    path = written(tmp_path, line)
    assert lifted(f"{path}:Model").scalars
    names = imported(path)
    assert (names.math.pi, getattr(names, "range", range)) == (torch.pi, range)


@pytest.mark.few(2)
@pytest.mark.parametrize("line", DECIDED)
def test_a_partial_model_requires_a_number_that_decides(line: str, tmp_path: Path) -> None:
    found = lift(tmp_path, text_of(line))
    text, value = DECIDED[line]
    text = text.replace("alpha", "self.alpha").replace("n", "self.n") if text[0] == "n" else f"self.{text}"
    model = imported(module_of(found, tmp_path / "generated")).ModelNew
    n, alpha = (3, 0.75) if "alpha" in text else (4, 0.5)
    with pytest.raises(ValueError, match="forward was traced with") as refused:
        model(n, alpha)(torch.ones(4, 8))
    assert str(refused.value) == f"forward was traced with {text}={value!r}"


def test_a_partial_model_is_compared_at_three_settings_of_what_is_free(tmp_path: Path) -> None:
    found = lift(tmp_path, text_of("x = x * self.n"))
    assert found.scalars == ("n", "alpha")
    folder = tmp_path / "generated"
    with_formulas(found, folder)
    path = folder / f"{found.name}.py"
    last = list(verified(found, path))[-1]
    assert "in eval, n=2, alpha=0.375; in train, n=2, alpha=0.375; in eval, n=4, alpha=0.625" in last
    path.write_text(path.read_text().replace("self.alpha)", "0.5)"))
    with pytest.raises(Differs, match=r"in eval, n=2, alpha=0\.375 its error is"):
        list(verified(found, path))


def test_a_number_that_decides_a_layer_is_not_varied(tmp_path: Path) -> None:
    text = text_of("pass").replace("nn.Linear(8, 8)", "nn.Sequential(*[nn.Linear(8, 8)] * n)")
    assert lift(tmp_path, text).scalars == ("alpha",)


# The constructor


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", MADE)
def test_a_spec_refuses_a_number_that_decides_the_constructor(kind: str, tmp_path: Path) -> None:
    line, use, text, value, at = MADE[kind]
    path = written(tmp_path, use, line)
    with pytest.raises(NotLifted) as refused:
        lifted(f"{path}:Model")
    first, _, rest = str(refused.value).partition("\n")
    reader = "model" if text == "is_wide" else "constructor"
    assert first == (
        f"{path}:{at}:{9 if at > 7 else 1}: {text} = {value!r} has no place in a spec: the {reader} "
        "reads it otherwise than by arithmetic, so that the spec would hold for this value alone"
    )
    assert rest.endswith("hint: lift with --partial, whose module refuses other values")


@pytest.mark.parametrize("kind", KEPT_MADE)
def test_arithmetic_and_refusals_of_the_constructor_decide_nothing(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path, *reversed(KEPT_MADE[kind]))
    assert "alpha" in lifted(f"{path}:Model").scalars


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", MADE)
def test_a_partial_model_requires_a_number_that_decides_the_constructor(kind: str, tmp_path: Path) -> None:
    line, use, text, value, _ = MADE[kind]
    found = lift(tmp_path, text_of(use, line))
    model = imported(module_of(found, tmp_path / "generated")).ModelNew
    others = {"n": (4, 0.5), "n % 2": (4, 0.5), "alpha": (3, 1.5), "is_wide": (3, 0.5, False)}
    with pytest.raises(ValueError, match="forward was traced with") as refused:
        model(*others[text])
    assert str(refused.value) == f"forward was traced with {text}={value!r}"
    assert model(3, 0.5)(torch.ones(4, 8)).shape == (4, 8)


def test_a_partial_model_keeps_what_decides_nothing_free(tmp_path: Path) -> None:
    found = lift(tmp_path, text_of("x = x * 3", "assert 0 <= alpha <= 1, alpha"))
    assert "alpha" in found.scalars
    assert "traced with" not in found.text


def test_a_partial_model_without_a_constructor_of_its_own_is_refused(tmp_path: Path) -> None:
    text = text_of(*reversed(MADE["branch"][:2]))
    text = text.replace("class Model(", "class Base(").replace(
        "    def forward", "\nclass Model(Base):\n    def forward"
    )
    with pytest.raises(Exception, match="the class Model does not define __init__ itself"):
        lift(tmp_path, text)


REDUCED = {  # what the constructor decides of the rows of a region
    "len(self.norm.normalized_shape)": "self.norm = nn.LayerNorm(shape); self.dims = -1",
    "self.norm.elementwise_affine": "self.norm = nn.LayerNorm(8, elementwise_affine=flag); self.dims = -1",
    "len(self.dims)": "self.norm = nn.Identity(); self.dims = shape",
}


@pytest.mark.parametrize("text", REDUCED)
def test_a_partial_model_requires_what_decides_the_rows_of_a_region(text: str, tmp_path: Path) -> None:
    forward = "return torch.relu(self.norm(x) * 2) - torch.relu(self.norm(x) * 2).mean(self.dims, True)"
    shape = "(1, 2)" if "dims" in text else "(6, 8)"
    made = problem(f"shape, flag|{REDUCED[text]}", forward, "torch.randn(4, 6, 8)", f"{shape}, True")
    assert f"if {text} != {True if 'affine' in text else 2}:" in lift(tmp_path, made, 1).text
