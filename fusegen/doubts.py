"""What `build` says of a spec: which promises its kernels may miss, and which names stand for others.

Of the promises it tells errors first, then time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from fusegen.ir import Device
from fusegen.pipeline import Compilation
from fusegen.render import Singles
from fusegen.roundoff import Roundoff
from fusegen.term import Name

KERNELS = ("forward", "the gradient")
DEVICES = {Device.CPU: "the CPU", Device.CUDA: "CUDA"}
INACCURATE = "{kernel} on {device} may be {error} at {at} (eager: {eager})"
SLOW = (
    "{kernel} on {device} is computed in double, which takes longer than a copy and may take longer than "
    "eager: in float it would be {error} at {at} (eager: {eager})"
)
SHADOWED = "{}: the step {!r} is {}, not the {} that comes with fusegen"
WAYS_OUT = "narrow the inputs with 'assume', write the formula another way, or set 'numerics: eager'"


def doubt(compiled: Compilation) -> str | None:
    """The sentence that `build` prints for a spec; none if its kernels are accurate and none is in double.

    It names the kernel with the largest error.
    """
    for found in (dict(_inaccurate(compiled)), dict(_slow(compiled))):
        if found:
            return f"{compiled.spec.name}: {found[max(found)]}; {WAYS_OUT}"
    return None


def shadows(compiled: Compilation) -> Iterator[str]:
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


def _inaccurate(compiled: Compilation) -> Iterator[tuple[float, str]]:
    """Kernels whose estimated error, in the arithmetic that was chosen, exceeds the contract."""
    for device, errors in compiled.roundoffs.items():
        for gradient, error in enumerate(errors):
            in_float = compiled.trusted[device][gradient]
            if in_float and not compiled.kept(device, bool(gradient), error):
                yield error.ulp, _said(INACCURATE, compiled, device, gradient, error)


def _slow(compiled: Compilation) -> Iterator[tuple[float, str]]:
    """Kernels whose float32 results are all computed in double."""
    for device, errors in compiled.roundoffs.items():
        for gradient, error in enumerate(errors):
            if compiled.singles[device][gradient] is Singles.DOUBLE:
                yield error.ulp, _said(SLOW, compiled, device, gradient, error)


def _said(sentence: str, compiled: Compilation, device: Device, gradient: int, error: Roundoff) -> str:
    eager = compiled.formula.eager_error(device, bool(gradient)).ulp
    names = [name for name in compiled.composed.inputs if name in error.at]
    return sentence.format(
        kernel=KERNELS[gradient],
        device=DEVICES[device],
        error=_wrong(error.ulp),
        eager=_wrong(eager),
        at=", ".join(f"{name} = {error.at[name]:.9g}" for name in names),
    )


def _wrong(ulp: float) -> str:
    return f"wrong by {ulp:.3g} ulp" if math.isfinite(ulp) else "NaN, infinite or zero"
