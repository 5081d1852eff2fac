"""Standalone files beside their modules: whether bits are the same, and milliseconds.

    python -m benchmarks.standalone rows/softmax kernelbench/conv2d_mish_batch_norm --dtype float32

Both versions of `ModelNew` have the same state and inputs, those of `get_inputs`, of which the module makes
values and gradients first. Without names all modules are compared that have a spec in `specs/kernelbench`.
The exit status is 1 if bits differ. On a CPU it compares, and does not time.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import torch
from torch import Tensor, nn

from benchmarks.rows import timed
from fusegen.project import modules, standalone

GENERATED, SPECS = Path("generated"), Path("specs")
HEAD = "| | bits | module | file | ratio | step: module | file | ratio |\n|---|---|---|---|---|---|---|---|"
DTYPES = ("float32", "float16", "bfloat16", "float64")


def of_file(name: str, dtype: str) -> ModuleType:
    """Return a standalone file, executed as a module that has no file."""
    [built] = modules.built((SPECS / f"{name}.yaml",), GENERATED).values()
    text = standalone.text(built.text, "stable", (dtype,), built.apart)
    made = ModuleType(f"standalone_{name.replace('/', '_')}")
    exec(compile(text, "<string>", "exec"), made.__dict__)
    return made


def models(name: str, dtype: str, device: str) -> list[nn.Module]:
    """Return the module's model and the file's, with the same state."""
    both: list[Any] = [
        importlib.import_module(f"generated.{name.replace('/', '.')}"),
        of_file(name, dtype),
    ]
    made: list[nn.Module] = []
    for each in both:
        torch.manual_seed(1)
        made.append(each.ModelNew(*each.get_init_inputs()).to(device, getattr(torch, dtype)))
    made[1].load_state_dict(made[0].state_dict())
    return made


def inputs(name: str, dtype: str, device: str) -> list[Any]:
    """Return the inputs of the module, of the dtype and on the device; indices stay integers."""
    torch.manual_seed(2)
    given = importlib.import_module(f"generated.{name.replace('/', '.')}").get_inputs()
    return [t.to(device, getattr(torch, dtype)) if _is_real(t) else _on(t, device) for t in given]


def results(model: nn.Module, given: Sequence[Any]) -> list[Tensor]:
    """Return the values of a model, and the gradients of its inputs and parameters."""
    torch.manual_seed(3)  # of dropouts
    own = [t.detach().clone().requires_grad_() if _is_real(t) else t for t in given]
    made = model(*own)
    values = [y for y in (made if isinstance(made, tuple) else (made,)) if y.requires_grad]
    leaves = [t for t in (*own, *model.parameters()) if isinstance(t, Tensor) and t.requires_grad]
    torch.manual_seed(4)
    incoming = [torch.randn_like(y) for y in values]
    slopes = torch.autograd.grad(values, leaves, incoming, allow_unused=True) if values else ()
    every = [*(made if isinstance(made, tuple) else (made,)), *slopes]
    return [t.detach() for t in every if t is not None]


def differing(own: Sequence[Tensor], other: Sequence[Tensor]) -> int:
    """Return how many results have other bits; a NaN equals every other."""
    if len(own) != len(other):
        return max(len(own), len(other))
    same = [
        a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
        for a, b in zip(own, other, strict=True)
    ]
    return same.count(False)


def row(name: str, dtype: str, device: str) -> tuple[str, int]:
    """Return a row of the table, and how many results have other bits."""
    made, given = models(name, dtype, device), inputs(name, dtype, device)
    wrong = differing(*(results(model, given) for model in made))
    cells = [f"{name}, {dtype}", str(wrong) if wrong else "the same"]
    if device == "cuda":
        with torch.no_grad():
            forward = [timed(functools.partial(model, *given)) for model in made]
        step = [timed(functools.partial(results, model, given)) for model in made]
        cells += [
            f"{times[0]:.3f} | {times[1]:.3f} | {times[0] / times[1]:.3f}" for times in (forward, step)
        ]
    return f"| {' | '.join(cells)} |", wrong


def _is_real(t: Any) -> bool:
    return isinstance(t, Tensor) and t.is_floating_point()


def _on(t: Any, device: str) -> Any:
    return t.to(device) if isinstance(t, Tensor) else t


@click.command()
@click.argument("names", nargs=-1)
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice(DTYPES), default=["float32"])
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda")
def main(names: tuple[str, ...], dtypes: tuple[str, ...], device: str) -> None:
    """Print a table: bits, and milliseconds of a call and of one with gradients."""
    problems = sorted((SPECS / "kernelbench").glob("*.yaml"))
    every = names or [f"kernelbench/{path.stem}" for path in problems]
    print(HEAD)
    wrong = 0
    for name in every:
        for dtype in dtypes:
            text, count = row(name, dtype, device)
            print(text, flush=True)
            wrong += count
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
