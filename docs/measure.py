"""Hold generated modules against PyTorch on this machine: largest difference, and speed side by side.

    python docs/measure.py hardsigmoid                 # on the GPU if there is one, else on the CPU
    python docs/measure.py --shapes full --compile     # the founding systems at their declared shapes
    python docs/measure.py --shapes sliced hardswish   # the left half of a matrix, as chunk(2, -1) gives it

Times are medians over interleaved runs: CUDA events on the GPU, with the L2 cache flushed before each
run, and wall clock on the CPU, where the copy is clone, since it allocates as the others do. Speeds count
the bytes read plus the bytes written by one pass.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import click
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

Run = Callable[[], Tensor]
WARM_UPS = 3


class ConvReluHardswish(nn.Module):
    """The third founding system as eager PyTorch runs it."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)

    def forward(self, x: Tensor) -> Tensor:
        """The convolution, then the chain, one eager operation after the other."""
        return relu_hardswish(self.conv(x))


def relu_hardswish(x: Tensor) -> Tensor:
    """ReLU, then hard-swish, written out."""
    x = torch.relu(x)
    return x * torch.clamp((x + 3) / 6, 0, 1)


EAGER: dict[str, Callable[..., nn.Module | Callable[[Tensor], Tensor]]] = {
    "hardsigmoid": lambda: F.hardsigmoid,
    "hardsigmoid_keras": lambda: lambda x: torch.clamp(0.2 * x + 0.5, 0, 1),
    "hardtanh": lambda: lambda x: F.hardtanh(x, -1, 1),
    "hardswish": lambda: F.hardswish,
    "relu": lambda: F.relu,
    "relu6": lambda: F.relu6,
    "relu_hardswish": lambda: relu_hardswish,
    "conv_relu_hardswish": ConvReluHardswish,
}
EXAMPLES: dict[str, Callable[[ModuleType, str], Tensor]] = {
    "small": lambda module, device: torch.randn(2**24, device=device) * 4,
    "sliced": lambda module, device: torch.randn(2**12, 2**13, device=device).mul_(4)[:, : 2**12],
    "full": lambda module, device: module.get_inputs()[0].to(device),
}
FOUNDING = ("hardsigmoid", "hardsigmoid_keras", "hardtanh", "relu_hardswish", "conv_relu_hardswish")


def times(runs: dict[str, Run], repeats: int, device: str) -> dict[str, float]:
    """The median time of each run in milliseconds, the runs taking turns."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    flush = torch.empty(2**28, dtype=torch.uint8, device=device) if device == "cuda" else None
    for turn in range(WARM_UPS + repeats):
        for name, run in runs.items():
            if flush is not None:
                flush.zero_()
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                run()
                end.record()
                torch.cuda.synchronize()
                taken = start.elapsed_time(end)
            else:
                begin = time.perf_counter()
                run()
                taken = (time.perf_counter() - begin) * 1e3
            if turn >= WARM_UPS:
                found[name].append(taken)
    return {name: statistics.median(taken) for name, taken in found.items()}


@torch.no_grad()
def measure(name: str, device: str, shapes: str, compiled: bool, repeats: int, table: Table) -> None:
    """Check one module against eager and add its rows to the table."""
    module = importlib.import_module(f"generated.{name}")
    torch.manual_seed(0)
    eager = EAGER[name](*module.get_init_inputs())
    torch.manual_seed(0)
    ours = module.ModelNew(*module.get_init_inputs()).to(device)
    if isinstance(eager, nn.Module):
        eager = eager.to(device)
    x = EXAMPLES[shapes](module, device)
    difference = (ours(x) - eager(x)).abs().max().item()
    y = torch.empty_like(x)
    copy, copied = ("copy_", lambda: y.copy_(x)) if device == "cuda" else ("clone", x.clone)
    runs: dict[str, Run] = {copy: copied, "eager": lambda: eager(x), "fusegen": lambda: ours(x)}
    if name.startswith("conv"):
        runs["convolution alone"] = lambda: ours.conv(x)
    if compiled:
        fast = torch.compile(eager)
        runs["torch.compile"] = lambda: fast(x)
    taken = times(runs, repeats, device)
    moved = 2 * x.numel() * x.element_size()
    for run, milliseconds in taken.items():
        mine = run == "fusegen"
        table.add_row(
            name if mine else "",
            run,
            f"{milliseconds:.3f}",
            f"{moved / milliseconds / 1e6:,.0f}",
            f"{taken[copy] / milliseconds:.3f}",
            f"{taken['eager'] / milliseconds:.2f}",
            f"{difference:.2g}" if mine else "",
            style="bold" if mine else None,
        )


@click.command()
@click.argument("names", nargs=-1)
@click.option("--shapes", type=click.Choice(list(EXAMPLES)), default="small", help="What to run on.")
@click.option("--compile", "compiled", is_flag=True, help="Time torch.compile too.")
@click.option("--repeats", default=15, help="Timed turns.")
def main(names: tuple[str, ...], shapes: str, compiled: bool, repeats: int) -> None:
    """Check and time the modules NAMES, or the founding systems."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    threads = f"CPU, {torch.get_num_threads()} threads"
    machine = torch.cuda.get_device_name() if device == "cuda" else threads
    table = Table(title=f"{machine}, PyTorch {torch.__version__}, float32", box=None)
    for column in ("module", "run", "ms", "GB/s", "of copy", "of eager", "max difference"):
        table.add_column(column, justify="left" if column in ("module", "run") else "right")
    for name in names or FOUNDING:
        measure(name, device, shapes, compiled, repeats, table)
    Console(width=100).print(table)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main()
