"""References: what they may be, and that each is compared with its formula before anything uses it."""

from dataclasses import replace

import pytest
import torch
from conftest import ROOT, Workshop
from kernels import by_module

from fusegen.compiler.reference_check import check_references
from fusegen.core.aten import ATEN
from fusegen.core.spec import Spec
from fusegen.errors import FusegenError, SpecErrors
from fusegen.evidence.certify import allowed
from fusegen.evidence.certify.evaluator import Evaluator
from fusegen.language.library import Library, load
from fusegen.language.parse import parse_spec

NEITHER = "it is neither a function of tensors nor a module of torch.nn"
HINT = "name a function of torch or torch.nn.functional, or a module of torch.nn, of the spec's tensors"


def spec_of(name: str) -> Spec:
    return parse_spec(f"name: gate\nsummary: A test.\nformula: x\nreference: {name}\n", "specs/gate.yaml")


REFUSED = {
    "torch.os": NEITHER, "torch.sys": NEITHER, "torch.builtins": NEITHER, "torch.float32": NEITHER,
    "torch.save(f='pwned')": NEITHER, "torch.load": NEITHER, "torch.compile": NEITHER,
    "torch.set_default_dtype": NEITHER, "torch.manual_seed": NEITHER, "torch.Tensor": NEITHER,
    "torch.nn.Parameter": NEITHER, "torch.nn.functional": NEITHER, "torch.nn.functional.math": NEITHER,
    "torch.nn.functional.Callable": NEITHER, "torch.nosuch": "torch has no nosuch",
    "torch.nn.functional.nosuch": "torch has no nn.functional.nosuch",
}  # fmt: skip


@pytest.mark.together
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_function_of_pytorch_is_no_reference(name: str) -> None:
    with pytest.raises(FusegenError) as told:
        allowed.resolved(spec_of(name))
    assert str(told.value) == (
        f"specs/gate.yaml:4:12: {name} cannot be a reference: {REFUSED[name]}\n"
        f"    reference: {name}\n               ^\n  hint: {HINT}"
    )


