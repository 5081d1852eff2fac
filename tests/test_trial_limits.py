"""The limits that a trial knows of a formula: of what grows as a logarithm does, too."""

import math

import pytest

from fusegen.compiler.trial_limits import TrialLimits
from fusegen.core.term import Name, Program, call


@pytest.mark.parametrize(("name", "limit"), [("log1p", math.inf), ("sin", None), ("tanh", 1.0)])
def test_a_logarithm_grows_without_bound(name: str, limit: float | None) -> None:
    program = Program(("x",), (), (), (call(name, Name("x") * Name("x") * Name("x")),))
    assert TrialLimits(program).at(0, "x", math.inf, {}) == limit
