"""How many results of a 16-bit type are not correctly rounded: ours and eager's, on all 65,536 inputs.

    python docs/rounding.py [SPEC...]       # on the GPU if there is one, else on the CPU

The value of the same module in float64, rounded once more, stands for the real one; the gradient is that at
an incoming gradient of 1. Infinite and NaN inputs are left out. Prints a table in Markdown.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parent.parent
DTYPES = (torch.bfloat16, torch.float16)


def value_and_slope(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """A function's value and its derivative."""
    x = x.clone().requires_grad_()
    y = function(x)
    [slope] = torch.autograd.grad(y, x, torch.ones_like(y))
    return y.detach(), slope


def wrong(actual: Tensor, real: Tensor) -> int:
    """How many results are another number than the rounded real one."""
    rounded = real.to(actual.dtype)
    return int(((actual != rounded) & ~(actual.isnan() & rounded.isnan())).sum())


def row(name: str, module: ModuleType, device: str) -> list[str]:
    """Forward and gradient in each dtype, ours / eager's."""
    plain = getattr(module, name)
    params = [value for value in plain.__defaults__ or () if isinstance(value, float)]
    cells = [name]
    for dtype in DTYPES:
        every = torch.arange(-(2**15), 2**15, dtype=torch.int16, device=device).view(dtype)
        x = every[every.isfinite()]
        real = value_and_slope(lambda x: plain(x, *params), x.double())
        ours = value_and_slope(lambda x: plain(x, *params), x)
        eager = value_and_slope(lambda x: module.eager(x, *params), x)
        cells += [f"{wrong(a, r)} / {wrong(b, r)}" for a, b, r in zip(ours, eager, real, strict=True)]
    return cells


def main(names: list[str]) -> None:
    """Print the table."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    heads = [f"{str(dtype)[6:]} {what}" for dtype in DTYPES for what in ("value", "gradient")]
    print(f"PyTorch {torch.__version__}, {device}; ours / eager\n")
    print("| | " + " | ".join(heads) + " |\n" + "|---" * (len(heads) + 1) + "|")
    for name in names or sorted(path.stem for path in (ROOT / "generated").glob("*.py")):
        module = importlib.import_module(f"generated.{name}")
        if module.INPUTS == 1 and not hasattr(module.ModelNew(*module.get_init_inputs()), "conv"):
            print("| " + " | ".join(row(name, module, device)) + " |", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main(sys.argv[1:])
