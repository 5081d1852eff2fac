"""The promises, and a sentence for each that a kernel breaks.

One row a promise:

- accurate: the local bound. In float32 and float64 the largest error in each cell of the inputs is at most
  the larger of 4 ulp and eager's largest error in the same cell (`cells`, `boxes`: rules C1 to C3). In
  16-bit types every result is the correctly rounded value or its neighbour, and no more results are
  misrounded than eager has, neither in all nor in a binade (C4). At most a quarter of float32 results is
  misrounded, or as large a share as eager's (C5). At an infinity the result is the limit, where there is
  one: exactly, if that is an integer, else as near as others.
- arithmetic, and PyTorch's by name: PyTorch's bits, except where its own are further from the exact value.
- eager: PyTorch's bits on CUDA.
- rows: the bound of docs/rows.md, or eager's error over rows of the same kind and length (C7);
  in float64 as many errors of each size as eager's (C2).
- all: every other call gives the results of the plain one; see `relations`.

Results at other values of the parameters are judged by the same rules against eager at the same values; in
16-bit types as many results as eager's may lie beyond the neighbour, such as 0 times what overflows.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from fusegen.errors import counted
from fusegen.evidence.certify.findings import Breach, Evidence, Output, Tried

LIMIT = 4.0  # in ulp
MISROUNDED = 0.25  # the share of float32 results that may be misrounded, or eager's
HALVES, ZEROS = ("float16", "bfloat16"), ("0.0", "-0.0")
# Of rows, in ulp: one rounding of float32; of 16 bits every result is the rounded value or its neighbour.
OF_ROWS = {"float32": 0.51, "float64": LIMIT}
BREACH = re.compile(r": ([\d,]+) of [\d,]+ (\w+) break (\w+): ")  # as `_breach` writes it
Rule = Callable[[Evidence, str], Iterator[str]]  # of a dtype on a device, a sentence for each breach
DIGITS = {"float32": 24, "float64": 53, "float16": 11, "bfloat16": 8}


def judged(evidence: Evidence, promise: str, device: str) -> Evidence:
    """Return the evidence of a dtype on a device with every promise of `contract` that it breaks."""
    broken = [*_sentences(evidence, promise, device)]
    for sample in evidence.scalars:
        at = ", ".join(f"{name} = {value:.6g}" for name, value in sample.scalars)
        there = Evidence(evidence.dtype, sample.inputs, every=False, undecided=0, outputs=sample.outputs)
        rules = AT_SCALARS.get(promise, promise)
        broken += [f"with {at}: {sentence}" for sentence in _sentences(there, rules, device)]
    special = sum(len(output.specials) for output in evidence.outputs) + evidence.relations.specials
    tried = Tried(evidence.relations.kept, len(evidence.scalars), special)
    return replace(evidence, promise=promise, broken=tuple(broken), tried=tried)


def _sentences(evidence: Evidence, promise: str, device: str) -> Iterator[str]:
    for rule in (*ALWAYS, PROMISES[promise]):
        yield from rule(evidence, device)


def _accurate(evidence: Evidence, device: str) -> Iterator[str]:
    for output in evidence.outputs:
        yield from _limits(output, evidence.dtype)
    for output in evidence.outputs:
        yield from (_halves if evidence.dtype in HALVES else _wide)(output)
        if evidence.dtype == "float32" and evidence.inputs:
            yield from _often_rounded(output, evidence.inputs)


def in_short(evidence: Evidence) -> str:
    """Return the broken promises of one dtype in few words: ``C1 in 12 cells``, or their number."""
    found = [match for sentence in evidence.broken if (match := BREACH.search(sentence))]
    if len(found) < len(evidence.broken):
        return counted(len(evidence.broken), "exception")
    return ", ".join(f"{rule} in {count} {unit}" for count, unit, rule in (m.groups() for m in found[:2]))


def _wide(output: Output) -> Iterator[str]:
    for breach in output.local.breaches:
        yield f"{output.name}: {_breach(output, breach)}"


def _breach(output: Output, breach: Breach) -> str:
    theirs = f", eager {breach.eager:.4g}" if output.eager else ""
    at = " ".join(breach.inputs)
    share = f"{breach.count:,} of {breach.of:,} {breach.unit}"
    return f"{share} break {breach.rule}: {breach.ulp:.4g} ulp{theirs}, at {at}"


def _often_rounded(output: Output, inputs: int) -> Iterator[str]:
    """Of float32: the share of results that are not correctly rounded."""
    share, eager = (one.misrounded / inputs if one else 0.0 for one in (output.given, output.eager))
    if share > max(MISROUNDED, eager):
        yield f"{output.name}: {share:.2%} of the results are misrounded, eager has {eager:.2%} (C5)"


def _halves(output: Output) -> Iterator[str]:
    if output.given.beyond_neighbour:
        count = output.given.beyond_neighbour
        yield f"{output.name}: {count} results are neither the correctly rounded value nor its neighbour"
    yield from _misrounded(output)
    yield from _wide(output)


def _misrounded(output: Output) -> Iterator[str]:
    if output.eager and output.given.misrounded > output.eager.misrounded:
        theirs = output.eager.misrounded
        yield f"{output.name}: {output.given.misrounded} results are misrounded, eager has {theirs}"


def _accurate_as_eager(evidence: Evidence, device: str) -> Iterator[str]:
    """At other values of the parameters, of which there are no special inputs."""
    for output in evidence.outputs:
        if evidence.dtype not in HALVES:
            yield from _wide(output)
            continue
        theirs = output.eager.beyond_neighbour if output.eager else 0
        if output.given.beyond_neighbour > theirs:
            count = output.given.beyond_neighbour
            yield f"{output.name}: {count} results are beyond the neighbour, eager has {theirs}"
        yield from _misrounded(output)


def _arithmetic(output: Output) -> Iterator[str]:
    if output.worse_than_eager:
        theirs = "results are not PyTorch's and further from the exact value"
        yield f"{output.name}: {output.worse_than_eager} {theirs}"


def _eager(evidence: Evidence, device: str) -> Iterator[str]:
    for output in evidence.outputs:
        if output.bits_differ and device == "cuda":
            yield f"{output.name}: {output.bits_differ} results are not bit-identical to eager's"


def _decided(evidence: Evidence, device: str) -> Iterator[str]:
    if evidence.undecided:
        yield f"{evidence.undecided} inputs are undecided: more were open than are looked at"


def _related(evidence: Evidence, device: str) -> Iterator[str]:
    yield from evidence.relations.broken


def _in_range(output: Output) -> Iterator[str]:
    """No result passes an end of the range that the function only tends to: no sigmoid is above 1."""
    if output.range is None:
        return
    low, high, real_low, real_high = output.range
    limits = {float(s.real) for s in output.specials if "inf" in s.input and not s.of}
    if (low < real_low and real_low in limits) or (high > real_high and real_high in limits):
        ends = f"between {low!r} and {high!r}, the function between {real_low!r} and {real_high!r}"
        yield f"{output.name} is {ends}"


def _overflow_as_eager(output: Output) -> Iterator[str]:
    if output.given.overflows > (output.eager.overflows if output.eager else 0):
        yield f"{output.name} is infinite at {output.given.overflows} inputs where it is not"


def _special(output: Output) -> Iterator[str]:
    """NaN stays NaN, or goes where eager lets it go; a zero at a zero has eager's sign."""
    for special in output.specials:
        nan = special.input == "nan" and "nan" in (special.given, special.eager or special.real)
        tells = nan or (special.input in ZEROS and special.given in ZEROS)
        if tells and special.given not in (special.eager, special.real):
            theirs = f"; eager gives {special.eager}" if special.eager else ""
            yield f"{output.name} at {special.place} is {special.given}, not {special.real}{theirs}"


