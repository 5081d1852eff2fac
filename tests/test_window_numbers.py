"""Numbers of windows that are the constructor's: each choice has kernels of its own."""

from __future__ import annotations

import copy
import pickle
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from test_rows import made
from torch import Tensor, nn
from windows_emulated import emulated_kernels

F = nn.functional
BODY = (
    "inputs: {x: {shape: [2, 3, 9, 12]}}\n"
    "init: {kernel_size: 2, stride: null, padding: {default: 0, symbol: before}}\n"
    "params: {times: 2}\n"
    "formula: times * max_pool2d(relu(x), kernel_size, stride, before)\n"
)
NUMBERS: tuple[tuple[Any, ...], ...] = ((), (3,), (3, 2, 1), ((2, 3), (1, 2), (1, 0)), ([4, 2], None, 1))


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """A module with a pooling of the constructor's numbers."""
    found = made(tmp_path_factory.mktemp("numbers"), "of_init", BODY)
    sys.modules[found.__name__] = found  # where pickle finds its class
    return found


def completed(numbers: tuple[Any, ...]) -> tuple[Any, ...]:
    usual: tuple[Any, ...] = (2, None, 0)
    return (*numbers, *usual[len(numbers) :])


def exact(x: Tensor, numbers: tuple[Any, ...]) -> Tensor:
    size, stride, padding = completed(numbers)
    return 2 * F.max_pool2d(F.relu(x), size, stride, padding)


def drawn() -> Tensor:
    return torch.randn(2, 3, 9, 12, generator=torch.Generator().manual_seed(1)).requires_grad_()


@pytest.mark.full
@pytest.mark.parametrize("numbers", NUMBERS)
def test_each_instance_has_its_own(module: Any, numbers: tuple[Any, ...]) -> None:
    model, x = module.ModelNew(*numbers), drawn()
    value, other = model(x), exact(x, numbers)
    torch.testing.assert_close(value, other)
    grad = torch.randn(value.shape)
    torch.testing.assert_close(torch.autograd.grad(value, x, grad), torch.autograd.grad(other, x, grad))

    def function(x: Tensor) -> Tensor:
        result: Tensor = module.of_init(x, 2.0, *completed(numbers))
        return result

    for call, dynamic in ((model, True), (function, False)):
        compiled: Any = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=dynamic)
        torch.testing.assert_close(compiled(x), other)
    torch.testing.assert_close(function(x.double()), exact(x.double(), numbers))
    torch.testing.assert_close(torch.vmap(model)(x[:, None])[:, 0], other)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(copied(x), other)
    exported = torch.export.export(model, (x.detach(),)).module()
    torch.testing.assert_close(exported(x), other)


@pytest.mark.full
def test_cuda_text_has_the_numbers(module: Any) -> None:
    x = drawn().detach()
    for numbers in ((2, None, 0), (3, 2, 1)):
        kernels = emulated_kernels(module.KERNELS.of(*numbers))
        torch.testing.assert_close(kernels.forward([x], (2.0,)), exact(x, numbers))


@pytest.mark.full
def test_a_new_choice_within_a_compiled_function(module: Any) -> None:
    def added(x: Tensor) -> Any:
        return module.of_init(x, 2.0, 5, 1, 2) + 1

    compiled: Any = torch.compile(added, fullgraph=True, backend="eager")
    x = drawn()
    torch.testing.assert_close(compiled(x), exact(x, (5, 1, 2)) + 1)


@pytest.mark.parametrize(
    ("numbers", "error", "message"),
    [
        ((0,), RuntimeError, "kernel_size is at least 1 and at most 1048576"),
        ((2**40,), RuntimeError, "kernel_size is at least 1 and at most 1048576"),
        ((2.0,), TypeError, "kernel_size is a whole number, or a tuple of 2"),
        ((True,), TypeError, "kernel_size is a whole number, or a tuple of 2"),
        (((2, 2, 2),), TypeError, "kernel_size is a whole number, or a tuple of 2"),
        ((2, 0), RuntimeError, "stride is at least 1 and at most 1048576"),
        ((2, None, -1), RuntimeError, "padding is at least 0 and at most 1048576"),
        ((3, None, 2), RuntimeError, "the padding 2 is more than half of a window of 3"),
    ],
)
def test_the_constructor_refuses_what_pytorch_does(
    module: Any, numbers: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        module.ModelNew(*numbers)
    assert str(caught.value).splitlines()[0] == f"of_init: {message}"
    if numbers != (2**40,):  # with which PyTorch runs for long
        with pytest.raises((RuntimeError, TypeError)):
            nn.MaxPool2d(*numbers)(drawn())
