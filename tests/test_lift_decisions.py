"""Numbers that decide what forward runs: specs refuse them, partial models require them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_partial import lift, with_formulas

from fusegen.errors import Differs, NotLifted
from fusegen.models.lift.lifted import lifted
from fusegen.models.lift.verify import verified
from fusegen.project.loader import imported

FILE = """\
import math
import torch
from math import exp
from torch import nn


class Model(nn.Module):
    def __init__(self, n, alpha):
        super().__init__()
        self.a = nn.Linear(8, 8)
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
}
KEPT = (
    "x = x * self.n",
    "x = nn.functional.leaky_relu(x, self.alpha)",
    "x = nn.functional.hardtanh(x, -self.alpha, self.alpha)",  # which compares the two itself
    "x = x * max(range(4))",
    "x = x * math.sqrt(2)",
)


def written(folder: Path, line: str) -> Path:
    path = folder / "model.py"
    path.write_text(FILE.format(line=line), encoding="utf-8")
    return path


@pytest.mark.parametrize("line", DECIDED)
def test_a_spec_refuses_a_number_that_decides(line: str, tmp_path: Path) -> None:
    path = written(tmp_path, line)
    text, value = DECIDED[line]
    with pytest.raises(NotLifted) as refused:
        lifted(f"{path}:Model")
    assert str(refused.value) == (
        f"{path}:15:9: {text} = {value!r} has no place in a spec: forward reads it otherwise than by "
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
    found = lift(tmp_path, FILE.format(line=line))
    text, value = DECIDED[line]
    text = text.replace("alpha", "self.alpha").replace("n", "self.n") if text[0] == "n" else f"self.{text}"
    folder = tmp_path / "generated"
    with_formulas(found, folder)
    path = folder / f"{found.name}.py"
    assert list(verified(found, path))
    model = imported(path).ModelNew
    n, alpha = (3, 0.75) if "alpha" in text else (4, 0.5)
    with pytest.raises(ValueError, match="forward was traced with") as refused:
        model(n, alpha)(torch.ones(4, 8))
    assert str(refused.value) == f"forward was traced with {text}={value!r}"


def test_a_partial_model_is_compared_at_three_settings_of_what_is_free(tmp_path: Path) -> None:
    found = lift(tmp_path, FILE.format(line="x = x * self.n"))
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
    text = FILE.format(line="pass").replace("nn.Linear(8, 8)", "nn.Sequential(*[nn.Linear(8, 8)] * n)")
    assert lift(tmp_path, text).scalars == ("alpha",)
