"""Modules of valid formulas compile and run: of functions of scalars, and of rare mixtures of functions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from elements import DTYPES, Elements, Formula
from kernels import extensions as extensions

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
ALPHA = {"alpha": 0.5}
SCALARS = (
    "x * tanh(alpha)",
    "x + sigmoid(alpha)",
    "x + softplus(alpha)",
    "x + where(alpha > 0, alpha, 2)",
    "maximum(minimum(alpha, x), sign(alpha))",
    "x * exp(-alpha)",
    "x + erf(alpha) * abs(alpha)",
    "x * clamp(alpha, 0, 1) + relu(alpha)",
)
TENSORS = (
    Formula("where(x > 0, x, exp(alpha**3) - 1)", ALPHA),
    Formula("(x / y) * minimum(sign(x), sin(y))", inputs=("x", "y")),
    Formula("x * minimum(sign(x), sin(y))", inputs=("x", "y")),
)


@pytest.mark.parametrize("formula", SCALARS)
def test_eager_takes_functions_of_scalars(tmp_path: Path, formula: str) -> None:
    """Second derivatives, integers and subclasses of tensors go through these operations."""
    x = torch.tensor([0.75, -2.0])
    value, slope = Elements(Formula(formula, ALPHA), "scalars", tmp_path).eager(x)
    assert value.shape == slope.shape == x.shape


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("formula", TENSORS, ids=lambda formula: formula.formula)
def test_kernels_compile(tmp_path: Path, formula: Formula, device: str) -> None:
    elements = Elements(formula, "kernels", tmp_path)
    for dtype in DTYPES:
        inputs = [torch.tensor([0.75, 1.5]).to(dtype) for _ in formula.inputs]
        found, eager = elements(device, *inputs), elements.eager(*inputs)
        for a, b in zip(found, eager, strict=True):
            assert torch.allclose(a, b, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)
