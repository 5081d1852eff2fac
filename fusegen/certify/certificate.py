"""The evidence on disk: ``generated/NAME.certificate.json``, one part per device.

A part belongs to the module whose text has the digest it names; `state` says what a file is worth. The file
is stable: no dates, errors to four digits, worst inputs as hexadecimal floats. docs/certificates.md says
what each key means. This file needs no torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusegen.certify.findings import (
    Accuracy,
    Evidence,
    Output,
    ReferenceMismatch,
    Relations,
    Sample,
    Special,
    Worst,
    four_digits,
)

FORMAT = 2
DEVICES = ("cpu", "cuda")
DTYPES = ("float32", "float16", "bfloat16", "float64")
DEPTH = 3  # of a dtype's evidence: in a device's "dtypes"
Json = dict[str, Any]


@dataclass(frozen=True)
class Machine:
    """The chip and the software that a certificate was made with.

    Attributes:
        chip: the GPU, or the CPU's instruction set as PyTorch uses it.
        torch: PyTorch's version.
        compiler: that of the kernel.
    """

    chip: str
    torch: str
    compiler: str


@dataclass(frozen=True)
class Claim:
    """The spec that a certificate has to belong to.

    Attributes:
        name, formula: of the spec.
        dtypes, numerics: of the spec.
    """

    name: str
    formula: str
    dtypes: tuple[str, ...]
    numerics: str = "accurate"


@dataclass(frozen=True)
class Kernel:
    """The kernels of one device: their digest, and what they were built by and run on."""

    device: str
    digest: str
    machine: Machine


def path_of(module: Path) -> Path:
    """The path of the certificate of a module."""
    return module.with_suffix(".certificate.json")


def holds(certificate: Json, kernel: Kernel, dtype: str) -> bool:
    """True if a certificate has evidence of a dtype for this kernel, chip, PyTorch and compiler."""
    return dtype in _held(certificate, kernel)


def with_evidence(certificate: Json, claim: Claim, kernel: Kernel, evidence: Evidence) -> Json:
    """A certificate with one dtype's evidence added; evidence of another kernel or machine is removed."""
    dtypes = {**_held(certificate, kernel), evidence.dtype: shown(evidence)}
    new = {
        "kernel": kernel.digest,
        "made with": _made(kernel.machine),
        "dtypes": {dtype: dtypes[dtype] for dtype in DTYPES if dtype in dtypes},
    }
    parts = {key: certificate[key] for key in DEVICES if key in certificate} | {kernel.device: new}
    head = {"format": FORMAT, "name": claim.name, "formula": claim.formula}
    return {**head, **dict(sorted(parts.items()))}


def text(certificate: Json) -> str:
    """The bytes of a certificate: the evidence of a dtype is one line, so that a diff is short."""
    return _written(certificate, 0) + "\n"


def shown(evidence: Evidence) -> Json:
    """One dtype's evidence as JSON; what is zero or absent is left out, except the main figures."""
    return {
        "inputs": evidence.inputs,
        "every": evidence.every,
        "promise": evidence.promise,
        "broken": list(evidence.broken),
        **_unless_zero({"undecided": evidence.undecided}),
        "relations": _relations(evidence.relations),
        **(
            {"ranges": {n: list(map(repr, r)) for n, r in evidence.ranges.items()}}
            if evidence.ranges
            else {}
        ),
        **_outputs(evidence.outputs),
        **({"mismatch": _mismatch(evidence.mismatch)} if evidence.mismatch else {}),
        **({"beyond": _sample(evidence.beyond)} if evidence.beyond else {}),
        **({"scalars": [_sample(sample) for sample in evidence.scalars]} if evidence.scalars else {}),
    }


def _held(certificate: Json, kernel: Kernel) -> Json:
    """The evidence by dtype that a certificate has of a kernel, made and run by the same."""
    part: Json = certificate.get(kernel.device, {})
    same = part.get("kernel") == kernel.digest and part.get("made with") == _made(kernel.machine)
    return dict(part["dtypes"]) if same else {}


def _made(machine: Machine) -> dict[str, str]:
    return {"chip": machine.chip, "torch": machine.torch, "compiler": machine.compiler}


def _outputs(outputs: tuple[Output, ...]) -> Json:
    return {output.name: _output(output) for output in outputs}


def _sample(sample: Sample) -> Json:
    values = {name: repr(value) for name, value in sample.scalars}
    return {**({"values": values} if values else {}), "inputs": sample.inputs, **_outputs(sample.outputs)}


def _output(output: Output) -> Json:
    return {
        "given": _accuracy(output.given),
        **({"eager": _accuracy(output.eager)} if output.eager else {}),
        "bits_differ": output.bits_differ,
        "worse_than_eager": output.worse_than_eager,
        **({"range": [repr(end) for end in output.range]} if output.range else {}),
        **({"specials": {s.place: _special(s) for s in output.specials}} if output.specials else {}),
    }


def _accuracy(found: Accuracy) -> Json:
    counts = ("beyond_neighbour", "overflows", "monotonicity_breaks")
    return {
        "ulp": _digits(found.ulp),
        "misrounded": found.misrounded,
        **_unless_zero({key: getattr(found, key) for key in counts}),
        "worst": [_worst(worst) for worst in found.worst],
    }


def _worst(worst: Worst) -> list[Any]:
    return [*worst.inputs, _digits(worst.ulp), worst.got, worst.real]


def _special(special: Special) -> list[str]:
    return [special.given, special.eager, special.real]


def _mismatch(mismatch: ReferenceMismatch) -> Json:
    return {"count": mismatch.count, "first": list(mismatch.first), "worst": list(mismatch.worst)}


def _relations(relations: Relations) -> Json:
    return {
        "kept": relations.kept,
        **({"broken": list(relations.broken)} if relations.broken else {}),
    }


def _digits(ulp: float) -> float | str:
    return "inf" if ulp == float("inf") else four_digits(ulp)


def _unless_zero(counts: Mapping[str, int]) -> dict[str, int]:
    return {key: count for key, count in counts.items() if count}


def _written(value: Any, depth: int) -> str:
    """JSON with a line for each key of an object that holds objects, down to the dtypes; else one line."""
    if (
        depth == DEPTH
        or not isinstance(value, dict)
        or not any(isinstance(v, dict) for v in value.values())
    ):
        return json.dumps(value)
    indent, inner = "  " * depth, "  " * (depth + 1)
    lines = [f"{inner}{json.dumps(key)}: {_written(item, depth + 1)}" for key, item in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
