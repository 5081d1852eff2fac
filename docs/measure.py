"""Hold generated modules against PyTorch on this machine: largest difference, and speed side by side.

    python docs/measure.py hardsigmoid                 # on the GPU if there is one, else on the CPU
    python docs/measure.py --shapes full --compile     # the founding systems at their declared shapes
    python docs/measure.py --shapes sliced hardswish   # the left half of a matrix, as chunk(2, -1) gives it
    python docs/measure.py --what backward --shapes large --dtype bfloat16 --compile gelu silu
    python docs/measure.py --what calls silu           # a call on 1,024 elements, without and with gradient

Times are medians over interleaved runs: CUDA events on the GPU, with the L2 cache flushed before each
run, and wall clock on the CPU, where the copy is clone, since it allocates as the others do. Speeds count
the bytes read plus the bytes written by one pass; a backward pass reads two tensors and writes one, and is
held against a copy that moves as many bytes. Calls are wall clock, the best of several rounds.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import torch
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


EXAMPLES: dict[str, Callable[[ModuleType, str], Tensor]] = {
    "small": lambda module, device: torch.randn(2**24, device=device) * 4,
    "large": lambda module, device: torch.randn(2**28, device=device) * 4,
    "sliced": lambda module, device: torch.randn(2**12, 2**13, device=device).mul_(4)[:, : 2**12],
    "full": lambda module, device: module.get_inputs()[0].to(device),
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
FOUNDING = ("hardsigmoid", "hardsigmoid_keras", "hardtanh", "relu_hardswish", "conv_relu_hardswish")
CALLS, ROUNDS = 2000, 7


def times(runs: dict[str, Run], repeats: int, device: str) -> dict[str, float]:
    """The median time of each run in milliseconds, the runs taking turns."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    # clears the L2 cache, and takes long enough for the next launches to be waiting when it ends
    flush = torch.empty(2**31, dtype=torch.uint8, device=device) if device == "cuda" else None
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


def pair(
    name: str, device: str
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor], ModuleType]:
    """Eager's function of one module, the module's own, and the module."""
    module = importlib.import_module(f"generated.{name}")
    torch.manual_seed(0)
    ours = module.ModelNew(*module.get_init_inputs()).to(device)
    if name == "conv_relu_hardswish":
        torch.manual_seed(0)
        return ConvReluHardswish(*module.get_init_inputs()).to(device), ours, module
    params = [value for value in getattr(module, name).__defaults__ or () if isinstance(value, float)]
    return lambda x: module.eager(x, *params), ours, module


@torch.no_grad()
def forward(name: str, device: str, given: Options) -> tuple[dict[str, Run], Tensor, int]:
    """The runs of a forward pass, how far the results are apart, and the bytes of one pass."""
    eager, ours, module = pair(name, device)
    x = EXAMPLES[given.shapes](module, device).to(DTYPES[given.dtype])
    y = torch.empty_like(x)
    copy, copied = ("copy_", lambda: y.copy_(x)) if device == "cuda" else ("clone", x.clone)
    runs: dict[str, Run] = {copy: copied, "eager": lambda: eager(x), "fusegen": lambda: ours(x)}
    if name.startswith("conv"):
        runs["convolution alone"] = lambda: ours.conv(x)
    if given.compiled:
        torch.compiler.reset()
        fast = torch.compile(eager)
        runs["torch.compile"] = lambda: fast(x)
    return runs, (ours(x) - eager(x)).abs().max(), 2 * x.numel() * x.element_size()


