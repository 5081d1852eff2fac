"""Transforms of torch.func around gradients of several tensors and numbers."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from kernels import compiled
from torch import Tensor
from torch.func import functionalize, grad, hessian, jacfwd, jacrev, vjp, vmap
from torch.nn import functional

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:There is a performance drop because we have not yet implemented"),
]

Call = Callable[..., Any]
FORMULAS: dict[str, tuple[str, Call]] = {  # by what is special: a spec's body, and the same in PyTorch
    "scalars": (
        "inputs: {x: {}, r: {}}\nparams: {k: 1.5}\nformula: silu(x * k) * r\n",
        lambda x, r: functional.silu(x * 1.5) * r,
    ),
    "an operand that no gradient reads": (
        "inputs: {x: {}, b: {shape: [1]}}\nparams: {k: 1.5}\nformula: silu(x * k) + b\n",
        lambda x, b: functional.silu(x * 1.5) + b,
    ),
    "equal gradients": (
        "inputs: {x: {}, r: {}}\nparams: {k: 1.5}\nformula: silu((x + r) * k)\n",
        lambda x, r: functional.silu((x + r) * 1.5),
    ),
}
BOTH = (0, 1)


def _sum(function: Call) -> Call:
    return lambda *tensors: function(*tensors).square().sum()


def _batched_grads(function: Call, *tensors: Tensor) -> tuple[Tensor, ...]:
    leaves = [t.detach().requires_grad_() for t in tensors]
    y = function(*leaves)
    each = torch.stack([torch.full_like(y, k) for k in range(3)])
    return torch.autograd.grad(y, leaves, each, is_grads_batched=True)


def _vmapped_grads(function: Call, *tensors: Tensor) -> tuple[Tensor, ...]:
    leaves = [t.detach().requires_grad_() for t in tensors]
    y = function(*leaves)
    each = torch.stack([torch.full_like(y, k) for k in range(3)])
    found: Any = vmap(lambda g: torch.autograd.grad(y, leaves, g, retain_graph=True))(each)
    return tuple(found)


def _jacobian(function: Call, *tensors: Tensor) -> Any:
    calls: Any = torch.autograd.functional
    return calls.jacobian(function, tensors, vectorize=True)


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "vmap(grad)": lambda f, *t: vmap(grad(_sum(f), BOTH))(*t),
    "vmap(grad) of one": lambda f, *t: vmap(grad(_sum(f), 1))(*t),
    "vmap(grad), the second shared": lambda f, x, r: vmap(grad(_sum(f), BOTH), (0, None))(x, r[0]),
    "vmap(grad), the first shared": lambda f, x, r: vmap(grad(_sum(f), BOTH), (None, 0))(x[0], r),
    "vmap(vmap(grad))": lambda f, *t: vmap(vmap(grad(_sum(f), BOTH)))(*t),
    "vmap(vjp)": lambda f, *t: vmap(lambda g: vjp(f, *t)[1](g))(torch.stack([f(*t), f(*t).cos()])),
    "jacrev": lambda f, *t: jacrev(f, BOTH)(*t),
    "jacfwd": lambda f, *t: jacfwd(f, BOTH)(*t),
    "hessian": lambda f, *t: hessian(_sum(f), BOTH)(*t),
    "jacrev(jacrev)": lambda f, *t: jacrev(jacrev(_sum(f), BOTH), BOTH)(*t),
    "vmap(hessian)": lambda f, *t: vmap(hessian(_sum(f), BOTH))(*t),
    "vmap(functionalize(grad))": lambda f, *t: vmap(functionalize(grad(_sum(f), BOTH)))(*t),
    "is_grads_batched": _batched_grads,
    "vmap(autograd.grad)": _vmapped_grads,
    "jacobian, vectorized": _jacobian,
}


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    made: dict[str, ModuleType] = {}

    def module(which: str) -> Any:
        if which not in made:
            name = f"transformed_{list(FORMULAS).index(which)}"
            made[which] = compiled(tmp_path_factory.mktemp(name), name, FORMULAS[which][0])
        return getattr(made[which], f"transformed_{list(FORMULAS).index(which)}")

    return module


def _given(which: str) -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    shape = (3, 2, 1) if "no gradient" in which else (3, 2, 2)
    return torch.randn(3, 2, 2, dtype=torch.float64), torch.randn(shape, dtype=torch.float64)


@pytest.mark.few(1)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("which", FORMULAS)
def test_transforms_of_gradients_agree_with_eager(
    which: str, transform: str, modules: Callable[[str], Any]
) -> None:
    _, right = FORMULAS[which]
    given, found = _given(which), modules(which)
    torch.testing.assert_close(TRANSFORMS[transform](found, *given), TRANSFORMS[transform](right, *given))


@pytest.mark.full
def test_a_batch_of_incoming_gradients_of_halves(tmp_path: Path) -> None:
    body = "inputs: {x: {}, r: {split: -1}}\nparams: {k: 1.5}\nformula: silu(x * k) * r\n"
    module = compiled(tmp_path, "of_halves", body)

    def right(whole: Tensor) -> Tensor:
        x, r = whole.chunk(2, -1)
        return functional.silu(x * 1.5) * r

    whole = torch.randn(3, 4, dtype=torch.float64)
    torch.testing.assert_close(_jacobian(module.of_halves, whole), _jacobian(right, whole))
    for calls in (_batched_grads, _vmapped_grads):
        torch.testing.assert_close(calls(module.of_halves, whole), calls(right, whole))
