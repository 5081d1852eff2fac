"""Gradients of rows by numbers that the forward pass saves, and without: their times and bits, on a GPU.

    python -m benchmarks.saved_values  # six minutes, most of which nvcc takes

Operators are called alone. A gradient without numbers has the forward kernel find them. Status 1 says that
bits differ.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click
import torch
from torch import Tensor

from benchmarks.rows import timed
from benchmarks.windows import DTYPES

SHORT, LONG = (16384, 1024), (4096, 4096)
IMAGES, CLASSES = (64, 64, 128, 128), (4096, 32000)
LOSSES = "cross_entropy", "cross_entropy_in_float32"
# of a module: the shapes of its tensors, of which one of a row has one for all, and its scalars
CASES: dict[str, list[tuple[tuple[tuple[int, ...], ...], tuple[float, ...]]]] = {
    **{
        name: [((shape, *(shape[-1:],) * features), (1e-5,)) for shape in (SHORT, LONG)]
        for name, features in (("layer_norm", 2), ("rms_norm", 1))
    },
    "add_rms_norm": [((shape, shape, shape[-1:]), (1e-5,)) for shape in (SHORT, LONG)],
    **{name: [((shape,), ()) for shape in (SHORT, LONG)] for name in ("softmax", "log_softmax")},
    "softmax_of_channels": [((IMAGES,), ())],
    **{name: [((CLASSES,), ())] for name in LOSSES},
}


def arguments(name: str, shapes: tuple[tuple[int, ...], ...], dtype: torch.dtype) -> list[Tensor]:
    """Return the tensors of a module, and for a loss an index that picks an element of each row."""
    drawn = [torch.randn(shape, device="cuda").to(dtype) for shape in shapes]
    if name not in LOSSES:
        return drawn
    rows, columns = shapes[0]
    return [*drawn, torch.randint(0, columns, (rows, 1), device="cuda")]


def listed(made: Any) -> list[Tensor]:
    """Return the results of an operator, of which there may be one."""
    return [*made] if isinstance(made, tuple | list) else [made]


def measured(kernels: Any, given: list[Tensor], scalars: tuple[float, ...]) -> tuple[list[float], bool]:
    """Return the milliseconds of a copy and of the operators, and whether gradients have equal bits."""
    saving, reading = (kernels.kernel(end) for end in ("forward_saving", "backward_reading"))
    *results, numbers = saving(*given, *scalars)
    grads, copy = [torch.randn_like(each) for each in results], torch.empty_like(given[0])

    def found() -> Any:
        return kernels.backward(*grads, *given, *scalars)

    def read() -> Any:
        return reading(*grads, *given, numbers, *scalars)

    calls = (
        lambda: copy.copy_(given[0]),
        lambda: kernels.forward(*given, *scalars),
        lambda: saving(*given, *scalars),
        found,
        read,
    )
    same = all(map(torch.equal, listed(found()), listed(read())))
    return [timed(call) for call in calls], same


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*CASES]))
def main(names: tuple[str, ...]) -> None:
    """Time the operators of modules with rows, and compare their bits."""
    every = True
    print("| | a copy of x | forward | saving | gradient, found | gradient, saved |")
    print("|---|---|---|---|---|---|")
    for name in names or CASES:
        kernels = importlib.import_module(f"generated.rows.{name}").KERNELS
        for shapes, scalars in CASES[name]:
            for dtype in ("float32", "bfloat16"):
                times, same = measured(kernels, arguments(name, shapes, DTYPES[dtype]), scalars)
                every = every and same
                told = " | ".join(f"{each:.3f}" for each in times)
                print(f"| {name}, {dtype}, {' x '.join(map(str, shapes[0]))} | {told} |", flush=True)
    sys.exit(not every)


if __name__ == "__main__":
    main()
