"""Numbers of rows that the forward pass saves on CUDA: which, and that gradients read them in one loop."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from rows_emulated import emulated
from test_rows import made
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from generated._runtime.row_reductions import in_python

HEAD = "inputs: {x: {shape: [4, 64]}%s}\nover: [-1]\n"
OTHER = ", y: {shape: [4, 64]}"
# of a formula: what is saved, and the loops of the gradient, in which -1 is a sum of its own
FORMULAS = {
    "a norm": (
        "where: {c: x - mean(x)}\nformula: c * rsqrt(mean(c ** 2) + 1e-5)\n",
        ["row_sum", "row_sum1"],
        "OneLoop<Saved<Backward1, 0, -1>, Saved<Backward2, 1, -1>>",
    ),
    "a softmax": (
        "formula: softmax(x)\n",
        ["row_amax", "row_sum"],
        "OneLoop<Saved<Backward1, 0>, Saved<Backward2, 1, -1>>",
    ),
    "all that a gradient needs": (
        "formula: logsumexp(x)\n",
        ["row_amax", "row_sum"],
        "OneLoop<Saved<Backward1, 0>, Saved<Backward2, 1>>",
    ),
    "a sum that waits for another one": (  # of the gradient's own, which is no number of the forward pass
        "where: {s: sum(x * x), c: x * rsqrt(s + 1)}\nformula: c * exp(-mean(abs(c)))\n",
        ["s", "row_sum"],
        "OneLoop<Saved<Backward1, 0>, Saved<Backward2, 1, -1>>, Backward3",
    ),
    "of two tensors": ("formula: x * sum(x * y)\n", ["row_sum"], "OneLoop<Saved<Backward1, 0, -1>>"),
    "nothing, of what elements are compared with": ("formula: amax(exp(x))\n", [], "Backward1"),
    "an element that is read": (
        "formula: amax(x)\n",
        ["row_amax"],
        "OneLoop<Saved<Backward1, 0>, Saved<Backward2, -1>>",
    ),
    "nothing, of a sum that no gradient reads": ("formula: x - mean(x)\n", [], "Backward1"),
    "nothing, of elements": ("formula: x * exp(x)\n", [], "Backward1"),
    "nothing, of scans": ("formula: cumsum(x)\n", [], "Backward1"),
}


@pytest.mark.parametrize(("formula", "saved", "loops"), FORMULAS.values(), ids=FORMULAS)
def test_what_is_saved(formula: str, saved: list[str], loops: str, tmp_path: Path) -> None:
    module: Any = made(tmp_path, "rows", HEAD % (OTHER * ("y" in formula)) + formula)
    text = re.sub(r"\s+", " ", module.CUDA_SOURCE)
    found = re.search(r"FUSEGEN_SAVED\((\d+), (.*?)\) }", text)
    assert (re.findall(r"p\.(\w+)", found[2]) if found else []) == saved
    assert module.KERNELS.saves == len(saved) == int(found[1] if found else 0)
    [phases] = re.findall(
        r"struct Backward : \w+<[\d, ]+, (?:WithSaved<[^>]*>|\w+), (.*?)(?:, \w+)?> {", text
    )
    assert loops in phases
    assert "Saved" not in module.CPU_SOURCE
    assert ("FUSEGEN_SAVING_" in text) == bool(saved)


def test_what_a_norm_saves_is_its_sums() -> None:
    """Of rows of lanes, of a block and of odd lengths."""
    kernels = emulated(importlib.import_module("generated.rows.layer_norm"))
    for rows, n in ((3, 8), (4, 33), (2, 600)):
        x = torch.randn(rows, n, generator=torch.Generator().manual_seed(n))
        found = kernels.saved([x, torch.ones(n), torch.zeros(n)], x, (1e-5,))
        wide = x.double()
        mean = wide.mean(-1, keepdim=True)
        exact = torch.stack([wide.sum(-1), (wide - mean).square().sum(-1)], -1)
        torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["softmax", "cross_entropy", "cross_entropy_in_float32"])
def test_what_a_softmax_saves_is_its_largest_element_and_its_sum(name: str) -> None:
    """Compare sums with exact ones: a gradient has the relative error of the sum that it reads."""
    kernels = emulated(importlib.import_module(f"generated.rows.{name}"))
    for n in (33, 300, 4096):
        x = torch.randn(4, n, generator=torch.Generator().manual_seed(0)) * 5
        index = [torch.zeros(4, 1, dtype=torch.int64)] * (name != "softmax")
        found = kernels.saved([x, *index], x, ())
        top = x.amax(-1).double()
        assert torch.equal(found[:, 0], top)
        exact = torch.exp(x.double() - top[:, None]).sum(-1)
        torch.testing.assert_close(found[:, 1], exact, rtol=4e-10, atol=0)


def test_numbers_are_saved_on_cuda_alone() -> None:
    """Operators know their results without the elements, and refuse tensors on the CPU."""
    kernels = importlib.import_module("generated.rows.cross_entropy").KERNELS
    x, index = torch.randn(3, 4, 50), torch.zeros(3, 4, 1, dtype=torch.int64)
    saving, numbers, reduced, reading = (
        kernels.kernel(name)
        for name in ("forward_saving", "forward_numbers", "forward_reduced_saving", "backward_reading")
    )
    told = "^cross_entropy: numbers of rows are saved for tensors on CUDA alone$"
    for operator, scalars in ((saving, ()), (numbers, ()), (reduced, (1.0,))):
        with pytest.raises(RuntimeError, match=told):
            operator(x, index, *scalars)
    with FakeTensorMode():
        x, index = torch.empty(3, 4, 50), torch.zeros(3, 4, 1, dtype=torch.int64)
        value, found = saving(x, index)
        assert [value.shape, found.shape, found.dtype] == [(3, 4), (12, 2), torch.float64]
        assert [each.shape for each in reduced(x, index, 1.0)] == [(), (), (12, 2)]
        assert numbers(x, index).shape == (12, 2)
        assert reading(value, x, index, found).shape == x.shape


@pytest.mark.parametrize("name", ["rows.cross_entropy", "losses.weighted_cross_entropy"])
def test_a_checkpoint_unpacks_what_a_loss_saves_once(name: str) -> None:
    module: Any = importlib.import_module(f"generated.{name}")
    call = in_python(module.KERNELS)
    x = torch.randn(4, 7, requires_grad=True, generator=torch.Generator().manual_seed(0))
    others, scalars = ([torch.rand(7)], [0.0]) if name.startswith("losses") else ([], [])
    target = torch.tensor([0, 3, 6, 1])
    expected = torch.autograd.grad(call(x, *others, target, *scalars), x)
    found = checkpoint(lambda t: call(t, *others, target, *scalars), x, use_reentrant=False)
    assert torch.equal(torch.autograd.grad(found, x)[0], expected[0])
