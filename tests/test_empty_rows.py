"""Rows without elements: PyTorch's operations give what they give, and no kernel reads a first element."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from dispatching import after_each
from test_rows import made
from torch import Tensor

HEAD = "inputs: {x: {shape: [4, 64]}}\nover: [-1]\nformula: "
FORMULAS = {
    "mean((x - mean(x)) ** 2)": lambda x: x.new_full(x.shape[:1], torch.nan) + x.sum(-1),
    "(x - mean(x)) * rsqrt(mean((x - mean(x)) ** 2) + 1e-5)": lambda x: x * 1,
    "logsumexp(x)": lambda x: x.logsumexp(-1),
    "sum(x)": lambda x: x.sum(-1),
}


@pytest.mark.parametrize("formula", FORMULAS)
def test_values_and_gradients(formula: str, tmp_path: Path) -> None:
    module: Any = made(tmp_path, "empty", HEAD + formula)
    for shape in ((3, 0), (0, 4), (0, 0)):
        own, other = (torch.zeros(shape, requires_grad=True) for _ in range(2))
        y, exact = module.empty(own), FORMULAS[formula](other)
        torch.testing.assert_close(y, exact, equal_nan=True)
        slopes: list[Tensor] = [torch.autograd.grad(of.sum(), x)[0] for of, x in ((y, own), (exact, other))]
        assert slopes[0].shape == slopes[1].shape == shape


@pytest.mark.few(1)
@pytest.mark.parametrize(("columns", "runs"), [(0, False), (4, True)])
@pytest.mark.parametrize("formula", [*FORMULAS][:2])
def test_no_kernel_runs_that_reads_a_first_element(
    formula: str, columns: int, runs: bool, tmp_path: Path
) -> None:
    module: Any = made(tmp_path, "empty", HEAD + formula)
    x = torch.zeros(3, columns, requires_grad=True)
    ran: list[str] = []
    with after_each(lambda operator, *_: ran.append(str(operator))):
        torch.autograd.grad(module.empty(x).sum(), x)
    own = [name.rpartition("_")[2] for name in ran if name.startswith("fusegen_")]
    assert own == (["forward.default", "backward.default"] if runs else [])
