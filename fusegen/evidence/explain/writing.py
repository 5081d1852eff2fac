"""An explanation as text, in one of the formats."""

import math
from collections.abc import Iterable, Iterator

from fusegen.codegen.printers.notation import term as plain
from fusegen.core.budget import RESULT_ULP
from fusegen.core.facts import Roundoff
from fusegen.core.interval import REALS
from fusegen.core.method import PLAIN, Grid, Pass, Piecewise, parts
from fusegen.core.ops import OPS
from fusegen.core.term import Program, applied
from fusegen.evidence.explain.explanation import Explanation, Part, Step
from fusegen.evidence.explain.formats import FORMATS, Format, head, named
from fusegen.schedule.cost import BUDGETS
from fusegen.schedule.forms import BITMASK, MASKED

PROOF = (
    "sympy proves each step over the real numbers, wherever the range that it names holds; where a kink "
    "lies is solved exactly."
)
ARITHMETIC = "Every operation rounds once, in this order: these are the bits of PyTorch's own kernels."
HELD = "What the model holds"
ACCEPTED = "Accepted warnings"
IN_FRONT = "The layer in front, on CUDA"
METHODS = "How results are obtained"
COSTS = "Instructions of an element on CUDA, and how many a chip issues while it moves it"
OF_DOUBLE = "In single-word double, an operation takes the time of two instructions."
MEASURED = {  # with 2^26 elements and more; docs/decisions/piecewise-cubics.md has the tables
    Grid.OCTAVES: "An H200 runs piecewise cubics in octaves at 0.90 to 0.96 of copy bandwidth, gradients "
    "at 0.92 to 1.02; with parameters at their defaults, at 0.88 to 0.91 and 0.95 to 0.99.",
    Grid.UNIFORM: "Piecewise cubics on the uniform grid lie in steps of |x| of 1/128 to 1/16 and around "
    "zeros, with lines far out; none fits around a kink, where results are -0, or next to zeros like that "
    "of x².",
}
SUM_OF_PRODUCTS, QUOTIENT, POWER = "a product in a sum", "a quotient", "a power"
CAUSES = {  # what rounds most, by operation; other operations are functions of that name
    **{"add": "a sum", "sub": "a difference", "mul": "a product", "scaled": "a product"},
    **dict.fromkeys(("fma", "product_plus", "linear"), SUM_OF_PRODUCTS),
    **dict.fromkeys(("div", "quotient", "reciprocal"), QUOTIENT),
    **dict.fromkeys(("pow", "square", "cube"), POWER),
    "narrow": "rounding to one float on the way",
}
EXPECTED = "Estimated errors of the formulas in float, in ulp of the exact result"
FOUND = "Largest errors found, ours / eager's, in ulp of the exact result"


def written(found: Explanation, form: str) -> str:
    """Return an explanation as text in a form of `FORMATS`."""
    style, spec = FORMATS[form], found.spec
    lines = head(style, spec)
    lines += _table(style, HELD, ("attribute", "made by", "use"), found.held)
    for part in found.parts:
        lines += _written(part, style)
    lines += ["", style.word(PROOF)] if any(part.steps for part in found.parts) else [""]
    lines += [style.word(ARITHMETIC)] if found.compiled.algebra.pytorch_bits else []
    lines += _table(style, ACCEPTED, ("of the", "reason"), spec.accept)
    lines += _table(style, METHODS, ("kernel", "device", "method"), found.remarks)
    lines += [style.word(MASKED)] if BITMASK in found.compiled.forms else []
    if found.in_front:
        lines += [style.heading(IN_FRONT), *map(style.word, found.in_front)]
    for section in (_costs, _estimates, _accuracies):
        lines += section(found, style)
    return "\n".join(lines).strip("\n") + "\n"


def _table(
    style: Format, title: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]
) -> Iterator[str]:
    """Yield the lines of a table below its title; none where it has no rows."""
    if every := [*rows]:
        yield style.heading(title)
        yield from style.table([head, *every])


def _costs(found: Explanation, style: Format) -> Iterator[str]:
    """The instructions of each kernel, and what was measured of the methods that are not the formula's."""
    head = ("kernel", "dtypes", "instructions", *(f"sm_{chip}" for chip in BUDGETS), "class")
    rows = [(c.kernel, c.dtypes, str(c.instructions), *map(str, c.budgets), c.kind) for c in found.costs]
    yield from _table(style, COSTS, head, rows)
    within = {part for method in found.methods for part in parts(method)}
    grids = {part.grid for part in within if isinstance(part, Piecewise)}
    yield from (style.word(text) for grid, text in MEASURED.items() if grid in grids)
    if PLAIN in within:
        yield style.word(OF_DOUBLE)


def _estimates(found: Explanation, style: Format) -> Iterator[str]:
    rows = [(device, *map(foreseen, errors.values())) for device, errors in found.expected]
    yield from _table(style, EXPECTED, ("device", *(which.value for which in Pass)), rows)


def _accuracies(found: Explanation, style: Format) -> Iterator[str]:
    if not found.accuracies:
        return
    outputs = [*found.accuracies[0][2]]
    rows = []
    for device, dtype, errors in found.accuracies:
        pairs = (errors.get(output, ()) for output in outputs)
        rows.append((device, dtype, *(" / ".join(f"{ulp:.4g}" for ulp in pair) or "-" for pair in pairs)))
    yield from _table(style, FOUND, ("device", "dtype", *outputs), rows)


def foreseen(error: Roundoff) -> str:
    """Return the estimated error; with its input and operation, if it is more than 4 ulp."""
    ulp = f"{error.ulp:.2g}" if math.isfinite(error.ulp) else "infinite"
    places = [f"{x:.2g}" if len(error.at) == 1 else f"{name} = {x:.2g}" for name, x in error.at.items()]
    place = ", ".join(places)
    cause = f"mostly by {CAUSES.get(error.by, error.by)}" if error.by else "too large for a float"
    whence = f" at {place}, {cause}"
    return ulp + (whence if error.ulp > RESULT_ULP else "")


def _written(part: Part, style: Format) -> list[str]:
    lines = [style.heading(part.title), *_program(part.first, style)]
    if part.steps:
        lines.append("")
        lines += [style.step(k, _sentence(step, style)) for k, step in enumerate(part.steps, 1)]
        lines += ["", *_program(part.last, style)]
    return [*lines, *(style.word(f"  {note}") for note in part.notes)]


def _program(program: Program, style: Format) -> list[str]:
    return [*named(style, program.lets), *map(style.line, map(style.term, program.results))]


def _sentence(step: Step, style: Format) -> str:
    """Return a step as a sentence: a form names the function that computes it, a rule what it becomes."""
    rewrite = step.rewrite
    new = sorted(applied((rewrite.after,)) - applied((rewrite.before,)))
    becomes = f"is {style.term(rewrite.after)}"
    if any(not OPS[op].written for op in new) or plain(rewrite.before) == plain(rewrite.after):
        becomes = f"as one function, {style.word(', '.join(new))}"
    why = ""
    if rewrite.subject is not None and rewrite.range != REALS:
        why = f", since {style.term(rewrite.subject)} lies in {rewrite.range}"
    saves = (
        f"; saves {step.saved}" if step.saved > 0 else f"; costs {-step.saved}" if step.saved < 0 else ""
    )
    return f"{style.word(rewrite.rule)}: {style.term(rewrite.before)} {becomes}{why}{saves}"
