"""Worst cases stay no worse: the inputs that certificates name, tried again on the CPU.

A part that is of another kernel than the module's is left out; `fusegen check` tells of it.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest
from budget import share
from conftest import ROOT
from kernels import GENERATED, by_class

from fusegen.evidence.certify import certificate_state, certificate_text, subject
from fusegen.evidence.certify.certificate import SUFFIX, Certificate, Claim, Kernel, Machine, Part
from fusegen.evidence.certify.digest import kernel_digest
from fusegen.evidence.certify.evaluator import Evaluator
from fusegen.evidence.certify.findings import Accuracy, Evidence, Output, Worst
from fusegen.language.library import load
from fusegen.project.build import compiled_file

ROOM = 1.001  # errors are written down to four digits
NAME, DTYPE = "hardsigmoid", "float16"  # of the certificate that is always there
POINTS = ("0x1.0000000000000p+0", "0x1.4cc0000000000p+0")


def evaluator(name: str) -> Evaluator:
    found = subject.of_spec(compiled_file(ROOT / "specs" / f"{name}.yaml"), GENERATED)
    return Evaluator(found, "cpu")


def again(evaluator: Evaluator, part: Part) -> Iterator[tuple[str, float, float]]:
    """Each worst input in words, with the error written down and the error now."""
    for evidence in part.evidence:
        for output in evidence.outputs:
            for worst in output.given.worst:
                rows = evaluator.at(tuple(map(float.fromhex, worst.inputs)), evidence.dtype)
                [ulp] = [row[-1] for row in rows if row[0] == output.name]
                at = " ".join(worst.inputs)
                yield f"{evaluator.subject.name} {evidence.dtype} {output.name} at {at}", worst.ulp, ulp


def rounded(real: Fraction) -> Worst:
    """A number between 1/8 and 1, correctly rounded to float16."""
    unit = Fraction(2) ** (math.frexp(float(real))[1] - 11)
    got = round(real / unit) * unit
    return Worst(POINTS, float(abs(got - real) / unit), float(got).hex(), float(real).hex())


def synthetic(scale: float = 1.0) -> Certificate:
    """A certificate of two inputs, whose errors are what they have to be, or so many times that."""
    value = replace(rounded((Fraction(float.fromhex(POINTS[1])) + 3) / 6), inputs=POINTS[1:2])
    slope = replace(rounded(Fraction(1, 6)), inputs=POINTS[:1])
    outputs = tuple(
        Output(name, Accuracy((replace(row, ulp=row.ulp * scale),)))
        for name, row in (("value", value), ("gradient of x", slope))
    )
    evidence = Evidence(DTYPE, len(POINTS), False, 0, outputs)
    digest = kernel_digest((GENERATED / f"{NAME}.py").read_text(encoding="utf-8"), "cpu")
    kernel = Kernel("cpu", digest, Machine("none", "0", "none"))
    whole = Certificate().with_evidence(Claim(NAME, "", (DTYPE,)), kernel, evidence)
    return certificate_text.read(certificate_text.text(whole))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(None, id="synthetic"),
        *by_class(sorted(path.name.partition(".")[0] for path in GENERATED.glob(f"*{SUFFIX}"))),
    ],
)
def test_no_worst_input_is_worse(name: str | None) -> None:
    known = certificate_state.read(GENERATED / f"{name}{SUFFIX}") if name else synthetic()
    module = GENERATED / f"{name or NAME}.py"
    part = known.parts.get("cpu")
    if part is None:
        pytest.skip(f"the certificate of {module.stem} tells nothing of the CPU")
    if part.kernel.digest != kernel_digest(module.read_text(encoding="utf-8"), "cpu"):
        pytest.skip(f"the certificate of {module.stem} is of another kernel")
    rows = list(again(evaluator(module.stem), part))
    outputs = [output for one in part.evidence for output in one.outputs]
    assert bool(rows) is any(output.given.ulp for output in outputs)
    assert [row for row in rows if row[2] > ROOM * row[1]] == []


@pytest.mark.full
def test_a_committed_certificate_is_that_of_its_module() -> None:
    for path in share(sorted(GENERATED.rglob(f"*{SUFFIX}"))):
        text = path.read_text(encoding="utf-8")
        assert certificate_text.text(certificate_text.read(text)) == text, path
    for path in share(sorted((ROOT / "specs").rglob("*.yaml"))):
        module = GENERATED / path.relative_to(ROOT / "specs").with_suffix(".py")
        states = certificate_state.of_spec(module, load(path)).values()
        assert not {*states} & {*certificate_state.SENTENCES}, path


def test_an_error_that_has_grown_is_seen() -> None:
    rows = list(again(evaluator(NAME), synthetic(0.99).parts["cpu"]))
    assert len(rows) == 2
    assert all(now > ROOM * recorded for _, recorded, now in rows)
