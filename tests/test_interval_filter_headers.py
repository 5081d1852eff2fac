"""The headers of the filter: each compiles before a formula's own lines are known, and each is in use."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

from fusegen.codegen import render
from fusegen.core.header_files import reached
from fusegen.core.term import Name, Program
from fusegen.evidence.certify.interval_filter import IntervalFilter
from fusegen.evidence.certify.interval_filter_text import INCLUDE, TEMPLATE, header

HEADERS = sorted(path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*.*"))
FORMULA = """\
constexpr int INPUTS = 2, OUTPUTS = 3;
constexpr double LOW = -1, HIGH = 1;
template <class D>
D formula(const D* IN);
"""
BEFORE = {"sweep.h": '#include "share_singly.h"\n'}  # what stands before a header, beside the formula
MOST_WIDE, MOST_OF_THE_TEMPLATE = 120, 60
X, Y = Name("x"), Name("y")
ONE, TWO = Program(("x",), (), (), (X * X,)), Program(("x", "y"), (), (), (X * Y,))


@pytest.mark.few(6)
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("name", [name for name in HEADERS if name.endswith(".h")])
def test_a_header_compiles_with_a_formula_it_has_not_seen(name: str, tmp_path: Path) -> None:
    source = tmp_path / "alone.cpp"
    source.write_text(f'{FORMULA}{BEFORE.get(name, "")}#include "{name}"\n', encoding="utf-8")
    command = ["g++", "-std=c++17", "-fsyntax-only", "-w", f"-I{INCLUDE}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_is_read_in_an_editor(name: str) -> None:
    text = header(name)
    assert text.startswith("#pragma once\n// ")
    assert text.endswith("\n")
    assert max(map(len, text.splitlines())) <= MOST_WIDE


def test_every_header_is_reached_by_a_formula_of_one_input_or_of_several() -> None:
    found: set[str] = set()
    for share in ("share_together.h", "share_singly.h"):
        holes = {"inputs": 1, "low": "-INF", "high": "INF", "lines": ["return IN[0];"], "share": share}
        found |= {*reached(render.fill(TEMPLATE, holes), header)}
    assert found == {*HEADERS}


def test_the_template_holds_what_is_filled_in_and_decides_nothing() -> None:
    text = (ROOT / "templates" / TEMPLATE).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_OF_THE_TEMPLATE
    assert re.findall(r"{%-? *(\w+)", text) == ["for", "endfor"]


def test_a_text_is_whole_and_holds_each_header_once() -> None:
    for program in (ONE, TWO):
        text = IntervalFilter(program, {}).text
        assert '#include "' not in text
        assert "#pragma once" not in text
        assert text.count("struct Real {") == text.count("struct SweepTotals {") == 1


@pytest.mark.parametrize(("program", "together"), [(ONE, 1), (TWO, 0)], ids=["one", "two"])
def test_neighbours_are_judged_together_where_a_function_is_of_one_input(
    program: Program, together: int
) -> None:
    text = IntervalFilter(program, {}).text
    assert text.count("bool together(") == text.count("struct Series {") == together
    assert text.count("void share(") == 1
