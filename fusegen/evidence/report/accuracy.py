"""Tables of accuracy, from certificates: one for each device, and one of the broken promises.

Errors are the largest over all 2**32 float32 inputs, in ulp of the exact result. A device for which a spec
has no certificate of the current format has "-" in its cells.
"""

from collections.abc import Iterator
from pathlib import Path

from fusegen.evidence.certify import certificate_state
from fusegen.evidence.certify.certificate import DEVICES, SUFFIX
from fusegen.evidence.certify.findings import Accuracy, Evidence

SPECS = ("gelu", "gelu_tanh", "silu", "mish", "quick_gelu", "sigmoid", "tanh", "elu")
OUTPUTS = {"value": "value", "gradient of x": "gradient"}
NAMES = {"cuda": "CUDA", "cpu": "CPU"}
HEADS = ("fusegen, ulp", "eager, ulp", "fusegen, misrounded %", "eager, misrounded %")
NOTHING = "-"


def table(folder: Path, device: str, specs: tuple[str, ...] = SPECS) -> list[str]:
    """Return the accuracy of functions on ``cpu`` or ``cuda``, by a folder of modules, in Markdown."""
    heads = (f"{NAMES[device]}, float32", "", *HEADS)
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in specs:
        found = dict(evidences(folder / f"{name}{SUFFIX}", device))
        for output, label in OUTPUTS.items():
            lines.append(f"| {name} | {label} | {' | '.join(cells(found.get('float32'), output))} |")
    return lines


def exceptions(folder: Path) -> list[str]:
    """Return the promises that the certificates of a folder show as broken, as lines of Markdown.

    A row has the first broken promise of a spec, a device and a dtype, and the number of the others.
    """
    lines = ["| spec | device | dtype | broken promises |", "|---|---|---|---|"]
    for path in sorted(folder.rglob(f"*{SUFFIX}")):
        name = path.relative_to(folder).as_posix().removesuffix(SUFFIX)
        for device in DEVICES:
            for dtype, evidence in evidences(path, device):
                if evidence.broken:
                    first, *others = evidence.broken
                    told = f"{first}; {len(others)} more" if others else first
                    lines.append(f"| {name} | {NAMES[device]} | {dtype} | {told} |")
    return lines


def evidences(path: Path, device: str) -> Iterator[tuple[str, Evidence]]:
    """The evidence by dtype that a certificate has of a device; none without one of the current format."""
    part = certificate_state.read(path).parts.get(device)
    for evidence in part.evidence if part else ():
        yield evidence.dtype, evidence


def cells(evidence: Evidence | None, output: str) -> tuple[str, str, str, str]:
    """Return the largest errors and the misrounded shares of one output, ours and eager's."""
    found = next((o for o in evidence.outputs if o.name == output), None) if evidence else None
    if evidence is None or found is None or found.eager is None:
        return NOTHING, NOTHING, NOTHING, NOTHING
    both = (found.given, found.eager)
    (ours, eager), (share, beside) = map(ulp, both), (misrounded(one, evidence.inputs) for one in both)
    return ours, eager, share, beside


def ulp(accuracy: Accuracy) -> str:
    """Return the largest error: ``3.69``, ``1.7e+07`` or ``infinite``."""
    if accuracy.ulp == float("inf"):
        return "infinite"
    return f"{accuracy.ulp:.2f}" if accuracy.ulp < 1000 else f"{accuracy.ulp:.1e}"


def misrounded(accuracy: Accuracy, inputs: int) -> str:
    """Return the share of results that are not correctly rounded, in per cent: ``4.52``."""
    return f"{100 * accuracy.misrounded / inputs:.2f}"
