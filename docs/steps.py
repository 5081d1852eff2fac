"""What a training step of one function takes: forward with a gradient to come, and backward.

    python docs/steps.py relu leaky_relu relu6 --dtype float32 --dtype bfloat16
    python docs/steps.py relu6 leaky_relu --inplace

`fusegen bench` times forward, without a gradient, and backward apart. What a forward kernel does for the
backward one, as writing a mask, counts here. Every gradient is first compared with eager's. Times are
medians of runs that take turns, as of `fusegen bench`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from fusegen.bench import clock

Function = Callable[[Tensor], Tensor]
SCALE = 4.0  # of the inputs, which are normal: on both sides of every kink


class Standing(torch.autograd.Function):
    """A tensor that may be written over, as if it were the result of something that took no time."""

    @staticmethod
    def forward(ctx: Any, leaf: Tensor, tensor: Tensor) -> Tensor:
        """The tensor."""
        ctx.mark_dirty(tensor)
        return tensor

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Its gradient is the leaf's."""
        return grads[0], None


STANDING: Any = Standing  # whose `apply` declares no types


def functions(name: str, inplace: bool, compiled: bool) -> dict[str, Function]:
    """The competitors, with the parameters that the spec declares."""
    module: Any = importlib.import_module(f"generated.{name}")
    ours = module.ModelNew(*module.get_init_inputs(), inplace=inplace)
    params = {k: v for k, v in vars(ours).items() if isinstance(v, float)}
    theirs = partial(getattr(torch.nn.functional, name), inplace=True) if inplace else module.eager
    eager = partial(theirs, **params)
    found: dict[str, Function] = {"eager": eager, "fusegen": ours}
    if compiled:
        torch.compiler.reset()
        found["torch.compile"] = torch.compile(eager)
    return found


def step(function: Function, x: Tensor, grad: Tensor, written: Tensor | None) -> Callable[[], Tensor]:
    """Forward and backward; the gradient."""

    def run() -> Tensor:
        before = x if written is None else STANDING.apply(x, written.detach())
        [found] = torch.autograd.grad(function(before), x, grad)
        return found

    return run


@click.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--dtype", "dtypes", multiple=True, default=("float32",))
@click.option("--numel", default=2**28)
@click.option("--inplace", is_flag=True, help="Write over a tensor; without torch.compile.")
@click.option("--no-compile", is_flag=True, help="Leave torch.compile out.")
@click.option("--seconds", default=0.3, help="For the turns of one function.")
def main(
    names: tuple[str, ...], dtypes: tuple[str, ...], numel: int, inplace: bool, no_compile: bool,
    seconds: float,
) -> None:  # fmt: skip
    """Check and time the functions NAMES of the library."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    chip = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    words = f"{numel:,} elements{', in place' if inplace else ''}; {chip}, PyTorch {torch.__version__}"
    table = Table(title=f"Training steps, {words}", box=None)
    table.add_column("function")
    table.add_column("dtype")
    for column in ("by", "ms", "spread", "of eager's time", "peak MiB"):
        table.add_column(column, justify="right")
    for name, dtype in ((name, dtype) for name in names for dtype in dtypes):
        kind: torch.dtype = getattr(torch, dtype)
        x, grad = (torch.randn(numel, device=device).mul_(SCALE).to(kind) for _ in range(2))
        runs = {}
        for who, function in functions(name, inplace, not (no_compile or inplace)).items():
            runs[who] = step(function, x.requires_grad_(), grad, x.detach().clone() if inplace else None)
        expected = runs["eager"]()
        for who, run in runs.items():
            torch.testing.assert_close(run(), expected, equal_nan=True, msg=f"{name} by {who} is wrong")
        del expected
        times = clock.turns(runs, device, seconds)
        for who, spread in times.items():
            peak = clock.peak(runs[who], device)
            table.add_row(
                name,
                dtype,
                who,
                f"{spread.median:.3f}",
                f"±{spread.noise:.1%}",
                f"{spread.median / times['eager'].median:.2f}",
                f"{peak / 2**20:,.0f}" if peak is not None else "",
                style="bold" if who == "fusegen" else None,
            )
    Console(width=120).print(table)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main()
