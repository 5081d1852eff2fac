"""Worst cases stay no worse: the inputs that certificates name, tried again on the CPU.

A part that is of another kernel than the module's is left out; `fusegen check` tells of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest
from conftest import ROOT
from kernels import GENERATED, by_class

from fusegen.build import compiled_file
from fusegen.certify import certificate, state, subject
from fusegen.certify.certificate import Claim, Json, Kernel, Machine
from fusegen.certify.digest import kernel_digest
from fusegen.certify.evaluator import Evaluator
from fusegen.certify.findings import Accuracy, Evidence, Output, Worst
from fusegen.certify.interval_filter import IntervalFilter

ROOM = 1.001  # errors are written down to four digits
NAME, DTYPE = "hardsigmoid", "float16"  # of the certificate that is always there
POINTS = ("0x1.0000000000000p+0", "0x1.4cc0000000000p+0", "0x1.1fc0000000000p+1")


def evaluator(name: str) -> Evaluator:
    """Of a committed module."""
    found = subject.of_spec(compiled_file(ROOT / "specs" / f"{name}.yaml"), GENERATED)
    return Evaluator(found, IntervalFilter(found.stable, found.params), "cpu")


def again(evaluator: Evaluator, part: Json) -> Iterator[tuple[str, float, float]]:
    """Each worst input in words, with the error written down and the error now."""
    for dtype, evidence in part["dtypes"].items():
        outputs = {
            name: found for name, found in evidence.items() if isinstance(found, dict) and "given" in found
        }
        for name, found in outputs.items():
            for *point, recorded, _, _ in found["given"]["worst"]:
                rows = evaluator.at(tuple(map(float.fromhex, point)), dtype)
                [ulp] = [row[-1] for row in rows if row[0] == name]
                yield f"{evaluator.subject.name} {dtype} {name} at {' '.join(point)}", float(recorded), ulp


def accuracies(part: Json) -> Iterator[Json]:
    """The accuracy that the module was found to have, output by output."""
    for evidence in part["dtypes"].values():
        yield from (
            found["given"] for found in evidence.values() if isinstance(found, dict) and "given" in found
        )


def rounded(real: Fraction) -> Worst:
    """A number between 1/8 and 1, correctly rounded to float16."""
    unit = Fraction(2) ** (math.frexp(float(real))[1] - 11)
    got = round(real / unit) * unit
    return Worst(POINTS, float(abs(got - real) / unit), float(got).hex(), float(real).hex())


def synthetic(scale: float = 1.0) -> Json:
    """A certificate of three inputs, whose errors are what they have to be, or so many times that."""
    value = [replace(rounded((Fraction(float.fromhex(x)) + 3) / 6), inputs=(x,)) for x in POINTS]
    slope = [replace(rounded(Fraction(1, 6)), inputs=(x,)) for x in POINTS]
    outputs = tuple(
        Output(name, Accuracy(tuple(replace(row, ulp=row.ulp * scale) for row in rows)))
        for name, rows in (("value", value), ("gradient of x", slope))
    )
    evidence = Evidence(DTYPE, len(POINTS), False, 0, outputs)
    digest = kernel_digest((GENERATED / f"{NAME}.py").read_text(encoding="utf-8"), "cpu")
    kernel = Kernel("cpu", digest, Machine("", "", ""))
    return certificate.with_evidence({}, Claim(NAME, "", (DTYPE,)), kernel, evidence)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(None, id="synthetic"),
        *by_class(sorted(path.name.partition(".")[0] for path in GENERATED.glob("*.certificate.json"))),
    ],
)
def test_no_worst_input_is_worse(name: str | None) -> None:
    path = GENERATED / f"{name}.certificate.json"
    known = state.read(path) if name else synthetic()
    if not known:
        pytest.skip(f"{path} is of an earlier format, whose errors are counted otherwise")
    module = GENERATED / f"{known['name']}.py"
    part = known.get("cpu")
    if part is None:
        pytest.skip(f"the certificate of {known['name']} tells nothing of the CPU")
    if part["kernel"] != kernel_digest(module.read_text(encoding="utf-8"), "cpu"):
        pytest.skip(f"the certificate of {known['name']} is of another kernel")
    rows = list(again(evaluator(known["name"]), part))
    assert bool(rows) is any(accuracy["ulp"] for accuracy in accuracies(part))
    assert [row for row in rows if row[2] > ROOM * row[1]] == []


def test_an_error_that_has_grown_is_seen() -> None:
    rows = list(again(evaluator(NAME), synthetic(0.99)["cpu"]))
    assert len(rows) == 2 * len(POINTS)
    assert all(now > ROOM * recorded for _, recorded, now in rows)
