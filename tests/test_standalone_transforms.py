"""Standalone files in torch.func and forward mode, where they take PyTorch's operations."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
import torch
from standalone_files import file_of
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, jvp, vmap
from torch.utils import cpp_extension

Given = tuple[Any, ...]
DUAL: Any = forward_ad  # whose functions have no types
FILES: dict[str, Given] = {  # of each kind, with the shapes of a call's tensors
    "swiglu": ((3, 5), (5,)),
    "hardtanh": ((3, 5),),
    "rows/layer_norm": ((3, 5), (5,), (5,)),
    "rows/group_norm": ((2, 6, 4), (6,), (6,)),
    "rows/logsumexp": ((3, 5),),
    "scans/cumsum": ((3, 5),),
    "windows/max_pool2d": ((2, 3, 6, 6),),
    "batches/batch_norm_relu": ((4, 3, 5), (3,), (3,)),
    "losses/huber_loss": ((3, 5), (3, 5)),
}


@pytest.fixture
def function_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Callable[..., Tensor]]:
    """Return the function of a file whose library is not built, as none of its kernels may be called."""
    monkeypatch.setattr(cpp_extension, "load_inline", lambda *_, **__: None)

    def made(name: str) -> Callable[..., Tensor]:
        space: dict[str, Any] = {}
        exec(compile(file_of(name, "float32"), "<string>", "exec"), space)
        assert isinstance(space["LIBRARY"], ctypes.CDLL)
        with pytest.raises(AttributeError):
            _ = space["LIBRARY"].on_cpu
        function: Callable[..., Tensor] = space[name.rpartition("/")[2]]
        return function if name != "rows/group_norm" else lambda *given: function(*given, num_groups=2)

    return made


def tensors(name: str) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator) for shape in FILES[name]]


def loss(y: Tensor) -> Tensor:
    return (y * torch.linspace(-1, 2, y.numel(), dtype=y.dtype).reshape(y.shape)).sum()


def slopes(function: Callable[..., Tensor], given: list[Tensor]) -> list[Tensor]:
    """The gradient of a loss in double, which no kernel of the file takes."""
    leaves = [t.double().requires_grad_() for t in given]
    return [*torch.autograd.grad(loss(function(*leaves)), leaves)]


@pytest.mark.parametrize("name", FILES)
def test_files_in_transforms(name: str, function_of: Callable[[str], Callable[..., Tensor]]) -> None:
    function, given = function_of(name), tensors(name)
    exact, places = slopes(function, given), tuple(range(len(given)))
    found = grad(lambda *each: loss(function(*each)), argnums=places)(*given)
    for own, wide in zip(found, exact, strict=True):
        torch.testing.assert_close(own.double(), wide, rtol=1e-4, atol=1e-4)
    batches = [torch.stack([t, t.flip(0), 2 * t]) for t in given]
    made = vmap(function)(*batches)
    for k, own in enumerate(made):
        wide = function(*(batch[k].double() for batch in batches))
        torch.testing.assert_close(own.double(), wide, rtol=1e-4, atol=1e-4)
    each = vmap(grad(lambda *each: loss(function(*each)), argnums=places))(*batches)
    for own, wide in zip(each, exact, strict=True):
        torch.testing.assert_close(own[0].double(), wide, rtol=1e-4, atol=1e-4)
    tangents = [torch.linspace(-1, 1, t.numel()).reshape(t.shape) for t in given]
    tangent = jvp(lambda *each: loss(function(*each)), tuple(given), tuple(tangents))[1]
    along = sum(float((g * t).sum()) for g, t in zip(exact, tangents, strict=True))
    assert float(tangent) == pytest.approx(along, rel=1e-4)
    with DUAL.dual_level():
        y = function(*map(DUAL.make_dual, given, tangents))
        dual = DUAL.unpack_dual(loss(y)).tangent
    assert float(dual) == pytest.approx(along, rel=1e-4)


def test_gradients_of_each_row_of_a_loss_of_classes(
    function_of: Callable[[str], Callable[..., Tensor]],
) -> None:
    """The index is a batch, too, whose range is not checked there."""
    function, generator = function_of("rows/cross_entropy"), torch.Generator().manual_seed(1)
    x, target = torch.randn(4, 7, generator=generator), torch.tensor([3, 0, 6, -100])
    each = vmap(grad(lambda x, target: function(x[None], target[None], "sum")))(x, target)
    wide = x.double().requires_grad_()
    exact = torch.autograd.grad(torch.nn.functional.cross_entropy(wide, target, reduction="sum"), wide)[0]
    torch.testing.assert_close(each.double(), exact, rtol=1e-5, atol=1e-6)
