"""The evidence on disk: ``generated/NAME.certificate.json``, one part per device.

A part belongs to the kernel whose text has the digest it names; `state` says whether that is still so. The
file is stable: no dates, errors to four digits, worst inputs as hexadecimal floats. docs/certificates.md
tells what each key means. This file needs no torch.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusegen.certify.findings import Accuracy, Alien, Evidence, Output, Special, Worst

FORMAT = 1
PARTS = {
    "cpu": ("CALL_SOURCE", "ARITHMETIC_SOURCE", "CPU_PRELUDE", "CPU_SOURCE"),
    "cuda": ("CALL_SOURCE", "ARITHMETIC_SOURCE", "CUDA_PRELUDE", "CUDA_SOURCE"),
}
Json = dict[str, Any]


@dataclass(frozen=True)
class Machine:
    """What a certificate was made with.

    Attributes:
        chip: the GPU, or the CPU's instruction set as PyTorch uses it.
        torch: PyTorch's version.
        compiler: that of the kernel.
    """

    chip: str
    torch: str
    compiler: str


def path_of(module: Path) -> Path:
    """Where the certificate of a module lies."""
    return module.with_suffix(".certificate.json")


def kernel_digest(module: str, device: str) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of a device's kernel, out of the text of a module."""
    texts = dict(re.findall(r'^([A-Z_]+) = r"""\n(.*?)"""', module, re.MULTILINE | re.DOTALL))
    return hashlib.sha256("\0".join(texts.get(part, "") for part in PARTS[device]).encode()).hexdigest()[
        :16
    ]


def read(path: Path) -> Json:
    """A certificate, or an empty one where there is none or none that can be read."""
    try:
        found: Json = json.loads(path.read_text(encoding="utf-8"))
        for device in PARTS.keys() & found.keys():
            _state(found[device], found[device]["kernel"])
        return found if found["format"] == FORMAT else {}
    except (FileNotFoundError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def states(path: Path) -> dict[str, str]:
    """What a certificate says of each device: ``kept``, ``broken``, or ``stale``, of another kernel.

    Args:
        path: of the module.
    """
    found = read(path_of(path))
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return {
        device: _state(found[device], kernel_digest(text, device)) for device in PARTS if device in found
    }


def _state(part: Json, kernel: str) -> str:
    if part["kernel"] != kernel:
        return "stale"
    return "broken" if any(evidence["broken"] for evidence in part["dtypes"].values()) else "kept"


def holds(certificate: Json, device: str, kernel: str, machine: Machine, dtype: str) -> bool:
    """Whether a certificate already tells of a dtype, of this very kernel, made and run by the same."""
    part = certificate.get(device, {})
    return (
        part.get("kernel") == kernel and part.get("made with") == _made(machine) and dtype in part["dtypes"]
    )


def with_evidence(
    certificate: Json,
    name: str,
    formula: str,
    device: str,
    kernel: str,
    machine: Machine,
    evidence: Evidence,
) -> Json:
    """A certificate with one dtype's evidence put in; what belongs to another kernel or machine goes."""
    part = certificate.get(device, {})
    made = _made(machine)
    kept = part.get("dtypes", {}) if part.get("kernel") == kernel and part.get("made with") == made else {}
    dtypes = {**kept, evidence.dtype: shown(evidence)}
    order = ("float32", "float16", "bfloat16", "float64")
    new = {"kernel": kernel, "made with": made, "dtypes": {d: dtypes[d] for d in order if d in dtypes}}
    others = {key: certificate[key] for key in PARTS if key in certificate and key != device}
    parts = {key: value for key, value in sorted({**others, device: new}.items())}
    return {"format": FORMAT, "name": name, "formula": formula, **parts}


def text(certificate: Json) -> str:
    """The bytes of a certificate: lists on one line each, so that a diff is short."""
    return _written(certificate, 0) + "\n"


def shown(evidence: Evidence) -> Json:
    """One dtype's evidence as JSON; what is zero or absent is left out, but for the main figures."""
    return {
        "inputs": evidence.inputs,
        "every": evidence.every,
        "broken": list(evidence.broken),
        **_unless_zero({"undecided": evidence.undecided, "layouts": evidence.layouts}),
        **{output.name: _output(output) for output in evidence.outputs},
        **({"alien": _alien(evidence.alien)} if evidence.alien else {}),
    }


def _made(machine: Machine) -> dict[str, str]:
    return {"chip": machine.chip, "torch": machine.torch, "compiler": machine.compiler}


def _output(output: Output) -> Json:
    return {
        "given": _accuracy(output.given),
        **({"eager": _accuracy(output.eager)} if output.eager else {}),
        "differing": output.differing,
        "further": output.further,
        **({"range": [repr(end) for end in output.range]} if output.range else {}),
        **({"specials": {s.input: _special(s) for s in output.specials}} if output.specials else {}),
    }


def _accuracy(found: Accuracy) -> Json:
    return {
        "ulp": _digits(found.ulp),
        "misrounded": found.misrounded,
        **_unless_zero({"far": found.far, "overflows": found.overflows, "falls": found.falls}),
        "worst": [_worst(worst) for worst in found.worst],
    }


def _worst(worst: Worst) -> list[Any]:
    return [*worst.inputs, _digits(worst.ulp), worst.got, worst.real]


def _special(special: Special) -> list[str]:
    return [special.given, special.eager, special.real]


def _alien(alien: Alien) -> Json:
    return {"count": alien.count, "first": list(alien.first), "worst": list(alien.worst)}


def _digits(ulp: float) -> float | str:
    return "inf" if ulp == float("inf") else float(f"{ulp:.4g}")


def _unless_zero(counts: dict[str, int]) -> dict[str, int]:
    return {key: count for key, count in counts.items() if count}


def _written(value: Any, depth: int) -> str:
    """JSON with a line for each key, and lists in one line unless they hold lists."""
    indent, inner = "  " * depth, "  " * (depth + 1)
    if isinstance(value, dict) and value:
        lines = (f"{inner}{json.dumps(key)}: {_written(item, depth + 1)}" for key, item in value.items())
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, list) for item in value):
        return "[\n" + ",\n".join(f"{inner}{json.dumps(item)}" for item in value) + f"\n{indent}]"
    return json.dumps(value)
