"""Layers that the kernels of linear layers compute, or could: where they begin to pay, and convolutions.

    python -m benchmarks.layers         # all parts, five minutes on an H100 or H200
    python -m benchmarks.layers pixels  # 1 x 1 convolutions of channels-last images, TF32 not allowed
    python -m benchmarks.layers small   # linear layers of few rows or few terms, which PyTorch computes now
    python -m benchmarks.layers chains  # KernelBench's 54 and 7 of level 2: what is convolution, what chain

The first two parts have kernels compute every size; the column `taken` says whether a call would. Times are
medians of calls that take turns, errors the root mean square against float64, ours over eager's.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.linear import DEVICE, Own, layer_of, medians, rms, table
from fusegen.runtime import linear, linear_operator

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
PIXELS = (  # images, channels, height and width, channels of the result
    (64, 1024, 14, 2048), (64, 2048, 14, 1024), (64, 2048, 7, 512), (64, 512, 28, 1024), (64, 256, 56, 512),
    (64, 512, 28, 128), (32, 256, 56, 64), (64, 128, 56, 512), (16, 64, 1024, 128),
)  # fmt: skip
SMALL = (  # rows of the input, terms, features
    *((rows, 8192, 8192) for rows in (1, 2, 4, 8, 16, 32)),
    *((rows, 16384, 16384) for rows in (1, 8, 16)),
    *((rows, 4096, 4096) for rows in (16, 32, 64, 128)),
    *((65536, terms, 4096) for terms in (64, 128, 256, 512, 1024)),
    *((65536, 1024, features) for features in (32, 64, 128, 256, 512)),
    (1024, 512, 4096),
    (4096, 512, 4096),
    (16384, 512, 1024),
    (16384, 512, 512),
    (65536, 512, 512),
    (65536, 768, 512),
    (2048, 768, 3072),
    (8192, 768, 3072),
    (8192, 1024, 512),
)
CHAINS: dict[str, tuple[str, Callable[[Any, Tensor], Tensor]]] = {  # the module, and the chain in PyTorch
    "54": (
        "conv2d_scale_leaky_relu_gelu",
        lambda model, y: functional.gelu(functional.leaky_relu(y * model.multiplier)),
    ),
    "7": (
        "conv3d_four_activations_shift",
        lambda model, y: torch.sigmoid(functional.gelu(functional.leaky_relu(torch.relu(y)))) + model.bias,
    ),
}


@contextmanager
def every_size() -> Iterator[Callable[[int, Tensor], str]]:
    """Have kernels compute layers of all sizes; tells whether a call would take one."""
    worth = linear_operator.is_worth
    linear_operator.is_worth = lambda columns, weight: True
    yield lambda rows, weight: "yes" if worth(rows, weight) else "no"
    linear_operator.is_worth = worth


def error(layer: Any, x: Tensor) -> str:
    """Return the error of the kernels over that of PyTorch's layer, on the first of its inputs."""
    few, wide = x[:64] if x.dim() == 2 else x[:1], layer_like(layer)
    exact = wide(few.double())
    own, eager = (rms(call(x)[: len(few)].double() - exact) for call in (Own(layer), layer))
    return f"{own / eager:.2f}" if eager else "both 0"


def layer_like(layer: Any) -> Any:
    """Return a layer in float64 of the numbers of another."""
    names = ("in_channels", "out_channels", "kernel_size")
    found = [getattr(layer, name) for name in names if hasattr(layer, name)] or [*layer.weight.shape[::-1]]
    made = type(layer)(*found, device=DEVICE, dtype=torch.float64)
    made.load_state_dict(layer.state_dict())
    return made


def row(layer: Any, x: Tensor, products: int) -> str:
    """Return the times of a layer, without a gradient; whether a call takes the kernels follows."""
    if linear.factors(layer, x) is None:
        return "no kernel takes it | | | |"
    eager, own = medians([functools.partial(layer, x), functools.partial(Own(layer), x)])
    rate = f"{2e-9 * products / own:.0f}"
    return f"{eager:.3f} | {own:.3f} | {eager / own:.2f} | {rate} | {error(layer, x)}"


