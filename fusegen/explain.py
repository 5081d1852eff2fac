"""How a formula became its kernels: what was declared, each step and what it rests on, and the costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fusegen import build
from fusegen.budget import PROMISED
from fusegen.cost import BUDGETS, weight
from fusegen.elements import ELEMENTS
from fusegen.emit.kernel import halves, singles, verifies_on_cpu
from fusegen.emit.kernels import emitted
from fusegen.facts import Estimate, Roundoff
from fusegen.interval import REALS
from fusegen.ir import Device, Kernel
from fusegen.launch import LaunchClass
from fusegen.links import linked
from fusegen.lower import notes
from fusegen.mask import LARGE
from fusegen.method import Pass
from fusegen.ops import OPS
from fusegen.pipeline import Compiled
from fusegen.printers import latex
from fusegen.printers.cpp import wide
from fusegen.printers.notation import term as plain
from fusegen.render import Halves, Singles
from fusegen.stages import Derivation
from fusegen.term import Apply, Name, Program, Rewrite, Term, applied, walk

PROOF = (
    "sympy proves each step over the real numbers, wherever the range that it names holds; where a kink "
    "lies is solved exactly."
)
TWO_WORDS = (
    "What approximates is computed in two words, hi + lo, and rounded once; in float on CUDA arguments are."
)
LINKED = "In float on the CPU functions of the chain take one word where what follows magnifies little."
SETTLED = (
    "On the CPU 16-bit results are computed again in double where float's error leaves their rounding "
    "undecided."
)
BY_TEST = (
    "Where the class is tested, results are computed again in double if the formula's error leaves their "
    "rounding undecided."
)
BY_TABLE = (
    "Where the class is table, results are looked up among all 65,536, computed once in double: computing "
    "each, and right, would take longer than moving it."
)
BY_PIECES = (
    "Where the class is cubic, results are cubic polynomials, fitted in double in steps of |x| of 1/128 to "
    "1/16 and around zeros, and lines far out, which is faster than the formula and more accurate. "
    "Where none fits, the formula is computed, which takes longer: around a kink, where results are -0, "
    "next to zeros like that of x². The formula's error elsewhere does not count."
)
BY_ONE_WORD = (
    "Where the class is one_word, one word of double computes what float would lose; an operation of it "
    "takes the time of two instructions."
)
BY_MASK = (
    f"On CUDA, from {LARGE:,} elements on, the forward pass keeps a bit of each for the gradient, which "
    "then need not read them again: it moves 8.25 bytes an element in float32 instead of 12."
)
DOUBLED = {
    Singles.CUBICS: "cubic polynomials of |x|, fitted in double; where none fits, double computes",
    Singles.DECLARED: "cubic polynomials of |x|, fitted in double for the spec's scalars; with others, in "
    "16 bits, too, and where none fits, double computes",
    Singles.DOUBLE: "computed in double, which takes several times as long",
}
MEASURED = {  # with 2^26 elements and more; docs/architecture.md has the tables
    Singles.CUBICS: " An H200 runs them at 0.90 to 0.96 of a copy's speed, gradients at 0.92 to 1.02: a "
    "processor's first cache gives no more of them.",
    Singles.DECLARED: " With the spec's an H200 runs them at 0.88 to 0.91 of a copy's speed, gradients at "
    "0.95 to 0.99.",
    Singles.DOUBLE: " An H200 runs them in float32 at 0.6 to 1.0 of a copy's speed where one word of "
    "double is enough, at 0.24 and more where it takes two.",
}
BY_DOUBLE = "On {}, {} are {}."
LOST = " In float the error of {} would exceed both 4 ulp and eager's."
WHERE = {
    (Device.CPU, Singles.CUBICS): "the CPU, in float32 and 16 bits",
    (Device.CPU, Singles.DOUBLE): "the CPU, in float32 and 16 bits",
    (Device.CUDA, Singles.CUBICS): "CUDA, in float32",
    (Device.CUDA, Singles.DECLARED): "CUDA, in float32",
    (Device.CUDA, Singles.DOUBLE): "CUDA, in float32",
}
ALSO = {Halves.DOUBLE: " and 16 bits"}
EXPECTED = "Estimated errors of the formulas in float, in ulp of the exact result"
ARITHMETIC = "Every operation rounds once, in this order: these are the bits of PyTorch's own kernels."
LATEX = str.maketrans(  # a spec's words may hold anything
    {sign: f"\\{sign}" for sign in "_%&#${}"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
)
MARKDOWN = str.maketrans({sign: f"\\{sign}" for sign in r"\`*_[]<>|#"})
DEVICES = {"cpu": "CPU", "cuda": "CUDA"}
KERNELS = ("forward", "backward")


@dataclass(frozen=True)
class Step:
    """One use of a rule or a form.

    Attributes:
        rewrite: what became what, and why.
        saved: the instructions that an element saves by it, in float on CUDA; fewer than 0 where it costs.
    """

    rewrite: Rewrite
    saved: int


@dataclass(frozen=True)
class Part:
    """The forward pass, or the gradient.

    Attributes:
        title: which.
        first: the program to start from: as declared, or as differentiated.
        steps: what was done to it, in order.
        last: what is left.
        notes: what lowering does to it on CUDA.
    """

    title: str
    first: Program
    steps: tuple[Step, ...]
    last: Program
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Cost:
    """What an element of a kernel costs on CUDA.

    Attributes:
        kernel: forward or backward.
        dtypes: of the tensors.
        slots: the instructions.
        budgets: those that the chips of `cost.BUDGETS` issue while they move the element's bytes.
        kind: the class of costs.
    """

    kernel: str
    dtypes: str
    slots: int
    budgets: tuple[int, ...]
    kind: str


@dataclass(frozen=True)
class Accuracy:
    """The largest errors that a certificate holds, in ulp of the exact result.

    Attributes:
        device: where; and whether the certificate is of an earlier kernel.
        dtype: of the tensors.
        errors: ours and eager's, by output.
    """

    device: str
    dtype: str
    errors: dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Expected:
    """The estimated errors of the formulas in float, on a device that no certificate is of.

    Attributes:
        device: where.
        errors: of each kernel.
    """

    device: str
    errors: dict[str, Roundoff]


@dataclass(frozen=True)
class Explanation:
    """All of it.

    Attributes:
        name, summary, source: of the spec.
        parts: forward and gradient.
        exact: whether the kernels are arithmetic whose bits are PyTorch's.
        words: whether they compute in two words.
        linked: whether functions of float give and take one word on the CPU.
        settled: whether double decides on the CPU how 16-bit results are rounded.
        pieced: whether float32 results are cubic polynomials on CUDA as these take less time.
        masked: whether a bit of each element decides the gradient.
        costs: of each kernel in each dtype.
        expected: for each device without a certificate.
        doubts: what is to be said of the kernels that float is not enough for.
        accuracies: out of the certificate; none where there is none.
    """

    name: str
    summary: str
    source: str
    parts: tuple[Part, ...]
    exact: bool
    words: bool
    linked: bool
    settled: bool
    pieced: bool
    masked: bool
    costs: tuple[Cost, ...]
    expected: tuple[Expected, ...]
    doubts: tuple[str, ...]
    accuracies: tuple[Accuracy, ...] = ()


def explained(compiled: Compiled, certificate: Mapping[str, Any], states: Mapping[str, str]) -> Explanation:
    """The explanation of a compilation.

    Args:
        compiled: the spec on its way through the stages.
        certificate: that of its module; empty where there is none.
        states: what the certificate is worth, by device.
    """
    derivations = compiled.algebra.derivations
    parts = (_part("Forward", derivations.forward), _part("Gradient", derivations.backward))
    spec = compiled.spec
    costs = tuple(_costs(compiled))
    known = {device for device in certificate if states.get(device) != "stale"}
    expected = tuple(
        Expected(shown, {which.value: _placed(found.single, compiled) for which, found in errors.items()})
        for device, shown in DEVICES.items()
        if device not in known and (errors := _estimates(compiled, Device(device)))
    )
    return Explanation(
        name=spec.name,
        summary=spec.summary,
        source=spec.source,
        parts=parts,
        exact=compiled.algebra.pytorch_bits,
        words=any(map(wide, _kernels(compiled, Device.CUDA))),
        linked=any(map(linked, _kernels(compiled, Device.CPU))),
        settled=any(verifies_on_cpu(compiled.plan, which) for which in Pass),
        pieced=any(singles(compiled.plan, which, Device.CUDA) is Singles.PIECES for which in Pass),
        masked=bool(compiled.plan.bitmask),
        costs=costs,
        expected=expected,
        doubts=tuple(_doubled(compiled)),
        accuracies=tuple(_accuracies(certificate, states)),
    )


def _placed(error: Roundoff, compiled: Compiled) -> Roundoff:
    """An error at the formula's own inputs."""
    return replace(
        error, at={name: error.at[name] for name in compiled.declared.composed.inputs if name in error.at}
    )


