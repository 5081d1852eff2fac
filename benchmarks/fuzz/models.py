"""Random models: patched, lifted and compiled, with outputs and gradients compared with eager's."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import fusegen
from fusegen.errors import FusegenError, SpecErrors

WIDTH, MOST = 8, 2e-4
ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (
    nn.ReLU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.ELU, nn.Hardswish, nn.ReLU6,
    nn.LeakyReLU, nn.Hardtanh, nn.SELU, lambda: nn.GELU("tanh"), lambda: nn.ReLU(inplace=True),
)  # fmt: skip
STEPS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "x * sigmoid(x)": lambda m, x: x * torch.sigmoid(x),
    "gelu(x) + x": lambda m, x: functional.gelu(x) + x,
    "x * scale + shift": lambda m, x: x * m.scale + m.shift,
    "tanh(x) * alpha": lambda m, x: torch.tanh(x) * m.alpha,
    "(x + 3).clamp(0, 6) / 6": lambda m, x: (x + 3).clamp(0, 6) / 6,
    "where(x > 0, x, 0.1 * x)": lambda m, x: torch.where(x > 0, x, 0.1 * x),
    "(x > 0).float() * x": lambda m, x: (x > 0).float() * x,
    "softplus(x) - shift": lambda m, x: functional.softplus(x) - m.shift,
    "a, b = chunk; cat": lambda m, x: torch.cat(
        [functional.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1]] * 2, -1
    ),
    "in place": lambda m, x: (x * 1.5).add_(m.shift).mul_(0.5),
    "x - x.mean()": lambda m, x: torch.tanh(x - x.mean(-1, keepdim=True)) * 2,
    "dropout": lambda m, x: functional.dropout(x, 0.0) + torch.exp(-x * x),
    "detach": lambda m, x: x * torch.sigmoid(x.detach()),
    "no_grad": lambda m, x: x + _without_gradient(x),
}


def _without_gradient(x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.tanh(x) * 0.1


class Drawn(nn.Module):
    """Layers, activations and steps, one after the other; some have a residual around them."""

    def __init__(self, seed: str) -> None:
        """Draw a model."""
        super().__init__()
        chance = random.Random(seed)
        torch.manual_seed(chance.randrange(2**31))
        self.alpha = chance.choice((0.5, 1.0, -2.0))
        self.scale = nn.Parameter(torch.randn(WIDTH))
        self.register_buffer("shift", torch.randn(WIDTH))
        self.layers, self.plan = nn.ModuleList(), list[tuple[str, int, bool]]()
        shared = chance.choice(ACTIVATIONS)()
        for _ in range(chance.randint(2, 6)):
            kind = chance.choice(("linear", "norm", "activation", "shared", "step", "step"))
            made = {"linear": nn.Linear(WIDTH, WIDTH), "norm": nn.LayerNorm(WIDTH), "shared": shared}
            name = chance.choice(list(STEPS)) if kind == "step" else kind
            layer = made.get(kind) or chance.choice(ACTIVATIONS)()
            self.layers.append(layer)
            self.plan.append((name, len(self.layers) - 1, chance.random() < 0.25))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output."""
        for name, place, residual in self.plan:
            step = STEPS.get(name)
            before = x * 1 if residual else x
            x = step(self, before) if step else self.layers[place](before)
            x = x + before if residual and name not in ("activation", "shared") else x
        return x


def failures(seed: str, folder: Path) -> Iterator[str]:
    """Return a sentence for each way of running a model that differs from eager; none if eager raises."""
    chance, model = random.Random(f"way {seed}"), Drawn(seed)
    shape = chance.choice(((16, WIDTH), (2, 5, WIDTH), (256, WIDTH)))
    x = torch.randn(shape, generator=torch.Generator().manual_seed(chance.randrange(2**31))) * 2
    try:
        expected = results(copy.deepcopy(model), x)
        exact = results(copy.deepcopy(model).double(), x.double())
    except RuntimeError:  # as of a saved value that is written over: nothing to compare with
        return
    for way in chance.sample(list(WAYS), 2):
        other = copy.deepcopy(model)
        try:
            found = results(WAYS[way](other, x, folder), x)
        except (FusegenError, SpecErrors):  # a refusal, with its reason
            continue
        except Exception as error:  # whatever it is, a traceback is what is looked for
            yield f"{way} of {model.plan}: {type(error).__name__}: {str(error)[:400]}"
            continue
        for label, one in found.items():
            if said := _apart(one, expected[label], exact[label]):
                yield f"{way} of {model.plan}: {label}: {said}"


def results(model: Any, x: Tensor) -> dict[str, Any]:
    """Return the outputs with and without a gradient, and the gradients of the input and parameters."""
    with torch.no_grad():
        plain = model(x.clone())
    leaf = x.clone().requires_grad_()
    y = model(leaf * 1)
    (y * torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view_as(y)).sum().backward()
    named = {name.removeprefix("_orig_mod."): p.grad for name, p in model.named_parameters()}
    return {"without a gradient": plain, "output": y.detach(), "gradient of the input": leaf.grad, **named}


def _apart(found: Tensor | None, eager: Tensor | None, exact: Tensor | None) -> str:
    """Return how far a result is off, if it is by more than eager's, four times, and than rounding."""
    if found is None or eager is None or exact is None:
        return "" if found is eager else "a gradient is missing, or there is one too many"
    scale = float(exact.abs().max()) + 1e-6
    off, allowed = (float((t - exact).abs().max()) / scale for t in (found, eager))
    return (
        f"off by {off:.3g} of the largest, eager by {allowed:.3g}" if not off <= MOST + 4 * allowed else ""
    )


def _patched(model: nn.Module, x: Tensor, folder: Path) -> nn.Module:
    fusegen.patch(model)
    return model


def _lifted(model: nn.Module, x: Tensor, folder: Path) -> Any:
    lift: Any = fusegen.lift
    return lift(model, (x,), folder=folder)


def _compiled(model: nn.Module, x: Tensor, folder: Path) -> Any:
    torch._dynamo.reset()
    return torch.compile(model, backend="fusegen", options={"regions": str(folder)})


WAYS: dict[str, Callable[[nn.Module, Tensor, Path], Any]] = {
    "patch": _patched,
    "lift": _lifted,
    "compile": _compiled,
}
