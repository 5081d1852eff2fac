"""Remarks of `build` on a spec: promises that its kernels may miss, and names that stand for others.

Of the promises it tells errors, those at the defaults of the scalars first; where there are none, times.
What the spec accepts is not told.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fusegen.compiler.differing import differing
from fusegen.compiler.misrounded import misrounded
from fusegen.compiler.missed_contracts import misses
from fusegen.compiler.pipeline import Compiled
from fusegen.compiler.placed import Placed
from fusegen.compiler.trial_faults import Fault
from fusegen.core.facts import Excess
from fusegen.core.interval import Point, in_words
from fusegen.core.method import Pass
from fusegen.core.spec import ACCEPTED, Spec
from fusegen.core.targets import Device
from fusegen.core.term import Name

KERNELS = {Pass.FORWARD: "forward", Pass.BACKWARD: "the gradient"}
DEVICES = {Device.CPU: "the CPU", Device.CUDA: "CUDA"}
VALUE, GRADIENT, SPEED = ACCEPTED
OUTPUTS = {Pass.FORWARD: VALUE, Pass.BACKWARD: GRADIENT}
INACCURATE = "{kernel} on {device} in {dtype} may be {error} at {at} (eager: {eager})"
SLOW = (
    "{kernel} on {device} is computed in double, which takes longer than a copy and may take longer than "
    "eager: in float it would be {error} at {at} (eager: {eager})"
)
DIFFERS = "{output} is {own} at {at}; {words}"
WANTED = {
    "zero": "eager gives {wanted}",
    "nan": "eager gives {wanted}",
    "limit": "it tends to {wanted}",
    "beyond": "exactly it is {wanted}",
    "linear": "with an incoming gradient of {incoming} it is {wanted} by that of 1",
}
# as an error in ulp
SEVERITY = {"zero": 0.0, "linear": 1e3, "beyond": 1e6, "limit": math.inf, "nan": math.inf}
LOST = (
    "16-bit results of {kernel} are neither the correctly rounded values nor their neighbours, as at {at}"
)
OFTEN = "{kernel} on the CPU in float32 may be misrounded at {own:.0%} of the inputs (eager: {eager:.0%})"
SHADOWED = "{}: the step {!r} is {}, not the {} that comes with fusegen"
ELSEWHERE = "with other scalars " + INACCURATE
NO_BETTER = ELSEWHERE + ", and further off than eager next to there"
WAYS_OUT = (
    "narrow the inputs with 'assume', write the formula another way, set 'numerics: eager', or give the "
    "reason why it is right with 'accept: {{{}}}'"
)
MOST = 3  # sentences on errors
NOTHING = "{}: 'accept' has a reason for {}, of which there is nothing to say; remove it"


@dataclass(frozen=True)
class Told:
    """A statement on a promise, which may be printed."""

    error: float  # how large it is
    words: str
    at: Point = field(default_factory=dict)  # the inputs, and scalars where these are not the defaults


@dataclass(frozen=True)
class Warned:
    """The sentences on the promises of a spec."""

    promises: tuple[str, ...]  # none if all kernels are accurate and not in double
    unneeded: dict[str, str]  # by key of `accept` that accepts nothing, a sentence

    @property
    def sentences(self) -> tuple[str, ...]:
        """All that is said."""
        return (*self.promises, *self.unneeded.values())


def contract_warnings(compiled: Compiled) -> tuple[str, ...]:
    """Return the sentences of `warned`."""
    return warned(compiled).sentences


def warned(compiled: Compiled) -> Warned:
    """Return what `build` says of a spec by its estimates."""
    found: dict[str, list[Told]] = {key: [] for key in ACCEPTED}
    for rule in (_inaccurate, _differing, _lost, _often_rounded, _slow):
        for key, told in rule(compiled):
            found[key].append(told)
    spec = compiled.spec
    accepted = {key for key, _ in spec.accept}
    unneeded = {
        key: NOTHING.format(spec.name, key) for key in ACCEPTED if key in accepted and not found[key]
    }
    left = {key: () if key in accepted else told for key, told in found.items()}
    return Warned(_sentences(spec, _worst(compiled, left)), unneeded)


def _worst(compiled: Compiled, found: Mapping[str, Sequence[Told]]) -> list[tuple[str, Told]]:
    """Return the largest error of each output, at the defaults first; without any, the longest time."""
    worst: dict[tuple[bool, str], Told] = {}
    for key in (GRADIENT, VALUE):
        for told in found[key]:
            place = _is_elsewhere(compiled, told.at), key
            worst[place] = max(worst.get(place, told), told, key=_size)
    times = [(SPEED, told) for told in sorted(found[SPEED], key=_size)[-1:]]
    order = sorted(worst.items(), key=lambda item: (item[0][0], -item[1].error))
    return [(key, told) for (_, key), told in order[:MOST]] or times


def _size(told: Told) -> tuple[float, str]:
    return told.error, told.words


def _is_elsewhere(compiled: Compiled, at: Point) -> bool:
    """Return True if a point is one at other scalars than the defaults."""
    defaults = compiled.declared.formula.params
    return any(at.get(name, value) != value for name, value in defaults.items())


def _sentences(spec: Spec, told: Sequence[tuple[str, Told]]) -> tuple[str, ...]:
    """Return a sentence for each; the last one has the ways out."""
    keys = ", ".join(f"{key}: ..." for key in ACCEPTED if key in {key for key, _ in told})
    *others, last = [f"{spec.name}: {each.words}" for _, each in told] or [""]
    return (*others, f"{last}; {WAYS_OUT.format(keys)}") if last else ()


def shadows(compiled: Placed) -> Iterator[str]:
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


def _inaccurate(compiled: Compiled) -> Iterator[tuple[str, Told]]:
    """Yield kernels whose estimated error, in the arithmetic that was chosen, exceeds the contract."""
    for miss in misses(compiled):
        where, own = _where(compiled, miss.which, miss.device, miss.excess), miss.excess.own
        elsewhere = NO_BETTER if own.ulp <= miss.excess.eager else ELSEWHERE
        words = elsewhere if _is_elsewhere(compiled, own.at) else INACCURATE
        yield OUTPUTS[miss.which], Told(own.ulp, words.format(dtype=miss.dtype, **where), own.at)


def _lost(compiled: Compiled) -> Iterator[tuple[str, Told]]:
    """Kernels whose 16-bit results miss their promise in double, too, by how many do."""
    for which in Pass:
        if missed := compiled.facts[which].missed.left:
            told = LOST.format(kernel=KERNELS[which], at=in_words(missed[0]))
            yield OUTPUTS[which], Told(float(len(missed)), told)


def _often_rounded(compiled: Compiled) -> Iterator[tuple[str, Told]]:
    """Yield kernels of which more results may be misrounded than a quarter, and than of eager's."""
    for each in misrounded(compiled):
        told = OFTEN.format(kernel=KERNELS[each.which], own=each.own, eager=each.eager)
        yield OUTPUTS[each.which], Told(each.own, told)


