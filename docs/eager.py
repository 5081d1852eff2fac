"""Where `numerics: eager` gives eager's very bits, and where not: op by op, dtype by dtype, both ways.

    python docs/eager.py [--device cuda|cpu] [--count N] [SPEC...]

Builds every spec of specs/ with `numerics: eager`, runs it and PyTorch's own operations on the same inputs,
forward and backward, and prints a table in Markdown. Inputs are all 65,536 values of a 16-bit type, else
random bit patterns, ordinary values and the neighbours of zero; gradients are normal numbers. A NaN equals
every other. A cell is "=", or the share of results that differ with the largest distance in units of the
last place; zeros of another sign, and the gradient at a NaN, are told apart from that.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from fusegen import build
from fusegen.built import imported
from fusegen.outputs import Outputs
from fusegen.write import apply

ROOT = Path(__file__).resolve().parent.parent
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
WORDS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16,
         torch.float64: torch.int64}  # fmt: skip


def eager_modules(names: list[str], folder: Path) -> dict[str, ModuleType]:
    """The modules of the named specs with `numerics: eager`, built in a folder."""
    for path in (ROOT / "specs").glob("*.yaml"):
        text = re.sub(r"^numerics:.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        (folder / path.name).write_text(text + "numerics: eager\n", encoding="utf-8")
    modules = {}
    for change in Outputs(folder, "stable", {}, folder).runtime():
        apply(change)
    for name in names:
        path = folder / f"{name}.py"
        path.write_text(build.module(build.compiled_file(folder / f"{name}.yaml")), encoding="utf-8")
        modules[name] = imported(path)
    return modules


def patterns(dtype: torch.dtype, count: int, device: str, seed: int) -> Tensor:
    """Inputs of every kind: all there are in a 16-bit type."""
    generator = torch.Generator(device).manual_seed(seed)
    if dtype.itemsize == 2:
        every = torch.arange(-(2**15), 2**15, dtype=torch.int16, device=device).view(dtype)
        return every[torch.randperm(2**16, generator=generator, device=device)]
    words = torch.randint(
        -(2**31), 2**31, (count * dtype.itemsize // 4,), generator=generator, device=device
    )
    ordinary = torch.randn(count, generator=generator, dtype=dtype, device=device) * 4
    return torch.cat([words.to(torch.int32).view(dtype), ordinary])


def compared(ours: Tensor, theirs: Tensor, inputs: list[Tensor]) -> str:
    """A cell of the table."""
    words = WORDS[ours.dtype]
    a, b = ours.contiguous().view(words), theirs.contiguous().view(words)
    wrong = (a != b) & ~(ours.isnan() & theirs.isnan())
    excused = {
        "-0.0": (ours == 0) & (theirs == 0),
        "NaN in": torch.stack([x.isnan() for x in inputs]).any(0),
    }
    seen = [name for name, where in excused.items() if (wrong & where).any()]
    rest = wrong & ~torch.stack(list(excused.values())).any(0)
    if not rest.any():
        return f"= but for {', '.join(seen)}" if seen else "="
    both = rest & ours.isfinite() & theirs.isfinite()
    share = f"{int(rest.sum()) / rest.numel():.2g}"
    if not both.any():
        return f"{share}, not finite"
    return f"{share}, {(ordered(a[both]) - ordered(b[both])).abs().max().item()} ULP"


def ordered(words: Tensor) -> Tensor:
    """Bit patterns as integers in the order of the floats."""
    lowest = torch.iinfo(words.dtype).min
    wide = words.long()
    return torch.where(wide < 0, lowest - wide, wide)


def row(name: str, module: ModuleType, device: str, count: int) -> list[str]:
    """Forward and backward of one spec in each dtype."""
    cells = [name]
    params = [p for p in function_defaults(module, name) if isinstance(p, float)]
    for dtype in DTYPES:
        inputs = [
            patterns(dtype, count, device, seed).requires_grad_() for seed in range(module.KERNELS.inputs)
        ]
        ours, theirs = getattr(module, name)(*inputs, *params), module.eager(*inputs, *params)
        grad = torch.randn(ours.shape, generator=torch.Generator(device).manual_seed(9), device=device).to(
            dtype
        )
        back = [torch.autograd.grad(y, inputs, grad) for y in (ours, theirs)]
        backs = {compared(a, b, inputs) for a, b in zip(*back, strict=True)}
        cells += [compared(ours.detach(), theirs.detach(), inputs), " / ".join(sorted(backs))]
    return cells


def function_defaults(module: ModuleType, name: str) -> tuple[object, ...]:
    """The defaults of a module's plain function."""
    defaults: tuple[object, ...] = getattr(module, name).__defaults__ or ()
    return defaults


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("specs", nargs="*")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--count", type=int, default=2**22, help="random inputs of each kind")
    given = parser.parse_args()
    every = sorted(p.stem for p in (ROOT / "specs").glob("*.yaml") if "layers:" not in p.read_text())
    machine = (
        torch.cuda.get_device_name() if given.device == "cuda" else torch.backends.cpu.get_cpu_capability()
    )
    torch._C._set_mkldnn_enabled(False)  # oneDNN's gelu is another function
    print(f"PyTorch {torch.__version__}, {machine}; {given.count} random inputs of each kind\n")
    heads = [f"{str(dtype)[6:]} {way}" for dtype in DTYPES for way in ("forward", "backward")]
    print("| | " + " | ".join(heads) + " |\n|---" * 1 + "|---" * len(heads) + "|")
    with tempfile.TemporaryDirectory() as folder:
        modules = eager_modules(given.specs or every, Path(folder))
        with ThreadPoolExecutor() as pool:  # the compilers are processes of their own
            kernels = product(("forward", "backward"), modules.values())
            list(pool.map(lambda one: one[1].KERNELS.load(one[0], given.device), kernels))
        for name, module in modules.items():
            print("| " + " | ".join(row(name, module, given.device, given.count)) + " |", flush=True)


if __name__ == "__main__":
    main()
