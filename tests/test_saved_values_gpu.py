"""Numbers of rows that the forward kernel saves, on a GPU: gradients have the same bits without."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from test_rows import DTYPES, NO_GPU
from torch import Tensor
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

pytestmark = [pytest.mark.gpu, NO_GPU]

# of a module: the shapes of its tensors, and its scalars
MODULES: dict[str, tuple[tuple[tuple[int, ...], ...], tuple[float, ...]]] = {
    "layer_norm": (((7, 1000), (1000,), (1000,)), (1e-5,)),
    "rms_norm": (((3, 5, 4096), (4096,)), (1e-5,)),
    "softmax": (((4, 33),), ()),
    "log_softmax": (((2, 40000),), ()),
    "logsumexp": (((5, 1003),), ()),
    "softmax_of_channels": (((2, 20, 9, 16),), ()),
    "add_rms_norm": (((6, 512), (6, 512), (512,)), (1e-6,)),
    "group_norm_silu": (((2, 32, 8, 8), (32, 1, 1), (32, 1, 1)), (1e-5,)),
}


def arguments(name: str, dtype: torch.dtype) -> tuple[Any, list[Tensor], tuple[float, ...]]:
    """A module's kernels, tensors of both signs that ask for gradients, and its scalars."""
    shapes, scalars = MODULES[name]
    torch.manual_seed(1)
    tensors = [(torch.randn(shape, device="cuda") * 2 + 1).to(dtype).requires_grad_() for shape in shapes]
    return importlib.import_module(f"generated.rows.{name}").KERNELS, tensors, scalars


def several(made: Any) -> list[Tensor]:
    return [*made] if isinstance(made, tuple | list) else [made]


def gradients(made: Any, tensors: list[Tensor]) -> list[Tensor]:
    results = several(made)
    torch.manual_seed(2)
    return [*torch.autograd.grad(results, tensors, [torch.randn_like(each) for each in results])]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODULES)
def test_a_gradient_by_saved_numbers_has_the_bits_of_one_without(name: str, dtype: torch.dtype) -> None:
    """That without is the operator of the gradient alone, which has the forward kernel find them."""
    kernels, tensors, scalars = arguments(name, dtype)
    found: list[Any] = []
    views = tensors if kernels.views is None else kernels.views.of(tensors)
    if kernels.groups is not None:
        pytest.skip("takes groups by views of its own")
    taken = [t.detach().contiguous() if kernels.views is None else t.detach() for t in views]
    *results, saved = kernels.kernel("forward_saving")(*taken, *scalars)
    assert saved.shape[-1] == kernels.saves
    assert saved.dtype is torch.float64
    torch.manual_seed(2)
    grads = [torch.randn_like(each) for each in results]
    for own in (
        kernels.backward(*grads, *taken, *scalars),
        kernels.kernel("backward_reading")(*grads, *taken, saved, *scalars),
    ):
        found.append(several(own))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    for one, other in zip(results, several(kernels.forward(*taken, *scalars)), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODULES)
def test_gradients_are_near_those_in_float64(name: str, dtype: torch.dtype) -> None:
    kernels, tensors, scalars = arguments(name, dtype)
    groups = (8,) * (kernels.groups is not None)
    own = gradients(kernels.call(*tensors, *scalars, *groups), tensors)
    wide = [t.detach().double().requires_grad_() for t in tensors]
    results = several(kernels.where_they_are(*wide, *scalars, *groups))
    torch.manual_seed(2)
    grads = [torch.randn(r.shape, dtype=dtype, device="cuda").double() for r in results]
    exact = torch.autograd.grad(results, wide, grads)
    epsilon = torch.finfo(dtype).eps
    for one, other in zip(own, exact, strict=True):
        scale = other.abs().max().item()
        torch.testing.assert_close(one.double(), other, rtol=4 * epsilon, atol=8 * epsilon * scale)


