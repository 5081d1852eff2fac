"""The explanation of a compiled spec, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from fusegen.codegen.emit.kernel_text import element_costs
from fusegen.codegen.emit.remarks import remarks
from fusegen.compiler.pipeline import Compiled
from fusegen.compiler.stages import Derivation
from fusegen.core.dtypes import ELEMENTS
from fusegen.core.facts import Roundoff
from fusegen.core.method import Method, Pass, Variant
from fusegen.core.spec import Spec
from fusegen.core.targets import TARGETS, Device
from fusegen.core.term import Apply, Program, Rewrite, Term, walk
from fusegen.evidence.certify.certificate import Certificate
from fusegen.evidence.explain.attributes import Row, held, in_front
from fusegen.lower import notes
from fusegen.schedule.cost import BUDGETS, instruction_count

DEVICES = {"cpu": "CPU", "cuda": "CUDA"}


@dataclass(frozen=True)
class Step:
    """One use of a rule or a form."""

    rewrite: Rewrite  # what became what, and why
    # the instructions that an element saves by it, in float on CUDA; fewer than 0 where it costs
    saved: int


@dataclass(frozen=True)
class Part:
    """The forward pass, or the gradient."""

    title: str  # which
    first: Program  # the program to start from: as declared, or as differentiated
    steps: tuple[Step, ...]  # what was done to it, in order
    last: Program  # what is left
    notes: tuple[str, ...]  # what lowering does to it on CUDA


@dataclass(frozen=True)
class Cost:
    """The cost of an element of a kernel on CUDA."""

    kernel: str  # forward or backward
    dtypes: str  # of the tensors
    instructions: int  # the instructions
    # those that the chips of `cost.BUDGETS` issue while they move the element's bytes
    budgets: tuple[int, ...]
    kind: str  # the class of costs


class Remark(NamedTuple):
    """A sentence on how the results of a kernel are obtained, which the module says above it."""

    kernel: str
    device: str
    sentence: str


@dataclass(frozen=True)
class Explanation:
    """A compiled spec, and the certificate of its module."""

    compiled: Compiled  # the spec after all stages
    certificate: Certificate  # empty where there is none
    states: Mapping[str, str]  # what the certificate is worth, by device

    @property
    def spec(self) -> Spec:
        """The spec."""
        return self.compiled.spec

    @cached_property
    def held(self) -> list[Row]:
        """Return what the model holds around the kernel."""
        return list(held(self.spec))

    @cached_property
    def parts(self) -> tuple[Part, Part]:
        """Forward and gradient."""
        derivations = self.compiled.algebra.derivations
        return _part("Forward", derivations.forward), _part("Gradient", derivations.backward)

    @cached_property
    def remarks(self) -> list[Remark]:
        """Return how results are obtained, but for the formula in the arithmetic of their dtype."""
        return [
            Remark(which.value, shown, sentence)
            for device, shown in DEVICES.items()
            for which in Pass
            for sentence in remarks(self.compiled, which, TARGETS[device])
        ]

    @cached_property
    def in_front(self) -> list[str]:
        """The sentences on a layer in front: as one with the kernel, or why not."""
        return list(in_front(self.spec, self.compiled.forms))

    @cached_property
    def costs(self) -> list[Cost]:
        """The costs of each kernel and width of elements."""
        found = []
        for which in Pass:
            moved = self.compiled.kernels[which, Device.CUDA, Variant.DOUBLE].moved
            for bits, cost in element_costs(self.compiled, which).items():
                dtypes = (dtype for dtype in self.spec.dtypes if ELEMENTS[dtype].bits == bits)
                budgets = tuple(round(budget * moved * bits / 8) for budget in BUDGETS.values())
                kind = cost.launch_class.value
                found.append(Cost(which.value, ", ".join(dtypes), cost.instructions, budgets, kind))
        return found

    @property
    def methods(self) -> frozenset[Method]:
        """The methods of float32 results and of others on CUDA."""
        plan = self.compiled.plan
        return frozenset(method for which in Pass for method in plan.of(which, Device.CUDA).values())

    @cached_property
    def expected(self) -> list[tuple[str, dict[str, Roundoff]]]:
        """Estimated errors of the formulas in float, by kernel, on each device without a certificate."""
        known = {device for device in self.certificate.parts if self.states.get(device) != "stale"}
        facts = self.compiled.facts
        found = {
            shown: {
                which.value: self._placed(facts[which].estimates[TARGETS[device]].single)
                for which in Pass
                if TARGETS[device] in facts[which].estimates
            }
            for device, shown in DEVICES.items()
            if device not in known
        }
        return [(shown, errors) for shown, errors in found.items() if errors]

    def _placed(self, error: Roundoff) -> Roundoff:
        names = self.compiled.declared.composed.inputs
        return replace(error, at={name: error.at[name] for name in names if name in error.at})

    @cached_property
    def accuracies(self) -> list[tuple[str, str, dict[str, tuple[float, float]]]]:
        """The largest errors that the certificate holds: device, dtype, and ours and eager's by output."""
        found = []
        for device, shown in DEVICES.items():
            old = " (an earlier kernel)" if self.states.get(device) == "stale" else ""
            part = self.certificate.parts.get(device)
            for evidence in part.evidence if part else ():
                errors = {o.name: (o.given.ulp, o.eager.ulp) for o in evidence.outputs if o.eager}
                found.append((shown + old, evidence.dtype, errors))
        return found


def _part(title: str, of: Derivation) -> Part:
    steps = tuple(
        Step(rewrite, _instructions(rewrite.before) - _instructions(rewrite.after))
        for rewrite in (*of.forms, *of.rewrites)
    )
    return Part(title, of.first, steps, of.program, notes(of.program, Device.CUDA))


def _instructions(term: Term) -> int:
    return instruction_count(part.op for part in walk(term) if isinstance(part, Apply))
