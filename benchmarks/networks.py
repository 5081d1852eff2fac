"""Time networks of torchvision, eager and lifted, beside torch.compile of both.

    python -m benchmarks.networks resnet50 mobilenet_v3_large --dtype bfloat16
    python -m benchmarks.networks --device cpu --batch 2 --side 64 --steps 4 --no-compile resnet18

The weights are random, the memory format is channels_last. In evaluation mode the batch norms behind
convolutions are folded into these, as a user would fold them, for everyone. A training step is forward,
cross entropy, backward and a step of SGD. "of eager" is eager's time divided by the lifted network's; "of
compile" is the time of torch.compile of the model divided by that of the lifted one compiled. The
difference is the largest of the outputs, as a share of the largest output, and beside it that of eager in
the dtype from eager in float64. `--steps` compares the losses of a training run with eager's.

torchvision is no dependency of fusegen; install the release that belongs to PyTorch's.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor, nn
from torch.fx.experimental.optimization import fuse

from fusegen.errors import FusegenError
from fusegen.evidence.bench import clock
from fusegen.models.lift.lifted_network import lifted_network

NETWORKS = ("mobilenet_v3_large", "efficientnet_b0", "resnet50", "convnext_tiny", "vit_b_16")
COLUMNS = (
    "network", "way", "eager, ms", "lifted, ms", "of eager", "compile, ms", "lifted and compiled, ms",
    "of compile", "difference", "eager's",
)  # fmt: skip
EAGER, LIFTED, COMPILED, BOTH = "eager", "lifted", "compiled", "lifted and compiled"
CLASSES = 1000
RATE = 1e-3  # of SGD
Network = Callable[..., Tensor]


@dataclass(frozen=True)
class Setting:
    """The settings that every network is measured with."""

    device: str  # ``cpu`` or ``cuda``
    dtype: torch.dtype  # of parameters and images
    # batch, side: the number of images, and their pixels in each direction
    batch: int
    side: int
    seconds: float  # for the turns of one row
    competitors: tuple[str, ...]  # who takes part

    def images(self) -> Tensor:
        """Return a batch of normal numbers, channels_last."""
        shape = (self.batch, 3, self.side, self.side)
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        return drawn.to(self.device, self.dtype, memory_format=torch.channels_last)

    def labels(self) -> Tensor:
        """Return their classes."""
        drawn = torch.randint(CLASSES, (self.batch,), generator=torch.Generator().manual_seed(2))
        return drawn.to(self.device)


def made(name: str, setting: Setting) -> nn.Module:
    """Return a network with random weights; dropout is left out, so that runs can be compared."""
    from torchvision import models

    torch.manual_seed(0)
    model: Any = models.get_model(name, weights=None)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if hasattr(module, "p") and type(module).__name__ == "StochasticDepth":
            module.p = 0.0
    moved: nn.Module = model.to(setting.device, setting.dtype, memory_format=torch.channels_last)
    return moved


def rows(name: str, setting: Setting, folder: Path, steps: int) -> Iterator[list[Any]]:
    """Yield the rows of a network: inference, a training step, and the losses of some steps."""
    images, labels = setting.images(), setting.labels()
    model = folded(made(name, setting).eval())
    lifted = lifted_network(model, images, folder)
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(images.double())
        off = [difference(each(images), exact) for each in (lifted, model)]
        times = timed({EAGER: model, LIFTED: lifted}, lambda f: lambda: f(images), setting)
    yield [name, "inference", *times, *off]
    model = made(name, setting).train()
    lifted = lifted_network(copy.deepcopy(model), images, folder)
    times = timed({EAGER: model, LIFTED: lifted}, lambda f: step(f, images, labels), setting)
    yield [name, "training step", *times, None, None]
    if steps:
        losses = [trained(each, images, labels, steps) for each in pair(name, setting, folder)]
        apart = max(abs(a - b) / abs(b) for a, b in zip(*losses, strict=True))
        yield [name, f"losses of {steps} steps", *[None] * 6, apart, None]


def pair(name: str, setting: Setting, folder: Path) -> tuple[nn.Module, nn.Module]:
    """Return a lifted network and its model, which share no weights."""
    model = made(name, setting).train()
    return lifted_network(copy.deepcopy(model), setting.images(), folder), model


def folded(model: nn.Module) -> nn.Module:
    """Return the model with batch norms folded into convolutions, where it has any and can be traced."""
    if not any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        return model
    return fuse(model)


def timed(
    models: dict[str, nn.Module],
    run: Callable[[Network], Callable[[], Any]],
    setting: Setting,
) -> list[float | None]:
    """Return milliseconds of eager and lifted, their ratio, the same of both compiled, and their ratio."""
    functions: dict[str, Callable[..., Tensor]] = {**models}
    if COMPILED in setting.competitors:
        torch.compiler.reset()
        functions |= {COMPILED: torch.compile(models[EAGER]), BOTH: torch.compile(models[LIFTED])}
    found = clock.turns({who: run(f) for who, f in functions.items()}, setting.device, setting.seconds)
    median = {who: spread.median for who, spread in found.items()}
    cells: list[float | None] = [median[EAGER], median[LIFTED], median[EAGER] / median[LIFTED]]
    if COMPILED not in median:
        return [*cells, None, None, None]
    return [*cells, median[COMPILED], median[BOTH], median[COMPILED] / median[BOTH]]


def step(model: Callable[..., Tensor], images: Tensor, labels: Tensor) -> Callable[[], Tensor]:
    """Return a training step, which gives the loss."""
    owner: Any = getattr(model, "_orig_mod", model)
    optimizer = torch.optim.SGD(owner.parameters(), lr=RATE)

    def run() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images).float(), labels)
        torch.autograd.backward(loss)
        optimizer.step()
        return loss

    return run


def trained(model: nn.Module, images: Tensor, labels: Tensor, steps: int) -> list[float]:
    """Return the losses of some training steps."""
    run = step(model, images, labels)
    return [float(run().detach()) for _ in range(steps)]


def difference(found: Tensor, exact: Tensor) -> float:
    """Return the largest difference, as a share of the largest value."""
    return float((found.double() - exact).abs().max() / exact.abs().max())


def shown(cell: Any) -> str:
    """Return a cell of the table."""
    return "" if cell is None else cell if isinstance(cell, str) else f"{cell:.3g}"


@click.command(help="\b\n" + str(__doc__).replace("\n\n", "\n\n\b\n"))
@click.argument("networks", nargs=-1)
@click.option("--device", default="cuda", type=click.Choice(["cpu", "cuda"]))
@click.option("--dtype", default="float32", type=click.Choice(["float32", "bfloat16"]))
@click.option("--batch", default=64)
@click.option("--side", default=224)
@click.option("--seconds", default=1.0)
@click.option("--steps", default=50, help="Of the training run; 0 leaves it out.")
@click.option("--no-compile", is_flag=True, help="Leave torch.compile out.")
def main(networks: tuple[str, ...], steps: int, **given: Any) -> None:
    """Measures every network, and prints a Markdown table."""
    alone = given.pop("no_compile")
    competitors = (EAGER, LIFTED) if alone else (EAGER, LIFTED, COMPILED, BOTH)
    given["dtype"] = getattr(torch, given["dtype"])
    setting = Setting(**given, competitors=competitors)
    click.echo(f"{setting.device}, {setting.dtype}, batch {setting.batch}, torch {torch.__version__}\n")
    click.echo(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    with tempfile.TemporaryDirectory() as folder:
        for name in networks or NETWORKS:
            try:
                for row in rows(name, setting, Path(folder), steps):
                    click.echo(f"| {' | '.join(map(shown, row))} |")
            except FusegenError as error:
                click.echo(f"| {name} | {error} |")


if __name__ == "__main__":
    main()