def _limits(output: Output, dtype: str) -> Iterator[str]:
    for special in output.specials:
        if special.input not in ("inf", "-inf") or special.real == "nan":
            continue
        if not _reached(float(special.given), float(special.real), dtype):
            yield f"{output.name} at {special.place} is {special.given}, and tends to {special.real}"


def _reached(given: float, limit: float, dtype: str) -> bool:
    """Return True if a result is a limit; of a zero either sign."""
    if given == limit or math.isinf(limit) or limit.is_integer():
        return given == limit
    _, exponent = math.frexp(limit)
    most = 1.0 if dtype in HALVES else LIMIT
    return abs(given - limit) <= most * math.ldexp(1.0, exponent - DIGITS[dtype])


def _each(rule: Callable[[Output], Iterator[str]]) -> Rule:
    return lambda evidence, device: (said for output in evidence.outputs for said in rule(output))


ALWAYS: tuple[Rule, ...] = (_decided, _related, *map(_each, (_in_range, _overflow_as_eager, _special)))
AT_SCALARS = {"accurate": "accurate as eager"}
PROMISES: dict[str, Rule] = {
    "accurate": _accurate,
    "accurate as eager": _accurate_as_eager,
    "arithmetic": _each(_arithmetic),
    "eager": _eager,
    "rows": _each(_wide),
}
