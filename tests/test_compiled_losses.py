"""A loss of whole tensors by the call in C++ has the bits of the call in Python, which takes the rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from test_compiled_call import CALLS, Counted
from test_compiled_call import in_cpp as in_cpp
from test_compiled_call import library as library
from torch import Tensor
from torch.nn import functional

from fusegen.runtime import parts

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
LOSSES = {"losses/mse_loss": (2, []), "losses/huber_loss": (2, [0.7]), "losses/soft_margin_loss": (2, [])}
# elements of one part, of parts, and of parts with a rest; in several dimensions, and in none
SHAPES = [(10,), (3, 4096), (5000,), (2, 3, 1500), ()]


def counted(name: str) -> Counted:
    """A loss by C++ and by Python, which counts the calls that C++ leaves to Python."""
    found = Counted(name, partial(CALLS.in_front_of_parts, cut=(parts.SHORTEST, parts.MOST)))
    return found


def drawn(count: int, shape: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(shape).to(dtype).requires_grad_() for _ in range(count)]


def same(a: Tensor, b: Tensor) -> bool:
    """Return True for the same bits and strides."""
    return torch.equal(a, b) and torch.equal(a.signbit(), b.signbit()) and a.stride() == b.stride()


@pytest.mark.few(4)
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "batchmean"])
def test_value_and_gradients(name: str, shape: tuple[int, ...], dtype: torch.dtype, reduction: str) -> None:
    loss, (count, scalars) = counted(name), LOSSES[name]
    tensors = drawn(count, shape, dtype)
    if len(shape) > 1:
        tensors[0] = tensors[0].detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    with torch.no_grad():
        plain = loss.call(*tensors, *scalars, reduction)
    found, wanted = (call(*tensors, *scalars, reduction) for call in (loss.call, loss.python))
    assert (loss.left, plain.grad_fn) == (0, None)
    assert same(plain, wanted)
    assert same(found, wanted)
    grad = torch.tensor(-1.3, dtype=dtype)
    each = [torch.autograd.grad(value, tensors, grad) for value in (found, wanted)]
    assert all(same(a, b) for a, b in zip(*each, strict=True))


def test_the_gradient_of_one_tensor() -> None:
    loss, (x, y) = counted("losses/mse_loss"), drawn(2, (7,), torch.float32)
    [found] = torch.autograd.grad(loss.call(x, y.detach(), "mean"), x)
    torch.testing.assert_close(found, 2 / 7 * (x - y).detach())


@pytest.mark.full
def test_gradients_of_gradients_and_batches_of_them_are_pythons() -> None:
    loss, (x, y) = counted("losses/soft_margin_loss"), drawn(2, (5000,), torch.float64)
    twice = []
    for call in (loss.call, loss.python):
        [slope] = torch.autograd.grad(call(x, y.detach(), "mean"), x, create_graph=True)
        twice.append(torch.autograd.grad(slope.square().sum(), x)[0])
    torch.testing.assert_close(twice[0], twice[1], rtol=1e-12, atol=0)
    many = torch.tensor([1.0, -2.0], dtype=torch.float64)
    batches = [
        torch.autograd.grad(call(x, y, "sum"), (x, y), many, is_grads_batched=True)
        for call in (loss.call, loss.python)
    ]
    for a, b in zip(*batches, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=0)


# of one leaf: two tensors of which one is the other, or depends on it
TIED: dict[str, Callable[[Tensor], Tensor]] = {"is": lambda x: x, "depends on": lambda x: x.sigmoid()}


@pytest.mark.parametrize("kind", TIED)
def test_each_tensor_has_its_own_share_of_a_recorded_gradient(kind: str) -> None:
    loss, leaf = counted("losses/kl_div"), drawn(1, (6,), torch.float64)[0]
    many = torch.tensor([1.0, -2.0], dtype=torch.float64)
    for grad, options in ((None, {"create_graph": True}), (many, {"is_grads_batched": True})):
        of_each: list[Tensor] = []
        for call in (loss.call, lambda x, y, _: functional.kl_div(x, y, reduction="sum")):
            x = leaf.square() + 1
            value = call(x, TIED[kind](x), "sum")
            [found] = torch.autograd.grad(value, leaf, grad, **options)
            again = torch.autograd.grad(found.sum(), leaf) if grad is None else ()
            of_each.append(torch.cat([found.flatten(), *again]).detach())
        torch.testing.assert_close(of_each[0], of_each[1], rtol=1e-12, atol=1e-12)
    assert loss.left > 0


def test_a_hook_that_unpacks_another_shape_is_refused() -> None:
    loss, (x, y) = counted("losses/mse_loss"), drawn(2, (6, 4), torch.float32)
    for size in (0, 2):

        def unpack(t: Tensor, size: int = size) -> Tensor:
            return t[:size]

        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
            value = loss.call(x, y, "mean")
        with pytest.raises(
            RuntimeError, match=f"invalid gradient at index 0 - got .{size}, 4. but expected"
        ):
            value.backward()


def test_other_calls_are_left_to_python() -> None:
    loss, (x, y) = counted("losses/mse_loss"), drawn(2, (6, 4), torch.float32)
    calls: list[tuple[Any, ...]] = [
        (x, y, "none"),
        (x, y[0], "mean"),
        (x[:0], y[:0], "mean"),
        (x, y.double(), "sum"),
    ]
    for k, given in enumerate(calls):
        found, wanted = loss.call(*given), loss.python(*given)
        assert loss.left == k + 1
        torch.testing.assert_close(found, wanted, equal_nan=True)
    with pytest.raises(ValueError, match=r"^mse_loss: median is not a valid value for reduction$"):
        loss.call(x, y, "median")
    assert loss.left == len(calls) + 1
    with pytest.raises((TypeError, RuntimeError)):
        loss.call(x, "mean")