def _differing(compiled: Compiled) -> Iterator[tuple[str, Told]]:
    """Yield results that are not eager's, or not the limit, at special inputs or incoming gradients."""
    for fault in differing(compiled):
        told = Told(SEVERITY[fault.kind], _sentence(compiled, fault), fault.at)
        yield (GRADIENT if fault.output else VALUE), told


def _sentence(compiled: Compiled, fault: Fault) -> str:
    """Say which result differs, where, and from what."""
    names = compiled.declared.formula.declared.inputs
    output = f"the gradient of {names[fault.output - 1]}" if fault.output else "the value"
    words = WANTED[fault.kind].format(wanted=f"{fault.wanted:.9g}", incoming=f"{fault.incoming:.9g}")
    return DIFFERS.format(output=output, own=f"{fault.own:.9g}", at=in_words(fault.at), words=words)


def _slow(compiled: Compiled) -> Iterator[tuple[str, Told]]:
    """Kernels whose results of at most 32 bits are all computed in double, without a table or a fit."""
    for which in Pass:
        for device, found in compiled.facts[which].estimates.items():
            if found.excess and compiled.plan.falls_to_double(which, device):
                where = _where(compiled, which, device, found.excess)
                yield SPEED, Told(found.excess.own.ulp, SLOW.format(**where))


def _where(compiled: Compiled, which: Pass, device: Device, found: Excess) -> dict[str, str]:
    """Return the words for a kernel, its error and the inputs that have it."""
    declared = compiled.declared.composed
    names = [name for name in (*declared.inputs, *declared.params) if name in found.own.at]
    return {
        "kernel": KERNELS[which],
        "device": DEVICES[device.like],
        "error": _wrong(found.own.ulp),
        "eager": _wrong(found.eager),
        "at": in_words({name: found.own.at[name] for name in names}),
    }


def _wrong(ulp: float) -> str:
    return f"wrong by {ulp:.3g} ulp" if math.isfinite(ulp) else "NaN, infinite or zero"
