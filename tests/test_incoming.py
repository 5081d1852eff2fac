"""Incoming gradients that are infinite: linear there, too, where the slope is a number other than 0."""

from pathlib import Path

import pytest
import torch
from elements import Elements, Formula

# a gradient that is a sum with a selection, and the device
FORMULAS = {
    "relu6_of_silu": ("hardswish(silu(x))", "cpu"),
    "clamp_in_a_product": ("tanh(x) * clamp(x, -2, 2)", "cuda"),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", FORMULAS)
def test_an_infinite_incoming_gradient_gives_an_infinity(name: str, tmp_path: Path) -> None:
    formula, device = FORMULAS[name]
    found = Elements(Formula(formula), name, tmp_path)
    x = torch.linspace(-6, 6, 1201)
    y, slope = found(device, x)
    for size in (torch.inf, -torch.inf):
        (gradient,) = found.gradients(device, y, torch.full_like(x, size), x)
        steep = slope != 0
        assert torch.equal(gradient[steep], (size * slope)[steep])
