"""The results of a run, as JSON and as a table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks.kernelbench.accuracy import Measured
from benchmarks.kernelbench.session import FAILS, NONE, REFUSED, RIGHT, TIMES, WRONG, Options, Outcome
from benchmarks.kernelbench.timing import COMPILED, EAGER, OURS, RECORDED
from fusegen.evidence.bench.session import machine

FORMAT = 1
RATIOS = (EAGER, COMPILED)  # over ours
CHECK = "signed"  # whose errors the table shows
STATES = (RIGHT, WRONG, FAILS, REFUSED, NONE)


@dataclass(frozen=True)
class Mean:
    """A geometric mean of ratios."""

    kind: str  # of the problems
    who: str  # whose time over ours
    value: float  # the mean
    problems: int  # how many have the ratio


def environment(options: Options) -> dict[str, Any]:
    """Return the environment of a run: the chip, PyTorch, its flags, and the options."""
    cudnn: Any = torch.backends.cudnn
    matmul = torch.backends.cuda.matmul
    return {
        **machine(options.place.device),
        "cuda": torch.version.cuda,
        "cudnn": cudnn.version() if options.place.device == "cuda" else None,
        "cudnn.allow_tf32": cudnn.allow_tf32,
        "cudnn.benchmark": cudnn.benchmark,
        "cudnn.deterministic": cudnn.deterministic,
        "cuda.matmul.allow_tf32": matmul.allow_tf32,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "dtype": str(options.place.dtype).removeprefix("torch."),
        "shapes": options.shapes,
        "rounds": options.rounds,
        "competitors": list(options.competitors),
    }


def means(outcomes: Iterable[Outcome]) -> Iterator[Mean]:
    """Yield the geometric means of each class, of right candidates only, and of all classes."""
    right = [one for one in outcomes if one.state == RIGHT and one.times]
    kinds = sorted({one.kind for one in right})
    for kind in (*kinds, "all")[: len(kinds) + (len(kinds) > 1)]:
        for who in RATIOS:
            found = [one.times.ratio(who) for one in right if one.times and kind in (one.kind, "all")]
            ratios = [ratio for ratio in found if ratio]
            if ratios:
                yield Mean(kind, who, math.exp(sum(map(math.log, ratios)) / len(ratios)), len(ratios))


def as_json(ran: dict[str, Any], outcomes: list[Outcome]) -> str:
    """Return a run as a file."""
    return json.dumps(
        {
            "format": FORMAT,
            "environment": ran,
            "problems": [plain(one) for one in outcomes],
            "geometric means": [asdict(mean) for mean in means(outcomes)],
        },
        indent=1,
    )


def plain(one: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON can express it: infinities and NaN are words."""
    times = one.times
    ratios = {f"{who}/{OURS}": times.ratio(who) for who in RATIOS} if times else {}
    plain = {**asdict(one), "ratios": {name: ratio for name, ratio in ratios.items() if ratio}}
    strict: dict[str, Any] = json.loads(json.dumps(plain), parse_constant=str)  # JSON has no infinities
    return strict


# The progress


def progress(one: Outcome) -> str:
    """Return the outcome of a problem, and the seconds of its phases."""
    spent = ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in phases(one).items())
    return f"{one.problem}: {one.state}" + (
        f" in {sum(one.seconds.values()):.1f} s ({spent})" if spent else ""
    )


def phases(one: Outcome) -> dict[str, float]:
    """Return the seconds of the phases of a problem, with those of torch.compile apart from the times."""
    found = dict(one.seconds)
    if one.times and one.times.compiling:
        found |= {COMPILED: one.times.compiling, TIMES: found[TIMES] - one.times.compiling}
    return found


# The table


def table(outcomes: list[Outcome]) -> Iterator[str]:
    """Yield the lines of the table: problems, failed checks, means and counts."""
    yield from _aligned([_row(one) for one in outcomes])
    yield ""
    for one in outcomes:
        yield from (f"{one.problem}: {finding.check}: {finding.said}" for finding in one.findings)
        if one.times and one.times.said:
            yield f"{one.problem}: torch.compile: {one.times.said}"
        if one.accuracy and one.accuracy.limits:
            yield f"{one.problem}: {one.accuracy.limits} results for infinities are numbers, eager's NaN"
    for mean in means(outcomes):
        yield f"{mean.kind}: {mean.who} / ours {mean.value:.2f} (geometric mean of {mean.problems})"
    counts = {state: sum(one.state == state for one in outcomes) for state in STATES}
    yield ", ".join(f"{count} {state}" for state, count in counts.items() if count)


def _row(one: Outcome) -> dict[str, str]:
    spreads = one.times.spreads if one.times else {}
    ms = {f"{who} ms": f"{spreads[who].median:.4g}" for who in (*RATIOS, OURS, RECORDED) if who in spreads}
    ratios = {f"{who}/{OURS}": one.times.ratio(who) for who in RATIOS} if one.times else {}
    measured = one.accuracy.measured if one.accuracy else ()
    signed = next((found for found in measured if found.check == CHECK), None)
    return {
        "problem": one.problem,
        "class": one.kind,
        "result": one.state,
        **ms,
        **{name: f"{ratio:.2f}" for name, ratio in ratios.items() if ratio},
        **(_errors(signed) if signed else {}),
    }


def _errors(of: Measured) -> dict[str, str]:
    return {"error": f"{of.ours.largest:.1e}", "eager's": f"{of.eager.largest:.1e}"}


def _aligned(rows: list[dict[str, str]]) -> Iterator[str]:
    """Yield rows under their heads, in columns."""
    order = ("problem", "class", "result", *(f"{who} ms" for who in (*RATIOS, OURS, RECORDED)))
    order += (*(f"{who}/{OURS}" for who in RATIOS), "error", "eager's")
    heads = [head for head in order if any(row.get(head) for row in rows)]
    widths = {head: max(len(head), *(len(row.get(head, "")) for row in rows)) for head in heads}
    for row in ({head: head for head in heads}, *rows):
        yield "  ".join(row.get(head, "").ljust(widths[head]) for head in heads).rstrip()
