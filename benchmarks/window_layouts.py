"""Poolings of tensors in NCHW and in channels_last: their times, and whether the bits are the same.

    python -m benchmarks.window_layouts  # chains of KernelBench's level 2, two minutes on a GPU

Tensors have the shapes that the convolutions of the problems give. Status 1 says that bits differ.
"""

from __future__ import annotations

import functools
import importlib
import sys
from dataclasses import dataclass
from typing import Any

import click
import torch
from torch import Tensor

from benchmarks.rows import timed
from benchmarks.windows import DTYPES, LAYOUTS


@dataclass(frozen=True)
class Chain:
    """The module of a problem, its kernels with a pooling, and the shape of what these take."""

    module: str
    shape: tuple[int, ...]
    kernels: str = "KERNELS"


CHAINS = {
    "11": Chain(
        "conv_transpose2d_batch_norm_tanh_max_pool_group_norm", (512, 128, 34, 34), "POOLED_KERNELS"
    ),
    "35": Chain("conv2d_shift_hardswish_max_pool_mish", (128, 128, 126, 126)),
    "46": Chain("conv2d_shift_tanh_shift_avg_pool", (128, 128, 126, 126)),
    "50": Chain("conv_transpose3d_scale_avg_pool_shift_scale", (128, 16, 31, 63, 63)),
    "74": Chain("conv_transpose3d_leaky_relu_scale_max_pool", (16, 32, 32, 64, 64)),
    "82": Chain("conv2d_tanh_scale_shift_max_pool", (128, 64, 254, 254)),
}


def arguments(kernels: Any, x: Tensor) -> list[Any]:
    """Return what kernels take behind a tensor: a number for each channel, and scalars."""
    sizes = x.shape[1], *[1] * kernels.rank
    others = [torch.randn(sizes, device=x.device, dtype=x.dtype) for _ in range(kernels.inputs - 1)]
    return [*others, *[0.75] * kernels.signature.params]


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Return True if tensors of any layout have the same bits."""
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*CHAINS]))
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice([*DTYPES]), default=[*DTYPES])
def main(names: tuple[str, ...], dtypes: tuple[str, ...]) -> None:
    """Print a table: the two layouts, in ms."""
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, ms")
    print("| problem | NCHW | channels_last | bits |")
    print("|---|---|---|---|")
    differ = False
    for name in names or CHAINS:
        chain = CHAINS[name]
        kernels = getattr(importlib.import_module(f"generated.kernelbench.{chain.module}"), chain.kernels)
        for dtype in dtypes:
            x = torch.randn(chain.shape, device="cuda", dtype=DTYPES[dtype])
            several = x, x.contiguous(memory_format=LAYOUTS[x.dim()])
            behind = arguments(kernels, x)
            same = same_bits(*(kernels.of_tensors(t, *behind) for t in several))
            times = [timed(functools.partial(kernels.of_tensors, t, *behind)) for t in several]
            print(f"| {name}, {dtype} | {times[0]:.3f} | {times[1]:.3f} | {'same' if same else 'OTHER'} |")
            differ = differ or not same
    sys.exit(differ)


if __name__ == "__main__":
    main()
