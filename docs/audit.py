"""How accurate PyTorch's activations are, eager and compiled, on every input: makes docs/audit.md.

    python docs/audit.py [--sample N] [NAME...] > docs/audit.md  # on the CPU, and on a GPU if there is one

It is `fusegen audit` on a list of functions, one table per device; `--sample` tries so many float32 inputs
where all 2**32 would take long. What is compiled comes from torch.compile with its default backend.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import torch
import torch.nn.functional as F
from torch import Tensor

from fusegen.certify.findings import Evidence, Output, Subject
from fusegen.certify.host import machine
from fusegen.certify.judge import Judge
from fusegen.certify.screen import Screen
from fusegen.certify.sweep import EVERY
from fusegen.library import Library
from fusegen.parse import parse_spec
from fusegen.stages import real, screened

FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "F.elu": (F.elu, "where(x > 0, x, expm1(x))"),
    "F.gelu": (F.gelu, "x * ndtr(x)"),
    "F.gelu(approximate='tanh')": (
        lambda x: F.gelu(x, approximate="tanh"),
        "x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x ** 3))",
    ),
    "F.hardsigmoid": (F.hardsigmoid, "relu6(x + 3) / 6"),
    "F.hardswish": (F.hardswish, "x * relu6(x + 3) / 6"),
    "F.logsigmoid": (F.logsigmoid, "-softplus(-x)"),
    "F.mish": (F.mish, "x * tanh(softplus(x))"),
    "torch.sigmoid": (torch.sigmoid, "sigmoid(x)"),
    "F.silu": (F.silu, "x * sigmoid(x)"),
    "F.softplus": (F.softplus, "where(x > 20, x, softplus(x))"),
    "F.softsign": (F.softsign, "x / (abs(x) + 1)"),
    "torch.tanh": (torch.tanh, "tanh(x)"),
    "F.tanhshrink": (F.tanhshrink, "x - tanh(x)"),
}
DTYPES = ("float32", "bfloat16", "float16", "float64")
INTRODUCTION = """# How accurate PyTorch's activations are

Made by `python docs/audit.py`, which is `fusegen audit` on a list of functions: the largest error in ulp
over all inputs tried, where it is, and how many results are not correctly rounded. 16-bit
types are tried whole, float64 on a sample of 82,000; float32 whole unless `--sample` says otherwise.
"""
HEADS = (
    "function",
    "dtype",
    "value: ulp",
    "at",
    "misrounded",
    "gradient: ulp",
    "at",
    "misrounded",
    "inf, -inf",
)


def subject(name: str, function: Callable[[Tensor], Tensor], formula: str) -> Subject:
    """A function to be held against a formula in x."""
    text = f"name: formula\nsummary: An audit.\nformula: {json.dumps(formula)}\n"
    spec, library = parse_spec(text, "formula"), Library(Path("specs"))
    return Subject(name, real(spec, library), screened(spec, library), {}, function)


def cells(evidence: Evidence) -> Iterator[str]:
    """The figures of one dtype."""
    for output in evidence.outputs:
        given = output.given
        yield f"{given.ulp:.3g}"
        yield f"{float.fromhex(given.worst[0].inputs[0]):.6g}" if given.worst else ""
        yield f"{given.misrounded:,}"
    yield ", ".join(_special(evidence.outputs[0], x) for x in ("inf", "-inf"))


def _special(output: Output, x: str) -> str:
    return next(special.given for special in output.specials if special.input == x)


def known(device: str) -> Iterator[str]:
    """What was found elsewhere, looked at here."""
    infinite = [torch.full((n,), torch.inf, device=device) for n in range(1, 6)]
    yield f"`gelu(inf)` of 1 to 5 elements: {', '.join(str(F.gelu(x)[0].item()) for x in infinite)}"
    small = torch.full((64,), -1e-9, device=device)
    both = [function(small)[0].item() for function in (F.elu, torch.compile(F.elu))]
    yield f"`elu(-1e-9)`: {both[0]:.6g}, compiled {both[1]:.6g}"
    near = torch.full((64,), -6.5, device=device)
    true = -6.5 * torch.special.ndtr(torch.tensor(-6.5, dtype=torch.float64)).item()
    yield f"`gelu(-6.5)`: {F.gelu(near)[0].item():.6g}, and it is {true:.6g}"
    six = torch.full((64,), 6.0, dtype=torch.float64, device=device)
    yield f"`hardsigmoid(6.0)` in float64: {F.hardsigmoid(six)[0].item()!r}"


@click.command()
@click.argument("names", nargs=-1)
@click.option("--sample", default=EVERY, help="How many float32 inputs to try.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), multiple=True)
def main(names: tuple[str, ...], sample: int, device: tuple[str, ...]) -> None:
    """Print the report."""
    warnings.simplefilter("ignore")
    print(INTRODUCTION)
    found = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    for where in device or found:
        made = machine(where)
        print(f"## {made.chip}, PyTorch {made.torch}\n")
        print("\n".join(f"- {line}" for line in known(where)) + "\n")
        print("| " + " | ".join(HEADS) + " |\n" + "|---" * len(HEADS) + "|")
        for name, (function, formula) in FUNCTIONS.items():
            if names and name not in names:
                continue
            screen = None
            for said, dtype in itertools.product((name, f"{name}, compiled"), DTYPES):
                torch.compiler.reset()
                one = subject(said, function if said == name else torch.compile(function), formula)
                screen = screen or Screen(one.stable, one.params)
                evidence = Judge(one, screen, where).evidence(dtype, sample)
                print("| " + " | ".join((said, dtype, *cells(evidence))) + " |", flush=True)
        print()


if __name__ == "__main__":
    main()
