"""Certificates of rows: exact values and gradients in balls, the file, and the command.

Planted faults are in `test_mutants`.
"""

from __future__ import annotations

import importlib
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from conftest import ROOT, Workshop
from parsed import spec_file
from test_rows import CASES

from fusegen.compiler.row_kernels import CompiledRows
from fusegen.compiler.stages import real
from fusegen.evidence.certify.enclosures.ball_rows import values
from fusegen.evidence.certify.enclosures.row_balls import RowBalls
from fusegen.evidence.certify.rows import families, row_subject
from fusegen.language.library import Library
from fusegen.language.library import load as load_spec
from fusegen.project import build


@pytest.mark.parametrize("name", ["softmax_of_a_chain", "layer_norm", "logsumexp", "spread"])
def test_balls_hold_what_autograd_finds_in_float64(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    path = spec_file(tmp_path, name, case.body)
    spec = load_spec(path)
    balls = RowBalls(
        real(spec, Library(tmp_path)), {each.name: Fraction(each.default) for each in spec.scalars}
    )
    torch.manual_seed(1)
    shapes = [(3, 9), *[(3, 9)] * case.others, *[(9,)] * case.features]
    given = [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes]
    value = case.reference(*given)
    incoming = torch.randn_like(value)
    right = (value, *torch.autograd.grad(value, given, incoming))
    found = values(balls, [t.detach() for t in given], [incoming], torch.float64)
    for (hi, lo, off), wanted in zip(found, right, strict=True):
        torch.testing.assert_close(hi, wanted.detach().flatten(), rtol=1e-12, atol=1e-12)
        assert (lo.abs() <= 2.0**-52 * hi.abs()).all()
        assert (off >= 0).all()
        assert off.max() > 0


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-2.0, 3.0), (0.0, torch.inf), (-torch.inf, -1.0)])
def test_rows_lie_where_a_spec_assumes_them(bounds: tuple[float, float]) -> None:
    low, high = bounds
    drawn = torch.tensor([-1e30, -2.5, -0.0, 1e-30, 0.75, 40.5], dtype=torch.float64)
    found = families.within(drawn, low, high)
    assert ((found >= low) & (found <= high)).all()
    assert len({*found.tolist()}) >= 3


def test_equal_largest_elements_share_a_gradient(tmp_path: Path) -> None:
    path = spec_file(tmp_path, "most", "over: [-1]\nformula: x * amax(x) * amin(x)")
    balls = RowBalls(real(load_spec(path), Library(tmp_path)), {})
    x = torch.tensor([[3.0, -1.0, 3.0, -1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    value = x * x.amax(-1, keepdim=True) * x.amin(-1, keepdim=True)
    [wanted] = torch.autograd.grad(value.sum(), x)
    _, (hi, lo, _) = values(balls, [x.detach()], [torch.ones(1, 5)], torch.float64)
    assert (hi + lo).tolist() == wanted.flatten().tolist()


def test_cancelled_digits_are_found() -> None:
    """Of log-softmax next to 0, of which double keeps no digit."""
    path = ROOT / "specs/rows/log_softmax.yaml"
    balls = RowBalls(real(load_spec(path), Library(path.parent)), {})
    x = torch.tensor([[0.0, -100.0]], dtype=torch.float64)
    assert torch.log_softmax(x, -1)[0, 0] == 0
    (hi, _, _), _ = values(balls, [x], [torch.ones(1, 2)], torch.float32)
    assert hi[0] == pytest.approx(-torch.exp(torch.tensor(-100.0, dtype=torch.float64)).item(), rel=1e-14)


def test_rows_are_the_same_each_time_and_of_every_kind() -> None:
    groups = list(families.groups(10**9))
    assert {group.kind for group in groups} == set(families.KINDS)
    assert sum(group.rows for group in families.groups(5000)) < sum(group.rows for group in groups)
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        for group in groups[:40]:
            first, again = (group.drawn(group.generator(dtype), dtype) for _ in range(2))
            assert torch.equal(first, again)
            assert first.shape == (group.rows, group.length)
            assert first.isfinite().all()


def test_a_spec_with_rows_is_certified(workshop: Workshop) -> None:
    workshop.build(
        "shares",
        "over: [-1]\ndtypes: [float32]\nformula: softmax(x)\nreference: torch.nn.functional.softmax",
    )
    tried = workshop.run("certify", "shares", "--device", "cpu", "--sample", "200")
    assert (tried.exit_code, Path("generated/shares.certificate.txt").exists()) == (0, False), tried.output
    assert tried.output.splitlines()[0].startswith("shares                 cpu  float32  value        0.")
    assert "of 192 of 104 rows" in tried.output.splitlines()[0]
    refused = workshop.run("certify", "shares", "--at", "0x1p+0")
    assert "'shares' reduces rows, and this takes formulas of elements" in refused.output
    workshop.build(
        "shares",
        "over: [-1]\ndtypes: [float32]\nformula: softmax(x)\nreference: torch.nn.functional.softmin",
    )
    said = workshop.refused("certify", "shares", "--device", "cpu", "--sample", "200")
    assert "torch.nn.functional.softmin" in said


VALUES = {  # the dtypes of results beside tensors in bfloat16
    "losses/huber_loss": [torch.bfloat16],
    "rows/cross_entropy": [torch.bfloat16],
    "rows/cross_entropy_in_float32": [torch.float32],
    "rows/layer_norm_statistics": [torch.bfloat16, torch.float32, torch.float32],
    "kernelbench/columns_argmax": [torch.float32],
}


@pytest.mark.parametrize(("name", "expected"), VALUES.items())
def test_values_are_judged_in_their_dtype(name: str, expected: list[torch.dtype]) -> None:
    compiled = build.compiled_either(ROOT / f"specs/{name}.yaml")
    assert isinstance(compiled, CompiledRows)
    module = importlib.import_module(f"generated.{name.replace('/', '.')}")
    assert row_subject.of_module(compiled, module).dtypes_of_values(torch.bfloat16) == expected