def pixels() -> None:
    """Print the times of convolutions of single pixels."""
    table(
        "images x channels x size x results", "eager, ms", "ours", "over eager", "TFLOP/s", "error", "taken"
    )
    torch.backends.cudnn.allow_tf32 = False
    for images, channels, size, results in PIXELS:
        layer = nn.Conv2d(channels, results, 1, device=DEVICE)
        x = torch.rand(images, channels, size, size, device=DEVICE).contiguous(memory_format=LAST[4])
        with torch.no_grad(), every_size() as taken:
            rows = images * size**2
            cells = f"{row(layer, x, rows * channels * results)} | {taken(rows, layer.weight)}"
        print(f"| {images} x {channels} x {size}^2 x {results} | {cells} |", flush=True)
        del layer, x
        torch.cuda.empty_cache()
    torch.backends.cudnn.allow_tf32 = True


def small() -> None:
    """Print the times of linear layers that are small in one size."""
    table("rows x terms x features", "eager, ms", "ours", "over eager", "TFLOP/s", "error", "taken")
    for rows, terms, features in SMALL:
        layer, x = layer_of(terms, features), torch.rand(rows, terms, device=DEVICE)
        with torch.no_grad(), every_size() as taken:
            cells = f"{row(layer, x, rows * terms * features)} | {taken(rows, layer.weight)}"
        print(f"| {rows} x {terms} x {features} | {cells} |", flush=True)


def chains() -> None:
    """Print what one product with the chain in its epilogue could save, and what eager's errors are.

    `convolution` is cuDNN's without its bias, the least that one kernel could take; `chain` is the kernel
    of the module.
    """
    table(
        "problem",
        "layout",
        "TF32",
        "convolution",
        "chain",
        "a copy",
        "eager, ms",
        "torch.compile",
        "ours",
        "error",
    )
    for problem, (name, chain) in CHAINS.items():
        found = importlib.import_module(f"generated.kernelbench.{name}")
        model = found.ModelNew(*found.get_init_inputs()).to(DEVICE)
        [given] = found.get_inputs()
        for layout, laid in (("NCHW", torch.contiguous_format), ("channels last", LAST[given.dim()])):
            x = given.to(DEVICE).contiguous(memory_format=laid)
            for allowed in (True, False):
                torch.backends.cudnn.allow_tf32 = allowed
                torch.compiler.reset()
                with torch.no_grad():
                    cells = parts(model, chain, x)
                print(
                    f"| {problem} | {layout} | {'yes' if allowed else 'no'} | {' | '.join(cells)} |",
                    flush=True,
                )
                torch.cuda.empty_cache()
    torch.backends.cudnn.allow_tf32 = True


def parts(model: Any, chain: Callable[[Any, Tensor], Tensor], x: Tensor) -> list[str]:
    """Return the times of the parts of a model, and its error over eager's."""
    layer = model.conv
    call = {4: functional.conv2d, 5: functional.conv3d}[x.dim()]

    def eager(x: Tensor) -> Tensor:
        return chain(model, layer(x))

    y = call(x, layer.weight)
    bias = layer.bias.view(-1, *[1] * (x.dim() - 2))
    function = getattr(
        importlib.import_module(type(model).__module__), type(model).__module__.rpartition(".")[2]
    )
    others = [value for name, value in model.named_parameters(recurse=False)]
    compiled = torch.compile(eager, dynamic=False)
    calls: list[Callable[[], object]] = [
        lambda: call(x, layer.weight),
        lambda: function(y, bias, *others),
        y.clone,
        lambda: eager(x),
        lambda: compiled(x),
        lambda: model(x),
    ]
    times = medians(calls)
    wide = call(x[:1].double(), layer.weight.double(), layer.bias.double())
    exact = chain(model, wide)  # whose parameters are numbers of float32
    own, other = (rms(f(x[:1]).double() - exact) for f in (model, eager))
    return [*(f"{time:.3f}" for time in times), f"{own:.1e} of {other:.1e}"]


PARTS = {"pixels": pixels, "small": small, "chains": chains}


@click.command(help="\b\n" + str(__doc__).replace("\n\n", "\n\n\b\n"))
@click.argument("parts", nargs=-1, type=click.Choice([*PARTS]))
def main(parts: tuple[str, ...]) -> None:
    """Print the tables of the parts."""
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for part in parts or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    main()
