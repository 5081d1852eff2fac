"""Time chains with operands of other shapes beside eager, torch.compile and a copy of the same bytes.

    python -m benchmarks.operands --device cpu --elements 4194304
    python -m benchmarks.operands --device cuda --dtype bfloat16 --channels 64 --side 126

Every chain is built from its spec and checked against float64, gradients of all operands included. Then
ours, eager, torch.compile and a copy take turns, forward and backward, in NCHW and channels_last. A cell of
"of eager" and "of compile" is their time divided by ours. "of copy" is the time that a copy of as many
bytes as are read and written takes, divided by ours. OMP_NUM_THREADS says how many threads the CPU has.
With --clock processor the time is that of all threads on the CPU, which other processes disturb less.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.kernelbench.accuracy import SLOPES
from benchmarks.kernelbench.errors import Size, errors
from fusegen.compiler.pipeline import Compiled
from fusegen.core.method import Segmented
from fusegen.evidence.bench import clock
from fusegen.project import build, runtime_folder
from fusegen.project.loader import imported

COLUMNS = ("chain", "layout", "way", "ours, ms", "of copy", "of eager", "of compile", "of formula")
SHAPES = {True: [2, 64, 8, 8], False: [64, 1, 1]}  # that specs declare, by whether a tensor is of full size
LAYOUTS = {"NCHW": torch.contiguous_format, "channels_last": torch.channels_last}
LIMITS = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2, "float64": 1e-12}  # of the largest size
Functions = dict[str, Callable[..., Tensor]]


@dataclass(frozen=True)
class Chain:
    """A chain with operands."""

    formula: str  # of the spec
    # by name, whether a tensor is of full size; else it has a value for each channel
    operands: dict[str, bool]
    eager: Callable[..., Tensor]  # the same in PyTorch's own operations


CHAINS = {
    "bias_gelu": Chain("gelu(x + b)", {"b": False}, lambda x, b: F.gelu(x + b)),
    "channel_swish": Chain("x * sigmoid(b * x)", {"b": False}, lambda x, b: x * torch.sigmoid(b * x)),
    "scale_shift_hardswish": Chain(
        "hardswish(x * s + b)", {"s": False, "b": False}, lambda x, s, b: F.hardswish(x * s + b)
    ),
    "bias_relu_scale_residual": Chain(
        "relu(x + b) * s + r",
        {"b": False, "s": False, "r": True},
        lambda x, b, s, r: torch.relu(x + b) * s + r,
    ),
    "scaled_residual": Chain("x * s + r", {"s": False, "r": True}, lambda x, s, r: x * s + r),
    "silu_gate": Chain("silu(x) * u", {"u": True}, lambda x, u: F.silu(x) * u),
    "scale_shift_sigmoid": Chain(
        "sigmoid(x * s + b)", {"s": False, "b": False}, lambda x, s, b: torch.sigmoid(x * s + b)
    ),
    "bias_silu_half_residual": Chain(
        "silu(x + b) * 0.5 + r", {"b": False, "r": True}, lambda x, b, r: F.silu(x + b) * 0.5 + r
    ),
    "bias_mish_scale_residual": Chain(
        "mish(x + b) * s + r",
        {"b": False, "s": False, "r": True},
        lambda x, b, s, r: F.mish(x + b) * s + r,
    ),
    "soft_cap": Chain("30 * tanh(x / 30)", {}, lambda x: 30 * torch.tanh(x / 30)),
    "log_cosh": Chain(
        "log((exp(x) + exp(-x)) / 2)", {}, lambda x: torch.log((torch.exp(x) + torch.exp(-x)) / 2)
    ),
}


def modules(folder: Path) -> dict[str, dict[str, ModuleType]]:
    """Return the modules of each chain: ours, and the one without piecewise cubics, if that is another."""
    runtime_folder.write(folder)
    made: dict[str, dict[str, ModuleType]] = {}
    for name, chain in CHAINS.items():
        spec = folder / f"{name}.yaml"
        full = {"x": True, **chain.operands}
        inputs = ", ".join(f"{tensor}: {{shape: {SHAPES[whole]}}}" for tensor, whole in full.items())
        text = f"name: {name}\nsummary: A chain.\ninputs: {{{inputs}}}\nformula: {chain.formula}\n"
        spec.write_text(text, encoding="utf-8")
        ours = build.compiled_file(spec)
        texts = {"ours": build.module(ours), "formula": build.module(by_formula(ours))}
        made[name] = {}
        for who, text in texts.items():
            if who == "ours" or text != texts["ours"]:
                path = folder / f"{name}_{who}.py"
                path.write_text(text, encoding="utf-8")
                made[name][who] = imported(path)
    return made


def by_formula(of: Compiled) -> Compiled:
    """Return a compiled spec whose plan has no piecewise cubics for functions of one value."""
    methods = {
        cell: method.otherwise if isinstance(method, Segmented) else method
        for cell, method in of.plan.methods.items()
    }
    return replace(of, plan=replace(of.plan, methods=methods))


def tensors(chain: Chain, shape: tuple[int, ...], layout: str, like: Tensor) -> list[Tensor]:
    """Return the inputs of a chain, x first, which require gradients, and the gradient of the result."""
    generator = torch.Generator(like.device).manual_seed(1)

    def new(*size: int) -> Tensor:
        values = torch.randn(size, generator=generator, device=like.device).to(like.dtype)
        return values.to(memory_format=LAYOUTS[layout]) if len(size) == 4 else values

    whole = [True, *chain.operands.values()]
    inputs = [new(*(shape if full else (shape[1], 1, 1))).requires_grad_() for full in whole]
    return [*inputs, new(*shape)]


def check(name: str, function: Callable[..., Tensor], given: list[Tensor]) -> None:
    """The result is near that in float64, and so are the gradients, or they are as near as eager's.

    A rounding error moves a few elements over a kink, where the gradient is that of the other side.

    Raises:
        click.ClickException: one is not.
    """
    *inputs, grad = given
    eager = CHAINS[name].eager
    exact, ours, theirs = (
        _with_gradients(call, tensors, grad.to(tensors[0].dtype))
        for call, tensors in (
            (eager, [t.detach().double().requires_grad_() for t in inputs]),
            (function, inputs),
            (eager, inputs),
        )
    )
    limit = LIMITS[str(grad.dtype).removeprefix("torch.")]
    for k, (found, other, wanted) in enumerate(zip(ours, theirs, exact, strict=True)):
        size = Size(float(wanted.detach().abs().max()), 0.0)
        of_eager, off = errors(other, found, wanted, size, limit)
        if k == 0 and not off.largest <= limit:
            raise click.ClickException(f"{name}: off by {off.largest:.1e} of the largest value")
        said = SLOPES.broken(of_eager, off, torch.finfo(grad.dtype).eps)
        if k > 0 and said:
            raise click.ClickException(f"{name}: gradient {k - 1}: {said}")


def _with_gradients(call: Callable[..., Tensor], inputs: list[Tensor], grad: Tensor) -> list[Tensor]:
    """Return the result of a function, and the gradients of its inputs."""
    y = call(*inputs)
    return [y, *torch.autograd.grad(y, inputs, grad)]


def runs(
    functions: dict[str, Callable[..., Tensor]], given: list[Tensor]
) -> Iterator[tuple[str, Any, int]]:
    """Yield the timed functions by name, each with the bytes that it reads and writes."""
    *inputs, grad = given
    plain = [t.detach() for t in inputs]
    moved = sum(t.nbytes for t in inputs) + grad.nbytes
    yield "forward", {who: lambda f=f: f(*plain) for who, f in functions.items()}, moved
    results = {who: f(*inputs) for who, f in functions.items()}
    backward = {
        who: lambda y=y: torch.autograd.grad(y, inputs, grad, retain_graph=True)
        for who, y in results.items()
    }
    yield "backward", backward, moved + sum(t.nbytes for t in inputs)
    both = {who: lambda f=f: torch.autograd.grad(f(*inputs), inputs, grad) for who, f in functions.items()}
    yield "forward + backward", both, 2 * moved + sum(t.nbytes for t in inputs)


def rows(
    made: dict[str, dict[str, ModuleType]], shape: tuple[int, ...], like: Tensor, timing: tuple[str, float]
) -> Iterator[list[Any]]:
    """Yield the rows of the table, as they are measured; by a clock, in so many seconds a row."""
    for name, layout in ((name, layout) for name in made for layout in LAYOUTS):
        torch.compiler.reset()
        chain, own = CHAINS[name], {who: getattr(module, name) for who, module in made[name].items()}
        given = tensors(chain, shape, layout, like)
        for function in own.values():
            check(name, function, given)
        source, target = torch.empty_like(given[0]), torch.empty_like(given[0])
        functions = {**own, "eager": chain.eager, "compile": torch.compile(chain.eager)}
        for way, timed, moved in runs(functions, given):
            copy = {"copy": lambda target=target, source=source: target.copy_(source.detach())}
            with torch.no_grad() if way == "forward" else torch.enable_grad():
                times = {who: found.median for who, found in clock.turns(timed | copy, *timing).items()}
            ours = times["ours"]
            of_copy = times["copy"] * moved / (2 * source.nbytes) / ours
            others = (
                times[who] / ours for who in ("eager", "compile", "formula" if "formula" in own else "ours")
            )
            yield [name, layout, way, ours, of_copy, *others]


@click.command(help=__doc__)
@click.option("--device", default="cpu", type=click.Choice(["cpu", "cuda"]))
@click.option("--dtype", default="float32", type=click.Choice(list(LIMITS)))
@click.option("--channels", default=64)
@click.option("--side", default=64, help="Of the images, in pixels.")
@click.option("--elements", default=2**22, help="Of the input, about.")
@click.option("--seconds", default=1.0, help="For the turns of one row.")
@click.option("--clock", "clocked", default="wall", type=click.Choice(["wall", "processor"]))
def main(device: str, dtype: str, elements: int, **options: Any) -> None:
    """Time every chain, and print a Markdown table."""
    channels, side = options["channels"], options["side"]
    shape = (max(1, elements // (channels * side * side)), channels, side, side)
    timing = (device if options["clocked"] == "wall" else options["clocked"], options["seconds"])
    like = torch.empty(0, dtype=getattr(torch, dtype), device=device)
    click.echo(f"{device}, {dtype}, {shape}, torch {torch.__version__}\n")
    click.echo(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(modules(Path(folder)), shape, like, timing):
            found.append(row)
            click.echo(f"| {' | '.join(x if isinstance(x, str) else f'{x:.3g}' for x in row)} |")
    for way in dict.fromkeys(row[2] for row in found):
        means = [statistics.geometric_mean(row[k] for row in found if row[2] == way) for k in range(4, 8)]
        click.echo(f"| geometric mean | | {way} | | {' | '.join(f'{x:.3g}' for x in means)} |")


if __name__ == "__main__":
    main()
