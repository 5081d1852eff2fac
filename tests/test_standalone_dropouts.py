"""Standalone files of dropouts: PyTorch's masks and a module's bits, on the CPU and, emulated, on CUDA."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from typing import Any

import compiler
import pytest
import torch
from emulated import FLAGS, LAUNCH, same_bits
from kernels import GENERATED
from standalone_files import (
    NAMES,
    TESTED,
    executed,
    file_of,
    strings,
)
from torch import Tensor, nn

from fusegen.project import standalone

ADD, GELU = "dropouts/bias_dropout_add", "dropouts/bias_gelu_dropout"
Function = Callable[..., Tensor]


def given(name: str, dtype: torch.dtype) -> list[Tensor]:
    """A matrix, a bias and, of one of them, a residual."""
    x, bias, residual = torch.randn(9, 40), torch.randn(40), torch.randn(9, 40)
    return [t.to(dtype) for t in (x, bias, residual)[: 3 if name == ADD else 2]]


def drawn(function: Function, tensors: list[Tensor], p: float, *, training: bool = True) -> list[Tensor]:
    """A result with its gradients, from one seed, and the generator behind it."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    torch.manual_seed(5)
    y = function(*leaves, p, training)
    state = torch.get_rng_state()
    incoming = torch.linspace(-2, 3, y.numel()).reshape(y.shape).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, leaves, incoming), state]


@pytest.mark.few(1)
@pytest.mark.parametrize("name", [ADD, GELU])
def test_dropouts_are_the_modules(name: str) -> None:
    own, _ = executed(name, *NAMES)
    module: Function = getattr(importlib.import_module(f"generated.{name.replace('/', '.')}"), name[9:])
    for dtype in TESTED:
        tensors = given(name, dtype)
        for p, training in ((0.3, True), (0.0, True), (1.0, True), (0.3, False)):
            found = drawn(own, tensors, p, training=training)
            expected = drawn(module, tensors, p, training=training)
            for k, (a, b) in enumerate(zip(found, expected, strict=True)):
                if k == 2:  # a bias, whose elements PyTorch adds
                    torch.testing.assert_close(a, b)
                else:
                    assert torch.equal(a, b) if k > 2 else same_bits(a, b), (dtype, p, k)
        x, *others = tensors
        for like in (torch.cat([x, x], -1)[..., ::2], x.mT.contiguous().mT):
            laid = [like, *others]
            assert torch.equal(drawn(own, laid, 0.4)[0], drawn(module, laid, 0.4)[0])


def test_a_dropout_draws_as_pytorch_does() -> None:
    own, space = executed(ADD, *NAMES)
    x, bias, residual = given(ADD, torch.float32)
    [y, *slopes, state] = drawn(own, [x, bias, residual], 0.25)

    def reference(x: Tensor, bias: Tensor, residual: Tensor, p: float, training: bool) -> Tensor:
        return nn.functional.dropout(x + bias, p, training) + residual

    [wanted, *others, expected] = drawn(reference, [x, bias, residual], 0.25)
    assert torch.equal(y, wanted)
    assert torch.equal(state, expected)
    torch.testing.assert_close(slopes, others)
    assert 0.1 < float((y == residual).float().mean()) < 0.4
    model = space["ModelNew"](0.25)
    torch.manual_seed(5)
    assert torch.equal(model(x, bias, residual), wanted)
    assert torch.equal(model.eval()(x, bias, residual), x + bias + residual)
    with pytest.raises(ValueError, match=r"^dropout probability has to be between 0 and 1, but got 1\.5$"):
        own(x, bias, residual, 1.5)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch.compile does
def test_second_derivatives_and_compilers_of_dropouts() -> None:
    own, _ = executed(ADD, *NAMES)
    x, bias, residual = [t.requires_grad_() for t in given(ADD, torch.float32)]
    torch.manual_seed(5)
    y = own(x, bias, residual, 0.5)
    [slope] = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    [second] = torch.autograd.grad(slope.sum(), x)
    assert torch.equal(second, torch.where(y == residual, 0.0, 8.0))
    compiled: Function = torch.compile(own, fullgraph=True, backend="aot_eager")
    for a, b in zip(
        drawn(compiled, [x, bias, residual], 0.5), drawn(own, [x, bias, residual], 0.5), strict=True
    ):
        assert torch.equal(a, b)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", [ADD, GELU])
def test_dropouts_on_an_emulated_chip(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own, space = executed(name, *NAMES)
    expected = [drawn(own, given(name, dtype), 0.3) for dtype in TESTED for _ in [torch.manual_seed(2)]]
    head = '#include "cuda_emulation.h"\n'
    source, _ = LAUNCH.subn(r"emulate(\1, \2, ", head + strings(file_of(name, *NAMES))["CUDA"])
    library = compiler.library(source.replace("on_cuda", "on_cpu"), ["-O0", *FLAGS])
    monkeypatch.setitem(space, "LIBRARY", ctypes.CDLL(str(library)))
    found = [drawn(own, given(name, dtype), 0.3) for dtype in TESTED for _ in [torch.manual_seed(2)]]
    torch.testing.assert_close(found, expected)


@pytest.mark.full
def test_a_tensor_may_be_called_drawn() -> None:
    module = (GENERATED / f"{ADD}.py").read_text(encoding="utf-8").replace("residual", "drawn")
    whole = standalone.text(module, "stable", ["float32"])
    assert "# Given up: masks drawn again, " in whole
    space: dict[str, Any] = {}
    exec(compile(whole, "<string>", "exec"), space)
    x, bias, added = given(ADD, torch.float32)
    own = drawn(space["bias_dropout_add"], [x, bias, added], 0.5)
    for a, b in zip(own, drawn(executed(ADD, *NAMES)[0], [x, bias, added], 0.5), strict=True):
        assert torch.equal(a, b)
