"""The forms of kernels: which ones a spec's kernels have, and that a further one is a further row."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import library_spec

from fusegen.core.method import DOUBLE, FAST, FLOAT, Method, Pass, Table
from fusegen.core.targets import Device
from fusegen.project import build
from fusegen.schedule import forms
from fusegen.schedule.forms import BITMASK, BROADCAST, ELEMENTWISE, FORMS, Form, Planned

TAKEN = {
    "gelu": [ELEMENTWISE],
    "relu": [ELEMENTWISE, BITMASK],
    "geglu": [BROADCAST],
}


@pytest.mark.parametrize("name", TAKEN)
def test_kernels_have_the_forms_that_take_them(name: str) -> None:
    of = library_spec(name)
    assert list(of.forms) == TAKEN[name]


def test_a_form_says_why_it_takes_no_kernel() -> None:
    of = library_spec("gelu").planned
    assert {form.name: why for form in FORMS if (why := form.takes(of))} == {
        "elements of tensors of several shapes": "it takes one tensor",
        "a bitmask for the gradient": "no bit of an element decides its gradient",
        "channels-last results of a convolution without its bias": "no bias of a layer is added in it",
        "a thin convolution with the forward pass behind it": (
            "there is no Conv2d right in front of the kernel"
        ),
    }


@pytest.mark.parametrize("method", [Table(), DOUBLE])
def test_a_bit_decides_what_float_computes(method: Method) -> None:
    """The kernels of a form are those of float: another method has results of its own."""
    of = library_spec("relu").planned
    assert of.plan.narrow(*Pass) <= {FLOAT, FAST}
    other = {**of.plan.methods, (Pass.FORWARD, Device.CUDA, "float16"): method}
    assert BITMASK.takes(replace(of, plan=replace(of.plan, methods=other))) == forms.LOST
    on_cpu = {**of.plan.methods, (Pass.FORWARD, Device.CPU, "float16"): method}
    assert BITMASK.takes(replace(of, plan=replace(of.plan, methods=on_cpu))) is None


def by_rows(of: Planned) -> str | None:
    """Say why rows would not do."""
    return None if of.spec.name == "relu" else "it is not relu"


TOY = Form("rows", by_rows, "FUSEGEN_ROWS({name})", header="cuda/rows.cuh", keyword="rows=True")


def test_a_further_form_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: build.module(library_spec(name)) for name in ("relu", "gelu")}
    monkeypatch.setattr(forms, "FORMS", (*FORMS, TOY))
    found = build.module(library_spec("relu"))
    assert '#include "cuda/rows.cuh"\n' in found
    assert found.count("FUSEGEN_ROWS(relu)\n") == 1
    assert "sources=Sources(CUDA_SOURCE, CPU_SOURCE, bitmask=True, rows=True)" in found
    assert build.module(library_spec("gelu")) == before["gelu"] != found
    monkeypatch.undo()
    assert build.module(library_spec("relu")) == before["relu"]
