"""Arguments that decide what a constructor makes: specs refuse them, partial models require them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_partial import lift, with_formulas

from fusegen.errors import NotLifted
from fusegen.models.lift.lifted import lifted
from fusegen.models.lift.verify import verified
from fusegen.project.loader import imported

FILE = """\
import math
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n, alpha, is_wide=True):
        super().__init__()
        self.a = nn.Linear(8, 8)
        {line}
        self.alpha = alpha

    def forward(self, x):
        x = torch.tanh(self.a(x)) * 2
        {use}
        return torch.relu(x) * self.alpha + 1


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return [3, 0.5]
"""
DECIDED = {  # the lines of the constructor and of forward, the number, its value, the line of the refusal
    "branch": ("self.act = nn.ReLU() if alpha > 1 else nn.Tanh()", "x = self.act(x)", "alpha", 0.5, 10),
    "truth": ("self.act = nn.Tanh() if n else nn.ReLU()", "x = self.act(x)", "n", 3, 10),
    "of arithmetic": ("self.act = nn.ReLU() if n % 2 else nn.Tanh()", "x = self.act(x)", "n % 2", 1, 10),
    "count": (
        "self.acts = nn.ModuleList([nn.Tanh() for _ in range(n)])",
        "for act in self.acts: x = act(x)", "n", 3, 10,
    ),
    "repeated": (
        "self.acts = nn.ModuleList([nn.Tanh()] * n)", "for act in self.acts: x = act(x)", "n", 3, 6,
    ),
    "item": ("self.act = [nn.Tanh(), nn.ReLU(), nn.SiLU(), nn.Tanh(), nn.ReLU()][n]", "x = self.act(x)",
             "n", 3, 6),
    "key": ("self.act = {3: nn.Tanh(), 4: nn.ReLU()}[n]", "x = self.act(x)", "n", 3, 10),
    "kept truth": ("self.is_large = alpha > 1", "if self.is_large: x = x * 3", "alpha", 0.5, 10),
    "argument": ("self.act = nn.ReLU() if is_wide else nn.Tanh()", "x = self.act(x)", "is_wide", True, 6),
}  # fmt: skip
KEPT = {
    "number": ("self.n = n * 2", "x = x * self.n"),
    "refusal": ("if alpha > 1 or n < 0: raise ValueError(alpha)", "x = x * 3"),
    "assertion": ("assert 0 <= alpha <= 1, alpha", "x = x * 3"),
    "nothing": ("words = 'large' if alpha > 1 else 'small'", "x = x * 3"),
}


def written(folder: Path, line: str, use: str) -> Path:
    path = folder / "model.py"
    path.write_text(FILE.format(line=line, use=use), encoding="utf-8")
    return path


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", DECIDED)
def test_a_spec_refuses_a_number_that_decides_the_constructor(kind: str, tmp_path: Path) -> None:
    line, use, text, value, at = DECIDED[kind]
    path = written(tmp_path, line, use)
    with pytest.raises(NotLifted) as refused:
        lifted(f"{path}:Model")
    first, _, rest = str(refused.value).partition("\n")
    assert first == (
        f"{path}:{at}:{9 if at > 6 else 1}: {text} = {value!r} has no place in a spec: the constructor "
        "reads it otherwise than by arithmetic, so that the spec would hold for this value alone"
    )
    assert rest.endswith("hint: lift with --partial, whose module refuses other values")


@pytest.mark.parametrize("kind", KEPT)
def test_arithmetic_and_refusals_decide_nothing(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path, *KEPT[kind])
    assert "alpha" in lifted(f"{path}:Model").scalars


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", DECIDED)
def test_a_partial_model_requires_a_number_that_decides_the_constructor(kind: str, tmp_path: Path) -> None:
    line, use, text, value, _ = DECIDED[kind]
    found = lift(tmp_path, FILE.format(line=line, use=use))
    folder = tmp_path / "generated"
    with_formulas(found, folder)
    path = folder / f"{found.name}.py"
    assert list(verified(found, path))
    model = imported(path).ModelNew
    others = {"n": (4, 0.5), "n % 2": (4, 0.5), "alpha": (3, 1.5), "is_wide": (3, 0.5, False)}
    with pytest.raises(ValueError, match="forward was traced with") as refused:
        model(*others[text])
    assert str(refused.value) == f"forward was traced with {text}={value!r}"
    assert model(3, 0.5)(torch.ones(4, 8)).shape == (4, 8)


def test_a_partial_model_keeps_what_decides_nothing_free(tmp_path: Path) -> None:
    found = lift(tmp_path, FILE.format(line="assert 0 <= alpha <= 1, alpha", use="x = x * 3"))
    assert "alpha" in found.scalars
    assert "traced with" not in found.text


def test_a_partial_model_without_a_constructor_of_its_own_is_refused(tmp_path: Path) -> None:
    text = FILE.format(line="self.act = nn.ReLU() if alpha > 1 else nn.Tanh()", use="x = self.act(x)")
    text = text.replace("class Model(", "class Base(").replace(
        "    def forward", "\nclass Model(Base):\n    def forward"
    )
    with pytest.raises(Exception, match="the class Model does not define __init__ itself"):
        lift(tmp_path, text)