def _estimates(compiled: Compiled, device: Device) -> dict[Pass, Estimate]:
    """The estimated errors on a device, by pass."""
    every = {which: compiled.facts[which].estimates for which in Pass}
    return {which: found[device] for which, found in every.items() if device in found}


def _kernels(compiled: Compiled, device: Device) -> Iterator[Kernel]:
    """The kernels on a device that compute float32 and float64 results."""
    return (kernel for which in Pass for kernel in emitted(compiled, which, device).kernels)


def _part(title: str, of: Derivation) -> Part:
    steps = tuple(
        Step(rewrite, weight(_operations(rewrite.before)) - weight(_operations(rewrite.after)))
        for rewrite in (*of.forms, *of.rewrites)
    )
    return Part(title, of.first, steps, of.program, notes(of.program, Device.CUDA))


def _operations(term: Term) -> list[str]:
    return [part.op for part in walk(term) if isinstance(part, Apply)]


def _costs(compiled: Compiled) -> Iterator[Cost]:
    """A row for each kernel and width of elements."""
    texts = build.texts(compiled)
    for text in (texts.forward, texts.backward):
        tensors = len(text.inputs) + len(text.outputs)
        for share in text.shares:
            dtypes = (dtype for dtype in compiled.spec.dtypes if ELEMENTS[dtype].bits == share.bits)
            budgets = tuple(round(budget * tensors * share.bits / 8) for budget in BUDGETS.values())
            yield Cost(text.functor.lower(), ", ".join(dtypes), share.slots, budgets, share.cost)


