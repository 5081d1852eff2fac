"""The sentences of `build` on errors of a spec: which of them it prints, their order and their words."""

import re
from collections.abc import Iterator, Mapping

import pytest
from conftest import Workshop

from fusegen.compiler.missed_contracts import Miss
from fusegen.core.facts import Excess, Roundoff
from fusegen.core.interval import Point
from fusegen.core.method import Pass
from fusegen.core.targets import Device
from fusegen.project import spec_warnings
from fusegen.project.build import compiled_file
from fusegen.project.spec_warnings import contract_warnings

BODY = "inputs: {x: {}}\ndtypes: [float32]\nparams: {a: 0.75}\nformula: x * exp(a * x)\n"
TANH = BODY.replace("a: 0.75", "a: 1.5, c: 0.3").replace("x * exp(a * x)", "a * tanh(x) - c * x")
WAYS = (
    "narrow the inputs with 'assume', write the formula another way, set 'numerics: eager', or give the "
    "reason why it is right with 'accept: {{{}}}'"
)
AT_DEFAULTS = "{} on the CPU in float32 may be wrong by {} ulp at {} (eager: wrong by {} ulp)"
ELSEWHERE = "with other scalars " + AT_DEFAULTS
NO_BETTER = ELSEWHERE + ", and further off than eager next to there"
FORWARD, BACKWARD = "forward", "the gradient"


def miss(which: Pass, ulp: float, at: Point) -> Miss:
    return Miss(which, Device.CPU, "float32", Excess(Roundoff(ulp, at, ""), 512.0))


HERE: Mapping[Pass, tuple[Miss, ...]] = {
    Pass.FORWARD: (miss(Pass.FORWARD, 8.0, {"x": 2.0}), miss(Pass.FORWARD, 16.0, {"x": 3.0, "a": 0.75})),
    Pass.BACKWARD: (miss(Pass.BACKWARD, 64.0, {"x": 4.0}),),
}
THERE = {
    Pass.FORWARD: (miss(Pass.FORWARD, 1024.0, {"x": 5.0, "a": -1.0}),),
    Pass.BACKWARD: (miss(Pass.BACKWARD, 512.0, {"x": 6.0, "a": 2.0}),),
}
TOLD = {
    (FORWARD, "here"): "law: " + AT_DEFAULTS.format(FORWARD, 16, "x = 3, a = 0.75", 512),
    (BACKWARD, "here"): "law: " + AT_DEFAULTS.format(BACKWARD, 64, "x = 4", 512),
    (FORWARD, "there"): "law: " + ELSEWHERE.format(FORWARD, "1.02e+03", "x = 5, a = -1", 512),
    (BACKWARD, "there"): "law: " + NO_BETTER.format(BACKWARD, 512, "x = 6, a = 2", 512),
}
OUTPUTS = {FORWARD: "value", BACKWARD: "gradient"}
CASES = {
    "defaults first, three at most": ([(BACKWARD, "here"), (FORWARD, "here"), (FORWARD, "there")], ""),
    "what is accepted is left out": ([(FORWARD, "here"), (FORWARD, "there")], "gradient"),
    "all is accepted": ([], "gradient: known, value"),
}


def said(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, misses: Iterator[Miss], accepted: str = ""
) -> list[str]:
    found = tuple(misses)
    monkeypatch.setattr(spec_warnings, "misses", lambda _: iter(found))
    accept = f"accept: {{{accepted}: known}}\n" if accepted else ""
    return list(contract_warnings(compiled_file(workshop.spec("law", BODY + accept))))


def with_ways(told: list[tuple[str, str]]) -> list[str]:
    """The sentences, the last one with the ways out, which name the outputs in their order."""
    outputs = [output for name, output in OUTPUTS.items() if name in {name for name, _ in told}]
    *others, last = [TOLD[each] for each in told]
    return [*others, f"{last}; {WAYS.format(', '.join(f'{output}: ...' for output in outputs))}"]


@pytest.mark.parametrize(("told", "accepted"), CASES.values(), ids=CASES)
def test_of_each_output_the_largest_error_is_told(
    told: list[tuple[str, str]], accepted: str, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = (each for which in Pass for each in (*THERE[which], *HERE[which]))
    assert said(workshop, monkeypatch, every, accepted) == (with_ways(told) if told else [])


def test_an_error_at_other_scalars_is_told_alone_where_it_is_the_only_one(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = said(workshop, monkeypatch, iter(THERE[Pass.BACKWARD]))
    assert found == with_ways([(BACKWARD, "there")])


def test_a_scalar_that_is_no_float_is_told_where_it_decides_a_result(workshop: Workshop) -> None:
    """Next to the zero of a tanh(x) - c x the rounding of c = 0.3 weighs as much as eager's errors."""
    found = contract_warnings(compiled_file(workshop.spec("law", TANH)))
    number = r"(?<=[ -])\d+\.?\d*(e[+]\d+)?(?=[ ,)])"
    here = AT_DEFAULTS.format(FORWARD, "N", "x = N, a = N, c = N", "N")
    there = ELSEWHERE.format(FORWARD, "N", "x = N, a = N, c = N", "N")
    plain = [re.sub(number, "N", sentence).replace("-N", "N") for sentence in found]
    assert plain == [f"law: {here}", f"law: {there}; {WAYS.format('value: ...')}"]
    exact = TANH.replace("c: 0.3", "c: 0.3125")
    assert contract_warnings(compiled_file(workshop.spec("law", exact))) == ()
