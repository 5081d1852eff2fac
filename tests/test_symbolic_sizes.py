"""Calls that are recorded with symbolic sizes hold for other sizes than the example's."""

import functools
import importlib
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


def images(batch: int) -> Tensor:
    return torch.randn(batch, 4, 5, 2, generator=torch.Generator().manual_seed(batch))


def called(path: str, *arguments: Any, **words: Any) -> Callable[[Tensor], Tensor]:
    """Return a call of an image, and of tensors of its channels or of its shape."""
    function = getattr(importlib.import_module(f"generated.{path}"), path.rpartition(".")[2])
    return lambda x: function(x, *(x.cos() if a is None else a for a in arguments), **words)


WEIGHT = torch.tensor([0.5, 2.0, -1.0, 3.0])
CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "instance norm": called("rows.instance_norm", WEIGHT, WEIGHT),
    "group norm": called("rows.group_norm", WEIGHT, WEIGHT, num_groups=2),
    "loss": called("losses.mse_loss", None),
    "sum": called("losses.mse_loss", None, reduction="sum"),
    "batchmean": called("losses.mse_loss", None, reduction="batchmean"),
    "values": called("losses.mse_loss", None, reduction="none"),
    "weighted loss": called(
        "losses.weighted_bce_with_logits_loss", None, torch.ones(4, 1, 1), torch.ones(2)
    ),
}


class Layer(nn.Module):
    """A layer that is one call."""

    def __init__(self, call: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        """Return the result of the call."""
        return self.call(x)


def exported(call: Callable[[Tensor], Tensor]) -> Any:
    batch = torch.export.Dim("batch", min=2, max=4096)
    program = torch.export.export(Layer(call), (images(6),), dynamic_shapes=({0: batch},), strict=False)
    return program.module()


WAYS: dict[str, Callable[[Any], Any]] = {
    "export": exported,
    "make_fx": lambda call: make_fx(call, tracing_mode="symbolic", _allow_non_fake_inputs=True)(images(6)),
    "compile": functools.partial(torch.compile, fullgraph=True, dynamic=True, backend="aot_eager"),
}


SOME = {
    ("instance norm", "export"),
    ("batchmean", "export"),
    ("group norm", "make_fx"),
    ("loss", "compile"),
}
ROWS = [
    pytest.param(name, way, marks=() if (name, way) in SOME else pytest.mark.full)
    for name in CALLS
    for way in WAYS
]


@pytest.mark.parametrize(("name", "way"), ROWS)
def test_other_sizes_than_those_of_the_example(name: str, way: str) -> None:
    """A batch of 4 has as many images as channels, and one of 300 the elements of several parts."""
    torch.compiler.reset()
    recorded = WAYS[way](CALLS[name])
    for batch in (6, 4, 3, 300):
        torch.testing.assert_close(recorded(images(batch)), CALLS[name](images(batch)))


def test_weights_and_a_number_of_groups_may_be_symbolic() -> None:
    group_norm: Any = importlib.import_module("generated.rows.group_norm").group_norm
    compiled: Any = torch.compile(group_norm, fullgraph=True, dynamic=True, backend="aot_eager")
    for groups in (2, 4):
        found = compiled(images(3), WEIGHT, WEIGHT, num_groups=groups)
        torch.testing.assert_close(found, nn.functional.group_norm(images(3), groups, WEIGHT, WEIGHT))
    halves = functools.partial(group_norm, num_groups=2)
    recorded = make_fx(halves, tracing_mode="symbolic")(images(6), WEIGHT, WEIGHT)
    torch.testing.assert_close(recorded(images(3), WEIGHT, WEIGHT), halves(images(3), WEIGHT, WEIGHT))
    with pytest.raises(RuntimeError, match=r"^group_norm: 3 groups do not divide the 4 of dimension 1$"):
        group_norm(images(3), WEIGHT, WEIGHT, num_groups=3)
