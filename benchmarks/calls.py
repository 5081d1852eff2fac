"""The price of a call on 16 elements: eager's, a module's by Python, and a module's by C++.

    python -m benchmarks.calls gelu rows/softmax

It prints microseconds of a thread, the least of the rounds, which take turns: without a gradient, with
one, and with the backward pass behind it.
"""

import functools
import importlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import torch
from torch.nn import functional

from fusegen.runtime import compiled_call
from fusegen.runtime.headers import inlined
from fusegen.runtime.sources import header

Call = Callable[..., Any]
EAGER: dict[str, Call] = {
    "gelu": functional.gelu,
    "hardsigmoid": functional.hardsigmoid,
    "relu": functional.relu,
    "silu": functional.silu,
    "swiglu": lambda x, y: functional.silu(x) * y,
    "rows/softmax": lambda x: functional.softmax(x, -1),
    "rows/layer_norm": lambda x, weight, bias: functional.layer_norm(x, x.shape[-1:], weight, bias, 1e-5),
    "rows/cross_entropy": functional.cross_entropy,
}
SCALARS = {"rows/layer_norm": (1e-5,)}
ELEMENTS, CALLS, ROUNDS = 16, 500, 40


def library(folder: Path) -> Any:
    """Return the module that C++ gives Python, built in a folder."""
    (folder / "main.cpp").write_text(inlined(compiled_call.INCLUDED, header), encoding="utf-8")
    subprocess.run(compiled_call.words(), cwd=folder, check=True)
    return compiled_call.imported(folder / "made.so")


def functions(name: str, made: Any) -> dict[str, Call]:
    """Return eager's function and a module's, by Python and by C++."""
    own: Any = importlib.import_module("generated._runtime.compiled_call")
    own.loaded = lambda: None
    kernels = importlib.import_module(f"generated.{name.replace('/', '.')}").KERNELS
    own.loaded = lambda: made
    rows = [kernels.usual_shapes] if name.startswith("rows/") else []
    calls = {"Python": kernels.run}
    if kernels.reduces_index:
        reductions: Any = importlib.import_module("generated._runtime.row_reductions")
        calls["C++"] = reductions.with_index(kernels)
    else:
        calls["C++"] = own.in_front(kernels, kernels.run, *rows)
    scalars = SCALARS.get(name, ())
    return {"eager": EAGER[name]} | {by: with_scalars(call, scalars) for by, call in calls.items()}


def with_scalars(call: Call, scalars: tuple[float, ...]) -> Call:
    """Return a call of tensors that has some scalars behind them."""
    return (lambda *tensors: call(*tensors, *scalars)) if scalars else call


def timed(calls: Sequence[Call], device: str) -> list[float]:
    """Return the least microseconds of a call of each function, which take turns."""
    least = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for place, call in enumerate(calls):
            begin = time.thread_time()
            for _ in range(CALLS):
                call()
            least[place] = min(least[place], (time.thread_time() - begin) / CALLS * 1e6)
            if device == "cuda":
                torch.cuda.synchronize()
    return least


def drawn(name: str, device: str) -> list[torch.Tensor]:
    """Return the tensors of a call, of 16 elements; a loss has rows of 4, and a class of each."""
    if name == "rows/cross_entropy":
        return [torch.randn(4, 4, device=device), torch.randint(4, (4,), device=device)]
    count = {"swiglu": 2, "rows/layer_norm": 3}.get(name, 1)
    return [torch.randn(ELEMENTS, device=device) for _ in range(count)]


def table(name: str, device: str, made: Any) -> None:
    """Print the prices of a function's calls."""
    several, plain = functions(name, made), drawn(name, device)
    graded = [t.clone().requires_grad_(t.is_floating_point()) for t in plain]
    leaves = [t for t in graded if t.requires_grad]
    grad = torch.ones_like(several["eager"](*plain))

    def both(call: Call) -> Any:
        return torch.autograd.grad(call(*graded), leaves, grad)

    kinds: dict[str, Callable[[Call], Any]] = {
        "no gradient": lambda call: call(*plain),
        "a gradient": lambda call: call(*graded),
        "and backward": both,
    }
    for kind, work in kinds.items():
        calls = [functools.partial(work, call) for call in several.values()]
        for call in calls:
            call()
        prices = timed(calls, device)
        print(f"{name:16} {kind:14}" + "".join(f"{price:8.2f}" for price in prices))


@click.command(help=__doc__)
@click.argument("names", nargs=-1, type=click.Choice([*EAGER]))
def main(names: tuple[str, ...]) -> None:
    """Print a table for each function."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        made = library(Path(folder))
    print(
        f"{device}, PyTorch {torch.__version__}, us{'':14}"
        + "".join(f"{of:>8}" for of in ("eager", "Python", "C++"))
    )
    for name in names or EAGER:
        table(name, device, made)


if __name__ == "__main__":
    main()
