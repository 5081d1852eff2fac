"""The forms of kernels: which ones a spec's kernels have, and that a further one is a further row."""

import ctypes
import re
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import compiler
import pytest
from conftest import ROOT, library_spec
from torch.utils.cpp_extension import include_paths

from fusegen.codegen import runtime_text
from fusegen.core.method import DOUBLE, FAST, FLOAT, Method, Pass, Table
from fusegen.core.targets import Device
from fusegen.project import build
from fusegen.schedule import forms
from fusegen.schedule.forms import BITMASK, BROADCAST, ELEMENTWISE, FORMS, Form

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
        "a thin convolution with the forward pass behind it": (
            "there is no Conv2d right in front of the kernel"
        ),
        "a linear layer, or a 1 x 1 convolution, with the forward pass behind it": (
            "there is no Linear and no 1 x 1 convolution right in front of the kernel"
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


PAGE = (ROOT / "docs/CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPE = PAGE.partition("## A form of kernels\n")[2].partition("\n## ")[0]


LOOP = """
namespace fusegen { namespace {
void parallel_for(int64_t begin, int64_t end, int64_t, void (*task)(int64_t, int64_t, void*), void* to) {
  task(begin, end, to);
}
}}
"""  # which a binding defines


def block(language: str) -> str:
    """The block of code in a language that the recipe shows."""
    [found] = re.findall(rf"^ *```{language}\n(.*?)^ *```$", RECIPE, re.DOTALL | re.MULTILINE)
    return textwrap.dedent(found)


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Form]:
    """The form of the recipe, by its steps: a header, and a row."""
    [(header, folder)] = re.findall(r"`(\S+)` in `fusegen/runtime/(include/\S+/)`", RECIPE)
    include = shutil.copytree(runtime_text.INCLUDE, tmp_path / "include")
    (tmp_path / folder / header).write_text(block("cpp"), encoding="utf-8")
    form: Form = eval(block("python"), vars(forms))
    monkeypatch.setattr(runtime_text, "INCLUDE", include)
    monkeypatch.setattr(forms, "FORMS", (*FORMS, form))
    for cached in (runtime_text.header, runtime_text.header_names, runtime_text._files):
        cached.cache_clear()
    yield form
    monkeypatch.undo()
    for cached in (runtime_text.header, runtime_text.header_names, runtime_text._files):
        cached.cache_clear()


def test_a_further_form_is_a_header_and_a_row(added: Form, tmp_path: Path) -> None:
    """The recipe of docs/CONTRIBUTING.md, word for word."""
    of = library_spec("relu")
    assert of.forms == (ELEMENTWISE, BITMASK, added)
    module = build.module(of)
    assert module.count(f'#include "{added.header}"\n') == module.count("FUSEGEN_ALONE(relu)\n") == 1
    assert f"include/{added.header}" in runtime_text.needed("stable", (module,))
    options = ["-O0", "-std=c++17", "-shared", "-fPIC", *(f"-I{path}" for path in include_paths())]
    library = compiler.library(build.text_of(of, "cpu") + LOOP, options)
    relu_alone = ctypes.CDLL(str(library)).relu_alone
    relu_alone.restype, relu_alone.argtypes = ctypes.c_float, [ctypes.c_float]
    assert [relu_alone(x) for x in (-1.5, 2.5)] == [0.0, 2.5]


def test_a_further_form_changes_no_kernel_that_it_does_not_take(
    added: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {name: build.module(library_spec(name)) for name in ("relu", "geglu")}
    monkeypatch.setattr(forms, "FORMS", FORMS)
    before = {name: build.module(library_spec(name)) for name in found}
    assert found["geglu"] == before["geglu"]
    assert set(found["relu"].splitlines()) - set(before["relu"].splitlines()) == {
        f'#include "{added.header}"',
        "FUSEGEN_ALONE(relu)",
    }


def test_the_runtime_is_told_of_a_form_by_its_keyword(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Form("rows", lambda _: None, "FUSEGEN_ROWS({name})", header="cuda/rows.cuh", keyword="rows=True")
    monkeypatch.setattr(forms, "FORMS", (*FORMS, told))
    assert "sources=Sources(CUDA_SOURCE, CPU_SOURCE, bitmask=True, rows=True)" in build.module(
        library_spec("relu")
    )
