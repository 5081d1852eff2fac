"""Tables of accuracy, from certificates: one for each device, one of 4 ulp, and one of the broken promises.

Errors are the largest over all 2**32 float32 inputs, in ulp of the exact result. A device for which a spec
has no certificate of the current format has "-" in its cells.
"""

from collections.abc import Iterator
from pathlib import Path

from fusegen.evidence.certify import certificate_state
from fusegen.evidence.certify.certificate import DEVICES, SUFFIX
from fusegen.evidence.certify.findings import Accuracy, Evidence
from fusegen.evidence.certify.sweep import EVERY

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


def within(folder: Path) -> list[str]:
    """Return which outputs are within 4 ulp at every float32 input, of each function of one tensor.

    A cell says ``yes``, or in how many cells of inputs an error exceeds 4 ulp.
    """
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob(f"*{SUFFIX}")):
        name = path.relative_to(folder).as_posix().removesuffix(SUFFIX)
        sweeps = {device: dict(evidences(path, device)).get("float32") for device in NAMES}
        if any(sweep and sweep.inputs == EVERY for sweep in sweeps.values()):
            found[name] = [cell for sweep in sweeps.values() for cell in _exceeding(sweep)]
    every = [cell for cells in found.values() for cell in cells if cell != NOTHING]
    columns = (f"{device}, {label}" for device in NAMES.values() for label in OUTPUTS.values())
    heads = (f"within 4 ulp: {every.count('yes')} of {len(every)}", *columns)
    rows = [f"| {name} | {' | '.join(cells)} |" for name, cells in found.items()]
    return [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows]


def _exceeding(sweep: Evidence | None) -> tuple[str, str]:
    """Return the cells of the table of 4 ulp for the value and the gradient on a device."""
    if sweep is None or sweep.inputs != EVERY:
        return NOTHING, NOTHING
    value, gradient, *_ = (output.local.over[0] for output in sweep.outputs)
    return f"{value:,}" if value else "yes", f"{gradient:,}" if gradient else "yes"


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
