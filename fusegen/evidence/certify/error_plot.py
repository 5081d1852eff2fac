"""A picture of a function: its value and gradient, and how far ours and eager's are from the real ones."""

from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from torch import Tensor

from fusegen.compiler.pipeline import Compiled
from fusegen.errors import NoPicture, Span
from fusegen.evidence.certify import exact, reference
from fusegen.evidence.certify.evaluator import Evaluator
from fusegen.evidence.certify.subject import of_spec
from fusegen.evidence.plot_style import BLUE, GREY, ORANGE, PHONE, SAVED, STYLE, TALL, UNDATED, headed

LOW, HIGH, POINTS = -10.0, 10.0, 2001
REST = 1.0  # what the inputs after the first are
LEAST = 2.0**-10  # ulp: the lowest error that is shown


@dataclass(frozen=True)
class ErrorPlot:
    """A function over its first input, in float32 on the CPU; the others are 1."""

    name: str  # of the spec
    outputs: tuple[str, ...]  # what is drawn: the value, and the gradient of each input
    x: Tensor  # the points
    values: tuple[Tensor, ...]  # the real numbers, by output
    # ours, eager: errors of each, in ulp
    ours: tuple[Tensor, ...]
    eager: tuple[Tensor, ...]


def error_plot(compiled: Compiled, output: Path) -> ErrorPlot:
    """Return the errors of a module, to be drawn.

    Raises:
        NotBuilt: there is no such module, or it is not what the spec says.
        NoPicture: the spec has no float32.
        OtherFunction, NotAReference: its reference is another function, or none of its tensors.
    """
    if "float32" not in compiled.spec.dtypes:
        raise NoPicture(Span(compiled.spec.name), why="it is not made for float32")
    subject = of_spec(compiled, output)
    reference.require(compiled.spec, subject, "cpu")
    evaluator = Evaluator(subject, "cpu")
    x = torch.linspace(LOW, HIGH, POINTS)
    points = (x, *(torch.full_like(x, REST) for _ in subject.program.inputs[1:]))
    given, eager = evaluator.results(points)
    real = evaluator.reals(points)
    return ErrorPlot(
        compiled.spec.name,
        tuple(subject.outputs),
        x,
        tuple(found.hi for found in real),
        tuple(exact.errors(got, found) for got, found in zip(given, real, strict=True)),
        tuple(exact.errors(got, found) for got, found in zip(eager, real, strict=True)),
    )


def draw(found: ErrorPlot) -> Figure:
    """Return the picture: above, value and gradients; below, a panel of errors for each."""
    with mpl.rc_context(STYLE):
        height = max(TALL, 3.0 + 2.0 * len(found.outputs))
        figure = Figure(figsize=(PHONE, height), layout="constrained")
        heights = [1.5, *(2.0 for _ in found.outputs)]
        above, *below = figure.subplots(1 + len(found.outputs), 1, sharex=True, height_ratios=heights)
        for values, name, dashes in zip(found.values, found.outputs, ("-", "--", ":"), strict=False):
            above.plot(found.x, values, dashes, color=BLUE if name == "value" else GREY, label=name)
        above.legend(loc="upper left")
        for axes, name, ours, eager in zip(below, found.outputs, found.ours, found.eager, strict=True):
            for errors, colour, who in ((eager, ORANGE, "eager"), (ours, BLUE, "fusegen")):
                shown = torch.where(errors.isfinite(), errors.clamp(min=LEAST), torch.nan)
                axes.plot(found.x, shown, ".", color=colour, markersize=4, label=who)
            axes.set_yscale("log")
            axes.set_ylabel(f"{name}:\nerror in ulp")
        headed(figure, below[0], _message(found))
        where = f"{found.name} in float32 on the CPU at {POINTS} points"
        figure.supxlabel(f"x; {where}", fontsize="medium")
    return figure


def _message(found: ErrorPlot) -> str:
    told = [f"{found.name}, largest errors in ulp"]
    for which, panels in (("value", slice(0, 1)), ("gradient", slice(1, None))):
        ours, eager = (
            f"{max(float(errors[errors.isfinite()].max()) for errors in of[panels]):.2g}"
            for of in (found.ours, found.eager)
        )
        told.append(f"{which}: {ours}, eager's {eager}")
    return "\n".join(told)


def save(found: ErrorPlot, path: Path) -> None:
    """Write an error plot, as SVG or PNG by the name of the file.

    Raises:
        NoPicture: the name ends in neither.
    """
    kind = path.suffix.removeprefix(".")
    if kind not in UNDATED:
        raise NoPicture(Span(path.as_posix()), why="a picture is .svg or .png")
    figure = draw(found)
    with mpl.rc_context(STYLE):
        figure.savefig(path, metadata=UNDATED[kind], **SAVED)
