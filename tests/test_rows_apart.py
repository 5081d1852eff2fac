"""Rows along dimensions that are not the last ones: their elements lie apart in memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
import torch
from test_rows import BOUNDS, DTYPES, GPU, made, ulps
from torch import Tensor

WEIGHT = "init: {channels: 64}\nlayers: [weight: 'Parameter(ones(channels, 1, 1))']\n"
IMAGES = "inputs: {x: {shape: [2, 64, 9, 7]}}\n"


@dataclass(frozen=True)
class Case:
    """A spec whose rows lie apart."""

    body: str  # of the spec
    last: str  # the same function with its rows as the last dimensions
    reference: Callable[..., Tensor]  # the same by PyTorch
    dims: tuple[int, ...] = (1,)  # of a row
    weights: int = 0  # how many tensors of one number a channel it takes


CASES = {
    "softmax": Case(
        f"{IMAGES}over: [1]\nformula: softmax(x)\n",
        "over: [-1]\nformula: softmax(x)\n",
        lambda x: torch.softmax(x, 1),
    ),
    "norm": Case(
        f"{IMAGES}{WEIGHT}over: [-3]\nformula: x * rsqrt(mean(x ** 2) + 1e-6) * weight\n",
        "inputs: {x: {shape: [8, 64]}}\ninit: {channels: 64}\nlayers: [weight: Parameter(ones(channels))]\n"
        "over: [-1]\nformula: x * rsqrt(mean(x ** 2) + 1e-6) * weight\n",
        lambda x, weight: x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6) * weight,
        weights=1,
    ),
    "most": Case(
        f"{IMAGES}over: [1]\nformula: amax(x)\n", "over: [-1]\nformula: amax(x)\n", lambda x: x.amax(1)
    ),
    "batch": Case(
        f"{IMAGES}over: [0, 1]\nformula: x - mean(x) * length() / 2\n",
        "inputs: {x: {shape: [4, 8, 8]}}\nover: [-2, -1]\nformula: x - mean(x) * length() / 2\n",
        lambda x: x - x.sum((0, 1), keepdim=True) / 2,
        dims=(0, 1),
    ),
}
SHAPES = (
    (3, 7, 5, 2),
    (2, 64, 9, 7),
    (1, 100, 33, 1),
    (2, 300, 40, 1),
    (1, 1000, 1, 3),
    (2, 1, 4, 4),
    (1, 4100, 4, 1),
)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], ModuleType]:
    """The modules of the cases, as they are and with their rows last, each made once."""
    folder = tmp_path_factory.mktemp("apart")
    return functools.cache(
        lambda name, form="body": made(folder, f"{name}_{form}", getattr(CASES[name], form))
    )


def function(module: ModuleType) -> Callable[..., Tensor]:
    """Return the function of a module."""
    found: Callable[..., Tensor] = getattr(module, module.KERNELS.name)
    return found


def tensors(name: str, shape: tuple[int, ...], dtype: torch.dtype, device: str = "cpu") -> list[Tensor]:
    """Return tensors of both signs for a case, which ask for gradients."""
    torch.manual_seed(4)
    shapes = [shape, *[(shape[1], 1, 1)] * CASES[name].weights]
    return [(torch.randn(each, device=device) * 2 + 1).to(dtype).requires_grad_() for each in shapes]


@pytest.mark.few(1)
@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_beside_float64(modules: Any, name: str, device: str) -> None:
    ours, case = function(modules(name)), CASES[name]
    for shape in SHAPES if name != "norm" else [shape for shape in SHAPES if shape[1] > 1]:
        for dtype in DTYPES:
            given = tensors(name, shape, dtype, device)
            y = ours(*given)
            incoming = torch.randn_like(y)
            wide = [t.detach().double().requires_grad_() for t in given]
            right = case.reference(*wide)
            exact = torch.autograd.grad(right, wide, incoming.double())
            for got, wanted in zip(
                (y, *torch.autograd.grad(y, given, incoming)), (right, *exact), strict=True
            ):
                assert got.shape == wanted.shape
                if dtype is torch.float64:
                    torch.testing.assert_close(got, wanted)
                else:
                    near = wanted.detach().abs() >= 2**-6 * wanted.detach().abs().max()
                    assert ulps(got.detach()[near], wanted.detach()[near]) <= BOUNDS[dtype], (shape, dtype)


@pytest.mark.full
@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("name", CASES)
def test_a_row_has_the_bits_that_it_has_side_by_side(modules: Any, name: str, device: str) -> None:
    """Of up to 8192 floats, which the registers of a block hold on CUDA."""
    ours, last, dims = function(modules(name)), function(modules(name, "last")), CASES[name].dims
    there = tuple(range(-len(dims), 0))
    for shape in SHAPES:
        for dtype in DTYPES:
            x, *weights = tensors(name, shape, dtype, device)
            y = ours(x, *weights)
            incoming = torch.randn_like(y)
            grads = torch.autograd.grad(y, [x, *weights], incoming)
            beside = x.detach().movedim(dims, there).contiguous().requires_grad_()
            flat = [w.detach().flatten().requires_grad_() for w in weights]
            other = last(beside, *flat)
            given = incoming.movedim(dims, there) if y.dim() == x.dim() else incoming
            others = torch.autograd.grad(other, [beside, *flat], given.contiguous())
            back = other.movedim(there, dims) if y.dim() == x.dim() else other
            assert torch.equal(y, back), (shape, dtype)
            assert torch.equal(grads[0], others[0].movedim(there, dims)), (shape, dtype)
            assert all(torch.equal(a.flatten(), b) for a, b in zip(grads[1:], others[1:], strict=True))


def test_a_result_lies_as_its_tensor(modules: Any) -> None:
    softmax = function(modules("softmax"))
    for x in (torch.randn(2, 8, 4, 6), torch.randn(2, 8, 4, 6).to(memory_format=torch.channels_last)):
        assert softmax(x).stride() == x.stride()
    assert softmax(torch.randn(5, 3)).is_contiguous()


def test_transforms_and_compilers_take_rows_that_lie_apart(modules: Any) -> None:
    softmax, x = function(modules("softmax")), torch.randn(3, 5, 4, 2)
    torch.testing.assert_close(
        torch.vmap(softmax)(x[None].expand(2, -1, -1, -1, -1))[1], torch.softmax(x, 1)
    )
    torch.testing.assert_close(torch.vmap(softmax, 1)(x[:, None]), torch.softmax(x, 1)[None])
    traced = torch.fx.symbolic_trace(lambda x: softmax(x) * 2)
    torch.testing.assert_close(traced(x), torch.softmax(x, 1) * 2)
    compiled = torch.compile(lambda x: softmax(x) * 2, backend="aot_eager")
    torch.testing.assert_close(compiled(x), torch.softmax(x, 1) * 2)
    assert torch.autograd.gradgradcheck(softmax, x[:1, :3, :2, :1].double().requires_grad_())
    out = torch.empty(0)
    softmax(x, out=out)
    torch.testing.assert_close(out, torch.softmax(x, 1))


def test_a_tensor_of_too_few_dimensions_is_refused(modules: Any) -> None:
    with pytest.raises(RuntimeError, match="a tensor of 1 dimensions has no rows from 1 on"):
        function(modules("softmax"))(torch.randn(5))
    with pytest.raises(RuntimeError, match="a tensor of 2 dimensions has no rows from -3 on"):
        function(modules("norm"))(torch.randn(5, 2), torch.ones(5, 1))


def test_empty_tensors_have_empty_results(modules: Any) -> None:
    softmax = function(modules("softmax"))
    assert softmax(torch.randn(0, 3, 2)).shape == (0, 3, 2)
    assert softmax(torch.randn(2, 0, 2)).shape == (2, 0, 2)
