"""Programs that differ from eager where it is right, and their mends: taken where the trial tells.

`special_trial` evaluates both passes at special inputs, and the gradients at incoming gradients that are
powers of two. A program without a fault stays as it is. Else the mends of `algebra/mends.py` are tried one
by one; a mend is kept if it leaves fewer faults.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

from fusegen.algebra import mends
from fusegen.algebra.compose import expanded
from fusegen.algebra.derive import attached, derive, is_arithmetic
from fusegen.algebra.simplify import simplify
from fusegen.algebra.simplify.constants import constants_folded
from fusegen.compiler.ends import limits_selected
from fusegen.compiler.estimates import Formula
from fusegen.compiler.reference_check import needs_torch
from fusegen.compiler.special_trial import KINDS, Trial
from fusegen.compiler.trial_faults import MADE, Fault
from fusegen.core.ir import Kernel, Math
from fusegen.core.method import Both, Pass
from fusegen.core.spec import Spec
from fusegen.core.targets import Device
from fusegen.core.term import Program
from fusegen.errors import NumberOutOfRange, Undefined
from fusegen.lower import lower

MOST = 12  # mends of a pass, one after the other
Limits = Callable[[Program], Program]
Found = tuple[Program, list[Fault]]
Way = Callable[[], Program]  # to another program, which may have a constant that no kernel holds


@dataclass(frozen=True)
class Mending:
    """The passes of a formula, tried."""

    formula: Formula  # as declared
    limits: Limits  # gives a program its limits at infinity
    kinds: frozenset[str]  # of the faults that are looked for

    def mended(self, plain: Both[Program], limited: Both[Program]) -> Both[Program]:
        """Return both passes with their mends, from those without and with limits at infinity."""
        forward = self.best(Pass.FORWARD, limited, ())
        last = partial(mends.incoming_last, ranges=dict(self.formula.assume))
        others = (
            lambda: last(limited.backward),
            lambda: self.limits(last(plain.backward)),
            lambda: mends.rounded_first(last(limited.backward)),
        )
        return Both(forward, self.best(Pass.BACKWARD, Both(forward, limited.backward), others))

    def best(self, which: Pass, programs: Both[Program], others: tuple[Way, ...]) -> Program:
        """Return the program of a pass with the fewest faults, the first of those."""
        found = self.tried(which, programs, programs[which])
        if not _asks(*found):
            return found[0]
        found = min([found, *self.each(which, programs, others)], key=_count)
        for _ in range(MOST):
            ways = self.each(which, programs, self.ways(which, programs, found))
            better = next((way for way in ways if _count(way) < _count(found)), None)
            if better is None:
                break
            found = better
        return found[0]

    def each(self, which: Pass, programs: Both[Program], ways: Iterable[Way]) -> Iterator[Found]:
        """Yield programs of a pass with their faults, but for those with a constant of no value."""
        for way in ways:
            try:
                found = self.tried(which, programs, way())
            except (NumberOutOfRange, Undefined):
                continue
            yield found

    def tried(self, which: Pass, programs: Both[Program], program: Program) -> Found:
        """Return another program of a pass with its faults."""
        both = _with(programs, which, program)
        faults = self.trial(both).faults(self.kernels(both), which)
        kinds = {*self.kinds, *([MADE] if "nan" in self.kinds else [])}
        return program, [fault for fault in faults if fault.kind in kinds]

    @cached_property
    def declared(self) -> Both[Program]:
        """Both passes without stable forms."""
        value, ranges = expanded(self.formula.declared), dict(self.formula.assume)
        return Both(value, derive(value)).map(lambda each: simplify(attached(each), ranges)[0])

    def trial(self, programs: Both[Program]) -> Trial:
        """Return the trial of programs."""
        return Trial(self.formula, programs.map(constants_folded))

    def kernels(self, programs: Both[Program]) -> Both[Kernel]:
        """Return the kernels of programs in float."""
        return Both.of(lambda which: _kernel(which, programs[which]))

    def ways(self, which: Pass, programs: Both[Program], found: Found) -> Iterator[Way]:
        """Yield the mends that the faults of a pass ask for."""
        program, faults = found
        for fault in faults:
            k = fault.output - (which is Pass.BACKWARD)
            undefined = [name for name, x in fault.at.items() if math.isnan(x) and name in program.inputs]
            if fault.kind == "zero" and fault.wanted == 0:
                negative = math.copysign(1, fault.wanted) < 0
                yield partial(
                    mends.with_negative_zero if negative else mends.with_positive_zero, program, k
                )
            elif fault.kind == "nan":
                for name in undefined:
                    yield from map(_made, mends.with_nan(program, k, name))
                if (
                    not any(map(math.isnan, fault.at.values()))
                    and self.declared[which].inputs == program.inputs
                ):
                    yield partial(mends.as_declared, program, k, self.declared[which])
            elif fault.kind == "limit" and math.isnan(fault.own) and {*fault.at} <= {*program.inputs}:
                yield from map(_made, limits_selected(self.trial(programs), program, k, fault))


def judged_kinds(spec: Spec) -> frozenset[str]:
    """Return the kinds of faults to look for: without PyTorch's kernel those that need no eager."""
    return KINDS - ({"zero", "nan"} if needs_torch(spec) else frozenset())


def _asks(program: Program, faults: list[Fault]) -> bool:
    """Return True if faults ask for a mend; beside an infinite gradient arithmetic keeps eager's order."""
    faults = [fault for fault in faults if fault.kind != MADE]
    if not is_arithmetic(program):
        return bool(faults)
    return any(fault.incoming and not math.isinf(fault.incoming) for fault in faults)


def _kernel(which: Pass, program: Program) -> Kernel:
    program = constants_folded(program)
    incoming = program.inputs[0] if which is Pass.BACKWARD else None
    precise = not is_arithmetic(program)
    return lower("tried", program, Device.CPU, Math.FLOAT, precise, incoming)


def _made(program: Program) -> Way:
    return lambda: program


def _count(found: Found) -> int:
    return sum(fault.count for fault in found[1])


def _with(programs: Both[Program], which: Pass, program: Program) -> Both[Program]:
    return Both.of(lambda each: program if each is which else programs[each])
