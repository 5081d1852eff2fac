"""An explanation as records: the values that its text shows."""

from collections.abc import Iterator, Mapping
from typing import Any

from fusegen.codegen.printers.notation import term
from fusegen.core.interval import REALS
from fusegen.core.spec import Spec
from fusegen.evidence.explain.explanation import Explanation, Part
from fusegen.schedule.cost import BUDGETS

Record = Mapping[str, Any]


def records(found: Explanation) -> Iterator[Record]:
    """Yield the records of an explanation, in the order of its text.

    Returns:
        Mappings of names to texts, numbers, and lists and mappings of these; the first key is ``kind``.
    """
    spec = found.spec
    yield head_record(spec)
    for attribute, made, use in found.held:
        yield {"kind": "attribute", "spec": spec.name, "attribute": attribute, "made by": made, "use": use}
    for part in found.parts:
        yield from _steps(spec.name, part)
    for of, reason in spec.accept:
        yield {"kind": "accepted", "spec": spec.name, "of": of, "reason": reason}
    for each in found.remarks:
        where = {"kernel": each.kernel, "device": each.device}
        yield {"kind": "method", "spec": spec.name, **where, "method": each.sentence}
    for sentence in found.in_front:
        yield {"kind": "layer in front", "spec": spec.name, "sentence": sentence}
    for cost in found.costs:
        yield {
            "kind": "cost",
            "spec": spec.name,
            "kernel": cost.kernel,
            "dtypes": cost.dtypes.split(", "),
            "instructions": cost.instructions,
            "budgets": {f"sm_{chip}": budget for chip, budget in zip(BUDGETS, cost.budgets, strict=True)},
            "class": cost.kind,
        }
    for device, estimates in found.expected:
        errors = {kernel: {"ulp": e.ulp, "at": e.at, "by": e.by} for kernel, e in estimates.items()}
        yield {"kind": "estimate", "spec": spec.name, "device": device, "errors": errors}
    for device, dtype, outputs in found.accuracies:
        ulp = {name: {"fusegen": ours, "eager": eager} for name, (ours, eager) in outputs.items()}
        yield {"kind": "error", "spec": spec.name, "device": device, "dtype": dtype, "ulp": ulp}


def head_record(spec: Spec) -> Record:
    """Return the first record of an explanation."""
    return {"kind": "explanation", "spec": spec.name, "summary": spec.summary, "source": spec.source}


def _steps(name: str, part: Part) -> Iterator[Record]:
    for step in part.steps:
        rewrite = step.rewrite
        bounded = rewrite.subject is not None and rewrite.range != REALS
        yield {
            "kind": "rewrite",
            "spec": name,
            "part": part.title,
            "rule": rewrite.rule,
            "before": term(rewrite.before),
            "after": term(rewrite.after),
            "since": f"{term(rewrite.subject)} lies in {rewrite.range}"
            if bounded and rewrite.subject
            else "",
            "saved": step.saved,
        }
