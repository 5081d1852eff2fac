"""Thin convolutions by what stands around them: without a bias, with operands, alone."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from emulated import defined as defined
from thin_modules import Module, calls_on_a_gpu, emulated
from torch import Tensor

HEAD = "inputs: {x: {shape: [2, 3, 9, 12]}%s}\nlayers:\n  - conv: Conv2d(3, 5, 3, stride=2, bias=%s)\n"
LEARNT = "  - factor: Parameter(randn((5, 1, 1)))\n"
RESIDUAL = ", r: {shape: [2, 5, 4, 5]}"
SHAPE = (2, 5, 4, 5)  # of a result


@dataclass(frozen=True)
class Chain:
    """A chain behind a convolution."""

    body: str  # of its spec
    steps: Callable[..., Tensor]  # the same by PyTorch's operations, of a model and its inputs
    inputs: tuple[tuple[int, ...], ...]  # the shapes of further inputs
    # the shapes of what autograd saves, besides the input and the weight
    saved: tuple[tuple[int, ...], ...]
    convolutions: int  # how many of these a gradient computes again


CHAINS = {
    "relu": Chain(  # whose gradient reads the result
        (HEAD % ("", False)) + "chain: [relu]\n", lambda model, x: model.conv(x).relu(), (), (SHAPE,), 0
    ),
    "learnt": Chain(
        (HEAD % (RESIDUAL, False)) + LEARNT + "chain: [x * factor, leaky_relu, x + r]\n",
        lambda model, x, r: torch.nn.functional.leaky_relu(model.conv(x) * model.factor) + r,
        (SHAPE,),
        ((5, 1, 1),),
        1,
    ),
    "unread": Chain(  # the gradient reads no tensor
        (HEAD % ("", True)) + "formula: 2 * x\n", lambda model, x: 2 * model.conv(x), (), (), 0
    ),
}


@pytest.fixture(scope="module", params=["relu", "learnt", pytest.param("unread", marks=pytest.mark.full)])
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, extensions: Path
) -> tuple[Chain, Module]:
    """A chain, and its module whose library with a convolution is emulated."""
    chain = CHAINS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    return chain, emulated(folder, f"thin_{request.param}", chain.body)


def given(chain: Chain, module: Module, dtype: torch.dtype = torch.float32) -> tuple[Any, list[Tensor]]:
    """A model and its inputs."""
    torch.manual_seed(0)
    shapes = ((2, 3, 9, 12), *chain.inputs)
    return module.ModelNew().to(dtype), [torch.randn(shape).to(dtype) for shape in shapes]


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_chain_is_one_kernel(
    made: tuple[Chain, Module], monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    chain, module = made
    ran = calls_on_a_gpu(module, monkeypatch)
    model, inputs = given(chain, module, dtype)
    with torch.no_grad():
        y = model(*inputs)
        exact = chain.steps(copy.deepcopy(model).double(), *(x.double() for x in inputs))
    assert ran == [True]
    assert y.stride() == torch.empty(SHAPE).stride()
    allowed = 1e-6 + exact.abs() * torch.finfo(dtype).eps
    assert bool(((y.double() - exact).abs() <= allowed).all())


@pytest.mark.full
def test_gradients_are_those_of_the_steps(
    made: tuple[Chain, Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, module = made
    ran = calls_on_a_gpu(module, monkeypatch)
    model, inputs = given(chain, module)

    def twice(of: Any, tensors: list[Tensor], call: Callable[..., Tensor]) -> list[Tensor]:
        leaves = [t.clone().requires_grad_() for t in tensors]
        wanted = [*leaves, *of.parameters()]
        first = torch.autograd.grad(call(of, *leaves).square().sum(), wanted, create_graph=True)
        total = torch.stack([g.square().sum() for g in first]).sum()
        return [*first, *torch.autograd.grad(total, wanted)]

    found = twice(model, inputs, lambda of, *tensors: of(*tensors))
    assert ran == [True]
    exact = twice(copy.deepcopy(model).double(), [x.double() for x in inputs], chain.steps)
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)


def test_only_what_the_gradient_reads_is_saved_or_computed(
    made: tuple[Chain, Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, module = made
    ran = calls_on_a_gpu(module, monkeypatch)
    model, inputs = given(chain, module)
    saved: list[Tensor] = []

    def save(t: Tensor) -> Tensor:
        saved.append(t)
        return t

    with torch.autograd.graph.saved_tensors_hooks(save, lambda t: t):
        y = model(*(x.requires_grad_() for x in inputs))
    assert ran == [True]
    always = [tuple(inputs[0].shape), tuple(model.conv.weight.shape)]
    assert sorted(tuple(t.shape) for t in saved) == sorted([*always, *chain.saved])
    with torch.profiler.profile() as profile:
        y.sum().backward()
    names = [event.name for event in profile.events()]
    assert names.count("aten::conv2d") == chain.convolutions
    assert names.count("aten::convolution_backward") == 1
