"""The speed of kernels with a pooling beside eager and torch.compile.

    python -m benchmarks.windows  # the committed modules, a minute on a GPU

It prints milliseconds of a call, and the least time in which the tensors could be copied.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass

import click
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.rows import timed

LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}  # by the number of dimensions
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Problem:
    """The function of a module by PyTorch's operations, and the shape of its input."""

    eager: Callable[[Tensor], Tensor]
    shape: tuple[int, ...]


PROBLEMS = {
    "windows.max_pool_of_relu": Problem(
        lambda x: functional.max_pool2d(functional.relu(x), 3, 2, 1), (64, 64, 112, 112)
    ),
    "windows.avg_pool_of_tanh": Problem(
        lambda x: functional.avg_pool2d(torch.tanh(x - 0.5) - 0.2, 2), (64, 64, 112, 112)
    ),
    "windows.min_pool": Problem(
        lambda x: -functional.max_pool2d(-x, 3, 1, 1), (64, 16, 256, 256)
    ),
    "kernelbench.images_max_pool": Problem(
        lambda x: functional.max_pool2d(x, 4, 1, 1), (16, 64, 256, 256)
    ),
    "kernelbench.images_avg_pool": Problem(lambda x: functional.avg_pool2d(x, 11), (16, 64, 512, 512)),
    "kernelbench.volumes_max_pool": Problem(
        lambda x: functional.max_pool3d(x, 3, 2, 1, 3), (8, 32, 96, 96, 96)
    ),
    "kernelbench.volumes_avg_pool": Problem(
        lambda x: functional.avg_pool3d(x, 3, 2, 1), (8, 32, 96, 96, 96)
    ),
    "kernelbench.lines_max_pool": Problem(
        lambda x: functional.max_pool1d(x, 8, 1, 4, 3), (64, 128, 16384)
    ),
    "kernelbench.lines_avg_pool": Problem(lambda x: functional.avg_pool1d(x, 8, 1, 4), (64, 128, 16384)),
}  # fmt: skip


def function_of(name: str) -> Callable[[Tensor], Tensor]:
    """Return the function of a committed module."""
    found: Callable[[Tensor], Tensor] = getattr(
        importlib.import_module(f"generated.{name}"), name.split(".")[1]
    )
    return found


def times(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[float, float]:
    """Return the ms of a call, and of the gradient of one."""
    forward = timed(functools.partial(function, x))
    needing = x.clone().requires_grad_()
    value = function(needing)
    grad = torch.randn_like(value)
    return forward, timed(lambda: torch.autograd.grad(value, needing, grad, retain_graph=True))


def row(name: str, dtype: str, channels_last: str) -> str:
    """Return a row of the table."""
    problem = PROBLEMS[name]
    x = torch.randn(problem.shape, device="cuda", dtype=DTYPES[dtype])
    if channels_last == "yes" and x.dim() in LAYOUTS:
        x = x.contiguous(memory_format=LAYOUTS[x.dim()])
    torch.compiler.reset()
    own = function_of(name)
    several = [times(f, x) for f in (own, problem.eager, torch.compile(problem.eager, dynamic=False))]
    flat = torch.empty((x.numel() + own(x).numel()) // 2, device="cuda", dtype=x.dtype)
    copy = timed(functools.partial(torch.empty_like(flat).copy_, flat))
    torch.testing.assert_close(own(x), problem.eager(x), rtol=2e-2, atol=2e-2)
    cells = [f"{each[kind]:.3f}" for kind in (0, 1) for each in several]
    return f"| {name}, {dtype}, {' x '.join(map(str, x.shape))} | {copy:.3f} | {' | '.join(cells)} |"


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*PROBLEMS]))
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice([*DTYPES]), default=[*DTYPES])
@click.option("--channels-last", type=click.Choice(["yes", "no"]), default="no")
def main(names: tuple[str, ...], dtypes: tuple[str, ...], channels_last: str) -> None:
    """Print a table: ours, eager, torch.compile."""
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, ms")
    print("| | a copy | ours | eager | torch.compile | gradients: ours | eager | torch.compile |")
    print("|---|---|---|---|---|---|---|---|")
    for name in names or PROBLEMS:
        for dtype in dtypes:
            print(row(name, dtype, channels_last), flush=True)


if __name__ == "__main__":
    main()
