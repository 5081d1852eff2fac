"""PyTorch's activations, eager and compiled, beside their formulas on every input: `audit --suite torch`.

The compiled functions are those of torch.compile with its default backend.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from fusegen.errors import NotInSuite, Span
from fusegen.evidence.certify.certification import CertifyOptions, Unwatched, audit, check_devices
from fusegen.evidence.certify.findings import Evidence
from fusegen.evidence.certify.host import machine
from fusegen.evidence.certify.subject import of_callable

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


def cells(evidence: Evidence) -> Iterator[str]:
    """Yield the figures of one dtype."""
    for output in evidence.outputs:
        given = output.given
        yield f"{given.ulp:.3g}"
        yield f"{float.fromhex(given.worst[0].inputs[0]):.6g}" if given.worst else ""
        yield f"{given.misrounded:,}"
    yield ", ".join(
        next(special.given for special in evidence.outputs[0].specials if special.input == x)
        for x in ("inf", "-inf")
    )


def known(device: str) -> Iterator[str]:
    """Yield results that others reported, as they are here."""
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


def page(
    names: tuple[str, ...],  # of `FUNCTIONS`; none means all
    specs: Path,  # the folder of the specs that formulas may call
    # the devices, the dtypes (none means `DTYPES`) and the number of float32 inputs
    options: CertifyOptions,
) -> Iterator[str]:
    """Yield the lines of the report in Markdown.

    Raises:
        NotInSuite: a name is none of `FUNCTIONS`.
        NoDevice, Misbehaves: as of `certification.certify_all`.
    """
    for name in names:
        if name not in FUNCTIONS:
            raise NotInSuite(Span("--suite torch"), name=name, names=", ".join(FUNCTIONS))
    check_devices(options.devices)
    yield INTRODUCTION
    for device in options.devices:
        made = machine(device)
        yield f"## {made.chip}, PyTorch {made.torch}\n"
        yield "\n".join(f"- {line}" for line in known(device)) + "\n"
        yield "| " + " | ".join(HEADS) + " |\n" + "|---" * len(HEADS) + "|"
        for name in names or FUNCTIONS:
            yield from _rows(name, specs, replace(options, devices=(device,)))
        yield ""


def _rows(name: str, specs: Path, options: CertifyOptions) -> Iterator[str]:
    function, formula = FUNCTIONS[name]
    for who, dtype in itertools.product((name, f"{name}, compiled"), options.dtypes or DTYPES):
        torch.compiler.reset()
        given = function if who == name else torch.compile(function)
        one = of_callable(who, given, formula, ("x",), specs)
        for verdict in audit(one, replace(options, dtypes=(dtype,)), Unwatched()):
            yield "| " + " | ".join((who, dtype, *cells(verdict.evidence))) + " |"
