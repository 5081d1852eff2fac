"""Warnings of formulas that `certify` breaks: at other scalars, in shares, and by certificates."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import Workshop
from elements import Elements, Formula

from fusegen.algebra import mends
from fusegen.compiler import zeros_at_scalars
from fusegen.compiler.misrounded import misrounded
from fusegen.compiler.pipeline import Compiled
from fusegen.compiler.special_trial import Trial
from fusegen.compiler.zeros_at_scalars import OtherScalars, defaults_and_others
from fusegen.core.method import Pass, Variant
from fusegen.core.targets import Device
from fusegen.core.term import Name, Program, call
from fusegen.evidence.certify import certificate_state, certificate_text, known_exceptions, tried_inputs
from fusegen.evidence.certify.certificate import Certificate
from fusegen.language.library import load
from fusegen.project.build import compiled_file
from fusegen.project.spec_warnings import contract_warnings

ONE = "source: none\ndtypes: [float32]\ninputs: {x: {}}\n"
BUCKINGHAM = ONE + (
    "params: {a: 1000.0, b: 3.0, c: 5.0}\nassume: {x: '[0.5, 30]'}\nformula: a * exp(-b * x) - c / x**6\n"
)
SMU = ONE + "params: {a: 0.25, u: 2.0}\nformula: ((1 + a) * x + (1 - a) * x * erf(u * (1 - a) * x)) / 2\n"
DERF = ONE + "params: {g: 1.0, a: 0.5, s: 0.3, b: -0.2}\nformula: g * erf(a * x + s) + b\n"
TANH = ONE + "params: {a: 1.5}\nformula: tanh(a * x)\n"
BELL = Formula("where(abs(x) < 1, exp(-1 / (1 - x**2)), 0)")


def of(workshop: Workshop, body: str) -> Compiled:
    return compiled_file(workshop.spec("tried", body))


# --- other scalars ----------------------------------------------------------------------------------------


def elsewhere(compiled: Compiled) -> OtherScalars:
    formula, in_double = compiled.declared.formula, compiled.in_variant(Device.CPU, Variant.DOUBLE)
    return OtherScalars(formula, compiled.programs, in_double, defaults_and_others(formula))


def test_zeros_at_other_scalars_are_found(workshop: Workshop) -> None:
    """The zero of x - a is a; a jump has none."""
    found = elsewhere(of(workshop, ONE + "params: {a: 0.7}\nformula: x * exp(x) - a * exp(x)\n"))
    by_scalar = {scalars["a"]: zeros.tolist() for scalars, zeros in found.zeros(Pass.FORWARD)}
    assert set(by_scalar) >= {-2.5, 0.5, 3.0}
    assert all(abs(zero - a) <= 2.0**-10 * abs(a) for a, zeros in by_scalar.items() for zero in zeros)
    for body in (TANH, ONE + "params: {a: 0.7}\nformula: where(x < a, -1, 1) * exp(x)\n"):
        assert not [*elsewhere(of(workshop, body)).zeros(Pass.FORWARD)]


def test_zeros_of_ordinary_sizes_are_found_beside_waves(workshop: Workshop) -> None:
    """A sine has more zeros than are looked at."""
    found = elsewhere(of(workshop, ONE + "params: {a: 0.7}\nformula: where(x > 0, sin(x), exp(x) - a)\n"))
    [zeros] = [zeros for scalars, zeros in found.zeros(Pass.FORWARD) if scalars["a"] == 0.5]
    assert any(abs(zero + math.log(2)) < 2.0**-10 for zero in zeros.tolist())


def test_a_large_formula_is_tried_at_fewer_scalars(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = elsewhere(of(workshop, ONE + "params: {a: 0.7}\nformula: x * exp(x) - a * exp(x)\n"))
    every = [scalars["a"] for scalars, _ in found.zeros(Pass.FORWARD)]
    monkeypatch.setattr(zeros_at_scalars, "WORK", 32)
    some = [scalars["a"] for scalars, _ in found.zeros(Pass.FORWARD)]
    assert 0 < len(some) < len(every) / 2
    assert set(some) < set(every)


@pytest.mark.full
def test_an_error_next_to_a_zero_at_other_scalars_is_told_until_it_is_accepted(workshop: Workshop) -> None:
    [said] = contract_warnings(of(workshop, BUCKINGHAM))
    assert said.startswith("tried: with other scalars the gradient on the CPU in float32 may be wrong by ")
    assert ", a = 1000, b = " in said
    assert contract_warnings(of(workshop, BUCKINGHAM + "accept: {gradient: it is known}\n")) == ()
    assert contract_warnings(of(workshop, TANH)) == ()


@pytest.mark.full
def test_single_words_are_not_taken_where_they_lose_at_other_scalars(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient of SMU has zeros for an a below 0.12; there single words lose twice what eager does."""
    single = Pass.BACKWARD, Device.CPU, Variant.SINGLE_RESULT
    assert single not in of(workshop, SMU).kernels
    monkeypatch.setattr(OtherScalars, "excesses", lambda *_, **__: iter(()))
    assert single in of(workshop, SMU).kernels


# --- shares -----------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_frequent_result_that_a_scalars_rounding_decides_is_told(workshop: Workshop) -> None:
    """Next to 0 the gradient is e^(-0.09) / sqrt(pi), which 0.3 as a float rounds to the other side."""
    assert [(each.which, each.own > 0.25) for each in misrounded(of(workshop, DERF))] == [
        (Pass.BACKWARD, True)
    ]
    exact = DERF.replace("s: 0.3", "s: 0.25")
    assert [*misrounded(of(workshop, exact))] == []


# --- the incoming gradient --------------------------------------------------------------------------------


