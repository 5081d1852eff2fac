"""PyTorch's activations, eager and compiled, beside their formulas on every input: `audit --suite torch`.

What is compiled comes from torch.compile with its default backend.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from fusegen.certify.evaluator import Evaluator
from fusegen.certify.findings import Evidence, Output, Subject
from fusegen.certify.host import machine
from fusegen.certify.interval_filter import IntervalFilter
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

Made by `python -m fusegen audit --suite torch`: the largest error in ulp
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
    """A function to be compared with a formula in x."""
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
    """Results that others reported, as they are here."""
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


def page(names: tuple[str, ...], sample: int, devices: tuple[str, ...]) -> Iterator[str]:
    """The lines of the report in Markdown.

    Args:
        names: of `FUNCTIONS`.
        sample: the number of float32 inputs.
        devices: ``cpu``, ``cuda`` or both.
    """
    yield INTRODUCTION
    for device in devices:
        made = machine(device)
        yield f"## {made.chip}, PyTorch {made.torch}\n"
        yield "\n".join(f"- {line}" for line in known(device)) + "\n"
        yield "| " + " | ".join(HEADS) + " |\n" + "|---" * len(HEADS) + "|"
        for name in names:
            yield from _rows(name, sample, device)
        yield ""


def _rows(name: str, sample: int, device: str) -> Iterator[str]:
    """The rows of one function, eager and compiled, in each dtype."""
    function, formula = FUNCTIONS[name]
    interval_filter = None
    for who, dtype in itertools.product((name, f"{name}, compiled"), DTYPES):
        torch.compiler.reset()
        one = subject(who, function if who == name else torch.compile(function), formula)
        interval_filter = interval_filter or IntervalFilter(one.stable, one.params)
        evidence = Evaluator(one, interval_filter, device).evidence(dtype, sample)
        yield "| " + " | ".join((who, dtype, *cells(evidence))) + " |"
