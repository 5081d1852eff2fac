"""The speed of norms of groups and channels, losses, dropouts, scans and several results beside PyTorch's.

    python -m benchmarks.reductions  # the committed modules, ten minutes on a GPU
    python -m benchmarks.reductions --build 12  # builds all of their kernels first, so many at once

It prints milliseconds of a call and of its gradients; a copy is the time in which the inputs and results
could be copied.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
from collections.abc import Callable
from typing import Any

import click
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.rows import timed

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
Layer = Callable[..., Any]


class OfSum(nn.Module):
    """A norm of the sum of two tensors, with what is behind it, and the sum."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return both."""
        s = x + residual
        return self.norm(s), s


class AddRelu(nn.Module):
    """A residual block's batch norm, sum and ReLU."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return the result."""
        return functional.relu(self.norm(x) + residual)


class OfChannels(nn.LayerNorm):
    """The norm of ConvNeXt's channels."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the result."""
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


def lstm_cell(i: Tensor, f: Tensor, g: Tensor, o: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Return the two states of a cell behind its products."""
    cell = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def rotary(x1: Tensor, x2: Tensor, *angles: Tensor) -> tuple[Tensor, Tensor]:
    """Return the halves of a rotary embedding."""
    cos1, sin1, cos2, sin2 = angles
    return x1 * cos1 - x2 * sin1, x2 * cos2 + x1 * sin2


# Modules, and what makes the same layer of PyTorch's, or is the same function.
LAYERS: dict[str, Layer | Callable[..., nn.Module]] = {
    "batches.batch_norm": nn.BatchNorm2d,
    "batches.batch_norm_relu": lambda n: nn.Sequential(nn.BatchNorm2d(n), nn.ReLU()),
    "batches.batch_norm_hardswish": lambda n: nn.Sequential(nn.BatchNorm2d(n), nn.Hardswish()),
    "batches.batch_norm_add_relu": AddRelu,
    "rows.group_norm": nn.GroupNorm,
    "rows.group_norm_silu": lambda *n: nn.Sequential(nn.GroupNorm(*n), nn.SiLU()),
    "rows.instance_norm": lambda n: nn.InstanceNorm2d(n, affine=True),
    "rows.layer_norm_of_channels": lambda n: OfChannels(n, eps=1e-6),
    "rows.add_rms_norm": lambda n: OfSum(nn.RMSNorm(n, eps=1e-6)),
    "rows.add_layer_norm": lambda n: OfSum(nn.LayerNorm(n)),
}
FUNCTIONS: dict[str, Layer] = {
    "rows.softmax_of_channels": lambda x: torch.softmax(x, 1),
    "rows.global_mean_of_silu": lambda x: functional.silu(x).mean((2, 3)),
    "rows.cross_entropy": functional.cross_entropy,
    "losses.mse_loss": functional.mse_loss,
    "losses.huber_loss": functional.huber_loss,
    "losses.kl_div": functional.kl_div,
    "losses.bce_with_logits_loss": functional.binary_cross_entropy_with_logits,
    "losses.triplet_margin_loss": functional.triplet_margin_loss,
    "losses.cosine_similarity": functional.cosine_similarity,
    "losses.weighted_cross_entropy": lambda x, w, t: functional.cross_entropy(x, t, w.to(x.dtype)),
    "dropouts.bias_gelu_dropout": lambda x, b: functional.dropout(functional.gelu(x + b), 0.1),
    "dropouts.bias_dropout_add": lambda x, b, r: functional.dropout(x + b, 0.1) + r,
    "results.lstm_cell": lstm_cell,
    "results.rotary": rotary,
    "scans.cumsum": lambda x: torch.cumsum(x, -1),
    "scans.cumprod": lambda x: torch.cumprod(x, -1),
    "scans.argmax": lambda x: torch.argmax(x, -1),
}


def made(name: str, dtype: torch.dtype) -> tuple[Layer, Layer, list[Tensor]]:
    """Return our layer, PyTorch's and their inputs."""
    module = importlib.import_module(f"generated.{name}")
    inputs = [t.cuda() for t in module.get_inputs()]
    inputs = [t.to(dtype).requires_grad_() if t.is_floating_point() else t for t in inputs]
    own = module.ModelNew(*module.get_init_inputs()).cuda()
    if name in FUNCTIONS:
        return own, FUNCTIONS[name], inputs
    layers = [own, LAYERS[name](*module.get_init_inputs()).cuda()]
    if not name.startswith("batches"):  # whose parameters stay in float32
        layers = [layer.to(dtype) for layer in layers]
    return layers[0], layers[1], inputs


def times(function: Layer, inputs: list[Tensor]) -> tuple[float, float]:
    """Return the ms of a call and of its gradients, NaN if it has none."""
    with torch.no_grad():
        forward = timed(lambda: function(*inputs))
    results = function(*inputs)
    results = [t for t in (results if isinstance(results, tuple) else (results,)) if t.requires_grad]
    if not results:
        return forward, float("nan")
    needing = [t for t in inputs if t.requires_grad]
    needing += [*function.parameters()] if isinstance(function, nn.Module) else []
    grads = [torch.randn_like(t) for t in results]
    return forward, timed(lambda: torch.autograd.grad(results, needing, grads, retain_graph=True))


def row(name: str, dtype: str) -> str:
    """Return a row of the table."""
    own, eager, inputs = made(name, DTYPES[dtype])
    torch.compiler.reset()
    results = own(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    size = sum(t.numel() * t.element_size() for t in (*inputs, *results))
    flat = torch.empty(size // 2, dtype=torch.uint8, device="cuda")
    copy = timed(functools.partial(torch.empty_like(flat).copy_, flat))
    del results, flat
    several = [times(f, inputs) for f in (own, eager, torch.compile(eager, dynamic=False))]
    cells = [f"{each[kind]:.3f}" for kind in (0, 1) for each in several]
    return (
        f"| {name}, {dtype}, {' x '.join(map(str, inputs[0].shape))} | {copy:.3f} | {' | '.join(cells)} |"
    )


def called(name: str) -> None:
    """Build what a module's call and its gradients need."""
    own, _, inputs = made(name, torch.float32)
    results = own(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    if any(t.requires_grad for t in results):
        torch.autograd.backward([t.float().sum() for t in results if t.requires_grad])


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*LAYERS, *FUNCTIONS]))
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice([*DTYPES]), default=[*DTYPES])
@click.option("--build", "jobs", default=0, help="Build the kernels first, so many modules at once.")
def main(names: tuple[str, ...], dtypes: tuple[str, ...], jobs: int) -> None:
    """Print a table: ours, eager, torch.compile."""
    names = names or (*LAYERS, *FUNCTIONS)
    if jobs:
        with multiprocessing.get_context("spawn").Pool(jobs) as pool:
            pool.map(called, names, chunksize=1)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, ms")
    print("| | a copy | ours | eager | torch.compile | gradients: ours | eager | torch.compile |")
    print("|---|---|---|---|---|---|---|---|")
    for name in names:
        for dtype in dtypes:
            print(row(name, dtype), flush=True)


if __name__ == "__main__":
    main()
