"""The line of an output in a certificate, written and read: a row of `FIGURES` for each figure."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusegen.evidence.certify.contract import OF_ROWS
from fusegen.evidence.certify.findings import Accuracy, Evidence, Local, Output, Run, Worst, four_digits

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
    """A figure of a line."""

    width: int  # of its column, which is given up where the line would be too long
    # from the evidence and the output, the text; empty where there is nothing to say
    write: Callable[[Evidence, Output], str]
    pattern: str  # of the text; its groups are what `_output` reads


def lines(
    evidence: Evidence,  # that it belongs to
    output: Output,  # the output
    name: int,  # the width of the column of names
) -> Iterator[str]:
    """Return the lines of an output: its figures, and the runs of cells above 4 ulp."""
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


def read(lines: Sequence[str]) -> Read:
    """Return an output from its lines, the first one without the dtype.

    Raises:
        ValueError: one is no such line.
    """
    runs = [match.groups() for match in map(RUN.fullmatch, lines) if match]
    name, *texts = re.split(r" {2,}", "  ".join(line.strip() for line in lines if not RUN.fullmatch(line)))
    found: dict[str, str] = {}
    for text in texts:
        match = next(filter(None, (re.fullmatch(figure.pattern, text) for figure in FIGURES)), None)
        if match is None:
            raise ValueError(f"{text!r} is no figure of a certificate")
        for group, told in match.groupdict().items():
            if told is not None:  # several texts have the inputs of many tensors
                found[group] = f"{found[group]} {told}" if group in found else told
    return _output(name, found, tuple(Run(_long(a), _long(b), float(c), float(d)) for a, b, c, d in runs))


def _output(name: str, found: Mapping[str, str], runs: tuple[Run, ...]) -> Read:
    judged = int((found.get("inputs") or found["rows_of"]).replace(",", ""))

    def count(group: str) -> int:
        return int(found.get(group, "0").replace(",", ""))

    def accuracy(who: str, **place: Any) -> Accuracy:
        ulp = float(found[f"{who}ulp"])
        return Accuracy(
            (Worst(ulp=ulp, got="", real="", **place),) if ulp else (),
            round(float(found.get(f"{who}share", 0)) * (count("results") or judged) / 100),
            count(f"{who}beyond"),
            count(f"{who}overflow"),
        )

    at = tuple(map(_long, found.get("at", "").split()))
    output = Output(
        name,
        accuracy("", inputs=at, rows=found.get("rows", "")),
        accuracy("eager_", inputs=()) if "eager_ulp" in found else None,
        count("bits"),
        count("worse"),
        local=Local((count("over"), count("eager_over")), count("blind"), count("kept"), runs),
        results=count("results"),
    )
    return Read(judged, found.get("every") == "all", output)


# Figures: ours / eager's where there is an eager.


def _each(output: Output, figure: Callable[[Accuracy], str], unit: str = "") -> str:
    return " / ".join(figure(one) for one in (output.given, output.eager) if one) + unit


def _write_tried(evidence: Evidence, output: Output) -> str:
    if output.results:
        return f"{output.results:,} of {evidence.inputs:,} rows"
    return f"{'all' if evidence.every else 'sample'} {evidence.inputs:,}"


def _write_ulp(evidence: Evidence, output: Output) -> str:
    return _each(output, lambda one: _digits(one.ulp), " ulp")


def _write_share(evidence: Evidence, output: Output) -> str:
    results = max(output.results or evidence.inputs, 1)
    return _each(output, lambda one: f"{100 * one.misrounded / results:.2f}", " %")


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


def _write_blind(evidence: Evidence, output: Output) -> str:
    local = output.local
    return f"blind {local.blind:,} ({local.kept:,} kept)" if local.blind else ""


def _write_overflows(evidence: Evidence, output: Output) -> str:
    any_ = output.given.overflows or (output.eager and output.eager.overflows)
    return f"overflow {_each(output, lambda one: f'{one.overflows:,}')}" if any_ else ""


def _write_bits(evidence: Evidence, output: Output) -> str:
    if evidence.promise == "accurate" or not output.bits_differ:
        return ""
    return f"other bits {output.bits_differ:,} ({output.worse_than_eager:,} worse)"


def _write_at(evidence: Evidence, output: Output) -> str:
    """Return the worst input, of several tensors as texts that fit a line, two spaces apart."""
    worst = output.given.worst[0] if output.given.worst else Worst((), 0.0, "", "")
    shown = [_short(x) for x in worst.inputs]
    parts = (shown[k : k + MOST_NUMBERS] for k in range(0, len(shown), MOST_NUMBERS))
    return f"in {worst.rows}" if worst.rows else "  ".join(f"at {' '.join(part)}" for part in parts)


def _digits(ulp: float) -> str:
    return f"{four_digits(ulp):.4g}"


def _long(number: str) -> str:
    return float.fromhex(number).hex()


def _short(number: str) -> str:
    """Return a hexadecimal float without trailing zeros of the fraction: 0x1.8p+0."""
    return re.sub(r"\.?0*p", "p", number) if "." in number else number


def _both(group: str, pattern: str = COUNT) -> str:
    """Return the pattern of a figure of ours, and of eager's where there is one."""
    return rf"(?P<{group}>{pattern})(?: / (?P<eager_{group}>{pattern}))?"


RUN = re.compile(rf"(-?0x\S+) to (-?0x\S+)  ({NUMBER}) / ({NUMBER}) ulp")
TRIED = rf"(?P<every>all|sample) (?P<inputs>{COUNT})|(?P<results>{COUNT}) of (?P<rows_of>{COUNT}) rows"
FIGURES = (
    Figure(17, _write_tried, TRIED),
    Figure(21, _write_ulp, f"{_both('ulp', NUMBER)} ulp"),
    Figure(15, _write_share, f"{_both('share', NUMBER)} %"),
    Figure(14, _write_neighbour, f"beyond {_both('beyond')}"),
    Figure(20, _write_over, rf"over [0-9.]+: {_both('over')}"),
    Figure(19, _write_blind, rf"blind (?P<blind>{COUNT}) \((?P<kept>{COUNT}) kept\)"),
    Figure(14, _write_overflows, f"overflow {_both('overflow')}"),
    Figure(0, _write_bits, rf"other bits (?P<bits>{COUNT}) \((?P<worse>{COUNT}) worse\)"),
    Figure(0, _write_at, r"at (?P<at>-?0x\S+(?: -?0x\S+)*)|in (?P<rows>\w+ of \d+)"),
)
