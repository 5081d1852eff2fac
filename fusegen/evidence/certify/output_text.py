"""The line of an output in a certificate, written and read: a row of `FIGURES` for each figure."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from fusegen.evidence.certify.contract import OF_ROWS
from fusegen.evidence.certify.findings import Accuracy, Evidence, Output, Worst, four_digits
from fusegen.evidence.certify.local_bound import Local, Run

WIDTH, DTYPE, INDENT = 160, 10, 10  # characters of a line; of the first column; before a continued line
MOST_NUMBERS = 5  # that surely fit a line: a double is of 24 characters
NUMBER, COUNT = r"(?:inf|[0-9.e+-]+)", r"[0-9,]+"


@dataclass(frozen=True)
class Read:
    """An output as it was read, with the number of judged inputs and whether those are all."""

    inputs: int
    every: bool
    output: Output


@dataclass(frozen=True)
class Figure:
    """A figure of a line.

    Attributes:
        width: of its column, which is given up where the line would be too long.
        write: from the evidence and the output, the text; empty where there is nothing to say.
        pattern: of the text.
        read: adds what the groups of the pattern say.
    """

    width: int
    write: Callable[[Evidence, Output], str]
    pattern: str
    read: Callable[[Read, re.Match[str]], Read]


def lines(evidence: Evidence, output: Output, name: int) -> Iterator[str]:
    """Return the lines of an output: its figures, and the runs of cells above 4 ulp.

    Args:
        evidence: that it belongs to.
        output: the output.
        name: the width of the column of names.
    """
    texts = [(figure.width, figure.write(evidence, output)) for figure in FIGURES]
    shown = [(width, part) for width, text in texts for part in text.split("  ") if part]
    line = f"{evidence.dtype:{DTYPE}}{output.name:{name}}  "
    wide = line + "  ".join(f"{text:{width}}" for width, text in shown).rstrip()
    if len(wide) <= WIDTH:
        yield wide
    else:
        yield from _wrapped(line, [text for _, text in shown])
    for run in output.local.runs:
        low, high = (_short(end) for end in (run.low, run.high))
        yield f"{'':{INDENT}}{low} to {high}  {_digits(run.ulp)} / {_digits(run.eager)} ulp"


def _wrapped(line: str, texts: list[str]) -> Iterator[str]:
    """Return the lines of texts that one line is too short for."""
    for text in texts:
        if len(line) + len(text) > WIDTH:
            yield line.rstrip()
            line = " " * INDENT
        line += f"{text}  "
    yield line.rstrip()


def read(line: str) -> Read:
    """Return an output from its line, without the dtype.

    Raises:
        ValueError: it is no such line.
    """
    name, *texts = re.split(r" {2,}", line.strip())
    return _with_figures(Read(0, every=False, output=Output(name, Accuracy())), texts)


def continued(found: Read, line: str) -> Read:
    """Return an output with what a continued line adds: figures, or a run of cells."""
    if match := RUN.fullmatch(line):
        low, high = (float.fromhex(end).hex() for end in match.group(1, 2))
        run = Run(low, high, float(match[3]), float(match[4]))
        local = replace(found.output.local, runs=(*found.output.local.runs, run))
        return replace(found, output=replace(found.output, local=local))
    return _with_figures(found, re.split(r" {2,}", line.strip()))


def _with_figures(found: Read, texts: list[str]) -> Read:
    for text in texts:
        matches = ((figure, re.fullmatch(figure.pattern, text)) for figure in FIGURES)
        figure, match = next(((f, m) for f, m in matches if m), (None, None))
        if figure is None or match is None:
            raise ValueError(f"{text!r} is no figure of a certificate")
        found = figure.read(found, match)
    return found


# Figures: ours / eager's where there is an eager.


def _each(output: Output, figure: Callable[[Accuracy], str], unit: str = "") -> str:
    return " / ".join(figure(one) for one in (output.given, output.eager) if one) + unit


def _write_tried(evidence: Evidence, output: Output) -> str:
    if output.results:
        return f"{output.results:,} of {evidence.inputs:,} rows"
    return f"{'all' if evidence.every else 'sample'} {evidence.inputs:,}"


def _read_tried(found: Read, match: re.Match[str]) -> Read:
    if match[1]:
        return replace(found, every=match[1] == "all", inputs=_count(match[2]))
    return replace(found, inputs=_count(match[4]), output=replace(found.output, results=_count(match[3])))


def _write_ulp(evidence: Evidence, output: Output) -> str:
    return _each(output, lambda one: _digits(one.ulp), " ulp")


def _read_ulp(found: Read, match: re.Match[str]) -> Read:
    ours, eager = (
        None if text is None else Accuracy((Worst((), float(text), "", ""),) if float(text) else ())
        for text in match.group(1, 2)
    )
    assert ours is not None
    return replace(found, output=replace(found.output, given=ours, eager=eager))


def _write_share(evidence: Evidence, output: Output) -> str:
    results = max(output.results or evidence.inputs, 1)
    return _each(output, lambda one: f"{100 * one.misrounded / results:.2f}", " %")


def _read_share(found: Read, match: re.Match[str]) -> Read:
    results = found.output.results or found.inputs
    ours, eager = (round(float(text or 0) * results / 100) for text in match.group(1, 2))
    return _with_counts(found, "misrounded", ours, eager)


def _write_neighbour(evidence: Evidence, output: Output) -> str:
    if evidence.dtype not in ("float16", "bfloat16"):
        return ""
    return f"beyond {_each(output, lambda one: f'{one.beyond_neighbour:,}')}"


def _write_over(evidence: Evidence, output: Output) -> str:
    ours, eager = output.local.over
    if evidence.promise == "rows" and evidence.dtype not in OF_ROWS:
        return ""
    bound = OF_ROWS[evidence.dtype] if evidence.promise == "rows" else 4
    return f"over {bound:g}: {ours:,} / {eager:,}" if ours or eager else ""


def _read_over(found: Read, match: re.Match[str]) -> Read:
    return _with_local(found, replace(found.output.local, over=(_count(match[1]), _count(match[2]))))


def _write_blind(evidence: Evidence, output: Output) -> str:
    local = output.local
    return f"blind {local.blind:,} ({local.kept:,} kept)" if local.blind else ""


def _read_blind(found: Read, match: re.Match[str]) -> Read:
    return _with_local(found, replace(found.output.local, blind=_count(match[1]), kept=_count(match[2])))


def _write_overflows(evidence: Evidence, output: Output) -> str:
    any_ = output.given.overflows or (output.eager and output.eager.overflows)
    return f"overflow {_each(output, lambda one: f'{one.overflows:,}')}" if any_ else ""


def _write_bits(evidence: Evidence, output: Output) -> str:
    if evidence.promise == "accurate" or not output.bits_differ:
        return ""
    return f"other bits {output.bits_differ:,} ({output.worse_than_eager:,} worse)"


def _read_bits(found: Read, match: re.Match[str]) -> Read:
    differ, worse = map(_count, match.group(1, 2))
    return replace(found, output=replace(found.output, bits_differ=differ, worse_than_eager=worse))


def _write_at(evidence: Evidence, output: Output) -> str:
    """Return the worst input, of several tensors as texts that fit a line, two spaces apart."""
    worst = output.given.worst[0] if output.given.worst else Worst((), 0.0, "", "")
    shown = [_short(x) for x in worst.inputs]
    parts = (shown[k : k + MOST_NUMBERS] for k in range(0, len(shown), MOST_NUMBERS))
    return f"in {worst.rows}" if worst.rows else "  ".join(f"at {' '.join(part)}" for part in parts)


def _read_at(found: Read, match: re.Match[str]) -> Read:
    worst = found.output.given.worst[0]
    inputs = (*worst.inputs, *(float.fromhex(x).hex() for x in (match[1] or "").split()))
    worst = replace(worst, inputs=inputs, rows=match[2] or "")
    return replace(found, output=replace(found.output, given=replace(found.output.given, worst=(worst,))))


def _read_counts(name: str) -> Callable[[Read, re.Match[str]], Read]:
    """Return what reads a number of results, ours and eager's."""

    def read(found: Read, match: re.Match[str]) -> Read:
        return _with_counts(found, name, *(_count(text or "0") for text in match.group(1, 2)))

    return read


