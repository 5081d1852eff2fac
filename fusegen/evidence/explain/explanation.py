"""The explanation of a compiled spec, as values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from fusegen.codegen.emit.kernel_text import element_costs
from fusegen.codegen.emit.remarks import remarks
from fusegen.compiler.pipeline import Compiled
from fusegen.compiler.stages import Derivation
from fusegen.core.dtypes import ELEMENTS
from fusegen.core.facts import Estimate, Roundoff
from fusegen.core.method import Method, Pass, Variant
from fusegen.core.targets import TARGETS, Device
from fusegen.core.term import Apply, Program, Rewrite, Term, walk
from fusegen.evidence.certify.certificate import Certificate
from fusegen.evidence.explain.attributes import Row, held, in_front
from fusegen.lower import notes
from fusegen.schedule.cost import BUDGETS, instruction_count
from fusegen.schedule.forms import BITMASK

DEVICES = {"cpu": "CPU", "cuda": "CUDA"}


@dataclass(frozen=True)
class Step:
    """One use of a rule or a form.

    Attributes:
        rewrite: what became what, and why.
        saved: the instructions that an element saves by it, in float on CUDA; fewer than 0 where it costs.
    """

    rewrite: Rewrite
    saved: int


@dataclass(frozen=True)
class Part:
    """The forward pass, or the gradient.

    Attributes:
        title: which.
        first: the program to start from: as declared, or as differentiated.
        steps: what was done to it, in order.
        last: what is left.
        notes: what lowering does to it on CUDA.
    """

    title: str
    first: Program
    steps: tuple[Step, ...]
    last: Program
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Cost:
    """The cost of an element of a kernel on CUDA.

    Attributes:
        kernel: forward or backward.
        dtypes: of the tensors.
        instructions: the instructions.
        budgets: those that the chips of `cost.BUDGETS` issue while they move the element's bytes.
        kind: the class of costs.
    """

    kernel: str
    dtypes: str
    instructions: int
    budgets: tuple[int, ...]
    kind: str


@dataclass(frozen=True)
class Accuracy:
    """The largest errors that a certificate holds, in ulp of the exact result.

    Attributes:
        device: where; and whether the certificate is of an earlier kernel.
        dtype: of the tensors.
        errors: ours and eager's, by output.
    """

    device: str
    dtype: str
    errors: dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Expected:
    """The estimated errors of the formulas in float, on a device that no certificate is of.

    Attributes:
        device: where.
        errors: of each kernel.
    """

    device: str
    errors: dict[str, Roundoff]


@dataclass(frozen=True)
class Remark:
    """A sentence on how results are obtained, which the module says above the kernel.

    Attributes:
        kernel: forward or backward.
        device: where.
        sentence: of it.
    """

    kernel: str
    device: str
    sentence: str


@dataclass(frozen=True)
class Explanation:
    """All of it.

    Attributes:
        name, summary, source: of the spec.
        held: what the model holds around the kernel.
        accepted: the warnings of `build` that the spec accepts, each with its reason.
        parts: forward and gradient.
        exact: whether the kernels are arithmetic whose bits are PyTorch's.
        remarks: how results are obtained, but for the formula in the arithmetic of their dtype.
        in_front: the sentences on a layer in front: as one with the kernel, or why not.
        masked: whether a bit of each element decides the gradient.
        costs: of each kernel in each dtype.
        methods: of float32 results and of others on CUDA.
        expected: for each device without a certificate.
        accuracies: out of the certificate; none where there is none.
    """

    name: str
    summary: str
    source: str
    held: tuple[Row, ...]
    accepted: tuple[tuple[str, str], ...]
    parts: tuple[Part, ...]
    exact: bool
    remarks: tuple[Remark, ...]
    in_front: tuple[str, ...]
    masked: bool
    costs: tuple[Cost, ...]
    methods: frozenset[Method]
    expected: tuple[Expected, ...]
    accuracies: tuple[Accuracy, ...] = ()


def explained(compiled: Compiled, certificate: Certificate, states: Mapping[str, str]) -> Explanation:
    """Return the explanation of a compiled spec.

    Args:
        compiled: the spec after all stages.
        certificate: that of its module; empty where there is none.
        states: what the certificate is worth, by device.
    """
    derivations, spec = compiled.algebra.derivations, compiled.spec
    known = {device for device in certificate.parts if states.get(device) != "stale"}
    missing = {device: shown for device, shown in DEVICES.items() if device not in known}
    return Explanation(
        name=spec.name,
        summary=spec.summary,
        source=spec.source,
        held=tuple(held(spec)),
        accepted=spec.accept,
        parts=(_part("Forward", derivations.forward), _part("Gradient", derivations.backward)),
        exact=compiled.algebra.pytorch_bits,
        remarks=tuple(
            Remark(which.value, shown, sentence)
            for device, shown in DEVICES.items()
            for which in Pass
            for sentence in remarks(compiled, which, TARGETS[device])
        ),
        in_front=tuple(in_front(spec, compiled.forms)),
        masked=BITMASK in compiled.forms,
        costs=tuple(_costs(compiled)),
        methods=frozenset(
            method for which in Pass for method in compiled.plan.of(which, Device.CUDA).values()
        ),
        expected=tuple(
            Expected(shown, {w.value: _placed(found.single, compiled) for w, found in errors.items()})
            for device, shown in missing.items()
            if (errors := _estimates(compiled, TARGETS[device]))
        ),
        accuracies=tuple(_accuracies(certificate, states)),
    )


def _placed(error: Roundoff, compiled: Compiled) -> Roundoff:
    """Return an error at the formula's own inputs."""
    return replace(
        error, at={name: error.at[name] for name in compiled.declared.composed.inputs if name in error.at}
    )


def _estimates(compiled: Compiled, device: Device) -> dict[Pass, Estimate]:
    """Return the estimated errors on a device, by pass."""
    every = {which: compiled.facts[which].estimates for which in Pass}
    return {which: found[device] for which, found in every.items() if device in found}


def _part(title: str, of: Derivation) -> Part:
    steps = tuple(
        Step(rewrite, _instructions(rewrite.before) - _instructions(rewrite.after))
        for rewrite in (*of.forms, *of.rewrites)
    )
    return Part(title, of.first, steps, of.program, notes(of.program, Device.CUDA))


def _instructions(term: Term) -> int:
    return instruction_count(part.op for part in walk(term) if isinstance(part, Apply))


def _costs(compiled: Compiled) -> Iterator[Cost]:
    """Yield a row for each kernel and width of elements."""
    for which in Pass:
        moved = compiled.kernels[which, Device.CUDA, Variant.DOUBLE].moved
        for bits, found in element_costs(compiled, which).items():
            dtypes = (dtype for dtype in compiled.spec.dtypes if ELEMENTS[dtype].bits == bits)
            budgets = tuple(round(budget * moved * bits / 8) for budget in BUDGETS.values())
            kind = found.launch_class.value
            yield Cost(which.value, ", ".join(dtypes), found.instructions, budgets, kind)


def _accuracies(certificate: Certificate, states: Mapping[str, str]) -> list[Accuracy]:
    found = []
    for device, shown in DEVICES.items():
        old = " (an earlier kernel)" if states.get(device) == "stale" else ""
        part = certificate.parts.get(device)
        for evidence in part.evidence if part else ():
            errors = {o.name: (o.given.ulp, o.eager.ulp) for o in evidence.outputs if o.eager}
            found.append(Accuracy(shown + old, evidence.dtype, errors))
    return found
