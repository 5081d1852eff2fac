"""The text of a certificate: a line of at most 160 characters for an output, the same bytes each time.

    # gate: y = x · hardsigmoid(x)
    # format 4, contract 3, seed 20261, accurate
    cpu   b38b84b446236a9a  x86_64 AVX512, torch 2.13.0, c++ 12.2.0
    float32   value    all 4,294,967,296  5.1 / 4.2 ulp  29.85 / 26.39 %  over 4: 2 / 12  at 0x1.8p+0
    float32   BROKEN value: 2 of 32640 cells break C1: 5.1 ulp, eager 4.2, at 0x1.8p+0
    tried     relations 84  parameters 16  specials 10
    sum       0123456789abcdef

Figures are ours / eager's. docs/certificates.md says what each means. `sum` is a digest of the two first
lines and of the lines of the part, which tells a file that was edited or cut off.
"""

import re
from collections.abc import Iterator
from dataclasses import fields

from fusegen.core.digest import digest
from fusegen.evidence.certify import output_text
from fusegen.evidence.certify.certificate import (
    CONTRACT,
    DTYPES,
    FORMAT,
    SEED,
    Certificate,
    Kernel,
    Machine,
    Part,
)
from fusegen.evidence.certify.findings import Evidence, Tried
from fusegen.evidence.certify.output_text import WIDTH

HEAD = re.compile(rf"# format {FORMAT}, contract {CONTRACT}, seed {SEED}, (accurate|arithmetic|eager|rows)")
PART = re.compile(r"(cpu|cuda) +([0-9a-f]+)  (.+), torch (\S+), (.+)")
TRIED = re.compile(r"(\w+)((?: \d+)+)")
BROKEN = "BROKEN"
NO_SUM = "0" * 16  # of an edited part, which stays one where another part is renewed
COLUMNS = tuple(field.name for field in fields(Tried))


class NotACertificate(ValueError):
    """A text is no certificate of this format."""


def text(certificate: Certificate) -> str:
    """Return the text of a certificate."""
    head = [
        f"# {certificate.title}",
        f"# format {FORMAT}, contract {CONTRACT}, seed {SEED}, {certificate.promise}",
    ]
    lines = [*head]
    for part in certificate.parts.values():
        written = [*_part(part)]
        total = NO_SUM if part.is_edited else _sum([*head, *written])
        lines += [*written, f"{'sum':{output_text.DTYPE}}{total}"]
    return "".join(f"{line}\n" for line in lines)


def read(text: str) -> Certificate:
    """Return the certificate of a text.

    Raises:
        NotACertificate: it is none of this format.
    """
    lines = text.splitlines()
    head = HEAD.fullmatch(lines[1]) if len(lines) > 1 else None
    if head is None or not lines[0].startswith("# "):
        raise NotACertificate("it has no head of this format")
    starts = [k for k, line in enumerate(lines) if PART.fullmatch(line)]
    if not starts or starts[0] != 2:
        raise NotACertificate("it has no part of a device")
    ends = [*starts[1:], len(lines)]
    try:
        parts = [
            _read_part(lines[:2], lines[start:end], head[1])
            for start, end in zip(starts, ends, strict=True)
        ]
    except (ArithmeticError, LookupError) as error:  # a number without end, figures in another order
        raise NotACertificate(str(error)) from error
    return Certificate(lines[0][2:], head[1], {part.kernel.device: part for part in parts})


def _part(part: Part) -> Iterator[str]:
    kernel, machine = part.kernel, part.kernel.machine
    yield f"{kernel.device:5} {kernel.digest}  {machine.chip}, torch {machine.torch}, {machine.compiler}"
    name = max(len(output.name) for one in part.evidence for output in one.outputs)
    for evidence in part.evidence:
        for output in evidence.outputs:
            yield from output_text.lines(evidence, output, name)
        for sentence in evidence.broken:
            yield _cut(f"{evidence.dtype:{output_text.DTYPE}}{BROKEN} {sentence}")
    counts = [
        " ".join((name, *(str(getattr(one.tried, name)) for one in part.evidence))) for name in COLUMNS
    ]
    yield f"{'tried':{output_text.DTYPE}}{'  '.join(counts)}"


def _read_part(head: list[str], lines: list[str], promise: str) -> Part:
    match = PART.fullmatch(lines[0])
    assert match is not None
    device, digest, chip, torch, compiler = match.groups()
    last = lines[-1].split()
    body = lines[1:-1] if last[:1] == ["sum"] else lines[1:]
    is_edited = last != ["sum", _sum([*head, *lines[:-1]])]
    evidence = _read_evidence(body, promise)
    return Part(Kernel(device, digest, Machine(chip, torch, compiler)), evidence, is_edited)


def _read_evidence(lines: list[str], promise: str) -> tuple[Evidence, ...]:
    outputs: dict[str, list[list[str]]] = {}
    broken: dict[str, list[str]] = {}
    tried: dict[str, list[int]] = {}
    for line in lines:
        first, _, rest = line.partition(" ")
        rest = rest.lstrip()
        if first == "tried":
            tried = {name: [*map(int, counts.split())] for name, counts in TRIED.findall(rest)}
        elif first in DTYPES and rest.startswith(f"{BROKEN} "):
            broken.setdefault(first, []).append(rest.removeprefix(f"{BROKEN} "))
        elif first in DTYPES:
            outputs.setdefault(first, []).append([rest])
        elif not first and outputs:
            outputs[next(reversed(outputs))][-1].append(rest)
        else:
            raise NotACertificate(f"a line of it begins with {first!r}")
    sizes = {len(counts) for counts in tried.values()} | {len(outputs)}
    if not outputs or tried.keys() != set(COLUMNS) or len(sizes) != 1:
        raise NotACertificate("it does not say what was tried in each dtype")
    rows = zip(outputs.items(), zip(*(tried[name] for name in COLUMNS), strict=True), strict=True)
    evidence = []
    for (dtype, several), counts in rows:
        found = [output_text.read(lines) for lines in several]
        every = found[0].inputs, found[0].every, 0, tuple(one.output for one in found)
        sentences = tuple(broken.get(dtype, ()))
        evidence.append(Evidence(dtype, *every, promise=promise, broken=sentences, tried=Tried(*counts)))
    return tuple(evidence)


def _sum(lines: list[str]) -> str:
    return digest("\n".join(lines), 16)


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"
