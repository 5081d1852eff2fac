"""What a real network gains: its activations replaced by generated ones, inference and a training step.

    python docs/network.py    # MobileNetV3 large, on the GPU if there is one
    python docs/network.py --batch 256 --dtype bfloat16 --channels-last efficientnet_b0

Needs torchvision, whose weights stay random. A training step is forward, cross entropy, backward and a step
of SGD, without dropout, for which torch.compile draws other random numbers. The logits of every competitor
are first compared with the network's in double, and may be off by twice what eager's are. Times are medians
of runs that take turns, as of `fusegen bench`. What activations take of the whole step bounds what can be
gained. A convolution of float32 keeps all its bits, as TF32 differs from layout to layout.
"""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from fusegen.bench import clock

GENERATED = {
    nn.Hardswish: "hardswish",
    nn.Hardsigmoid: "hardsigmoid",
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.SiLU: "silu",
    nn.GELU: "gelu",
}
CLASSES = 1000
OFF = 2  # times as far from the logits in double as eager's


def replaced(network: nn.Module) -> tuple[nn.Module, int]:
    """A copy of a network with generated activations, and how many they are."""
    made, count = copy.deepcopy(network), 0
    for parent in list(made.modules()):
        for name, child in parent.named_children():
            if type(child) in GENERATED:
                module: Any = importlib.import_module(f"generated.{GENERATED[type(child)]}")
                setattr(parent, name, module.ModelNew(inplace=getattr(child, "inplace", False)))
                count += 1
    return made, count


def inference(network: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    """The logits of a batch."""
    network.eval()

    def run() -> Tensor:
        with torch.no_grad():
            logits: Tensor = network(x)
        return logits

    return run


def training(network: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    """A step of SGD on a batch; its logits."""
    network.train()
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4)
    labels = torch.arange(len(x), device=x.device) % CLASSES

    def run() -> Tensor:
        optimizer.zero_grad()
        logits: Tensor = network(x)
        loss = F.cross_entropy(logits.float(), labels)
        torch.autograd.backward(loss)
        optimizer.step()
        return logits.detach()

    return run


def without_dropout(network: nn.Module) -> nn.Module:
    """The network, none of whose activations is dropped."""
    for child in network.modules():
        if isinstance(child, nn.Dropout):
            child.p = 0.0
    return network


def competitors(network: nn.Module, compiled: bool) -> tuple[dict[str, nn.Module], int]:
    """The network and its variants, each with its own parameters; and how many activations are replaced."""
    ours, count = replaced(network)
    found = {"eager": copy.deepcopy(network), "fusegen": ours}
    if compiled:
        torch.compiler.reset()
        found["torch.compile"] = copy.deepcopy(network)
        found["torch.compile with fusegen"] = replaced(network)[0]
        for name in ("torch.compile", "torch.compile with fusegen"):
            found[name].compile()
    return found, count


@click.command()
@click.argument("names", nargs=-1)
@click.option("--batch", default=64)
@click.option("--size", default=224, help="Of the pictures.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), default="float32")
@click.option("--channels-last", is_flag=True)
@click.option("--no-compile", is_flag=True, help="Leave torch.compile out.")
@click.option("--seconds", default=10.0, help="For the turns of one pass.")
def main(
    names: tuple[str, ...], batch: int, size: int, dtype: str, channels_last: bool, no_compile: bool,
    seconds: float,
) -> None:  # fmt: skip
    """Check and time the networks NAMES of torchvision.models, or MobileNetV3 large."""
    models: Any = importlib.import_module("torchvision.models")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layout = torch.channels_last if channels_last else torch.contiguous_format
    chip = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    machine = f"{chip}, PyTorch {torch.__version__}"
    words = f"batch {batch}, {size}x{size}, {dtype}{', channels last' if channels_last else ''}"
    kind: torch.dtype = getattr(torch, dtype)
    torch.backends.cudnn.allow_tf32 = False
    for name in names or ("mobilenet_v3_large",):
        torch.manual_seed(0)
        network = without_dropout(models.get_model(name)).to(device, kind).to(memory_format=layout)
        x = torch.randn(batch, 3, size, size, device=device).to(kind).to(memory_format=layout)
        for what, make in (("inference", inference), ("training step", training)):
            variants, count = competitors(network, not no_compile)
            table = Table(
                title=f"{name}, {count} activations, {what}, {words}; {machine}",
                box=None,
            )
            table.add_column("by")
            for column in ("ms", "spread", "of eager", "peak MiB", "largest error"):
                table.add_column(column, justify="right")
            runs: dict[str, Callable[[], Tensor]] = {
                who: make(variant, x) for who, variant in variants.items()
            }
            exact = make(copy.deepcopy(network).double(), x.double())()
            differences = {
                who: float((run() - exact).abs().max() / exact.abs().max()) for who, run in runs.items()
            }
            wrong = [who for who, off in differences.items() if not off <= OFF * differences["eager"]]
            timed = {who: run for who, run in runs.items() if who not in wrong}
            times = clock.turns(timed, device, seconds)
            for who in runs:
                spread, peak = times.get(who), clock.peak(runs[who], device)
                table.add_row(
                    who,
                    f"{spread.median:.3f}" if spread else "wrong",
                    f"±{spread.noise:.1%}" if spread else "",
                    f"{times['eager'].median / spread.median:.2f}" if spread else "",
                    f"{peak / 2**20:,.0f}" if peak is not None else "",
                    f"{differences[who]:.2g}",
                    style="bold" if who == "fusegen" else None,
                )
            Console(width=120).print(table)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main()
