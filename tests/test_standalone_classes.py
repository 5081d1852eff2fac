"""Standalone files of losses of classes with values of rows in float32, and with a weight of each class."""

from __future__ import annotations

import functools
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
)
from torch import Tensor
from torch.nn import functional

Loss = Callable[..., Tensor]
LOSSES: dict[str, tuple[Loss, bool]] = {  # PyTorch's function, whether classes have weights
    "losses/weighted_nll_in_float32": (functional.nll_loss, True),
    "losses/weighted_nll": (functional.nll_loss, True),
    "rows/nll_in_float32": (functional.nll_loss, False),
    "rows/cross_entropy_in_float32": (functional.cross_entropy, False),
    "losses/weighted_cross_entropy_in_float32": (functional.cross_entropy, True),
}
INDICES = (-100, 0, 2, 1, -100, 0)  # of rows: of three classes, or none


def results(function: Loss, x: Tensor, reduction: str) -> list[Tensor]:
    """The values of a loss, and the gradient of what is in front of it."""
    x = x.detach().requires_grad_()
    y = function(x, reduction)
    incoming = (torch.arange(y.numel()) % 5 - 1.5).reshape(y.shape).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, x, incoming)]


def assert_right(name: str, function: Loss, dtype: torch.dtype, classes: int) -> None:
    """The function is PyTorch's of float64; values beside 16 bits are in float32 where the name says so."""
    (exact, weighs), draw = LOSSES[name], drawing(dtype)
    x, target = draw(6, classes), torch.tensor(INDICES).clamp(max=classes - 1)
    weights = [draw(classes).abs()] if weighs else []
    wide = {"weight": weights[0].double()} if weighs else {}
    smoothing = {"label_smoothing": 0.25} if "weighted_cross" in name else {}
    for reduction in ("none", "sum", "mean"):

        def own(x: Tensor, how: str = reduction) -> Tensor:
            return function(x, *weights, target, *smoothing.values(), how)

        reference = functools.partial(exact, target=target, **wide, **smoothing)
        made = results(own, x, reduction)
        assert_near(made, results(lambda x, how, of=reference: of(x, reduction=how), x.double(), reduction))
        assert made[0].dtype == (torch.float32 if "in_float32" in name else dtype)
        assert made[1].dtype == dtype


@pytest.mark.few(1)
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_classes_on_the_cpu(name: str) -> None:
    function, space = executed(name, *NAMES)
    for dtype in TESTED:
        for classes in (1, 3, 300):
            assert_right(name, function, dtype, classes)
    if "in_float32" in name:
        x, target = drawing(torch.bfloat16)(6, 3), torch.tensor([2])
        given: list[Any] = [x, x[0], target][:: 1 if LOSSES[name][1] else 2]
        assert space["eager"](*given, *[0.0] * ("weighted_cross" in name)).dtype == torch.float32


@pytest.mark.few(1)
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_classes_on_an_emulated_chip(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, _ = executed(name, *NAMES)
    emulate(monkeypatch, name, *NAMES)
    for dtype in TESTED:
        for classes in (3, 40, 1104):
            assert_right(name, function, dtype, classes)


def test_a_mean_of_weights_that_are_picked_is_of_all_rows() -> None:
    function, _ = executed("losses/weighted_nll_in_float32", *NAMES)
    x, weight, target = -1 - torch.rand(3, 2, 5), torch.rand(5), torch.tensor([[0, 4], [-7, 3], [1, 1]])
    exact = functional.nll_loss(
        x.flatten(0, 1).double(), target.flatten(), weight.double(), ignore_index=-7
    )
    torch.testing.assert_close(function(x, weight, target, "mean", -7).double(), exact, rtol=1e-6, atol=0)
    assert function(x, weight, torch.full((3, 2), -7), "mean", -7).isnan()
    assert function(x, weight * 0, target, "sum", -7) == 0
    assert function(x[:0], weight, target[:0], "mean").isnan()
    with pytest.raises(ValueError, match="every is not a valid value for reduction"):
        function(x, weight, target.clamp(min=0), "every")


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch.compile does
def test_compilers_see_the_dtype_of_values() -> None:
    function, space = executed("losses/weighted_nll_in_float32", *NAMES)
    x, weight, target = (draw := drawing(torch.bfloat16))(3, 5), draw(5).abs(), torch.tensor([1, 0, 3])
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for own, other in zip(
        results(lambda t, how: compiled(t, weight, target, how), x, "none"),
        results(lambda t, how: function(t, weight, target, how), x, "none"),
        strict=True,
    ):
        assert torch.equal(own, other)
    leaf = x.clone().requires_grad_()
    value = function(leaf, weight, target, "none").square()
    [slope] = torch.autograd.grad(value.sum(), leaf, create_graph=True)  # by PyTorch's operations
    assert torch.equal(
        torch.autograd.grad(slope.float().sum(), leaf)[0].count_nonzero(1), torch.ones(3).long()
    )
    with torch.no_grad():
        given = [x, weight, target.double()[:, None]]
        torch.library.opcheck(space["operator"], (False, given, []), {})
        torch.library.opcheck(space["operator"], (True, [value.detach()[:, None], *given], []), {})