def _doubled(compiled: Compiled) -> Iterator[str]:
    """What is done where float is not enough."""
    for (device, how), where in WHERE.items():
        found: dict[str, dict[str, bool]] = {}
        for which in Pass:
            if singles(compiled.plan, which, device) is how:
                more = ALSO.get(halves(compiled.plan, which), "") if device is Device.CUDA else ""
                trusted = compiled.facts[which].float_ok[device]
                found.setdefault(where + more, {})[which.value] = trusted
        for place, several in found.items():
            lost = [name for name, trusted in several.items() if not trusted]
            told = BY_DOUBLE.format(place, _results(several), DOUBLED[how])
            measured = MEASURED[how] if device is Device.CUDA else ""
            yield told + (LOST.format(_results(lost)) if lost else "") + measured


def _results(kernels: Iterable[str]) -> str:
    return " and ".join(f"{name} results" for name in kernels)


def _accuracies(certificate: Mapping[str, Any], states: Mapping[str, str]) -> list[Accuracy]:
    found = []
    for device, shown in DEVICES.items():
        old = " (an earlier kernel)" if states.get(device) == "stale" else ""
        for dtype, evidence in certificate.get(device, {}).get("dtypes", {}).items():
            errors = {
                output: (float(held["given"]["ulp"]), float(held["eager"]["ulp"]))
                for output, held in evidence.items()
                if isinstance(held, dict) and {"given", "eager"} <= held.keys()
            }
            found.append(Accuracy(shown + old, dtype, errors))
    return found


@dataclass(frozen=True)
class Format:
    """How an explanation is written.

    Attributes:
        term: a formula.
        line: a formula on a line of its own.
        heading: above a part.
        step: one step, from its number and its sentence.
        table: from rows, the first being the heads.
        word: what is no formula.
    """

    term: Callable[[Term], str]
    line: Callable[[str], str]
    heading: Callable[[str], str]
    step: Callable[[int, str], str]
    table: Callable[[list[tuple[str, ...]]], list[str]]
    word: Callable[[str], str] = str


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _markdown(rows: list[tuple[str, ...]]) -> list[str]:
    head, *others = (f"| {' | '.join(row)} |" for row in rows)
    return ["", head, "|" + "---|" * len(rows[0]), *others, ""]


def _tabular(rows: list[tuple[str, ...]]) -> list[str]:
    lines = [rf"{' & '.join(map(_escaped, row))} \\" for row in rows]
    columns = "l" * len(rows[0])
    return [rf"\begin{{tabular}}{{{columns}}}", lines[0], r"\hline", *lines[1:], r"\end{tabular}", ""]


def _escaped(text: str) -> str:
    """Words in LaTeX."""
    return text.translate(LATEX)


def _quoted(text: str) -> str:
    """Words in Markdown."""
    return text.translate(MARKDOWN)


