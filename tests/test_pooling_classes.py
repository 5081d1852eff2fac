"""The classes of `fusegen.poolings` beside torch.nn's: values, gradients, refusals, and tracing."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from test_loss_classes import outcome
from torch import Tensor, nn

from fusegen.models import pooling_layers as poolings

OWN: Any = poolings
GIVEN: dict[
    str, tuple[Any, ...]
] = {  # arguments of the constructors, one for each dimension where they are two
    "Max": (3, 2, 1, 1, False, True),
    "Avg": (3, 2, 1, True, False),
    "AdaptiveMax": (4,),
    "AdaptiveAvg": (1,),
}


def arguments(name: str) -> tuple[Any, ...]:
    return next(given for kind, given in GIVEN.items() if name.startswith(f"{kind}Pool"))


def drawn(name: str, size: int = 9) -> Tensor:
    generator = torch.Generator().manual_seed(size)
    return torch.randn(2, 3, *[size] * int(name[-2]), generator=generator)


def same(name: str, given: tuple[Any, ...], x: Tensor) -> None:
    """Compare what both classes make of a tensor: a tensor, or an error."""
    own = outcome(lambda: getattr(OWN, name)(*given)(x))
    right = outcome(lambda: getattr(nn, name)(*given)(x))
    if isinstance(right, Tensor):
        torch.testing.assert_close(own, right, rtol=1e-5, atol=1e-5, equal_nan=True)
    else:
        assert own == right


@pytest.mark.few(1)
@pytest.mark.parametrize("name", poolings.POOLINGS)
def test_values_gradients_and_repr(name: str) -> None:
    kinds = [getattr(holder, name) for holder in (poolings, nn)]
    assert inspect.signature(kinds[0]) == inspect.signature(kinds[1])
    own, right = (kind(*arguments(name)[:5]) for kind in kinds)
    assert repr(own) == repr(right)
    found = []
    for layer in (own, right):
        x = drawn(name).requires_grad_()
        value = layer(x)
        found.append([value, *torch.autograd.grad(value.square().sum(), x)])
    torch.testing.assert_close(*found)
    assert found[0][0].grad_fn.name() != found[1][0].grad_fn.name()  # a kernel of ours


@pytest.mark.full
@pytest.mark.parametrize("name", poolings.POOLINGS)
def test_compiled_whole_exported_and_traced(name: str) -> None:
    own, right = (getattr(holder, name)(*arguments(name)[:5]) for holder in (OWN, nn))
    compiled: Any = torch.compile(own, fullgraph=True, backend="aot_eager", dynamic=True)
    for size in (9, 12):
        x = drawn(name, size)
        torch.testing.assert_close(compiled(x), right(x))
    x = drawn(name)
    trace: Any = torch.fx.symbolic_trace
    torch.testing.assert_close(trace(own)(x), right(x))
    torch.testing.assert_close(torch.export.export(own, (x,)).module()(x), right(x))
    assert own(x.to("meta")).shape == right(x).shape
    with torch.autocast("cpu"):
        torch.testing.assert_close(own(x.bfloat16()), right(x.bfloat16()))


REFUSED: tuple[Any, ...] = (0, -1, 2.0, True, "a", None, (2, 2, 2, 2), (3, None), ())
LATER: tuple[Any, ...] = ((3, 0), (3, 2, 2), (3, 2, -1), (3, 1.0), (3, 1, 1, 0), (12, 5, 0))


@pytest.mark.few(2)
@pytest.mark.parametrize("name", poolings.POOLINGS)
def test_what_torch_nn_refuses(name: str) -> None:
    x = drawn(name)
    for number in REFUSED:
        same(name, (number,), x)
    for other in (x[:0], x[:, :0], x.long(), x.bool(), x[..., :0], x[..., :1], x[0, 0]):
        same(name, arguments(name)[:2], other)
    for numbers in () if "Adaptive" in name else LATER:
        same(name, numbers, x)


@pytest.mark.full
def test_the_forms_of_numbers() -> None:
    x = drawn("AvgPool2d")
    for number in ((2,), (2, 2), [2, 2], 2):
        same("MaxPool2d", (number,), x)
        same("MaxPool2d", (number, None), x[0])
        same("AdaptiveAvgPool2d", (number,), x)
    for size in ((None, 2), [2, None], (None, None)):
        same("AdaptiveMaxPool2d", (size,), x)


@pytest.mark.full
def test_a_layer_whose_numbers_change_has_other_windows() -> None:
    layer, x = OWN.MaxPool2d(2), drawn("MaxPool2d")
    before = layer(x)
    layer.kernel_size, layer.stride = 3, 3
    torch.testing.assert_close(layer(x), nn.MaxPool2d(3)(x))
    assert before.shape != layer(x).shape
    values, places = OWN.MaxPool2d(2, return_indices=True)(x)
    torch.testing.assert_close((values, places), nn.functional.max_pool2d_with_indices(x, (2, 2)))
