"""A loss of classes by the call in C++ has the bits of the call in Python, which takes the rest."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from test_compiled_call import CALLS, Counted
from test_compiled_call import in_cpp as in_cpp
from test_compiled_call import library as library
from test_compiled_losses import same
from torch import Tensor
from torch.nn import functional

import generated._runtime

REDUCTIONS = generated._runtime.row_reductions
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
# whether there is a weight of each class, and scalars
LOSSES: dict[str, tuple[bool, list[float]]] = {
    "rows/cross_entropy": (False, []),
    "rows/nll": (False, []),
    "losses/weighted_cross_entropy": (True, [0.1]),
    "losses/weighted_nll": (True, []),
    "rows/cross_entropy_in_float32": (False, []),
}
SHAPES = [(5, 7), (2, 3, 7), (7,), (1100, 7)]


def counted(name: str) -> Counted:
    """A loss by C++ and by Python, which counts the calls that C++ leaves to Python."""

    def in_front(of: Any, run: Any) -> Any:
        return CALLS.in_front_of_index(of, run, partial(REDUCTIONS.recorded, of))

    return Counted(name, in_front)


def drawn(
    name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, ignored: int = -100
) -> tuple[list[Tensor], list[float]]:
    """Return the tensors of a call, some of whose rows are ignored, and the scalars."""
    torch.manual_seed(1)
    has_weight, scalars = LOSSES[name]
    tensors = [torch.randn(shape).to(dtype).requires_grad_()]
    tensors += [torch.rand(shape[-1:]).to(dtype)] if has_weight else []
    target = torch.randint(shape[-1], shape[:-1])
    target.view(-1)[1::3] = ignored
    return [*tensors, target], scalars


@pytest.mark.few(1)
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "batchmean"])
@pytest.mark.parametrize("ignored", [-100, 2, -1])
def test_value_and_gradient(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, reduction: str, ignored: int
) -> None:
    loss, (tensors, scalars) = counted(name), drawn(name, shape, dtype, ignored)
    arguments = [*tensors, *scalars, reduction, ignored]
    with torch.no_grad():
        plain = loss.taken(*arguments)
    found, wanted = loss.taken(*arguments), loss.python(*arguments)
    assert plain.grad_fn is None
    assert same(plain, wanted)
    assert same(found, wanted)
    grad = torch.tensor(-1.3, dtype=dtype)
    [own], [right] = (torch.autograd.grad(value, tensors[0], grad) for value in (found, wanted))
    assert same(own, right)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["rows/cross_entropy", "losses/weighted_cross_entropy"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_values_and_gradients_are_pytorchs(name: str, reduction: str) -> None:
    loss, (tensors, scalars) = counted(name), drawn(name, (50, 9), torch.float64, 4)
    x, *weight, target = tensors
    words: dict[str, Any] = {"weight": weight[0], "label_smoothing": 0.1} if weight else {}
    own = loss.taken(*tensors, *scalars, reduction, 4)
    right = functional.cross_entropy(x, target, reduction=reduction, ignore_index=4, **words)
    torch.testing.assert_close(own, right, rtol=1e-13, atol=0)
    of_each = [torch.autograd.grad(value, x)[0] for value in (own, right)]
    torch.testing.assert_close(*of_each, rtol=1e-11, atol=1e-16)


def test_of_nothing_and_of_what_is_ignored() -> None:
    loss, x = counted("rows/cross_entropy"), torch.randn(3, 4, requires_grad=True)
    none = torch.full((3,), -100)
    for given in ((x, none), (x[:0], none[:0])):
        assert loss.taken(*given).isnan()
        assert loss.taken(*given, "sum") == 0
    calls = (loss.taken, functional.cross_entropy)
    own, right = (torch.autograd.grad(call(x, none), x)[0] for call in calls)
    assert torch.equal(own, right)


def test_gradients_of_gradients_and_batches_of_them_are_pythons() -> None:
    name = "losses/weighted_cross_entropy"
    loss, (tensors, scalars) = counted(name), drawn(name, (6, 5), torch.float64)
    twice = []
    for call in (loss.call, loss.python):
        [slope] = torch.autograd.grad(call(*tensors, *scalars), tensors[0], create_graph=True)
        twice.append(torch.autograd.grad(slope.square().sum(), tensors[0])[0])
    torch.testing.assert_close(twice[0], twice[1], rtol=1e-12, atol=0)
    many = torch.tensor([1.0, -2.0], dtype=torch.float64)
    of_many = [
        torch.autograd.grad(call(*tensors, *scalars), tensors[0], many, is_grads_batched=True)[0]
        for call in (loss.call, loss.python)
    ]
    torch.testing.assert_close(*of_many, rtol=1e-12, atol=0)


@pytest.mark.parametrize("shape", [(6, 5), (6, 1), (1,), ()])
def test_weights_that_differ_by_row_or_broadcast(shape: tuple[int, ...]) -> None:
    """A mean is divided by the weights that the index picks, however its gradient is computed."""
    loss, ([x, _, target], _) = counted("losses/weighted_nll"), drawn("losses/weighted_nll", (6, 5))
    weight = torch.rand(shape) + 0.5
    own = weight.expand(6, 5).gather(1, target.clamp(min=0)[:, None])[:, 0].masked_fill(target < 0, 0)
    wanted = -(own * x.gather(1, target.clamp(min=0)[:, None])[:, 0]).sum() / own.sum()
    [slope] = torch.autograd.grad(wanted, x)
    for call in (loss.call, loss.python):
        torch.testing.assert_close(call(x, weight, target), wanted)
        for is_recorded in (False, True):
            [found] = torch.autograd.grad(call(x, weight, target), x, create_graph=is_recorded)
            torch.testing.assert_close(found, slope)
        torch.testing.assert_close(torch.func.grad(call)(x.detach(), weight, target), slope)


def test_a_hook_that_unpacks_another_shape_is_refused() -> None:
    loss, ([x, target], _) = counted("rows/cross_entropy"), drawn("rows/cross_entropy", (6, 4))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t[:2] if t.dim() == 2 else t):
        value = loss.taken(x, target)
    with pytest.raises(RuntimeError):
        value.backward()


def test_other_calls_are_left_to_python() -> None:
    loss, ([x, target], _) = counted("rows/cross_entropy"), drawn("rows/cross_entropy", (6, 4))
    apart = torch.stack([target, target], -1)[:, 0]
    for k, given in enumerate([(x, target, "none"), (x, apart), (x.double(), target, "none")]):
        found, wanted = loss.call(*given), loss.python(*given)
        assert loss.left == k + 1
        torch.testing.assert_close(found, wanted)
    for wrong, error, sentence in (
        ((x, target.int()), RuntimeError, "target must be a tensor of int64, not of torch.int32"),
        ((x, target[:3]), RuntimeError, r"target has the shape \(3,\), and the rows have \(6,\)"),
        ((x, target.clone().fill_(4)), IndexError, "target 4 is out of range for 4 elements"),
        ((x, target, "mean", 7), IndexError, "target -100 is out of range for 4 elements"),
        ((x, 3), TypeError, "target must be a tensor of integers"),
        ((x, target, "median"), ValueError, "median is not a valid value for reduction"),
    ):
        with pytest.raises(error, match=f"^cross_entropy: {sentence}$"):
            loss.call(*wrong)


def test_a_call_runs_one_operator() -> None:
    """Nothing converts the index, counts its rows or divides by them beside it."""
    loss, ([x, target], _) = counted("rows/cross_entropy"), drawn("rows/cross_entropy", (6, 4))
    loss.taken(x, target)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        loss.taken(x, target)
    names = [event.name for event in profile.events() if "::" in event.name]
    space = loss.kernels.operators.name
    assert names == [f"{space}::cross_entropy_forward_reduced"]
