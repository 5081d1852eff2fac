"""The speed of kernels of rows beside eager and torch.compile, as a share of a copy's.

    python -m benchmarks.rows  # ten minutes on a GPU

Softmax, layer norm, RMS norm, logsumexp and cross-entropy of 2^27 elements, forward and gradients. Of
results that are values of rows the share is that of the time in which a copy reads.
"""

from __future__ import annotations

import functools
import importlib
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor, nn

from fusegen.codegen.render import Binding
from fusegen.project import build, runtime_folder

SHAPES = (
    (2**20, 128), (131072, 1024), (32768, 4096), (16384, 8192), (8192, 16384), (4096, 32768), (2048, 65535),
)  # fmt: skip
WEIGHT = "init: {features: 1024}\nlayers: [weight: Parameter(ones(features))"
BODIES = {
    "softmax": "where: {w: exp(x - detach(amax(x)))}\nformula: w / sum(w)\n",
    "layer_norm": f"{WEIGHT}, bias: Parameter(zeros(features))]\nparams: {{eps: 1.0e-5}}\n"
    "where: {d: x - mean(x)}\nformula: d * rsqrt(mean(d * d) + eps) * weight + bias\n",
    "rms_norm": f"{WEIGHT}]\nparams: {{eps: 1.0e-6}}\nformula: x * rsqrt(mean(x * x) + eps) * weight\n",
}
EAGER: dict[str, Callable[..., Tensor]] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "layer_norm": lambda x, w, b: nn.functional.layer_norm(x, x.shape[-1:], w, b, 1e-5),
    "rms_norm": lambda x, w: nn.functional.rms_norm(x, x.shape[-1:], w, 1e-6),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "cross_entropy": nn.functional.cross_entropy,
}


def row(x: Tensor) -> Tensor:
    """Return an operand of one row."""
    return torch.randn(x.shape[-1], device=x.device, dtype=x.dtype)


def classes(x: Tensor) -> Tensor:
    """Return a class of each row."""
    return torch.randint(x.shape[-1], x.shape[:1], device=x.device)


OPERANDS = {"layer_norm": (row, row), "rms_norm": (row,), "cross_entropy": (classes,)}


def module(folder: Path, name: str) -> Any:
    """Return the function of a spec, whose module is built in a folder, or is one of generated/."""
    if name not in BODIES:
        return getattr(importlib.import_module(f"generated.rows.{name}"), name)
    spec = folder / f"{name}.yaml"
    spec.write_text(f"name: {name}\nsummary: Rows.\nover: [-1]\n{BODIES[name]}", encoding="utf-8")
    [(_, found)] = build.built({spec: Binding.STABLE}, folder).items()
    runtime_folder.write(folder, "stable")
    (folder / f"{name}.py").write_text(found.text, encoding="utf-8")
    sys.path.insert(0, str(folder.parent))
    return getattr(importlib.import_module(f"{folder.name}.{name}"), name)


def timed(function: Callable[[], object], rounds: int = 9, calls: int = 5) -> float:
    """Return the median time of a call in ms."""
    for _ in range(3):
        function()
    times: list[float] = []
    event: Any = torch.cuda.Event
    for _ in range(rounds):
        begin, end = event(enable_timing=True), event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            function()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / calls)
    return statistics.median(times)


def shares(function: Callable[..., Tensor], given: list[Tensor], copy: float) -> tuple[float, float]:
    """Return the shares of a copy of a function, and of its gradients as those of one and a half."""
    forward = copy / timed(lambda: function(*given))
    values = [t.clone().requires_grad_(t.is_floating_point()) for t in given]
    needing = [t for t in values if t.requires_grad]
    value = function(*values)
    grad = torch.randn_like(value)
    backward = copy / timed(lambda: torch.autograd.grad(value, needing, grad, retain_graph=True))
    return (forward, 1.5 * backward) if value.shape == given[0].shape else (forward / 2, backward)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*EAGER]))
@click.option("--columns", multiple=True, type=int, help="Of these shapes only.")
def main(names: tuple[str, ...], columns: tuple[int, ...]) -> None:
    """Print a table: ours, eager, torch.compile."""
    shapes = [shape for shape in SHAPES if shape[1] in columns or not columns]
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    print("| | copy, ms | ours | eager | torch.compile | gradients: ours | eager | torch.compile |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in names or EAGER:
            eager = EAGER[name]
            own = module(Path(folder), name)
            for dtype in (torch.float32, torch.bfloat16):
                for rows, width in shapes:
                    torch.compiler.reset()
                    x = torch.randn(rows, width, device="cuda", dtype=dtype)
                    given = [x, *(operand(x) for operand in OPERANDS.get(name, ()))]
                    target = torch.empty_like(x)
                    copy = timed(functools.partial(target.copy_, x))
                    several = [
                        shares(f, given, copy) for f in (own, eager, torch.compile(eager, dynamic=False))
                    ]
                    cells = [f"{s:.3f}" for k in (0, 1) for s in (each[k] for each in several)]
                    title = f"{name}, {str(dtype)[6:]}, {rows} x {width}"
                    print(f"| {title} | {copy:.3f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