def _with_counts(found: Read, name: str, ours: Any, eager: Any) -> Read:
    given = replace(found.output.given, **{name: ours})
    theirs = found.output.eager and replace(found.output.eager, **{name: eager})
    return replace(found, output=replace(found.output, given=given, eager=theirs))


def _with_local(found: Read, local: Local) -> Read:
    return replace(found, output=replace(found.output, local=local))


def _count(text: str) -> int:
    return int(text.replace(",", ""))


def _digits(ulp: float) -> str:
    return f"{four_digits(ulp):.4g}"


def _short(number: str) -> str:
    """Return a hexadecimal float without trailing zeros of the fraction: 0x1.8p+0."""
    return re.sub(r"\.?0*p", "p", number) if "." in number else number


RUN = re.compile(rf"(-?0x\S+) to (-?0x\S+)  ({NUMBER}) / ({NUMBER}) ulp")
FIGURES = (
    Figure(17, _write_tried, rf"(all|sample) ({COUNT})|({COUNT}) of ({COUNT}) rows", _read_tried),
    Figure(21, _write_ulp, rf"({NUMBER})(?: / ({NUMBER}))? ulp", _read_ulp),
    Figure(15, _write_share, rf"({NUMBER})(?: / ({NUMBER}))? %", _read_share),
    Figure(14, _write_neighbour, rf"beyond ({COUNT})(?: / ({COUNT}))?", _read_counts("beyond_neighbour")),
    Figure(20, _write_over, rf"over [0-9.]+: ({COUNT}) / ({COUNT})", _read_over),
    Figure(19, _write_blind, rf"blind ({COUNT}) \(({COUNT}) kept\)", _read_blind),
    Figure(14, _write_overflows, rf"overflow ({COUNT})(?: / ({COUNT}))?", _read_counts("overflows")),
    Figure(0, _write_bits, rf"other bits ({COUNT}) \(({COUNT}) worse\)", _read_bits),
    Figure(0, _write_at, r"at (-?0x\S+(?: -?0x\S+)*)|in (\w+ of \d+)", _read_at),
)