def test_a_gradient_whose_low_words_underflow_is_scaled_exactly(tmp_path: Path) -> None:
    """Its slope, 2 exp(-1) x next to 0, is rounded before the incoming gradient multiplies it."""
    found = Elements(BELL, "bell", tmp_path)
    draw = torch.Generator().manual_seed(7)
    sizes = torch.randint(-117, -110, (2**15,), generator=draw).double().exp2()
    x = (sizes * (1 + torch.rand(2**15, generator=draw).double())).float()
    one, twice, half = (found.gradients("cpu", x, torch.full_like(x, by), x)[0] for by in (1.0, -2.0, 0.5))
    assert one.abs().min() > 0
    assert torch.equal(twice, -2 * one)
    assert torch.equal(half, one / 2)


def test_a_changed_last_bit_is_a_fault(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the mend the gradient of mollifiers has it."""
    monkeypatch.setattr(mends, "rounded_first", lambda program: program)
    compiled = of(workshop, ONE + f'formula: "{BELL.formula}"\n')
    trial = Trial(compiled.declared.formula, compiled.programs)
    found = trial.faults(compiled.in_variant(Device.CPU, Variant.FLOAT), Pass.BACKWARD)
    [fault] = [each for each in found if each.kind == "linear"]
    assert 0 < abs(fault.own - fault.wanted) < 2.0**-20 * abs(fault.wanted)


def test_only_what_rounds_is_rounded_first() -> None:
    """A slope that is a number or a name has its digits already."""
    grad, x = Name("grad"), Name("x")
    slope = call("exp", x) * x
    for before, after in (
        (grad * slope, grad * call("narrow", slope)),
        (-(grad * slope), -(grad * call("narrow", slope))),
        (grad * 2, grad * 2),
        (grad * x, grad * x),
        (slope, slope),
    ):
        chosen = tuple(call("where", x > 0, grad, result) for result in (before, after))
        for given, wanted in ((before, after), chosen):
            found = mends.rounded_first(Program(("grad", "x"), (), (), (given,)))
            assert found.results == (wanted,)


# --- certificates -----------------------------------------------------------------------------------------

HALVED = "formula: x / 2\ndtypes: [float32, float16]\n"
MODULE = "generated/halved.py"
CERTIFICATE = "generated/halved.certificate.txt"
TOLD = (
    "halved: its certificate names broken promises, on the CPU in float16: {}; see "
    "generated/halved.certificate.txt, or give the reason why it is right with 'accept: {{{}: ...}}'\n"
)
VALUE, GRADIENT = "value: 2 results are lost", "gradient of x: 1 results are lost"


@pytest.fixture
def halved(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """A module with a certificate in which a value and a gradient are broken."""
    workshop.build("halved", HALVED)
    monkeypatch.setattr(tried_inputs, "every", lambda dtype: torch.arange(-40, 40, 0.5).to(dtype))
    assert workshop.run("certify", "halved", "--dtype", "float16", "--device", "cpu").exit_code == 0
    found = certificate_text.read(Path(CERTIFICATE).read_text(encoding="utf-8"))
    part = found.parts["cpu"]
    broken = tuple(replace(one, broken=(VALUE, GRADIENT)) for one in part.evidence)
    told = replace(found, parts={"cpu": replace(part, evidence=broken)})
    Path(CERTIFICATE).write_text(certificate_text.text(told), encoding="utf-8")
    return workshop


def test_build_tells_what_a_certificate_of_its_kernels_names(halved: Workshop) -> None:
    assert halved.run("build").stderr == TOLD.format(f"{VALUE} and 1 more", "value")
    halved.spec("halved", HALVED + "accept: {value: it is known}\n")
    assert halved.run("build").stderr == TOLD.format(GRADIENT, "gradient")
    halved.spec("halved", HALVED + "accept: {value: it is known, gradient: as well}\n")
    assert halved.run("build").stderr == ""
    assert Path(CERTIFICATE).exists()


def test_a_certificate_of_another_kernel_or_an_edited_one_tells_build_nothing(halved: Workshop) -> None:
    text = Path(CERTIFICATE).read_text(encoding="utf-8")
    Path(CERTIFICATE).write_text(text.replace("2 results", "3 results"), encoding="utf-8")
    assert halved.run("build").stderr == ""
    Path(CERTIFICATE).write_text(text, encoding="utf-8")
    halved.spec("halved", HALVED.replace("x / 2", "x / 4") + "accept: {value: it is known}\n")
    nothing = "halved: 'accept' has a reason for value, of which there is nothing to say; remove it\n"
    assert halved.run("build").stderr == nothing


def test_the_certificate_of_the_kernel_that_breaks_a_promise_is_named(
    halved: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a module with a kernel in front, each kernel has a certificate."""
    [(broken, states)] = certificate_state.of_kernels(Path(MODULE), load(Path("specs/halved.yaml")))
    halved.spec("gate", "dtypes: [float16]\nlayers:\n  - shares: {formula: x / 2}\nformula: tanh(x)\n")
    spec = load(Path("specs/gate.yaml"))
    kernels = [(broken, states), (Certificate(), dict[str, str]())]
    for order, file in ((kernels, "gate.shares.certificate.txt"), (kernels[::-1], "gate.certificate.txt")):
        monkeypatch.setattr(certificate_state, "of_kernels", lambda *_, found=order: found)
        assert {each.path.name for each in known_exceptions.of_module(Path("gate.py"), spec)} == {file}


def test_of_several_modules_only_their_number_is_told(
    halved: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_exceptions, "MOST", 0)
    assert halved.run("build").stderr == (
        "1 modules have certificates that name broken promises, which their specs do not accept; "
        "'python -m fusegen list' shows them\n"
    )
