"""The price of a call on 16 elements: eager's, a module's by Python and by C++, and a standalone file's.

    python -m benchmarks.calls gelu rows/softmax

It prints microseconds of a thread, the least of the rounds, which take turns: without a gradient, with
one, and with the backward pass behind it, of a layer also of evaluation. Behind these stand the median of
the ratios of C++ to eager and, of a layer, how many operations of PyTorch each call runs.
"""

import functools
import importlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.standalone import of_file
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
LAYERS: dict[str, Call] = {  # of a batch norm of torch.nn, behind which an operation stands
    "batches/batch_norm_relu": functional.relu,
    "batches/batch_norm_add_relu": lambda y, residual: functional.relu(y + residual),
}
SHAPE = (1, 4, 2, 2)  # of a layer's tensors
ELEMENTS, CALLS, ROUNDS = 16, 500, 40


def library(folder: Path) -> Any:
    """Return the module that C++ gives Python, built in a folder."""
    (folder / "main.cpp").write_text(inlined(compiled_call.INCLUDED, header), encoding="utf-8")
    subprocess.run(compiled_call.words(), cwd=folder, check=True)
    return compiled_call.imported(folder / "made.so")


def functions(name: str, made: Any) -> dict[str, Call]:
    """Return eager's function and a module's, by Python, in a standalone file and by C++."""
    own: Any = importlib.import_module("generated._runtime.compiled_call")
    own.loaded = lambda: None
    kernels = importlib.import_module(f"generated.{name.replace('/', '.')}").KERNELS
    own.loaded = lambda: made
    rows = [kernels.usual_shapes] if name.startswith("rows/") else []
    calls = {"Python": kernels.run, "file": getattr(of_file(name, "float32"), kernels.name)}
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


def timed(calls: Sequence[Call], device: str) -> list[list[float]]:
    """Return the microseconds of a call of each function in each round, in which they take turns."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for place, call in enumerate(calls):
            begin = time.thread_time()
            for _ in range(CALLS):
                call()
            found[place].append((time.thread_time() - begin) / CALLS * 1e6)
            if device == "cuda":
                torch.cuda.synchronize()
    return found


def line(name: str, kind: str, calls: Sequence[Call], device: str) -> str:
    """Return the prices of a call of each function."""
    for call in calls:
        call()
    rounds = timed(calls, device)
    ratio = statistics.median(of_cpp / eager for eager, *_, of_cpp in zip(*rounds, strict=True))
    return f"{name:28} {kind:14}" + "".join(f"{min(each):8.2f}" for each in rounds) + f"{ratio:10.2f}"


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
        print(line(name, kind, [functools.partial(work, call) for call in several.values()], device))


class Eager(nn.Module):
    """A batch norm of torch.nn and what stands behind it."""

    def __init__(self, behind: Call) -> None:
        super().__init__()
        self.norm, self.behind = nn.BatchNorm2d(SHAPE[1]), behind

    def forward(self, x: Tensor, *others: Tensor) -> Any:
        """Return the result of both."""
        return self.behind(self.norm(x), *others)


def layers(name: str, device: str, made: Any) -> list[nn.Module]:
    """Return eager's layer and a module's, by Python and by C++."""
    own: Any = importlib.import_module("generated._runtime.compiled_call")
    classes: Any = importlib.import_module("generated._runtime.batch_layers")
    module: Any = importlib.import_module(f"generated.{name.replace('/', '.')}")
    python, own.loaded = module.KERNELS.by_python, lambda: made
    calls = (python, own.in_front_of_layer(module.KERNELS, python, classes.LAYERS))

    def with_call(call: Call) -> Any:
        return type(name, (module.ModelNew,), {"forward": lambda layer, *tensors: call(layer, *tensors)})

    return [Eager(LAYERS[name]).to(device), *(with_call(call)(SHAPE[1]).to(device) for call in calls)]


def operations(call: Call) -> int:
    """Return how many operations of PyTorch a call runs, those that others run included."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    names = [event.name for event in profile.events()]
    return sum("::" in name and not name.startswith("autograd::") for name in names)


def layer_table(name: str, device: str, made: Any) -> None:
    """Print the prices of a layer's calls, and how many operations they run."""
    several, count = layers(name, device, made), 1 + ("_add_" in name)
    plain = [torch.randn(SHAPE, device=device) for _ in range(count)]
    graded, grad = [t.clone().requires_grad_() for t in plain], torch.randn(SHAPE, device=device)

    def both(layer: nn.Module) -> Any:
        return torch.autograd.grad(layer(*graded), [*graded, *layer.parameters()], grad)

    @torch.no_grad()
    def alone(layer: nn.Module) -> Any:
        return layer(*plain)

    kinds: dict[str, Call] = {
        "no gradient": alone,
        "a gradient": lambda layer: layer(*graded),
        "and backward": both,
        "evaluation": alone,
    }
    for kind, work in kinds.items():
        calls = [functools.partial(work, layer.train(kind != "evaluation")) for layer in several]
        print(line(name, kind, calls, device) + "".join(f"{operations(call):6}" for call in calls))


@click.command(help=__doc__)
@click.argument("names", nargs=-1, type=click.Choice([*EAGER, *LAYERS]))
def main(names: tuple[str, ...]) -> None:
    """Print a table for each function."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        made = library(Path(folder))
    kinds = (
        (table, EAGER, ("eager", "Python", "file", "C++")),
        (layer_table, LAYERS, ("eager", "Python", "C++")),
    )
    for printed, known, columns in kinds:
        meant = [name for name in names or known if name in known]
        if meant:
            title, ratio = f"{device}, PyTorch {torch.__version__}, us", "C++/eager"
            print(f"{title:43}" + "".join(f"{of:>8}" for of in columns) + f"{ratio:>10}")
        for name in meant:
            printed(name, device, made)


if __name__ == "__main__":
    main()
