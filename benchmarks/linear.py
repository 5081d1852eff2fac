"""The kernels of linear layers in float32 beside eager's and torch.compile's, in speed and in error.

    python -m benchmarks.linear            # all parts, three minutes on an H100 or H200
    python -m benchmarks.linear models     # KernelBench's 13 models: times, and errors against float64
    python -m benchmarks.linear sizes      # layers from small to large
    python -m benchmarks.linear data       # errors over the sum of magnitudes on kinds of data
    python -m benchmarks.linear training   # a step of Linear and SiLU, and one of a network of four layers

Times are medians of calls that take turns, with TF32 as PyTorch has it by default: not allowed.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor, nn
from torch.nn import functional

from fusegen.runtime import linear

DEVICE = "cuda"
MODELS = Path(__file__).resolve().parent.parent / "generated" / "kernelbench"
SIZES = (  # rows of the input, terms, features
    (1024, 8192, 8192), (16384, 4096, 4096), (8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048),
    (1024, 1024, 1024), (512, 4096, 4096), (256, 4096, 4096), (128, 4096, 4096), (512, 2048, 2048),
    (128, 16384, 16384), (2048, 1024, 4096), (8192, 1024, 1024), (1000, 3000, 5000),
)  # fmt: skip
STEPS = ((1024, 8192, 8192), (2048, 8192, 8192), (16384, 4096, 4096), (4096, 4096, 4096))
JUDGED = 64  # rows whose results are computed in float64


def medians(calls: Sequence[Callable[[], object]], rounds: int = 9) -> list[float]:
    """Return the median times of calls that take turns, in ms."""
    event: Any = torch.cuda.Event
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(rounds + 2):
        for call, own in zip(calls, times, strict=True):
            begin, end = event(enable_timing=True), event(enable_timing=True)
            begin.record()
            call()
            end.record()
            end.synchronize()
            if turn > 1:
                own.append(begin.elapsed_time(end))
    return [statistics.median(own) for own in times]


def rms(error: Tensor) -> float:
    """Return the root mean square of errors."""
    return float(error.square().mean().sqrt())


def table(*columns: str) -> None:
    """Print the head of a table."""
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")


def model_of(path: Path) -> tuple[nn.Module, Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """Return a model, the same in PyTorch's operations, and that of rows in float64."""
    found = importlib.import_module(f"generated.kernelbench.{path.stem}")
    model = found.ModelNew(*found.get_init_inputs()).to(DEVICE)
    [layer] = [child for child in model.children() if isinstance(child, nn.Linear)]
    given = [getattr(model, name) for name in list(inspect.signature(found.eager).parameters)[1:]]

    def eager(x: Tensor) -> Tensor:
        made: Tensor = found.eager(layer(x), *given)
        return made

    def exact(x: Tensor) -> Tensor:
        bias = None if layer.bias is None else layer.bias.double()
        wide = [value.double() if isinstance(value, Tensor) else value for value in given]
        made: Tensor = found.eager(functional.linear(x.double(), layer.weight.double(), bias), *wide)
        return made

    return model, eager, exact


def measured(path: Path) -> tuple[str, list[float], str]:
    """Return the input's shape, the times of eager, torch.compile and ours, and the error over eager's."""
    model, eager, exact = model_of(path)
    [x] = importlib.import_module(f"generated.kernelbench.{path.stem}").get_inputs()
    x = x.to(DEVICE)
    torch.compiler.reset()
    compiled = torch.compile(eager, dynamic=False)
    with torch.no_grad():
        times = medians([functools.partial(f, x) for f in (eager, compiled, model)])
        right = exact(x[:JUDGED])
        own, other = (rms(f(x)[:JUDGED].double() - right) for f in (model, eager))
    return " x ".join(map(str, x.shape)), times, f"{own / other:.2f}" if other else "none in both"


def models() -> None:
    """Print the times and errors of the models."""
    ratios = "over eager", "over compile", "error over eager's"
    table("model", "input", "eager, ms", "torch.compile", "ours", *ratios)
    found: list[tuple[float, float]] = []
    for path in sorted(MODELS.glob("linear_*.py")):
        shape, (eager, compiled, own), error = measured(path)
        torch.cuda.empty_cache()
        found.append((eager / own, compiled / own))
        cells = [
            *(f"{time:.3f}" for time in (eager, compiled, own)),
            *(f"{ratio:.2f}" for ratio in found[-1]),
        ]
        print(f"| {path.stem} | {shape} | {' | '.join(cells)} | {error} |", flush=True)
    means = [f"{statistics.geometric_mean(each):.2f}" for each in zip(*found, strict=True)]
    print(f"| geometric mean | | | | | {' | '.join(means)} | |")


def layer_of(terms: int, features: int) -> nn.Linear:
    """Return a layer on the GPU."""
    return nn.Linear(terms, features, device=DEVICE)


