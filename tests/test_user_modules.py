"""Modules of valid formulas compile and run: rare mixtures of functions."""

import shutil
from pathlib import Path

import pytest
import torch
from elements import DTYPES, Elements, Formula

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
ALPHA = {"alpha": 0.5}
TENSORS = (
    Formula("where(x > 0, x, exp(alpha**3) - 1)", ALPHA),
    Formula("(x / y) * minimum(sign(x), sin(y))", inputs=("x", "y")),
    Formula("x * minimum(sign(x), sin(y))", inputs=("x", "y")),
)


@pytest.mark.few(1)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("formula", TENSORS, ids=lambda formula: formula.formula)
def test_kernels_compile(tmp_path: Path, formula: Formula, device: str) -> None:
    elements = Elements(formula, "kernels", tmp_path)
    for dtype in DTYPES:
        inputs = [torch.tensor([0.75, 1.5]).to(dtype) for _ in formula.inputs]
        found, eager = elements(device, *inputs), elements.eager(*inputs)
        for a, b in zip(found, eager, strict=True):
            assert torch.allclose(a, b, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)
