"""The evidence of a dtype as a record of `certify --json`; counts of zero are left out."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fusegen.evidence.certify.findings import Accuracy, Evidence, Output, Sample, four_digits

Json = dict[str, Any]


def shown(evidence: Evidence) -> Json:
    """Return the figures of one dtype by name."""
    ranges = {name: list(map(repr, ends)) for name, ends in evidence.ranges.items()}
    scalars = [_sample(sample) for sample in evidence.scalars]
    return {
        "inputs": evidence.inputs,
        "every": evidence.every,
        "promise": evidence.promise,
        "broken": list(evidence.broken),
        **_some({"undecided": evidence.undecided, "ranges": ranges}),
        **_outputs(evidence.outputs),
        **({"beyond": _sample(evidence.beyond)} if evidence.beyond else {}),
        **_some({"scalars": scalars}),
        "relations": {"kept": evidence.relations.kept, "broken": list(evidence.relations.broken)},
    }


def _outputs(outputs: tuple[Output, ...]) -> Json:
    return {output.name: _output(output) for output in outputs}


def _sample(sample: Sample) -> Json:
    values = {name: repr(value) for name, value in sample.scalars}
    return {**_some({"values": values}), "inputs": sample.inputs, **_outputs(sample.outputs)}


def _output(output: Output) -> Json:
    local = output.local
    return {
        "given": _accuracy(output.given),
        **({"eager": _accuracy(output.eager)} if output.eager else {}),
        "bits_differ": output.bits_differ,
        "worse_than_eager": output.worse_than_eager,
        **({"range": [repr(end) for end in output.range]} if output.range else {}),
        **_some({"specials": {s.place: [s.given, s.eager, s.real] for s in output.specials}}),
        "over": list(local.over),
        **_some({"blind": local.blind, "kept": local.kept}),
        **_some({"runs": [list(asdict(run).values()) for run in local.runs]}),
        **_some({"breaches": [asdict(breach) for breach in local.breaches]}),
    }


def _accuracy(found: Accuracy) -> Json:
    counts = ("beyond_neighbour", "overflows", "monotonicity_breaks")
    return {
        "ulp": _digits(found.ulp),
        "misrounded": found.misrounded,
        **_some({key: getattr(found, key) for key in counts}),
        "worst": [[*worst.inputs, _digits(worst.ulp), worst.got, worst.real] for worst in found.worst],
    }


def _digits(ulp: float) -> float | str:
    return "inf" if ulp == float("inf") else four_digits(ulp)


def _some(figures: Mapping[str, Any]) -> Json:
    return {key: figure for key, figure in figures.items() if figure}