class Own(nn.Module):
    """A linear layer by the kernels."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """Return what the layer makes of a tensor."""
        made: Tensor = linear.linear(self.layer, x)
        return made


def sizes() -> None:
    """Print the times of layers, without a gradient."""
    table("rows x terms x features", "eager, ms", "ours", "over eager", "TFLOP/s")
    for rows, terms, features in SIZES:
        layer, x = layer_of(terms, features), torch.rand(rows, terms, device=DEVICE)
        with torch.no_grad():
            eager, own = medians([functools.partial(layer, x), functools.partial(Own(layer), x)])
        rate = 2e-9 * rows * terms * features / own
        cells = f"{eager:.3f} | {own:.3f} | {eager / own:.2f} | {rate:.0f}"
        print(f"| {rows} x {terms} x {features} | {cells} |", flush=True)


def kinds(rows: int, terms: int, features: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Return inputs and weights of kinds of data, with a fixed seed."""
    draw = torch.Generator(device=DEVICE).manual_seed(7)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, device=DEVICE, generator=draw)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, device=DEVICE, generator=draw)

    def pair(change: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        return change(normal(rows, terms)), change(normal(features, terms))

    def columns(factor: float) -> tuple[Tensor, Tensor]:
        size = factor * normal(1, terms)
        return normal(rows, terms) * torch.exp(size), normal(features, terms) * torch.exp(-size)

    centred = normal(features, terms)
    one = torch.zeros(rows, terms, device=DEVICE)
    one[torch.arange(rows), torch.randint(terms, (rows,), device=DEVICE, generator=draw)] = 1
    outliers = normal(rows, terms)
    outliers[:, ::97] *= 1000
    return {
        "uniform": (uniform(rows, terms), uniform(features, terms)),
        "KernelBench's": (uniform(rows, terms), (uniform(features, terms) * 2 - 1) * terms**-0.5),
        "normal": pair(lambda x: x),
        "ReLU of normal": (normal(rows, terms).relu(), normal(features, terms)),
        "normal e^(2 normal)": pair(lambda x: x * torch.exp(2 * normal(*x.shape))),
        "normal e^(4 normal)": pair(lambda x: x * torch.exp(4 * normal(*x.shape))),
        "cancelling": (1000 + uniform(rows, terms), centred - centred.mean(1, keepdim=True)),
        "outliers of 1000": (outliers, normal(features, terms)),
        "one hot": (one, normal(features, terms)),
        "integers": pair(lambda x: (4 * x).round()),
        **{f"columns e^({f} c), e^(-{f} c)": columns(f) for f in (1, 2, 3, 4, 6)},
    }


def data() -> None:
    """Print errors over the sum of magnitudes, of the layers on which eager's are largest and smallest."""
    shapes = (384, 8192, 768), (1024, 8192, 4096)
    named = (f"{what}, {' x '.join(map(str, of))}" for of in shapes for what in ("rms", "largest", "kept"))
    table("data", *named)
    made = [kinds(*shape) for shape in shapes]
    for kind in made[0]:
        cells: list[str] = []
        for of in made:
            x, weight = of[kind]
            layer = layer_of(*weight.shape[::-1])
            layer.weight.data, layer.bias.data = weight, torch.zeros_like(layer.bias)
            with torch.no_grad():
                size = x[:JUDGED].double().abs() @ weight.double().abs().t()
                right = x[:JUDGED].double() @ weight.double().t()
                own, eager = ((f(x)[:JUDGED].double() - right).abs() / size for f in (Own(layer), layer))
            cells += [f"{rms(own):.1e} of {rms(eager):.1e}", f"{own.max():.1e} of {eager.max():.1e}"]
            kept = rms(own) <= max(rms(eager), 2**-24) and own.max() <= max(float(eager.max()), 2**-22)
            cells.append("yes" if kept else "NO")
        print(f"| {kind} | {' | '.join(cells)} |", flush=True)


def step_of(network: nn.Module, x: Tensor, grad: Tensor) -> Callable[[], None]:
    """Return a call of a network, with all gradients."""

    def step() -> None:
        network(x).backward(grad)
        network.zero_grad(set_to_none=True)
        x.grad = None

    return step


def training() -> None:
    """Print the times of training steps."""
    table("step", "eager, ms", "ours", "over eager")
    for rows, terms, features in STEPS:
        layer = layer_of(terms, features)
        x = torch.randn(rows, terms, device=DEVICE, requires_grad=True)
        grad = torch.randn(rows, features, device=DEVICE) / features
        both = [nn.Sequential(first, nn.SiLU()) for first in (layer, Own(layer))]
        eager, own = medians([step_of(network, x, grad) for network in both], 5)
        print(
            f"| Linear, SiLU {rows} x {terms} x {features} | {eager:.2f} | {own:.2f} | {eager / own:.2f} |"
        )
        del layer, x, grad, both
        torch.cuda.empty_cache()
    layers = [layer_of(4096, 4096) for _ in range(4)]
    x, grad = torch.randn(4096, 4096, device=DEVICE), torch.randn(4096, 4096, device=DEVICE) / 4096
    both = [
        nn.Sequential(*(each for of in layers for each in (make(of), nn.SiLU())))
        for make in (lambda of: of, Own)
    ]
    eager, own = medians([step_of(network, x, grad) for network in both], 5)
    print(f"| four layers of 4096, batch 4096 | {eager:.2f} | {own:.2f} | {eager / own:.2f} |")


PARTS = {"models": models, "sizes": sizes, "data": data, "training": training}


@click.command(help="\b\n" + str(__doc__).replace("\n\n", "\n\n\b\n"))
@click.argument("parts", nargs=-1, type=click.Choice([*PARTS]))
def main(parts: tuple[str, ...]) -> None:
    """Print the tables of the parts."""
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for part in parts or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    main()
