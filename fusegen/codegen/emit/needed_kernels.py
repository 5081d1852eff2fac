"""The kernels of the candidates that a plan takes, so that a module has their text."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from fusegen.compiler.pipeline import Compiled
from fusegen.core.dtypes import maths
from fusegen.core.ir import Kernel, Math
from fusegen.core.method import Arithmetic, Formula, Pass, Segmented, Variant, arithmetics
from fusegen.core.targets import Device
from fusegen.schedule.plan import Plan

FLOAT_ARITHMETICS = {Arithmetic.FLOAT, Arithmetic.FAST_FLOAT, Arithmetic.SINGLE_RESULT}

NAMED = (
    Variant.SINGLE_WORD,
    Variant.SINGLE_RESULT,
    Variant.SERIES,
)  # whose kernels have names of their own


@dataclass(frozen=True, slots=True)
class Emitted:
    """The kernels of a pass on a device."""

    kernels: tuple[Kernel, ...]  # one for each math type, that of the first dtype first
    # those with names of their own, which 16-bit or float32 results take in float
    named: Mapping[Variant, Kernel]

    def __iter__(self) -> Iterator[Kernel]:
        """Yield all of them, those with names of their own last."""
        yield from self.kernels
        yield from self.named.values()


def emitted(of: Compiled, which: Pass, device: Device) -> Emitted:
    """Return the kernels of a pass on a device."""
    taken = {each.variant for each in of.plan.arithmetics(which, device)}
    if _has_name_of_its_own(of.plan, which, device):
        taken = taken - {Variant.FLOAT} | {Variant.SINGLE_WORD}
    kinds = dict.fromkeys((*maths(of.spec.dtypes), Math.DOUBLE))
    kernels = tuple(of.kernels[which, device, Variant(kind)] for kind in kinds if Variant(kind) in taken)
    named = {own: of.kernels[which, device, own] for own in NAMED if own in taken}
    if not kernels:  # float32 alone, in single words: the name of its own is not needed
        kernels = tuple(replace(own, name=f"{of.spec.name}_{which.value}") for own in named.values())
        return Emitted(kernels, {})
    return Emitted(kernels, named)


def _has_name_of_its_own(plan: Plan, which: Pass, device: Device) -> bool:
    """Return True if a device's 16-bit results are computed in float, and its float32 results in double."""
    single, half = (plan.in_bits(which, device, bits) for bits in (32, 16))
    single = single.otherwise if isinstance(single, Segmented) else single
    if half is None or not isinstance(single, Formula) or single.arithmetic in FLOAT_ARITHMETICS:
        return False
    return not FLOAT_ARITHMETICS.isdisjoint(arithmetics(half))