def backward(name: str, device: str, given: Options) -> tuple[dict[str, Run], Tensor, int]:
    """The runs of a backward pass, how far the gradients are apart, and the bytes of one pass."""
    eager, ours, module = pair(name, device)
    x = EXAMPLES[given.shapes](module, device).to(DTYPES[given.dtype]).requires_grad_()
    bytes_moved = 3 * x.numel() * x.element_size()
    moved = torch.empty(bytes_moved // 2, dtype=torch.uint8, device=device)
    target = torch.empty_like(moved)
    functions = {"eager": eager, "fusegen": ours}
    if given.compiled:
        torch.compiler.reset()
        functions["torch.compile"] = torch.compile(eager)
    results = {run: function(x) for run, function in functions.items()}
    grad = torch.randn_like(x)
    copy, copied = ("copy_", lambda: target.copy_(moved)) if device == "cuda" else ("clone", moved.clone)

    def gradient(y: Tensor) -> Run:
        return lambda: torch.autograd.grad(y, x, grad, retain_graph=True)[0]

    runs: dict[str, Run] = {copy: copied, **{run: gradient(y) for run, y in results.items()}}
    return runs, (runs["fusegen"]() - runs["eager"]()).abs().max(), bytes_moved


def measure(name: str, device: str, given: Options, table: Table) -> None:
    """Check one module against eager and add its rows to the table."""
    runs, difference, moved = (forward if given.what == "forward" else backward)(name, device, given)
    with torch.set_grad_enabled(given.what == "backward"):
        taken = times(runs, given.repeats, device)
    copy = next(iter(runs))
    for run, milliseconds in taken.items():
        mine = run == "fusegen"
        table.add_row(
            name if mine else "",
            run,
            f"{milliseconds:.3f}",
            f"{moved / milliseconds / 1e6:,.0f}",
            f"{taken[copy] / milliseconds:.3f}",
            f"{taken['eager'] / milliseconds:.2f}",
            f"{difference.item():.2g}" if mine else "",
            style="bold" if mine else None,
        )


def calls(name: str, device: str, table: Table) -> None:
    """Add what a call on 1,024 elements costs, in microseconds, without and with a gradient."""
    eager, ours, module = pair(name, device)
    x, graded = torch.randn(1024, device=device), torch.randn(1024, device=device, requires_grad=True)
    grad = torch.ones_like(x)

    def trained(function: Callable[[Tensor], Tensor]) -> Callable[[], object]:
        return lambda: function(graded).backward(grad)

    params = [value for value in getattr(module, name).__defaults__ or () if isinstance(value, float)]
    plain = getattr(module, name)
    functions = {"eager": eager, "fusegen": lambda x: plain(x, *params), "fusegen, as a module": ours}
    for run, function in functions.items():
        alone = least(partial(function, x), device)
        table.add_row(name, run, f"{alone:.2f}", f"{least(trained(function), device):.2f}")


def least(run: Callable[[], object], device: str) -> float:
    """The microseconds of one call, in the fastest of several rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(CALLS):
            run()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / CALLS)
    return best * 1e6


@dataclass(frozen=True)
class Options:
    """What the command line said."""

    what: str
    shapes: str
    dtype: str
    compiled: bool
    repeats: int


@click.command()
@click.argument("names", nargs=-1)
@click.option("--what", type=click.Choice(["forward", "backward", "calls"]), default="forward")
@click.option("--shapes", type=click.Choice(list(EXAMPLES)), default="small", help="What to run on.")
@click.option("--dtype", type=click.Choice(list(DTYPES)), default="float32")
@click.option("--compile", "compiled", is_flag=True, help="Time torch.compile too.")
@click.option("--repeats", default=15, help="Timed turns.")
def main(names: tuple[str, ...], **options: Any) -> None:
    """Check and time the modules NAMES, or the founding systems."""
    given = Options(**options)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    threads = f"CPU, {torch.get_num_threads()} threads"
    machine = torch.cuda.get_device_name() if device == "cuda" else threads
    table = Table(title=f"{machine}, PyTorch {torch.__version__}, {given.dtype}, {given.what}", box=None)
    columns = ("ms", "GB/s", "of copy", "of eager", "max difference")
    for column in ("module", "run", *(("us", "us with backward") if given.what == "calls" else columns)):
        table.add_column(column, justify="left" if column in ("module", "run") else "right")
    for name in names or FOUNDING:
        if given.what == "calls":
            calls(name, device, table)
        else:
            measure(name, device, given, table)
    Console(width=100).print(table)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main()
