"""Time the first call of modules on a GPU, whose kernels nvcc or NVRTC compiles, and compare the results.

    python -m benchmarks.first_call hardsigmoid gelu

Each line is two fresh processes for a compiler: one that finds an empty folder of builds ("cold"), and one
that finds what the first has left ("kept"). Times are those of the first call and of the first backward
pass, without the import of PyTorch and of the module, and of a later call on few elements. Results of both
compilers are compared bit by bit: values and gradients, in every dtype, of tensors in one row, with gaps,
transposed, and off the boundary of a vector. With several tensors the sums of gradients are left out, which
PyTorch adds up where NVRTC compiles.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor

COMPILERS = ("nvcc", "nvrtc")
CALLS, FEW = 2000, 4096  # of a later call: how many are timed, and the elements of a tensor
COLUMNS = ("first call, s", "backward, s", "kept, s", "kept backward, s", "later call, us")
PARTS = {
    "in a row": (slice(None), slice(None)),
    "with gaps": (slice(None), slice(None, None, 3)),
    "off a boundary": (slice(None), slice(1, None)),
}


def timed(module: Any) -> dict[str, float]:
    """Return the seconds of the first call, of the first backward pass, and of a later call."""
    function, count = module.KERNELS.call, len(module.KERNELS.signature.tensors)
    inputs = [torch.randn(FEW, device="cuda", requires_grad=True) for _ in range(count)]
    torch.cuda.synchronize()
    marks = [time.perf_counter()]
    result = function(*inputs)
    torch.cuda.synchronize()
    marks.append(time.perf_counter())
    result.backward(torch.ones_like(result))
    torch.cuda.synchronize()
    marks.append(time.perf_counter())
    with torch.no_grad():
        for _ in range(CALLS):
            function(*inputs)
    torch.cuda.synchronize()
    marks.append(time.perf_counter())
    first, backward, calls = (after - before for before, after in itertools.pairwise(marks))
    return {"first": first, "backward": backward, "call": calls / CALLS}


def results(module: Any) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield values and gradients by dtype and layout, on the CPU."""
    function, count = module.KERNELS.call, len(module.KERNELS.signature.tensors)
    generator = torch.Generator("cuda").manual_seed(1)
    for dtype in module.KERNELS.dtypes:
        wide = (
            torch.randn(count + 1, 512, 1536, device="cuda", generator=generator, dtype=torch.float64) * 4
        )
        for name, part in PARTS.items():
            for turned in (False, True):
                tensors = [t[part].T if turned else t[part] for t in wide.to(dtype)]
                inputs = [t.detach().requires_grad_() for t in tensors[:count]]
                found = function(*inputs)
                gradients = torch.autograd.grad(found, inputs, tensors[count])
                yield f"{dtype}, {name}{', transposed' * turned}", [t.cpu() for t in (found, *gradients)]


def child(name: str, path: str) -> None:
    """Print the times of a module in this process as JSON, and saves its results."""
    module = importlib.import_module(f"generated.{name.replace('/', '.')}")
    print(json.dumps(timed(module)))
    if path:
        torch.save(dict(results(module)), path)


def measured(name: str, compiler: str, place: Path) -> tuple[float, ...]:
    """Return the times of a module whose kernels a compiler builds, whose results are saved."""
    told = []
    for saved in ("", str(place / compiler)):
        environment = {
            "FUSEGEN_CUDA_COMPILER": compiler,
            "TORCH_EXTENSIONS_DIR": str(place / f"of_{compiler}"),
        }
        code = f"from benchmarks.first_call import child; child({name!r}, {saved!r})"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
        if done.returncode:
            raise click.ClickException(f"{name} with {compiler}: {done.stderr.strip()[-2000:]}")
        told.append(json.loads(done.stdout.splitlines()[-1]))
    cold, kept = told
    return cold["first"], cold["backward"], kept["first"], kept["backward"], 1e6 * kept["call"]


def differing(place: Path) -> list[str]:
    """Return the cases whose results differ in any bit between the compilers, with how many do."""
    one, other = (torch.load(place / compiler) for compiler in COMPILERS)
    found = []
    for case, tensors in one.items():
        pairs = zip(tensors, other[case], strict=True)
        wrong = sum(int((_bits(a) != _bits(b)).sum()) for a, b in pairs)
        found += [f"{case}: {wrong} results"] * (wrong > 0)
    return found


def _bits(values: Tensor) -> Tensor:
    """Return the bits of numbers; all NaN are one."""
    whole = torch.where(values.isnan(), torch.full_like(values, torch.nan), values).contiguous()
    return whole.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()])


@click.command(help=__doc__)
@click.argument("names", nargs=-1, required=True)
def main(names: tuple[str, ...]) -> None:
    """Times modules, and ends with status 1 if results differ."""
    if not torch.cuda.is_available():
        raise click.ClickException("needs an NVIDIA GPU")
    click.echo(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}\n")
    click.echo(f"| module | compiler | {' | '.join(COLUMNS)} |")
    click.echo("|---|---|" + "---|" * len(COLUMNS))
    failed = False
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            for compiler in COMPILERS:
                times = " | ".join(f"{t:.3f}" for t in measured(name, compiler, Path(folder)))
                click.echo(f"| {name} | {compiler} | {times} |")
            wrong = differing(Path(folder))
        failed = failed or bool(wrong)
        click.echo(f"| {name} | bits that differ | {'; '.join(wrong) or 'none'} |", err=bool(wrong))
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
