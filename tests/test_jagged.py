"""Nested tensors of the jagged layout: values and gradients, eager and compiled."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kernels import function, generated
from torch import Tensor
from torch.utils._debug_mode import DebugMode

Call = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("extensions")


def _swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def turned(call: Call) -> Call:
    """A call of tensors whose last dimension is the ragged one."""
    return lambda x, w: call(x.transpose(1, 2), 2 * x.transpose(1, 2))


gelu, relu, swiglu, elu = map(function, ("gelu", "relu", "swiglu", "elu"))
CALLS: dict[str, tuple[Call, Call]] = {  # of a jagged tensor and a tensor of its last dimension
    "one": (lambda x, w: gelu(x), lambda x, w: F.gelu(x)),
    "a scalar": (lambda x, w: elu(x, 0.5), lambda x, w: F.elu(x, 0.5)),
    "in place": (lambda x, w: relu(x * 1, inplace=True), lambda x, w: F.relu(x)),
    "a module": (lambda x, w: generated("gelu").ModelNew()(x), lambda x, w: F.gelu(x)),
    "two": (lambda x, w: swiglu(x, 2 * x), lambda x, w: _swiglu(x, 2 * x)),
    "a row": (lambda x, w: swiglu(x, w), lambda x, w: _swiglu(x, w)),
    "a jagged second": (lambda x, w: swiglu(w, x), lambda x, w: _swiglu(w, x)),
    "halves": (lambda x, w: swiglu(x), lambda x, w: _swiglu(*x.chunk(2, -1))),
    "ragged last": (turned(swiglu), turned(_swiglu)),
    "a row of each part": (  # values of no one layout: PyTorch's operations run
        lambda x, w: swiglu(x, w.expand(2, 1, 4)),
        lambda x, w: _swiglu(x, w.expand(2, 1, 4)),
    ),
}
COMPILED = ("one", "a row", "halves")


def given() -> tuple[Any, Tensor]:
    """A nested tensor of two and of three rows, and a row."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    x = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 2, 5]))
    return x.requires_grad_(), torch.randn(4, generator=generator, dtype=torch.float64).requires_grad_()


def outcome(call: Call) -> list[Any]:
    """The values of a call, their lengths, and the gradients that there are."""
    x, w = given()
    y = call(x, w)
    assert y.layout == torch.jagged
    assert y.shape[y._ragged_idx] == x.shape[1]  # the same parts, to be added to x
    made = torch.autograd.grad(y.values().square().sum(), (x, w), allow_unused=True)
    return [y.values(), y.offsets(), *(g.values() if g is not None and g.is_nested else g for g in made)]


@pytest.mark.parametrize("name", CALLS)
def test_a_jagged_tensor(name: str) -> None:
    ours, eager = CALLS[name]
    torch.testing.assert_close(outcome(ours), outcome(eager))


@pytest.mark.few(1)
@pytest.mark.filterwarnings("ignore::UserWarning")  # Inductor's, of caches that hold no nested tensors
@pytest.mark.parametrize("name", COMPILED)
def test_a_jagged_tensor_compiled(name: str) -> None:
    ours, eager = CALLS[name]
    torch.testing.assert_close(outcome(torch.compile(ours, backend="aot_eager")), outcome(eager))


def test_the_kernel_runs_over_all_parts_at_once() -> None:
    x, _ = given()
    with DebugMode() as mode:
        gelu(x)
    assert mode.debug_string().count("gelu_forward") == 1


def test_parts_of_other_lengths_are_refused_as_by_pytorch() -> None:
    x, _ = given()
    other = torch.nested.nested_tensor_from_jagged(torch.randn(5, 4).double(), torch.tensor([0, 3, 5]))
    with pytest.raises(
        RuntimeError, match=r"^cannot call binary pointwise function mul.Tensor with inputs of"
    ):
        swiglu(x, other)


def test_an_operator_takes_a_jagged_tensor() -> None:
    x, _ = given()
    y = generated("gelu").KERNELS.overload(x)
    torch.testing.assert_close(y.values(), F.gelu(x.values()))


def test_lengths_of_parts_with_holes_are_kept() -> None:
    values, offsets, lengths = torch.randn(5, 4), torch.tensor([0, 2, 5]), torch.tensor([1, 2])
    x = torch.nested.nested_tensor_from_jagged(values, offsets, lengths=lengths)
    y: Any = relu(x)
    assert y.lengths().tolist() == [1, 2]
    for part, expected in zip(y.unbind(), x.unbind(), strict=True):
        assert torch.equal(part, F.relu(expected))