FORMATS = {
    "text": Format(
        term=plain,
        line=lambda text: f"    {text}",
        heading=lambda text: f"\n{text}",
        step=lambda number, text: f"  {number:>2}. {text}",
        table=_columns,
    ),
    "markdown": Format(
        term=lambda term: f"`{plain(term)}`",
        line=lambda text: f"    {text.replace('`', '')}",
        heading=lambda text: f"\n### {_quoted(text)}\n",
        step=lambda number, text: f"{number}. {text}",
        table=_markdown,
        word=_quoted,
    ),
    "latex": Format(
        term=lambda term: f"${latex.term(term)}$",
        line=lambda text: f"\\[ {text.replace('$', '')} \\]",
        heading=lambda text: f"\n\\subsection*{{{_escaped(text)}}}\n",
        step=lambda number, text: f"\\paragraph{{{number}.}} {text}",
        table=_tabular,
        word=_escaped,
    ),
}


def written(found: Explanation, form: str) -> str:
    """An explanation as text.

    Args:
        found: what to write.
        form: a key of `FORMATS`.
    """
    style = FORMATS[form]
    lines = [style.heading(f"{found.name}: {found.summary}").lstrip("\n")]
    if found.source:
        lines.append(style.word(found.source))
    for part in found.parts:
        lines += _written(part, style)
    lines += ["", style.word(PROOF)] if any(part.steps for part in found.parts) else [""]
    lines += [style.word(ARITHMETIC)] if found.exact else [style.word(TWO_WORDS)] if found.words else []
    lines += [style.word(LINKED)] if found.linked else []
    lines += [style.word(SETTLED)] if found.settled else []
    lines += map(style.word, found.doubts)
    chips = tuple(f"sm_{chip}" for chip in BUDGETS)
    costs: list[tuple[str, ...]] = [("kernel", "dtypes", "instructions", *chips, "class")]
    costs += [(c.kernel, c.dtypes, str(c.slots), *map(str, c.budgets), c.kind) for c in found.costs]
    lines.append(
        style.heading("Instructions of an element on CUDA, and how many a chip issues while it moves it")
    )
    lines += style.table(costs)
    kinds = {cost.kind for cost in found.costs}
    lines += [style.word(BY_TEST)] if LaunchClass.TESTED.value in kinds else []
    lines += [style.word(BY_TABLE)] if LaunchClass.TABLE.value in kinds else []
    lines += [style.word(BY_PIECES)] if found.pieced else []
    lines += [style.word(BY_ONE_WORD)] if LaunchClass.ONE_WORD.value in kinds else []
    lines += [style.word(BY_MASK)] if found.masked else []
    if found.expected:
        foreseen: list[tuple[str, ...]] = [("device", *KERNELS)]
        foreseen += [(of.device, *map(_foreseen, of.errors.values())) for of in found.expected]
        lines += [style.heading(EXPECTED), *style.table(foreseen)]
    if found.accuracies:
        outputs = list(found.accuracies[0].errors)
        errors: list[tuple[str, ...]] = [("device", "dtype", *outputs)]
        for held in found.accuracies:
            errors.append(
                (held.device, held.dtype, *(_error(held.errors.get(output, ())) for output in outputs))
            )
        lines.append(style.heading("Largest errors found, ours / eager's, in ulp of the exact result"))
        lines += style.table(errors)
    return "\n".join(lines).strip("\n") + "\n"


def _error(errors: tuple[float, ...]) -> str:
    return " / ".join(f"{error:.4g}" for error in errors) or "-"


def _foreseen(error: Roundoff) -> str:
    """The estimated error; with its input and operation, if it is more than 4 ulp."""
    ulp = f"{error.ulp:.2g}" if math.isfinite(error.ulp) else "infinite"
    places = [f"{x:.2g}" if len(error.at) == 1 else f"{name} = {x:.2g}" for name, x in error.at.items()]
    place = ", ".join(places)
    whence = f" at {place}" + (f", by {error.by}" if error.by else ", too large for a float")
    return ulp + (whence if error.ulp > PROMISED else "")


def _written(part: Part, style: Format) -> list[str]:
    lines = [style.heading(part.title), *_program(part.first, style)]
    if part.steps:
        lines.append("")
        lines += [style.step(k, _sentence(step, style)) for k, step in enumerate(part.steps, 1)]
        lines += ["", *_program(part.last, style)]
    return [*lines, *(style.word(f"  {note}") for note in part.notes)]


def _program(program: Program, style: Format) -> list[str]:
    named = [f"{style.term(Name(let.name))} = {style.term(let.term)}" for let in program.lets]
    return [style.line(text) for text in (*named, *map(style.term, program.results))]


def _sentence(step: Step, style: Format) -> str:
    """A step as a sentence: a form names the function that computes it, a rule what it becomes."""
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
