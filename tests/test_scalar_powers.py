"""Powers by a scalar: PyTorch takes those by 1/2 and -1/2 as roots, which differ at -0 and -inf."""

import shutil
from pathlib import Path

import pytest
import torch
from elements import Elements, Formula

INF, NAN = float("inf"), float("nan")
X = (-INF, INF, -0.0, 0.0, -4.0, 4.0, NAN)


def alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return True if two tensors have NaN, infinities and zeros of either sign at the same places."""
    kinds = [torch.stack([x.isnan(), x.isinf(), x == 0, x.isnan() | x.signbit()]) for x in (a, b)]
    return torch.equal(*kinds)


@pytest.mark.full
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize(
    ("formula", "exponent"),
    [("pow(x, c)", -0.5), ("pow(x, c)", 0.5), ("pow(x, c)", 1.5), ("pow(x, c)", -3.0), ("pow(-x, c)", 0.5)],
)
def test_a_power_by_a_scalar_has_eagers_special_values(
    formula: str, exponent: float, tmp_path: Path
) -> None:
    """The slope of x^1.5 is 1.5 x^0.5, a root as well."""
    elements = Elements(Formula(formula, {"c": exponent}), "powers", tmp_path)
    for device in ("cpu", "cuda"):
        for dtype in (torch.float32, torch.float64):
            x = torch.tensor(X, dtype=dtype).requires_grad_()
            expected = (-x if "-" in formula else x) ** exponent
            (grad,) = torch.autograd.grad(expected.sum(), x)
            value, slope = elements(device, x.detach())[:2]
            assert alike(value, expected), (device, dtype)
            assert alike(slope, grad), (device, dtype)