@pytest.mark.parametrize("name", ["layer_norm", "softmax", "add_rms_norm"])
def test_what_is_saved_goes_where_autograd_keeps_it(name: str) -> None:
    """To the CPU and back, or nowhere, where a checkpoint computes it again; it stays for a second pass."""
    kernels, tensors, scalars = arguments(name, torch.float32)
    expected = gradients(kernels.call(*tensors, *scalars), tensors)
    with save_on_cpu():
        made = kernels.call(*tensors, *scalars)
    again = checkpoint(lambda *given: kernels.call(*given, *scalars), *tensors, use_reentrant=False)
    for each in (made, again):
        assert all(map(torch.equal, gradients(each, tensors), expected))
    results = several(kernels.call(*tensors, *scalars))
    total = torch.stack([each.sum() for each in results]).sum()
    first = torch.autograd.grad(total, tensors, retain_graph=True)
    assert all(map(torch.equal, first, torch.autograd.grad(total, tensors)))


def test_a_second_derivative_is_eagers() -> None:
    kernels, [x], _ = arguments("softmax", torch.float64)
    with torch.enable_grad():
        assert torch.autograd.gradgradcheck(
            lambda t: kernels.call(t), (x[:, :4].detach().requires_grad_(),)
        )


def test_saved_numbers_are_checked() -> None:
    kernels, [x], _ = arguments("softmax", torch.float32)
    x = x.detach()
    grad, saved = kernels.kernel("forward_saving")(x)
    reading = kernels.kernel("backward_reading")
    assert torch.equal(kernels.kernel("forward_numbers")(x), saved)
    for wrong in (saved.float(), saved[:-1], saved[:, :1], saved.t().contiguous().t()):
        with pytest.raises(RuntimeError, match="expected the saved numbers of each row in float64"):
            reading(grad, x, wrong)
    with pytest.raises(RuntimeError, match="on the device of the other tensors"):
        reading(grad, x, saved.cpu())


@pytest.mark.parametrize("name", ["cross_entropy", "cross_entropy_in_float32"])
def test_a_loss_saves_numbers_too(name: str) -> None:
    module = importlib.import_module(f"generated.rows.{name}")
    kernels = module.KERNELS
    for dtype in DTYPES:
        torch.manual_seed(3)
        logits = torch.randn(9, 1000, device="cuda").to(dtype).requires_grad_()
        target = torch.randint(0, 1000, (9,), device="cuda")
        target[2] = -100
        loss = getattr(module, name)(logits, target)
        assert loss.dtype is kernels.values_in(dtype)
        found = [torch.autograd.grad(loss, logits)[0]]
        grad = torch.full((), 1.0, dtype=torch.float64, device="cuda") / 8
        taken = (logits.detach(), target[:, None])
        grads = grad.to(loss.dtype).expand(9)
        found.append(kernels.backward(grads, *taken))
        assert torch.equal(*found)
        values, numbers = kernels.kernel("forward_saving")(*taken)
        assert torch.equal(values, kernels.forward(*taken))
        assert torch.equal(numbers, kernels.kernel("forward_numbers")(*taken))
        assert torch.equal(found[0], kernels.kernel("backward_reading")(grads, *taken, numbers))
        wide = logits.detach().double().requires_grad_()
        [exact] = torch.autograd.grad(torch.nn.functional.cross_entropy(wide, target), wide)
        torch.testing.assert_close(found[0].double(), exact, rtol=1e-2, atol=torch.finfo(dtype).eps)


def test_a_graph_of_cuda_replays_both_passes() -> None:
    kernels, [x, *others], scalars = arguments("layer_norm", torch.bfloat16)
    cuda: Any = torch.cuda
    stream = cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            torch.autograd.grad(kernels.call(x, *others, *scalars).sum(), x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        [made] = torch.autograd.grad(kernels.call(x, *others, *scalars).sum(), x)
    with torch.no_grad():
        x.copy_(torch.randn_like(x))
    graph.replay()
    assert torch.equal(made, torch.autograd.grad(kernels.call(x, *others, *scalars).sum(), x)[0])
