"""The fuzzer of specs, calls and models: a few cases of a fixed seed, and faults that it has to find."""

import json
import random
import shutil
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from benchmarks.fuzz import __main__ as fuzz
from benchmarks.fuzz import calls, models, specs
from benchmarks.fuzz.exact import BITS_64
from fusegen.core.term import Name, Number, Program, call
from fusegen.numerics.reals import Reals
from fusegen.project import build

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
SEED = 61
FEW = (4, 6)  # a spec and a model, in `make test`
CASES = [pytest.param(k, marks=() if k in FEW else pytest.mark.full) for k in range(40)]


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", CASES)
def test_a_case_has_no_failure(number: int, tmp_path: Path) -> None:
    *failures, counts = fuzz.run(SEED, iter((number,)), tmp_path)
    assert failures == []
    assert counts["cases"] == 1


def test_a_case_is_the_same_each_time() -> None:
    drawn = [[specs.spec(random.Random(f"1:{k}"), "it") for k in range(20)] for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 20


class Wrong(calls.Called):
    """A module's function whose results are off by a thousandth."""

    def call(self, *tensors: Any, **words: Any) -> Any:
        """Return a wrong value."""
        return super().call(*tensors, **words) * 1.001


@pytest.mark.full
def test_a_wrong_value_is_a_line_of_json_and_an_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "name: fuzz_7_0\nsummary: A test.\ndtypes: [float32]\nformula: x * 2\n"
    monkeypatch.setattr(specs, "spec", lambda *_: text)
    monkeypatch.setattr(calls, "Called", Wrong)
    monkeypatch.setattr(models, "failures", lambda *_: iter(()))
    result = CliRunner().invoke(fuzz.main, ["--seed", "7", "--only", "0"])
    *lines, counts = map(json.loads, result.output.splitlines())
    assert result.exit_code == 1
    assert lines[0]["seed"] == 7
    assert lines[0]["case"] == 0
    assert lines[0]["spec"] == text
    assert lines[0]["failure"].startswith("torch.float32 value at [")
    assert counts["failures"] == len(lines)


def test_a_traceback_of_the_compiler_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(path: Path) -> None:
        raise ZeroDivisionError(path.name)

    monkeypatch.setattr(build, "compiled_file", broken)
    monkeypatch.setattr(fuzz, "MODELS", 0.0)
    [found] = fuzz.tried("7:1", tmp_path, Counter())
    assert found["error"].splitlines()[-1] == "ZeroDivisionError: fuzz_7_1.yaml"


def test_a_gradient_that_is_missing_or_off_is_told() -> None:
    one = torch.ones(3)
    assert calls.differs(one, one) == ""
    assert calls.differs(one, one + 1, 1e-3) == "[1.0, 1.0, 1.0], not [2.0, 2.0, 2.0]"
    assert calls.differs(None, one) == "a gradient is missing"
    assert calls.differs(None, one * 0) == ""
    assert calls.differs([one], [one.double()]) == "(3,) torch.float32, not (3,) torch.float64"
    assert calls.differs(one * torch.nan, one) == "[nan, nan, nan], not [1.0, 1.0, 1.0]"


def test_exact_values_hold_what_double_rounds_away() -> None:
    softplus = call("log", Number(Fraction(1)) + call("exp", Name("x")))
    assert Reals(Program(("x",), (), (), (softplus,)), BITS_64)({"x": -272.0}) == (7.445620940050319e-119,)


def test_a_model_whose_backward_raises_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Overwriting(torch.nn.Module):
        """An operation in place on what the gradient needs."""

        def __init__(self, seed: str) -> None:
            super().__init__()
            self.plan = [seed]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Return a result whose gradient is lost."""
            return torch.sigmoid(x).mul_(2)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        models.results(Overwriting(""), torch.ones(2))
    monkeypatch.setattr(models, "Drawn", Overwriting)
    assert list(models.failures("1", tmp_path)) == []
