"""Autograd saves, for the gradients of several inputs, the tensors that these read, and no others."""

from __future__ import annotations

import gc
import itertools
import shutil
import weakref
from types import ModuleType
from typing import Any

import pytest
import torch
from kernels import compiled, generated
from torch import Tensor
from torch.nn.functional import silu

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

Shape = tuple[int, ...]
WHOLE: Shape = (4, 5, 6)
SHAPES: dict[Shape, list[Shape | None]] = {  # of r: the shapes of what is saved, none for what is not
    WHOLE: [WHOLE, (5, 1), None],
    (6,): [WHOLE, (5, 1), (6,)],
    (): [WHOLE, (5, 1), ()],
}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    body = "inputs: {x: {}, s: {}, r: {}}\nformula: silu(x) * s + r\n"
    return compiled(tmp_path_factory.mktemp("saved"), "saved_test", body)


def eager(x: Tensor, s: Tensor, r: Tensor) -> Tensor:
    return silu(x) * s + r


def inputs(shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x, s, r = (
        torch.randn(of, generator=generator, dtype=torch.float64).requires_grad_()
        for of in (WHOLE, (5, 1), shape)
    )
    return x, s, r


def gradients(function: Any, given: tuple[Tensor, ...], grad: Tensor | None = None) -> Any:
    y = function(*given)
    return torch.autograd.grad(y, given, torch.ones_like(y) if grad is None else grad)


@pytest.mark.parametrize("shape", SHAPES)
def test_tensors_that_no_gradient_reads_are_not_saved(module: ModuleType, shape: Shape) -> None:
    assert module.KERNELS.signature.unread == ("r",)
    node: Any = module.saved_test(*inputs(shape)).grad_fn
    assert [None if t is None else tuple(t.shape) for t in node.saved_tensors] == SHAPES[shape]


def test_a_tensor_that_is_not_saved_is_freed_and_may_be_written_over(module: ModuleType) -> None:
    x, s, r = inputs(WHOLE)
    expected = gradients(eager, (x, s, r))
    residual = r * 1
    alive = weakref.ref(residual)
    y = module.saved_test(x, s, residual)
    with torch.no_grad():
        residual.fill_(torch.nan)
    del residual
    gc.collect()
    assert alive() is None
    torch.testing.assert_close(torch.autograd.grad(y, (x, s, r), torch.ones_like(y)), expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_eager(module: ModuleType, shape: Shape) -> None:
    given = inputs(shape)
    dense = torch.randn(WHOLE, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    for grad in (None, dense, dense.movedim(0, -1).contiguous().movedim(-1, 0), dense[:1].expand(WHOLE)):
        found = gradients(module.saved_test, given, grad)
        torch.testing.assert_close(found, gradients(eager, given, grad))
        assert [t.shape for t in found] == [t.shape for t in given]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "needed", [n for n in itertools.product((True, False), repeat=3) if any(n)], ids=str
)
def test_only_gradients_that_are_asked_for_are_written(
    module: ModuleType, needed: tuple[bool, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tuple(
        t.detach().to(dtype).requires_grad_(n) for t, n in zip(inputs(WHOLE), needed, strict=True)
    )
    kernel = module.KERNELS.backward
    written: list[torch.Size] = []

    def backward(*arguments: Any) -> Any:
        found = kernel(*arguments)
        written.extend(t.shape for t in found)
        return found

    monkeypatch.setattr(module.KERNELS, "backward", backward)
    leaves = [t for t in given if t.requires_grad]
    grad = torch.linspace(-1, 1, 120).reshape(WHOLE).to(dtype)
    found, expected = (torch.autograd.grad(f(*given), leaves, grad) for f in (module.saved_test, eager))
    of_r = WHOLE if needed[2] or dtype is torch.bfloat16 else ()
    assert [tuple(shape) for shape in written] == [WHOLE, (5, 1), of_r]
    most = 2e-2 if dtype is torch.bfloat16 else 1e-5
    torch.testing.assert_close(found, expected, rtol=most, atol=most)
    assert [t.shape for t in found] == [t.shape for t in leaves]


@pytest.mark.parametrize("shape", SHAPES)
def test_second_derivatives_and_transforms(module: ModuleType, shape: Shape) -> None:
    given = inputs(shape)
    ways = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
    assert torch.autograd.gradcheck(module.saved_test, given, **ways)
    assert torch.autograd.gradgradcheck(module.saved_test, given)
    found, expected = (
        torch.func.hessian(lambda *t, of=of: of(*t).square().sum(), argnums=(0, 1, 2))(*given)
        for of in (module.saved_test, eager)
    )
    torch.testing.assert_close(found, expected)


def test_compiled_gradients(module: ModuleType) -> None:
    given = inputs(WHOLE)
    found = gradients(torch.compile(module.saved_test, backend="aot_eager", fullgraph=True), given)
    torch.testing.assert_close(found, gradients(eager, given))


@pytest.mark.parametrize("name", ["swiglu", "reglu", "geglu", "glu", "tanh", "mish"])
def test_gradients_that_read_every_input_save_every_input(name: str) -> None:
    assert generated(name).KERNELS.signature.unread == ()
