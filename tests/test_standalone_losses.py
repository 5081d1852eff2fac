"""Standalone files of losses of whole tensors: on the CPU and, emulated, on CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from standalone_files import (
    NAMES,
    TESTED,
    assert_near,
    drawing,
    emulate,
    executed,
    wide,
)
from torch import Tensor, nn

from fusegen.codegen.standalone import part_file
from fusegen.runtime import parts

REDUCTIONS = ("mean", "sum", "batchmean", "none")
Shapes = tuple[tuple[int, ...], ...]
LOSSES: dict[str, Callable[..., list[Any]]] = {  # the arguments
    "losses/huber_loss": lambda draw, *shapes: [*(draw(*s) for s in shapes), 0.75],
    "kernelbench/matrix_hinge_loss": lambda draw, *shapes: [draw(*s) for s in shapes],
    "losses/kl_div": lambda draw, one, other: [draw(*one), draw(*other).abs()],
    "losses/margin_ranking_loss": lambda draw, one, other: [
        draw(*one),
        draw(*other),
        draw(*one).sign(),
        0.25,
    ],
    "losses/bce_with_logits_loss": lambda draw, one, other: [draw(*one) * 9, draw(*other).sigmoid()],
}
SHAPES: tuple[Shapes, ...] = (  # parts and a rest, a broadcast row, column and number, no dimension
    ((3, 4099), (3, 4099)),
    ((6, 40), (40,)),
    ((5, 33), (5, 1)),
    ((7, 3), ()),
    ((), ()),
)


def results(function: Callable[..., Tensor], given: list[Any]) -> list[Tensor]:
    """A loss and the gradients of its tensors."""
    leaves = [t.detach().requires_grad_() if isinstance(t, Tensor) else t for t in given]
    y = function(*leaves)
    incoming = (torch.arange(y.numel()) % 29 - 11).div(8).reshape(y.shape).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, [t for t in leaves if isinstance(t, Tensor)], incoming)]


def assert_right(name: str) -> None:
    """The function is that of float64, which these files leave to PyTorch."""
    function, _ = executed(name, *NAMES)
    for dtype in TESTED:
        for shapes in SHAPES:
            given = LOSSES[name](drawing(dtype), *shapes)
            for reduction in REDUCTIONS:
                own = results(function, [*given, reduction])
                exact = results(function, [*wide(given), reduction])
                assert_near(own[:1], exact[:1])
                assert_near(own[1:], exact[1:], 100)  # of which PyTorch adds rounded ones


@pytest.mark.few(1)
@pytest.mark.parametrize("name", LOSSES)
def test_losses_on_the_cpu(name: str) -> None:
    assert_right(name)


@pytest.mark.full  # test_standalone_rows.py has rows, which these are
@pytest.mark.parametrize("name", LOSSES)
def test_losses_on_an_emulated_chip(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch, name, *NAMES)
    assert_right(name)


def test_parts_are_those_of_the_module() -> None:
    function, space = executed("losses/huber_loss", *NAMES)
    assert (part_file.SHORTEST, part_file.MOST) == (parts.SHORTEST, parts.MOST)
    for size in (1, 4096, 4096 * 16384, 4096 * 16384 + 1, 2**40):
        assert space["length_of"](size) == parts.length_of(size)
    x, y = torch.randn(2, 300, 701)
    losses = set()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        losses.add(float(function(x, y)))
    torch.set_num_threads(1)
    padded = torch.randn(300, 703)
    padded[:, 1:-1] = x
    assert losses == {float(function(padded[:, 1:-1], y)), float(function(x.mT.contiguous().mT, y))}


@pytest.mark.full
def test_pointers_do_not_change_the_bits_on_an_emulated_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch, "losses/huber_loss", *NAMES)
    function, _ = executed("losses/huber_loss", *NAMES)
    x, y = torch.randn(2, 9001)
    apart = torch.cat([y[:1], x])[1:]
    assert apart.data_ptr() % 16
    assert torch.equal(function(x, y), function(apart, y))
    assert torch.equal(function(x, y, 1.0, "none"), function(apart, y, 1.0, "none"))
    for k, leaf in enumerate((x, y)):
        leaf.requires_grad_()
        [slope] = torch.autograd.grad(function(x, y, 1.0, "sum"), leaf)
        assert torch.equal(slope, (x - y).clamp(-1, 1) * (1 - 2 * k))
        leaf.requires_grad_(False)


def test_losses_that_kernels_do_not_take() -> None:
    function, _ = executed("losses/huber_loss", *NAMES)
    exact = nn.functional.huber_loss
    x, y = torch.randn(2, 5, 3)
    for dtype in (torch.float16, torch.float64):
        given = x.to(dtype), y.to(dtype)
        assert_near([function(*given)], [exact(*(t.double() for t in given))])
    steep = torch.tensor([400.0, 0, 0], dtype=torch.float16)  # whose square float16 does not have
    assert float(function(steep, 0 * steep, 1000.0)) == float(torch.tensor(80000 / 3).half())
    mixed = function(x, y.bfloat16())
    assert mixed.dtype == torch.float32
    assert_near([mixed], [exact(x.double(), y.bfloat16().double())])
    nothing = torch.empty(0, 3, requires_grad=True)
    made = [function(nothing, nothing.detach(), 1.0, reduction) for reduction in REDUCTIONS]
    torch.testing.assert_close(
        made, [torch.tensor(v) for v in (torch.nan, 0.0, torch.nan)] + [nothing], equal_nan=True
    )
    assert torch.autograd.grad(made[0], nothing)[0].shape == (0, 3)
    with pytest.raises(ValueError, match=r"^huber_loss: median is not a valid value for reduction$"):
        function(x, y, 1.0, "median")


def test_reductions() -> None:
    function, _ = executed("losses/huber_loss", *NAMES)
    x, y = torch.randn(2, 4, 3, 5, dtype=torch.float64)
    each = nn.functional.huber_loss(x, y, reduction="none")
    sums = {"none": each, "sum": each.sum(), "mean": each.mean(), "batchmean": each.sum() / 4}
    for reduction, exact in sums.items():
        assert_near([function(x.float(), y.float(), 1.0, reduction)], [exact], 40)
        assert_near([function(x, y, 1.0, reduction)], [exact])


def test_large_gradients_and_those_of_one_tensor() -> None:
    function, _ = executed("losses/huber_loss", *NAMES)
    x, y = torch.randn(64, requires_grad=True), torch.randn(64)
    [slope] = torch.autograd.grad(function(x, y), x)
    [other] = torch.autograd.grad(nn.functional.huber_loss(x, y), x)
    torch.testing.assert_close(slope, other)
    half = torch.full((2**14,), 9.0, dtype=torch.bfloat16, requires_grad=True)
    [steep] = torch.autograd.grad(function(half, half.detach() - 9, 1.0, "sum") * 2.0**100, half)
    assert torch.equal(steep, torch.full_like(half, 2.0**100))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch.compile does
def test_second_derivatives_and_compilers_of_losses() -> None:
    function, space = executed("losses/huber_loss", *NAMES)
    x, y = torch.randn(9, 5, requires_grad=True), torch.randn(5, requires_grad=True)

    def penalty(own: Callable[..., Tensor], *given: Tensor) -> list[Tensor]:
        [slope] = torch.autograd.grad(own(*given), given[0], create_graph=True)
        return [*torch.autograd.grad(slope.square().sum(), given)]

    wanted = penalty(nn.functional.huber_loss, x, y.expand(9, 5))
    torch.testing.assert_close(penalty(function, x, y), [wanted[0], wanted[1].sum(0)])
    compiled: Callable[..., Tensor] = torch.compile(function, fullgraph=True, backend="aot_eager")
    for a, b in zip(results(compiled, [x, y]), results(function, [x, y]), strict=True):
        assert torch.equal(a, b)
    torch.library.opcheck(space["operator"], ([torch.randn(5), torch.randn(5)], [1.0], "mean", []))
