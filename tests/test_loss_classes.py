"""The classes of `fusegen.losses` where torch.nn's are strict: arguments, dtypes, shapes, and tracing."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dispatching import after_each
from torch import Tensor, nn

from fusegen.models import losses

OWN: Any = losses
F = nn.functional


def drawn(name: str, rows: int = 6) -> tuple[Tensor, ...]:
    """Return tensors for a class, as many as its forward takes."""
    torch.manual_seed(rows)
    x, y, z = (torch.randn(rows, 7) for _ in range(3))
    signs = torch.randint(0, 2, (rows, 7)) * 2.0 - 1
    if name in ("CrossEntropyLoss", "NLLLoss"):
        return F.log_softmax(x, 1), torch.randint(7, (rows,))
    if name == "CosineEmbeddingLoss":
        return x, y, signs[:, 0]
    if name in ("MarginRankingLoss", "TripletMarginLoss"):
        return x, y, signs if name == "MarginRankingLoss" else z
    return {
        "BCEWithLogitsLoss": (x, y.sigmoid()), "KLDivLoss": (-x.abs(), y.sigmoid()),
        "SoftMarginLoss": (x, signs), "HingeEmbeddingLoss": (x, signs),
    }.get(name, (x, y))  # fmt: skip


def outcome(call: Callable[[], Any]) -> Any:
    """Return what a call gives, or the class and the message of its error."""
    try:
        return call()
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
        return type(error), str(error)


def same(call: Callable[..., Any], *given: Any) -> None:
    """Compare what a call makes of these classes and of torch.nn's: a tensor, or an error."""
    own, right = outcome(lambda: call(losses, *given)), outcome(lambda: call(nn, *given))
    if isinstance(right, Tensor):
        torch.testing.assert_close(own, right, rtol=2e-2 if right.element_size() < 4 else 1e-5, atol=1e-5)
    else:
        assert own == right


@pytest.mark.few(2)
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", losses.LOSSES)
def test_calls_by_name_and_of_other_numbers_of_tensors(name: str) -> None:
    tensors = drawn(name)
    names = [*inspect.signature(getattr(nn, name).forward).parameters][1:]
    own, right = getattr(losses, name)(), getattr(nn, name)()
    torch.testing.assert_close(own(**dict(zip(names, tensors, strict=True))), right(*tensors))
    for given in (tensors[:1], (), (*tensors, tensors[0])):
        same(lambda kinds, given: getattr(kinds, name)()(*given), given)


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.few(1)
@pytest.mark.parametrize("name", losses.LOSSES)
def test_traced_and_compiled_whole(name: str) -> None:
    loss, exact = getattr(losses, name)(), getattr(nn, name)()
    compiled: Any = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (6, 3):
        x, *others = drawn(name, rows)
        slopes = []
        for call in (compiled, exact):
            leaf = x.clone().requires_grad_()
            value = call(leaf, *others)
            slopes.append([value.detach(), *torch.autograd.grad(value, leaf)])
        torch.testing.assert_close(*slopes)
    tensors = drawn(name)
    trace: Any = torch.fx.symbolic_trace
    torch.testing.assert_close(trace(loss)(*tensors), exact(*tensors))
    program = torch.export.export(loss, tensors).module()
    torch.testing.assert_close(program(*tensors), exact(*tensors))
    meta = [t.to("meta") for t in tensors]
    assert (
        getattr(losses, name)(reduction="none")(*meta).shape
        == loss.__class__(reduction="none")(*tensors).shape
    )


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("reduction", ["batchmean", "most"])
@pytest.mark.parametrize("name", losses.LOSSES)
def test_reductions_that_torch_nn_does_not_have(name: str, reduction: str) -> None:
    same(lambda kinds: getattr(kinds, name)(reduction=reduction)(*drawn(name)))


DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64)


@pytest.mark.few(1)
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("name", [name for name in losses.LOSSES if name != "CosineEmbeddingLoss"])
def test_tensors_of_several_dtypes(name: str, reduction: str) -> None:
    *tensors, target = drawn(name)
    for dtype in DTYPES:
        same(lambda kinds, to: getattr(kinds, name)(reduction=reduction)(*tensors, target.to(to)), dtype)


