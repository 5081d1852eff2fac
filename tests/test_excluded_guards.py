"""Guards at infinity that `assume` excludes are not printed; those that it leaves are."""

import pytest
from conftest import ROOT

from fusegen.compiler import stages
from fusegen.core.term import applied
from fusegen.language.library import Library
from fusegen.language.parse import parse_spec

GUARDS = {"clamp_to_lowest", "clamp_to_highest", "clamp_min", "clamp_max", "where", "eq"}


def guards(formula: str, assume: str) -> set[str]:
    """The operations of guards in the programs of a formula in x and y."""
    inputs = "{x: {}, y: {}}" if "y" in formula else "{x: {}}"
    promised = f"assume: {assume}\n" if assume else ""
    text = f'name: it\nsummary: A test.\ninputs: {inputs}\n{promised}formula: "{formula}"\n'
    declared = stages.declared(parse_spec(text, "it"), Library(ROOT / "specs"))
    programs = stages.limited(declared, stages.derived(declared))
    return GUARDS & {op for program in programs for op in applied(program.terms)}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("formula", "assume", "left"),
    [
        ("x * sigmoid(x)", "", {"clamp_to_lowest", "clamp_to_highest"}),
        ("x * sigmoid(x)", '{x: "[-30, 30]"}', set()),
        ("x * sigmoid(x)", '{x: "[-1000, inf)"}', {"clamp_to_highest"}),
        ("x * sigmoid(x)", '{x: "(-inf, 1000]"}', {"clamp_to_lowest"}),
        ("x * sigmoid(y * x)", '{x: "[-100, 100]", y: "[-100, 100]"}', set()),
        ("x * sigmoid(y * x)", '{y: "[-100, 100]"}', {"where", "eq"}),
        ("gelu(x + y)", '{x: "[-100, 100]", y: "[-1, 1]"}', set()),
        ("gelu(x + y)", '{x: "[-100, 100]"}', {"clamp_to_lowest", "clamp_to_highest"}),
        ("x / sqrt(x * x + y * y)", '{x: "[1, 2]", y: "[-3e38, 3e38]"}', set()),
    ],
)
def test_guards_that_assume_leaves(formula: str, assume: str, left: set[str]) -> None:
    found = guards(formula, assume)
    assert found >= left if left else not found
