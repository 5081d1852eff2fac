"""Generated modules are generic in shapes under torch.compile and torch.export."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kernels import function, generated, smooth
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.export import Dim, export, load, save

Call = Callable[..., Any]
NAMES = ("gelu", "elu", "swiglu", "conv_relu_hardswish")  # one tensor, a parameter, two, a broadcast one
pytestmark = pytest.mark.filterwarnings("ignore")  # of torch's own
POLICIES = ("auto", "kernel", "decompose")
BATCHES = (3, 5, 8)


def given(name: str, batch: int) -> list[Tensor]:
    """Tensors of a batch; the second of one that broadcasts has the shape of a bias."""
    if name == "conv_relu_hardswish":
        return [torch.randn(batch, 4, 6, 6), torch.randn(4, 1, 1)]
    return smooth(name, batch, 7, dtype=torch.float32)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NAMES)
def test_one_compilation_takes_every_batch(name: str, policy: str) -> None:
    """Forward and backward, with no new graph for another batch."""
    torch._dynamo.reset()
    module = generated(name)
    module.KERNELS.compile_policy = policy
    counter = CompileCounterWithBackend("aot_eager")
    call = torch.compile(function(name), backend=counter, fullgraph=True, dynamic=True)
    frames = []
    try:
        for batch in BATCHES:
            ours = [t.requires_grad_() for t in given(name, batch)]
            value = call(*ours)
            slopes = torch.autograd.grad(value.square().sum(), ours)
            expected = function(name)(*ours)
            torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(
                slopes, torch.autograd.grad(expected.square().sum(), ours), rtol=1e-4, atol=1e-5
            )
            frames.append(counter.frame_count)
    finally:
        module.KERNELS.compile_policy = None
    assert frames == [frames[0]] * len(BATCHES)


class Network(nn.Module):
    """A layer before a generated module."""

    def __init__(self, act: Call) -> None:
        """A network that ends in `act`."""
        super().__init__()
        self.layer, self.act = nn.Linear(7, 4), act

    def forward(self, x: Tensor) -> Tensor:
        """The module of the layer's result."""
        result: Tensor = self.act(self.layer(x) * x.shape[0])
        return result


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_an_exported_program_keeps_a_symbolic_batch(policy: str, strict: bool) -> None:
    """It keeps the operator, too, unless the policy decomposes it; it is saved and loaded."""
    module = generated("gelu")
    network = Network(module.ModelNew())
    module.KERNELS.compile_policy = policy
    try:
        program = export(network, (torch.randn(3, 7),), dynamic_shapes=({0: Dim("batch")},), strict=strict)
    finally:
        module.KERNELS.compile_policy = None
    stored = io.BytesIO()
    save(program, stored)
    stored.seek(0)
    loaded = load(stored)
    called = [str(node.target) for node in loaded.graph.nodes if "gelu" in str(node.target)]
    assert [name.startswith("fusegen_gelu_") for name in called] == [policy != "decompose"]
    for batch in BATCHES:
        x = torch.randn(batch, 7)
        expected = F.gelu(network.layer(x) * batch)
        torch.testing.assert_close(loaded.module()(x), expected, rtol=1e-5, atol=1e-6)
