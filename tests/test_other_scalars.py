"""Gradients that cancel at other scalars than the defaults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from kernels import compiled
from torch import Tensor

pytestmark = pytest.mark.few(2)


def slopes(function: Callable[[Tensor], Tensor], given: Tensor) -> Tensor:
    x = given.clone().requires_grad_()
    return torch.autograd.grad(function(x).sum(), x)[0]


@pytest.mark.parametrize("k", [-3.0, -1.0, -0.5])
def test_a_gradient_with_a_zero_at_other_scalars_keeps_its_digits(
    k: float, tmp_path: Path, extensions: Path
) -> None:
    """That of exp(-k x) / x is 0 at -1 / k, and at the default, 1, nowhere."""
    body = 'params: {k: 1.0}\nassume: {x: "[0.001, 80]"}\nformula: exp(-k * x) / x\n'
    module = compiled(tmp_path, "screened", body)
    x = torch.linspace(0.98, 1.02, 4001)[:1990] / -k
    exact = slopes(lambda t: module.eager(t, k), x.double())
    mine = slopes(lambda t: module.screened(t, k), x).double()
    eager = slopes(lambda t: module.eager(t, k), x).double()
    errors = [float(((found - exact) / exact).abs().max()) for found in (mine, eager)]
    assert errors[0] < errors[1] / 2
