"""Planted faults: each is caught by the rule of its row, and a function without one breaks nothing.

`make mutants SEED=7` plants all of them, at places that are drawn from the seed; `make test` a few.
"""

import functools
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT
from mutants.errors import Planted, starts
from mutants.faults import GRADIENT, VALUE, Fault, planted
from mutants.of_rows import CONTROLS as OF_ROWS
from mutants.of_rows import ROW_FAULTS, RowFault
from mutants.table import PLANTED, faults

from fusegen.compiler.row_kernels import CompiledRows
from fusegen.evidence.certify import contract, enclosures, evaluator, runs, sweep
from fusegen.evidence.certify.enclosures import ball_rows
from fusegen.evidence.certify.evaluator import Evaluator
from fusegen.evidence.certify.findings import Evidence, Subject
from fusegen.evidence.certify.rows import row_subject
from fusegen.evidence.certify.rows.row_evaluator import RowEvaluator
from fusegen.evidence.certify.subject import of_spec
from fusegen.project import build
from fusegen.project.loader import built

SEED = int(os.environ.get("FUSEGEN_SEED", "20261"))
LEAST = 120
ROWS = [(module, fault) for module in PLANTED for fault in faults(module, SEED)]
FEW = ("elu",)  # modules whose faults `make test` plants, each tenth of them
CONTROLS = (
    Fault("torch.where", VALUE, torch.clone, "", lambda tensors, _: tensors[0] == tensors[0]),
    Fault("an identity backward", GRADIENT, torch.clone, ""),
)


def rows() -> Iterator[Any]:
    """Every fault; those that only `make mutants` plants are marked."""
    for place, (module, fault) in enumerate(ROWS):
        marks = [] if module.name in FEW and place % 10 == 0 else [pytest.mark.full]
        marks.append(pytest.mark.xdist_group(module.name))  # exact values are computed once in a process
        yield pytest.param(module, fault, id=f"{module.name} {module.dtype}: {fault.name}", marks=marks)


@pytest.fixture(scope="module", autouse=True)
def exact_once() -> Iterator[None]:
    """Exact values of the same inputs are computed once for all faults."""
    found: dict[Any, Any] = {}
    computed = enclosures.values

    def values(program: Any, params: Any, points: list[Any], processes: int) -> Any:
        key = (id(program), tuple(sorted(params.items())), hash(tuple(points)))
        if key not in found:
            found[key] = computed(program, params, points, processes), program  # which keeps its identity
        return found[key][0]

    of_rows = ball_rows.values

    def of_rows_once(of: Any, tensors: Any, incoming: Any, dtype: Any) -> Any:
        key = (
            tuple(of.steps),
            *(t.detach().double().numpy().tobytes() for t in (*tensors, *incoming)),
            dtype,
        )
        if key not in found:
            found[key] = of_rows(of, tensors, incoming, dtype)
        return found[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluator, "values", values)
        patch.setattr(row_subject, "values", of_rows_once)
        yield


@functools.cache
def subject(name: str) -> Subject:
    return of_spec(build.compiled_file(ROOT / f"specs/{name}.yaml"), Path(ROOT / "generated"))


def evidence(module: Planted, fault: Fault) -> Evidence:
    judged = planted(subject(module.name), fault)
    one = Evaluator(judged, "cpu")
    with pytest.MonkeyPatch.context() as patch:
        if module.sweeps:
            patch.setattr(sweep, "runs", lambda count, length: iter(swept(module, length)))
        found = one.evidence(module.dtype, sweep.RUNS << 16)
    return contract.judged(found, judged.promise, "cpu")


def swept(module: Planted, length: int) -> list[int]:
    """The first bits of runs of float32 inputs that have each place at which a fault is planted."""
    first = torch.tensor([*starts(module, SEED)])
    return sorted({bits % 2**32 // length * length for bits in first.view(torch.int32).tolist()})


@functools.cache
def committed(module: Planted) -> Evidence:
    """The evidence of a module as it is, as its certificate has it."""
    return evidence(module, Fault("nothing", VALUE, torch.clone, "", lambda tensors, _: False))


def broken(module: Planted, fault: Fault) -> tuple[str, ...]:
    """The promises that a module breaks with a fault, beside a certificate without it."""
    before, now = committed(module), evidence(module, fault)
    pairs = zip(before.outputs, now.outputs, strict=True)
    return (*now.broken, *(sentence for old, new in pairs for sentence in runs.grown(old, new)))


@pytest.mark.full  # test_certify.py and faults of rows have others
@pytest.mark.parametrize(("module", "fault"), list(rows()))
def test_a_fault_is_caught(module: Planted, fault: Fault) -> None:
    new = set(broken(module, fault)) - set(committed(module).broken)
    assert any(re.match(fault.rule, sentence) for sentence in new), sorted(new)


@pytest.mark.full
@pytest.mark.parametrize(
    ("module", "control"),
    [
        pytest.param(
            module,
            control,
            id=f"{module.name} {module.dtype}: {control.name}",
            marks=[] if module.name in FEW else [pytest.mark.full],
        )
        for module in PLANTED
        for control in CONTROLS
    ],
)
def test_without_a_fault_nothing_new_is_broken(module: Planted, control: Fault) -> None:
    assert broken(module, control) == committed(module).broken


MOST_ELEMENTS = 5000  # of rows up to 64 elements
SOON = ("E[x²] - E[x]²", "a gradient without the sum of the mean", "powers added in float")


@functools.cache
def rows_subject(name: str) -> row_subject.RowSubject:
    compiled = build.compiled_either(ROOT / f"specs/rows/{name}.yaml")
    assert isinstance(compiled, CompiledRows)
    return row_subject.of_module(compiled, built(compiled, ROOT / "generated"))


def broken_by_rows(fault: RowFault) -> tuple[str, ...]:
    """The promises that a function breaks in the place of a module's."""
    one = rows_subject(fault.spec)
    numbers = [float(value) for value in one.params.values()]
    given = functools.partial(_with_numbers, fault, numbers)
    judged = RowEvaluator(replace(one, given=given, with_params=None), "cpu")
    return contract.judged(judged.evidence(fault.dtype, MOST_ELEMENTS), one.promise, "cpu").broken


def _with_numbers(fault: RowFault, numbers: list[float], *tensors: torch.Tensor) -> torch.Tensor:
    return fault.function(*tensors, *numbers)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in SOON else [pytest.mark.full]) for n in ROW_FAULTS]
)
@pytest.mark.xdist_group("rows")
def test_a_fault_of_rows_is_caught(name: str) -> None:
    said = broken_by_rows(ROW_FAULTS[name])
    assert any(re.match(ROW_FAULTS[name].rule, sentence) for sentence in said), said


@pytest.mark.few(1)
@pytest.mark.parametrize("name", OF_ROWS)
@pytest.mark.xdist_group("rows")
def test_rows_without_a_fault_break_nothing(name: str) -> None:
    assert broken_by_rows(OF_ROWS[name]) == ()


def test_faults_are_many_and_distinct() -> None:
    names = [(module, fault.name) for module, fault in ROWS]
    assert len(names) == len(set(names)) >= LEAST
    assert len({module.name for module, _ in ROWS}) == 5
    again = [fault.name for module in PLANTED for fault in faults(module, SEED + 1)]
    assert again != [fault.name for _, fault in ROWS]
