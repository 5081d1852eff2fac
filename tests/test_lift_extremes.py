"""Values of `max` and `min` along a dimension in the regions of partial models and networks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from test_lift import problem
from test_lift_rows import Body, every
from test_partial import body, lift

INIT = "n|self.a = nn.Linear(n, n)"
RANK = ["if x.dim() != 2:", '    raise ValueError("forward was traced with x.dim()=2")']
TEXTS: dict[str, tuple[str, list[str]]] = {
    "an item": (
        "return torch.max(self.a(x) * x, 1)[0].tanh()",
        [*RANK, "return mul_max_tanh(self.a(x), x)"],
    ),
    "a dimension from the end": (
        "return torch.max(self.a(x) * x, -1)[0].tanh()",
        ["return mul_max_tanh(self.a(x), x)"],
    ),
    "an attribute": (
        "return torch.min(self.a(x) * 2, dim=-1, keepdim=True).values",
        [*RANK, "return mul_min(self.a(x))[:, None]"],
    ),
    "a method": (
        "y, _ = (self.a(x) * 2).min(dim=1, keepdim=True); return y + 1",
        [*RANK, "a = self.a(x)", "return mul_min_add(a)[:, None]"],
    ),
    "places, which PyTorch gives": (
        "m = torch.max(self.a(x) * 2 + 1, 1); return m.values.tanh() + m.indices.float()",
        [
            "m = torch.max(mul_add(self.a(x)), dim=1)",
            "m_2 = m[0]",
            "m = m[1]",
            "return tanh_add(m_2, m.to(torch.float32))",
        ],
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_partial_model(tmp_path: Path, name: str) -> None:
    forward, expected = TEXTS[name]
    assert body(lift(tmp_path, problem(INIT, forward, arguments="8"), 1)) == expected


CASES: dict[str, tuple[Any, list[tuple[int, bool]]]] = {
    "in front and behind": (lambda x: torch.max((x * 2).relu(), 1)[0].tanh() + 1, [(5, True)]),
    "beside other reductions": (
        lambda x: x.softmax(2).max(2, keepdim=True)[0] * x.sum(2, True),
        [(4, True)],
    ),
    "of two tensors": (lambda x: torch.max(x * 2, x) + 1, [(3, False)]),
    "of all elements": (lambda x: torch.max(x * 2) + 1, [(1, False), (1, False)]),
    "of integers": (lambda x: x.long().max(1)[0], []),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_region_reduces(name: str) -> None:
    function, expected = CASES[name]
    chosen = every(Body(function), torch.randn(4, 6, 8)).chosen
    assert [(len(each.region.parts), each.region.is_of_rows) for each in chosen] == expected
