"""An explanation as records: the values that its text shows."""

from collections.abc import Iterator, Mapping
from typing import Any

from fusegen.codegen.printers.notation import term
from fusegen.core.interval import REALS
from fusegen.evidence.explain.explanation import Explanation, Part
from fusegen.schedule.cost import BUDGETS

Record = Mapping[str, Any]


def records(found: Explanation) -> Iterator[Record]:
    """Yield the records of an explanation, in the order of its text.

    Args:
        found: the explanation.

    Returns:
        Mappings of names to texts, numbers, and lists and mappings of these; the first key is ``kind``.
    """
    yield {"kind": "explanation", "spec": found.name, "summary": found.summary, "source": found.source}
    for attribute, made, use in found.held:
        yield {"kind": "attribute", "spec": found.name, "attribute": attribute, "made by": made, "use": use}
    for part in found.parts:
        yield from _steps(found.name, part)
    for of, reason in found.accepted:
        yield {"kind": "accepted", "spec": found.name, "of": of, "reason": reason}
    for each in found.remarks:
        where = {"kernel": each.kernel, "device": each.device}
        yield {"kind": "method", "spec": found.name, **where, "method": each.sentence}
    for sentence in found.in_front:
        yield {"kind": "layer in front", "spec": found.name, "sentence": sentence}
    for cost in found.costs:
        yield {
            "kind": "cost",
            "spec": found.name,
            "kernel": cost.kernel,
            "dtypes": cost.dtypes.split(", "),
            "instructions": cost.instructions,
            "budgets": {f"sm_{chip}": budget for chip, budget in zip(BUDGETS, cost.budgets, strict=True)},
            "class": cost.kind,
        }
    for expected in found.expected:
        errors = {kernel: {"ulp": e.ulp, "at": e.at, "by": e.by} for kernel, e in expected.errors.items()}
        yield {"kind": "estimate", "spec": found.name, "device": expected.device, "errors": errors}
    for held in found.accuracies:
        outputs = {name: _pair(errors) for name, errors in held.errors.items()}
        where = {"device": held.device, "dtype": held.dtype}
        yield {"kind": "error", "spec": found.name, **where, "ulp": outputs}


def _steps(name: str, part: Part) -> Iterator[Record]:
    """Yield the rewrites of a pass."""
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


def _pair(errors: tuple[float, ...]) -> Mapping[str, float]:
    return dict(zip(("fusegen", "eager"), errors, strict=False))
