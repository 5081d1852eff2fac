"""Remarks of `build` on a spec: promises that its kernels may miss, and names that stand for others.

Of the promises it tells errors first, then time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from fusegen.facts import Estimate
from fusegen.ir import Device
from fusegen.method import Pass
from fusegen.pipeline import Compiled
from fusegen.term import Name

KERNELS = {Pass.FORWARD: "forward", Pass.BACKWARD: "the gradient"}
DEVICES = {Device.CPU: "the CPU", Device.CUDA: "CUDA"}
INACCURATE = "{kernel} on {device} may be {error} at {at} (eager: {eager})"
SLOW = (
    "{kernel} on {device} is computed in double, which takes longer than a copy and may take longer than "
    "eager: in float it would be {error} at {at} (eager: {eager})"
)
LOST = (
    "16-bit results of {kernel} are neither the correctly rounded values nor their neighbours, "
    "as at {name} = {at:.9g}"
)
SHADOWED = "{}: the step {!r} is {}, not the {} that comes with fusegen"
WAYS_OUT = "narrow the inputs with 'assume', write the formula another way, or set 'numerics: eager'"


def doubt(compiled: Compiled) -> str | None:
    """The sentence that `build` prints for a spec; none if its kernels are accurate and none is in double.

    It names the kernel with the largest error.
    """
    for found in (dict(_inaccurate(compiled)), dict(_lost(compiled)), dict(_slow(compiled))):
        if found:
            return f"{compiled.spec.name}: {found[max(found)]}; {WAYS_OUT}"
    return None


def shadows(compiled: Compiled) -> Iterator[str]:
    """A sentence for each step of a chain whose name means another thing than the spec of fusegen's own."""
    spec, (own, shipped) = compiled.spec, compiled.library.folders
    variables = {i.name: "input" for i in spec.inputs} | {p.name: "parameter" for p in spec.params}
    for step in spec.chain:
        name = step.call.spec if step.call else step.term.name if isinstance(step.term, Name) else ""
        here, there = own / f"{name}.yaml", shipped / f"{name}.yaml"
        if not name or not there.is_file():
            continue
        if step.term is not None:
            yield SHADOWED.format(spec.name, name, f"the {variables.get(name, 'named step')}", name)
        elif here.is_file() and here.read_bytes() != there.read_bytes():
            yield SHADOWED.format(spec.name, name, here.as_posix(), name)


def _inaccurate(compiled: Compiled) -> Iterator[tuple[float, str]]:
    """Kernels whose estimated error, in the arithmetic that was chosen, exceeds the contract."""
    for which, device, found in _estimates(compiled):
        if compiled.facts[which].float_ok[device] and not found.keeps_contract:
            yield found.single.ulp, _said(INACCURATE, compiled, (which, device), found)


def _lost(compiled: Compiled) -> Iterator[tuple[float, str]]:
    """Kernels of one tensor whose 16-bit results miss their promise in double, too, by how many do."""
    for which in Pass:
        if missed := compiled.facts[which].missed.by_double:
            name, kernel = compiled.declared.composed.inputs[0], KERNELS[which]
            yield float(len(missed)), LOST.format(kernel=kernel, name=name, at=missed[0])


def _slow(compiled: Compiled) -> Iterator[tuple[float, str]]:
    """Kernels whose results of at most 32 bits are all computed in double, without a table or a fit."""
    for which, device, found in _estimates(compiled):
        if compiled.plan.falls_to_double(which, device):
            yield found.single.ulp, _said(SLOW, compiled, (which, device), found)


def _estimates(compiled: Compiled) -> Iterator[tuple[Pass, Device, Estimate]]:
    """The estimated errors of the kernels."""
    for device in Device:
        for which in Pass:
            if device in compiled.facts[which].estimates:
                yield which, device, compiled.facts[which].estimates[device]


def _said(sentence: str, compiled: Compiled, kernel: tuple[Pass, Device], found: Estimate) -> str:
    which, device = kernel
    assert found.eager is not None, "float is not accurate enough"
    at = found.single.at
    names = [name for name in compiled.declared.composed.inputs if name in at]
    return sentence.format(
        kernel=KERNELS[which],
        device=DEVICES[device],
        error=_wrong(found.single.ulp),
        eager=_wrong(found.eager.ulp),
        at=", ".join(f"{name} = {at[name]:.9g}" for name in names),
    )


def _wrong(ulp: float) -> str:
    return f"wrong by {ulp:.3g} ulp" if math.isfinite(ulp) else "NaN, infinite or zero"
