"""The state of a certificate, and the sentence that reports it. This needs no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from fusegen.certify import contract, recorded
from fusegen.certify.certificate import DEVICES, FORMAT, Claim, Json, path_of
from fusegen.certify.digest import kernel_digest
from fusegen.printers.notation import notation
from fusegen.spec import Spec

BAD = (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError)
SENTENCES = {
    "stale": "its certificate is of another kernel",
    "foreign": "its certificate has another name, formula or promise than the spec",
    "incomplete": "its certificate lacks a dtype of the spec",
    "contradictory": "its certificate has figures that break other promises than it says",
    "unreadable": "its certificate cannot be read",
}


def claim(spec: Spec) -> Claim:
    """The spec that a module's certificate has to belong to."""
    return Claim(spec.name, notation(spec), spec.dtypes, spec.numerics)


def read(path: Path) -> Json:
    """A certificate, or an empty one where there is none or none of this format that can be read."""
    try:
        certificate = _loaded(path)
        return certificate if certificate["format"] == FORMAT else {}
    except (OSError, *BAD):
        return {}


def states(module: Path, claim: Claim) -> dict[str, str]:
    """The state of each device's part: ``ok``, the broken promises in short, or a key of `SENTENCES`.

    Args:
        module: the path of the module.
        claim: the spec that its certificate has to belong to.
    """
    path = path_of(module)
    if not path.exists():
        return {}
    try:
        certificate = _loaded(path)
    except (OSError, *BAD):
        return dict.fromkeys(DEVICES, "unreadable")
    text = module.read_text(encoding="utf-8") if module.exists() else ""
    parts = [device for device in DEVICES if device in certificate]
    if certificate["format"] != FORMAT:
        return dict.fromkeys(parts, "stale")
    return {
        device: _state(certificate, device, claim, kernel_digest(text, device)) for device in parts
    } or dict.fromkeys(DEVICES, "unreadable")


def sentences(module: Path, name: str, states: Mapping[str, str]) -> list[str]:
    """A sentence for each state in `SENTENCES`, with the command that helps.

    Args:
        module: the path of the module.
        name: of its spec, as a person says it.
        states: as of `states`.
    """
    told = []
    for state, sentence in SENTENCES.items():
        devices = [device for device, found in states.items() if found == state]
        if devices:
            remedy = f"run 'python -m fusegen certify {name}'"
            told.append(f"{module}: {sentence} ({', '.join(devices)}); {remedy}")
    return told


def _loaded(path: Path) -> Json:
    """A certificate whose parts have the form of one.

    Raises:
        OSError, or one of `BAD`: the file cannot be read, or is no certificate.
    """
    certificate: Json = json.loads(path.read_text(encoding="utf-8"))
    if int(certificate["format"]) == FORMAT:
        for device in DEVICES:
            if device in certificate:
                part = certificate[device]
                _ = (
                    part["kernel"]
                    + part["made with"]["chip"]
                    + certificate["name"]
                    + certificate["formula"]
                )
                if not part["dtypes"]:
                    raise ValueError("a part has no evidence")
                for dtype, shown in part["dtypes"].items():
                    recorded.evidence(dtype, shown)
    return certificate


def _state(certificate: Json, device: str, claim: Claim, kernel: str) -> str:
    part = certificate[device]
    if part["kernel"] != kernel:
        return "stale"
    evidence = [recorded.evidence(dtype, shown) for dtype, shown in part["dtypes"].items()]
    bits = {one.promise == "eager" for one in evidence}
    named = (certificate["name"], certificate["formula"]) == (claim.name, claim.formula)
    if not named or bits != {claim.numerics == "eager"}:
        return "foreign"
    if any(contract.judged(one, one.promise, device).broken != one.broken for one in evidence):
        return "contradictory"
    broken = [one for one in evidence if one.broken]
    if broken:
        return "; ".join(f"{one.dtype} {contract.in_short(one)}" for one in broken)
    return "incomplete" if set(claim.dtypes) - part["dtypes"].keys() else "ok"
