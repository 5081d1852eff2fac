"""Terms of parameters alone are named, once for all programs, and nothing else changes."""

from pathlib import Path

import pytest
from conftest import ROOT

from fusegen.algebra.hoist import hoisted
from fusegen.codegen.printers.dump import program as written
from fusegen.core.term import Let, Program, Term, names, substitute
from fusegen.errors import Span
from fusegen.language.parse.formula import parse_formula
from fusegen.lower import uniforms
from fusegen.project.build import compiled_file


def parsed(text: str) -> Term:
    return parse_formula(text, Span("formula", 1, 1, text).after, "x y a b u v w scalar1 scalar2".split())


def program(*formulas: str, inputs: str = "x", params: str = "a b", **lets: str) -> Program:
    steps = tuple(Let(name, parsed(text)) for name, text in lets.items())
    return Program(tuple(inputs.split()), tuple(params.split()), steps, tuple(map(parsed, formulas)))


def lines(*programs: Program) -> list[list[str]]:
    """The lines of each program behind what it is given."""
    return [written(whole).splitlines()[1:] for whole in hoisted(programs)]


def test_a_part_of_parameters_only_gets_a_name() -> None:
    assert lines(program("x * (a + b) / 2")) == [["scalar1 = a + b", "return x · scalar1 / 2"]]
    assert lines(program("x * exp(a * 2) + a * 2")) == [
        ["scalar1 = exp(a · 2)", "scalar2 = a · 2", "return x · scalar1 + scalar2"]
    ]


def test_a_step_of_parameters_names_its_term_elsewhere() -> None:
    """The term is declared once, by the step."""
    assert lines(program("x * (a + b) + u", u="a + b")) == [["u = a + b", "return x · u + u"]]


@pytest.mark.parametrize(
    "formula", ["x * a", "x * -a", "x * 3", "where(a > b, x, x + a)", "exp(x * a) * b"]
)
def test_what_costs_nothing_or_is_not_of_parameters_only_stays(formula: str) -> None:
    [whole] = hoisted((program(formula),))
    assert whole == program(formula)


@pytest.mark.parametrize(
    ("power", "on_host"),
    [
        ("square(a)", "a ** 2"),
        ("cube(a)", "a ** 3"),
        ("reciprocal(a)", "1 / a"),
        ("rsqrt(a)", "1 / sqrt(a)"),
    ],
)
def test_a_power_of_a_parameter_keeps_its_exponent_on_the_host(power: str, on_host: str) -> None:
    [whole] = hoisted((program(f"x * {power}"),))
    assert whole.lets == (Let("scalar1", parsed(on_host)),)


def test_a_condition_of_parameters_stays_and_its_operands_are_named() -> None:
    assert lines(program("where(a * b > 1, x, a)")) == [
        ["scalar1 = a · b", "return x if scalar1 > 1 else a"]
    ]


def test_steps_of_parameters_come_first_under_their_own_names() -> None:
    whole = program("u * v * w", u="x + 1", v="(a + b) / 2", w="v * exp(a)")
    assert lines(whole) == [["v = (a + b) / 2", "w = v · exp(a)", "u = x + 1", "return u · v · w"]]


def test_a_part_has_one_name_in_all_programs() -> None:
    forward, backward = (
        program("x * v", v="(a + b) / 2"),
        program("x * ((a + b) / 2) + y * (a * b)", inputs="x y"),
    )
    assert lines(forward, backward) == [
        ["v = (a + b) / 2", "return x · v"],
        ["v = (a + b) / 2", "scalar1 = a · b", "return x · v + y · scalar1"],
    ]


def test_each_of_several_results_is_looked_through() -> None:
    assert lines(program("x * (a + b)", "x - (a + b)")) == [
        ["scalar1 = a + b", "return x · scalar1, x - scalar1"]
    ]


def test_a_name_never_meets_one_in_use() -> None:
    whole = program("x * exp(a) + scalar1 * scalar2", inputs="x scalar1", params="a", scalar2="x * 2")
    [after] = hoisted((whole,))
    taken = [*after.inputs, *after.params, *(let.name for let in after.lets)]
    assert len(set(taken)) == len(taken)


def test_without_parameters_nothing_is_named() -> None:
    whole = program("x * exp(2)", params="")
    assert hoisted((whole, whole)) == (whole, whole)


@pytest.mark.together
@pytest.mark.few(4)
@pytest.mark.parametrize("path", sorted((ROOT / "specs").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_committed_specs_mean_the_same_when_their_scalars_are_written_out(path: Path) -> None:
    """And no kernel computes an operation of its parameters alone, but for a sign."""
    compiled = compiled_file(path)
    for before, after in zip(compiled.limited, compiled.programs, strict=True):
        assert (after.inputs, after.params) == (before.inputs, before.params)
        once = {let.name for let in uniforms(after)}
        assert _written_out(after, once) == _written_out(before, once)
        for let in after.lets:
            if let.name not in once:
                assert set(names(let.term)) - once - set(after.params)


def _written_out(whole: Program, once: set[str]) -> tuple[tuple[Let, ...], tuple[Term, ...]]:
    """The lets and results of a program in which no parameter decides a let alone."""
    values: dict[str, Term] = {}
    lets = []
    for let in whole.lets:
        term = substitute(let.term, values)
        if let.name in once:
            values[let.name] = term
        else:
            lets.append(Let(let.name, term))
    return tuple(lets), tuple(substitute(result, values) for result in whole.results)


def test_powers_within_powers_of_parameters_are_no_longer_than_they_are_written() -> None:
    nested = "a"
    for _ in range(20):
        nested = f"square({nested} + 1)"
    [of] = hoisted((program(f"x * ({nested})"),))
    assert len(written(of)) < 3000