ALLOWED = {
    "torch.sigmoid": torch.sigmoid, "torch.special.ndtr": torch.special.ndtr,
    "torch.logaddexp": torch.logaddexp,
    "torch.nn.functional.gelu(approximate='tanh')": torch.nn.functional.gelu,
    "torch.nn.functional.softsign": torch.nn.functional.softsign, "torch.nn.Softsign": torch.nn.Softsign,
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_a_function_or_a_module_of_pytorch_is_a_reference(name: str) -> None:
    assert allowed.resolved(spec_of(name)) is ALLOWED[name]


@pytest.mark.together
@pytest.mark.parametrize("name", sorted(ATEN))
def test_every_row_is_a_reference(name: str) -> None:
    assert callable(allowed.resolved(spec_of(name)))


VERBS = {
    "certify": ("certify", "gate", "--device", "cpu"),
    "certify in another dtype": ("certify", "gate", "--device", "cpu", "--dtype", "bfloat16"),
    "certify --at": ("certify", "gate", "--device", "cpu", "--at", "1"),
    "check": ("check",),
    "explain --plot": ("explain", "gate", "--plot", "gate.svg"),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_runs_nothing_that_is_no_reference(workshop: Workshop, verb: str) -> None:
    workshop.build("gate", "formula: x / (1 + abs(x))\nreference: torch.save(f='pwned')")
    before = workshop.files()
    result = workshop.run(*VERBS[verb])
    assert result.exit_code == 2
    said = f"specs/gate.yaml:4:12: torch.save(f='pwned') cannot be a reference: {NEITHER}\n"
    assert said in result.stderr
    assert workshop.files() == before


@pytest.mark.full
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_uses_no_reference_that_is_another_function(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(Evaluator, "evidence", None)  # nothing is judged
    monkeypatch.setattr(Evaluator, "results", None)
    workshop.build("gate", "formula: x / (1 + 2 * abs(x))\nreference: torch.nn.functional.softsign")
    before = workshop.files()
    result = workshop.run(*VERBS[verb])
    assert result.exit_code == 2
    told = "specs/gate.yaml:4:12: torch.nn.functional.softsign is not this formula: they differ at "
    assert told in result.stderr
    assert workshop.files() == before


UNLIKE = {
    "two tensors": (
        "inputs: {x: {}, z: {}}\nformula: x + z\nreference: torch.nn.functional.softsign",
        "softsign() takes 1 positional argument but 2 were given",
    ),
    "another shape": ("formula: x\nreference: torch.sum", "of 1 tensor it makes no tensor of their shape"),
    "several results": (
        "formula: x\nreference: torch.frexp",
        "of 1 tensor it makes no tensor of their shape",
    ),
    "a module without arguments": (
        "formula: x\nreference: torch.nn.Linear",
        "Linear.__init__() missing 2 required positional arguments: 'in_features' and 'out_features'",
    ),
    "a parameter that it lacks": (
        "params: {a: 1}\nformula: x * a\nreference: torch.nn.functional.softsign",
        "softsign() got an unexpected keyword argument 'a'",
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("case", UNLIKE)
def test_a_reference_of_other_arguments_is_told_at_its_place(workshop: Workshop, case: str) -> None:
    body, why = UNLIKE[case]
    workshop.build("gate", body)
    result = workshop.run("check")
    place, name = f"specs/gate.yaml:{3 + body.count(chr(10))}:12", body.rpartition(" ")[2]
    assert result.exit_code == 2
    assert result.output == (
        f"{place}: {name} cannot be a reference: {why}\n    reference: {name}\n               ^\n"
        f"  hint: {HINT}\n"
    )


@pytest.mark.full
def test_a_row_is_compared_by_torch_where_the_spec_fixes_its_parameter(workshop: Workshop) -> None:
    workshop.build("good", "formula: where(x > 0, x, expm1(x))\nreference: torch.nn.functional.elu")
    assert workshop.run("check").exit_code == 0
    workshop.build("gate", "formula: where(x > 0, x, 2 * expm1(x))\nreference: torch.nn.functional.elu")
    said = workshop.refused("check")
    assert said.startswith("specs/gate.yaml:4:12: torch.nn.functional.elu is not this formula: ")


def test_a_reference_of_a_spec_that_is_called_is_compared_too(workshop: Workshop) -> None:
    workshop.spec("other", "formula: tanh(x) + 1\nreference: torch.tanh")
    workshop.spec("middle", "chain: [other, x * 2]")
    workshop.spec("gate", "numerics: eager\nformula: 1 + middle(x)")
    said = workshop.refused("build", "gate")
    assert said.startswith("specs/other.yaml:4:12: torch.tanh is not this formula: they differ at ")


def test_check_says_how_many_references_it_cannot_compare(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.build("gate", "formula: x / (1 + abs(x))\nreference: torch.nn.functional.softsign")
    monkeypatch.setattr("fusegen.cli.checking.find_spec", lambda name: None)
    result = workshop.run("check")
    assert (result.exit_code, result.stderr) == (
        0,
        "1 reference not compared: this needs torch and flint\n",
    )


@pytest.mark.together
@pytest.mark.parametrize("name", by_module(path.stem for path in sorted((ROOT / "specs").glob("*.yaml"))))
def test_every_reference_of_the_library_is_its_formula(name: str) -> None:
    check_references(load(ROOT / "specs" / f"{name}.yaml"), Library(ROOT / "specs"))


def others(name: str) -> list[str]:
    """The other rows with the same tensors and parameters."""
    same = (ATEN[name].inputs, ATEN[name].params)
    return [row for row in ATEN if row != name and (ATEN[row].inputs, ATEN[row].params) == same]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", [name for name in sorted(ATEN) if others(name)])
def test_no_other_row_passes_for_a_spec_of_the_library(name: str) -> None:
    stem = name.partition("(")[0].rpartition(".")[2] + ("_tanh" if "(" in name else "")
    spec = load(ROOT / "specs" / f"{stem}.yaml")
    for other in others(name):
        with pytest.raises(SpecErrors, match="is not this formula"):
            check_references(replace(spec, reference=other), Library(ROOT / "specs"))
