"""The state of a certificate, and the sentence that reports it. This needs no torch."""

from collections.abc import Mapping
from pathlib import Path

from fusegen.codegen.printers.notation import notation
from fusegen.core.spec import Spec
from fusegen.evidence.certify import certificate_text, contract, module_kernels
from fusegen.evidence.certify.certificate import DEVICES, Certificate, Claim, Part, path_of
from fusegen.evidence.certify.digest import kernel_digest

SENTENCES = {
    "stale": "its certificate is of another kernel",
    "foreign": "its certificate has another name, formula or promise than the spec",
    "incomplete": "its certificate lacks a dtype of the spec",
    "edited": "its certificate was edited or cut off after it was written",
    "unreadable": "its certificate cannot be read",
}
WRONG = ("foreign", "edited", "unreadable")  # states that nobody gets by building and certifying


def claim(spec: Spec) -> Claim:
    """Return the spec that a module's certificate has to belong to."""
    return Claim(spec.name, notation(spec), spec.dtypes, spec.numerics)


def read(path: Path) -> Certificate:
    """Return a certificate, or an empty one where there is none of this format that can be read."""
    try:
        return certificate_text.read(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Certificate()


def of_kernels(module: Path, spec: Spec) -> list[tuple[Certificate, dict[str, str]]]:
    """Return the certificate of each kernel of a spec, in order, with the states of its parts, as `states`.

    Where there is none, both are empty.
    """
    whole = module.read_text(encoding="utf-8") if module.exists() else ""
    found = []
    for title, each in zip(module_kernels.titles(spec), spec.kernels, strict=True):
        path, text = path_of(module, title), module_kernels.text_of(whole, spec, title)
        found.append((read(path), states(path, claim(each), text)))
    return found


def of_spec(module: Path, spec: Spec) -> dict[str, str]:
    """Return the state of each device's part, as `states`, of a spec with one or several kernels.

    A device has the state of the first kernel that is not ok. Without a certificate of each there is none.
    """
    found: dict[str, str] = {}
    every = [of_parts for _, of_parts in of_kernels(module, spec)]
    for device, state in (part for of_parts in every for part in of_parts.items()):
        found[device] = state if found.get(device, "ok") == "ok" else found[device]
    return found if all(every) else {}


def states(
    path: Path,  # of a certificate; without it there are no states
    claim: Claim,  # of the kernel that it has to belong to
    text: str,  # of the module, as of one with this kernel alone
) -> dict[str, str]:
    """Return the state of each device's part: ``ok``, broken promises in short, or a key of `SENTENCES`."""
    if not path.exists():
        return {}
    certificate = read(path)
    return {
        device: _state(certificate, part, claim, kernel_digest(text, device))
        for device, part in certificate.parts.items()
    } or dict.fromkeys(DEVICES, "unreadable")


def sentences(module: Path, name: str, states: Mapping[str, str]) -> list[str]:
    """Return a sentence for each state in `SENTENCES` of a module, with the command that helps."""
    told = []
    for state, sentence in SENTENCES.items():
        devices = [device for device, found in states.items() if found == state]
        if devices:
            remedy = f"run 'python -m fusegen certify {name}'"
            told.append(f"{module}: {sentence} ({', '.join(devices)}); {remedy}")
    return told


def _state(certificate: Certificate, part: Part, claim: Claim, kernel: str) -> str:
    if part.is_edited:
        return "edited"
    if part.kernel.digest != kernel:
        return "stale"
    is_eager = certificate.promise == "eager"
    if certificate.title != claim.title or is_eager != (claim.numerics == "eager"):
        return "foreign"
    broken = [one for one in part.evidence if one.broken]
    if broken:
        return "; ".join(f"{one.dtype} {contract.in_short(one)}" for one in broken)
    return "incomplete" if set(claim.dtypes) - {one.dtype for one in part.evidence} else "ok"