def test_numbers_and_weights_that_torch_nn_refuses() -> None:
    x, y, target = torch.randn(4, 5), torch.rand(4, 5), torch.tensor([0, 3, 1, 2])
    for number in (-1.0, torch.nan):
        same(lambda kinds, beta: kinds.SmoothL1Loss(beta=beta)(x, y), number)
    for number in (-1.0, 0.0):
        same(lambda kinds, delta: kinds.HuberLoss(delta=delta)(x, y), number)
    for number in (-0.1, 1.1):
        same(lambda kinds, share: kinds.CrossEntropyLoss(label_smoothing=share)(x, target), number)
    weights = (torch.rand(2, 4, 5), torch.rand(4, 1), torch.rand(5).double(), torch.rand(7), torch.rand(()))
    for weight in weights:
        same(lambda kinds, w: kinds.BCEWithLogitsLoss(weight=w)(x, y), weight)
        same(lambda kinds, w: kinds.BCEWithLogitsLoss(pos_weight=w)(x, y), weight)
    same(lambda kinds: kinds.BCEWithLogitsLoss(weight=torch.ones(5))(x[:, :1], y[:, :1]))
    same(lambda kinds: kinds.CrossEntropyLoss(weight=torch.ones(5, requires_grad=True))(x, target))


def test_tensors_without_dimensions() -> None:
    x, y = torch.tensor(-1.0), torch.tensor(0.5)
    same(lambda kinds: kinds.KLDivLoss(reduction="batchmean")(x, y))
    same(lambda kinds: kinds.TripletMarginLoss()(x, y, y))
    mse: Any = OWN.FUNCTIONS["mse_loss"]
    for reduction in ("mean", "none"):
        assert mse(torch.ones(3), y.double(), reduction).dtype is torch.float32  # which follows the others
        assert mse(torch.ones(3), torch.ones(3).double(), reduction).dtype is torch.float64


@pytest.mark.parametrize("size", [1800, 4096, 9000])
def test_a_gradient_of_a_sum_in_float16_is_finite(size: int) -> None:
    """The gradient of the mean of a part is 2^16 and more, beyond float16; that of an element is not."""
    x = torch.full((size,), 0.5, dtype=torch.float16, requires_grad=True)
    loss = OWN.MSELoss(reduction="sum")(x, torch.zeros_like(x))
    (slope,) = torch.autograd.grad(loss, x, torch.tensor(64.0, dtype=torch.float16))
    assert torch.equal(slope, torch.full_like(x, 64))


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["CrossEntropyLoss", "NLLLoss"])
def test_losses_of_classes_under_autocast_are_in_float32(name: str, dtype: torch.dtype) -> None:
    x, target = drawn(name, 40)
    x = (3 * x).to(dtype).requires_grad_()
    weight = torch.rand(7).to(dtype)
    kinds: list[dict[str, Any]] = [{}, {"weight": weight}, {"ignore_index": 3, "reduction": "sum"}]
    kinds += [{"label_smoothing": 0.1}] * (name == "CrossEntropyLoss")
    for words in kinds:
        copies = list[Tensor]()

        def note(_: Any, __: Any, made: Any, copies: list[Tensor] = copies) -> None:
            every = made if isinstance(made, tuple) else (made,)
            copies.extend(t for t in every if isinstance(t, Tensor) and t.shape == x.shape)

        with torch.autocast("cpu", torch.bfloat16), after_each(note):
            found = getattr(losses, name)(**words)(x, target)
        wide = {key: value.double() if key == "weight" else value for key, value in words.items()}
        right = getattr(nn, name)(**wide)(x.detach().double(), target)
        assert (found.dtype, [t for t in copies if t.dtype == torch.float32]) == (torch.float32, [])
        torch.testing.assert_close(found.double(), right, rtol=2e-7, atol=0)
        assert torch.autograd.grad(found, x)[0].dtype == dtype
