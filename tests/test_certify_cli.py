"""Commands to certify and to audit: their output, the exit status, and the files that they write."""

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Workshop
from torch import Tensor

from fusegen.evidence.certify import (
    certificate_text,
    certification,
    random_chains,
    reference,
    suite,
    sweep,
    tried_inputs,
)
from fusegen.evidence.certify.certificate import Certificate
from fusegen.evidence.certify.certification import CertifyOptions
from fusegen.evidence.certify.evaluator import Evaluator
from fusegen.evidence.certify.findings import Accuracy, Evidence, Local, Output, Run, Worst
from fusegen.evidence.certify.random_chains import CertifiedChain

CERTIFICATE = "generated/halved.certificate.txt"


@pytest.fixture
def halved(workshop: Workshop) -> Workshop:
    workshop.build("halved", "formula: x / 2\ndtypes: [float32, float16]")
    return workshop


@pytest.fixture
def thin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer inputs, odd and even."""
    every = tried_inputs.every
    monkeypatch.setattr(tried_inputs, "every", lambda dtype: every(dtype)[::17])
    for name, fewer in {"EACH": 2, "ORDINARY": 2**8, "MOST_KINKS": 4}.items():
        monkeypatch.setattr(tried_inputs, name, fewer)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The dtypes that are looked at; nothing is built, and nothing is found."""
    seen: list[str] = []

    def evidence(evaluator: Evaluator, dtype: str, *_: object) -> Evidence:
        seen.append(dtype)
        return Evidence(dtype, 2**16, True, 0, (Output("value", Accuracy()),))

    monkeypatch.setattr(Evaluator, "evidence", evidence)
    monkeypatch.setattr(certification, "prepared", lambda *_: None)
    return seen


def dtypes(workshop: Workshop) -> list[str]:
    return [one.dtype for one in certified(workshop).parts["cpu"].evidence]


def certified(workshop: Workshop) -> Certificate:
    return certificate_text.read(workshop.files()[CERTIFICATE].decode())


# --- certify --------------------------------------------------------------------------------------------


def test_certify_writes_a_certificate(halved: Workshop, thin: None) -> None:
    result = halved.run("certify", "halved", "--dtype", "float16", "--device", "cpu")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "halved                 cpu  float16  value        0.5 ulp, 0 misrounded "
        "(eager 0.5, 0), of all 65,536",
        "halved                 cpu  float16  gradient of x 0 ulp, 0 misrounded "
        "(eager 0, 0), of all 65,536",
    ]
    found = certified(halved)
    assert found.title == "halved: y = x / 2"
    [evidence] = found.parts["cpu"].evidence
    assert (evidence.inputs, evidence.every, evidence.broken) == (2**16, True, ())
    assert (evidence.tried.specials, evidence.outputs[0].given.ulp) == (10, 0.5)
    before = halved.files()
    assert halved.run("certify", "halved", "--dtype", "float16", "--device", "cpu").exit_code == 0
    assert halved.files() == before


@pytest.mark.full
def test_evidence_of_another_device_that_comes_meanwhile_is_kept(
    halved: Workshop, thin: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("certify", "halved", "--dtype", "float16", "--device", "cpu")
    assert halved.run(*words).exit_code == 0
    first = certified(halved)
    part = replace(first.parts["cpu"], kernel=replace(first.parts["cpu"].kernel, device="cuda"))
    both = replace(first, parts={**first.parts, "cuda": part})
    judged = certification.judged

    def meanwhile(*given: Any) -> Any:
        Path(CERTIFICATE).write_text(certificate_text.text(both), encoding="utf-8")
        return judged(*given)

    monkeypatch.setattr(certification, "judged", meanwhile)
    assert halved.run(*words).exit_code == 0
    assert certified(halved) == both


@pytest.mark.full
def test_certify_tells_what_is_broken_and_how_to_see_it(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tried_inputs, "every", lambda dtype: torch.arange(-40, 120, 0.5).to(dtype))
    # the power is too large for doubles
    workshop.build(
        "naive", "params: {c: 1.0}\nformula: x ** 160 / (x ** 160 + c + abs(x))\ndtypes: [float16]"
    )
    result = workshop.run("certify", "--device", "cpu")
    assert result.exit_code == 1
    *told, last = result.stderr.splitlines()
    assert last == "1 promise broken, of 1"
    wrong = "value: 71 results are neither the correctly rounded value nor its neighbour"
    assert f"naive on cpu in float16: {wrong}" in told
    line = next(line for line in told if line.startswith("  gradient of x inf ulp: "))
    verb = shlex.split(line.partition(": ")[2])
    assert verb[:-1] == "fusegen certify naive --device cpu --dtype float16 --at".split()
    assert 80 < float.fromhex(verb[-1]) < 120
    assert re.fullmatch(
        r"naive cpu float16 gradient of x: nan, eager nan, exact 0x\S+, inf ulp",
        workshop.done(*verb[1:]).splitlines()[1],
    )


@pytest.mark.full
def test_a_sample_is_not_written_down(halved: Workshop) -> None:
    before = halved.files()
    printed = halved.done("certify", "--sample", "100000", "--dtype", "float32", "--device", "cpu")
    assert "of 99,840" in printed
    assert halved.files() == before


def test_resume_leaves_out_what_is_there(halved: Workshop, calls: list[str]) -> None:
    assert halved.run("certify", "--dtype", "float16", "--device", "cpu").exit_code == 0
    assert halved.run("certify", "--resume", "--device", "cpu").exit_code == 0
    assert calls == ["float16", "float32"]
    assert dtypes(halved) == ["float32", "float16"]
    assert halved.run("certify", "--resume", "--device", "cpu").exit_code == 0
    assert len(calls) == 2
    assert halved.run("certify", "--device", "cpu").exit_code == 0
    assert len(calls) == 4


@pytest.mark.full
def test_resume_looks_again_at_another_kernel(halved: Workshop, calls: list[str]) -> None:
    halved.run("certify", "--device", "cpu")
    halved.build("halved", "formula: x / 2 + 0.25\ndtypes: [float32, float16]")
    assert halved.run("certify", "--resume", "--dtype", "float16", "--device", "cpu").exit_code == 0
    assert calls == ["float32", "float16", "float16"]
    assert dtypes(halved) == ["float16"]


def with_errors(ulp: float, *runs: Run) -> Evidence:
    """Evidence of one dtype with a largest error and clusters of cells above 4 ulp."""
    local = Local(runs=runs, clusters=runs)
    value = Output("value", Accuracy((Worst(("0x1p+0",), ulp, "", ""),)), local=local)
    return Evidence("float32", 2**32, True, 0, (value,))


KNOWN = Run("0x1p+0", "0x1p+1", 9.0, 9.0)
WORSE = {
    "value: the largest error has grown to 20 ulp where the certificate has 9 (C6)": with_errors(
        20.0, KNOWN
    ),
    "value: errors of 5 ulp from 0x1p+3 to 0x1p+4 are new (C6)": with_errors(
        9.0, KNOWN, Run("0x1p+3", "0x1p+4", 5.0, 5.0)
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("sentence", WORSE)
def test_a_certificate_is_not_replaced_by_a_worse_one(
    halved: Workshop, monkeypatch: pytest.MonkeyPatch, sentence: str
) -> None:
    found = with_errors(9.0, KNOWN)
    monkeypatch.setattr(Evaluator, "evidence", lambda *_: found)
    monkeypatch.setattr(certification, "prepared", lambda *_: None)
    arguments = ("certify", "halved", "--device", "cpu", "--dtype", "float32")
    assert halved.run(*arguments).exit_code == 0
    before = halved.files()
    found = WORSE[sentence]
    result = halved.run(*arguments)
    assert result.exit_code == 1
    assert f"halved on cpu in float32: {sentence}\n" in result.stderr
    assert halved.files() == before
    found = with_errors(18.0, KNOWN)
    assert halved.run(*arguments).exit_code == 0
    assert certified(halved).parts["cpu"].evidence[0].outputs[0].given.ulp == 18
    found = WORSE[sentence]
    Path(CERTIFICATE).unlink()  # who accepts the new errors
    assert halved.run(*arguments).exit_code == 0
    assert certified(halved).parts["cpu"].evidence[0].broken == ()


def test_an_interruption_leaves_what_is_done(
    halved: Workshop, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = Evaluator.evidence

    def interrupted(evaluator: Evaluator, dtype: str, *rest: object) -> Evidence:
        if dtype == "float16":
            raise KeyboardInterrupt
        return evidence(evaluator, dtype)

    monkeypatch.setattr(Evaluator, "evidence", interrupted)
    before = set(halved.files())
    result = halved.run("certify", "--device", "cpu")
    assert (result.exit_code, result.stderr.strip()) == (1, "Aborted!")
    assert set(halved.files()) - before == {CERTIFICATE}
    assert dtypes(halved) == ["float32"]


def test_an_interruption_while_writing_leaves_the_old_certificate(
    halved: Workshop, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    halved.run("certify", "--dtype", "float32", "--device", "cpu")
    before = halved.files()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    assert halved.run("certify", "--dtype", "float16", "--device", "cpu").exit_code == 1
    assert halved.files() == before


def test_without_a_gpu_cuda_is_refused(halved: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    message = "--device cuda: there is no CUDA GPU here\n  hint: use --device cpu\n"
    for arguments in (
        ["certify"],
        ["certify", "--at", "1"],
        ["audit", "torch.relu", "--formula", "relu(x)"],
    ):
        assert halved.refused(*arguments, "--device", "cuda") == message


SOFTSIGN = "torch.nn.functional.softsign"


@pytest.mark.full
def test_a_reference_of_several_tensors_that_is_another_function_is_told(workshop: Workshop) -> None:
    inputs = "inputs: {a: {}, b: {}}\ndtypes: [float16]\nreference: torch.logaddexp\n"
    workshop.build("nearly", inputs + "formula: maximum(a, b) + exp(-abs(a - b))")
    answer = workshop.refused("certify", "--device", "cpu")
    assert "torch.logaddexp is not this formula: they differ at " in answer
    assert re.search(r"the first is \(\S+, \S+\), where the formula gives ", answer)


@pytest.mark.full
def test_a_reference_that_differs_at_few_inputs_is_found_by_the_sweep(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "check", lambda *_: None)
    monkeypatch.setattr(sweep, "runs", lambda count, length: iter([0x3F800000]))  # from 1 on
    workshop.build("nearer", f"formula: x / (1 + 1.5 * abs(x))\nreference: {SOFTSIGN}\ndtypes: [float32]")
    assert workshop.refused("certify", "--sample", "16777216", "--device", "cpu") == (  # a run of 65,536
        f"specs/nearer.yaml:4:12: {SOFTSIGN} is not this formula: they differ at 65,536 float32 inputs; "
        f"the first is 1, where the formula gives 0.4 and {SOFTSIGN} 0.5; the worst is "
        "1.00000012, with 0.400000019 and 0.50000006\n"
        f"    reference: {SOFTSIGN}\n               ^\n"
        "  hint: name the function that the formula is, or leave the reference out\n"
    )


@pytest.mark.parametrize("text", ["one", "0x1p9999", ""])
def test_what_is_no_number_is_no_input(halved: Workshop, text: str) -> None:
    assert f"Invalid value for --at: {text!r} is not a number" in halved.refused("certify", "--at", text)


def test_an_input_has_one_number_for_each_tensor(halved: Workshop) -> None:
    refused = halved.refused("certify", "--at", "1", "--at", "2", "--device", "cpu")
    assert "Invalid value for --at: 2 numbers, and each tensor of an input has one" in refused


@pytest.mark.parametrize(
    ("text", "result"), [("100", "0x1.9000000000000p+5"), ("-1e-3", "-0x1.0640000000000p-11")]
)
def test_an_input_may_be_a_decimal_number(halved: Workshop, text: str, result: str) -> None:
    shown = halved.run("certify", "--at", text, "--dtype", "float16", "--device", "cpu").output
    assert shown.startswith(f"halved cpu float16 value: {result}, ")


# --- audit ----------------------------------------------------------------------------------------------


def audited(workshop: Workshop, function: str, formula: str, *more: str) -> tuple[int, list[list[str]]]:
    """The exit status, and the words of each line."""
    result = workshop.run("audit", function, "--formula", formula, "--device", "cpu", *more)
    return result.exit_code, [line.split() for line in result.output.splitlines()]


@pytest.mark.full
def test_audit_finds_what_eager_cancels(workshop: Workshop, thin: None) -> None:
    name = "torch.nn.functional.gelu"
    status, (value, slope) = audited(workshop, name, "x * ndtr(x)", "--dtype", "bfloat16")
    assert status == 0
    assert value[:4] == [name, "cpu", "bfloat16", "value"]
    above = [value[8], "above", "4", "ulp,"]
    assert value[5:] == ["ulp,", value[6], "misrounded,", *above, "of", "all", "65,536"]
    assert float(value[4]) > 100
    assert int(value[6]) > 10
    assert slope[3:6] == ["gradient", "of", "x"]
    assert workshop.files() == {}


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("function", "formula"),
    [
        ("torch.reciprocal", "1 / x"),
        ("torch.log", "log(x)"),
        ("torch.sqrt", "sqrt(x)"),
        ("torch.rsqrt", "rsqrt(x)"),
        ("torch.nn.Hardtanh(max_val=6)", "saturate(x, -1, 6)"),
        ("torch.nn.functional.leaky_relu(negative_slope=0.5)", "where(x > 0, x, 0.5 * x)"),
    ],
)
def test_a_pole_or_a_missing_half_is_no_error(
    workshop: Workshop, thin: None, function: str, formula: str
) -> None:
    status, (value, slope) = audited(workshop, function, formula, "--dtype", "float16")
    assert status == 0
    assert float(value[value.index("ulp,") - 1]) <= 1
    assert float(slope[slope.index("ulp,") - 1]) <= 4


def test_audit_takes_a_callable_with_its_formula_or_a_suite(workshop: Workshop) -> None:
    for words in ((), ("torch.tanh",), ("--formula", "x")):
        answer = workshop.refused("audit", *words)
        assert answer.endswith("Error: audit takes a CALLABLE and its --formula, or --suite torch\n")


@pytest.mark.full
def test_a_suite_is_eager_and_compiled_in_every_dtype(workshop: Workshop) -> None:
    printed = workshop.done(
        "audit", "torch.tanh", "--suite", "torch", "--device", "cpu", "--sample", "4096"
    )
    cells = [line.split(" | ") for line in printed.splitlines() if line.startswith("| torch.tanh")]
    assert [(who, dtype) for who, dtype, *_ in cells] == [
        (who, dtype) for who in ("| torch.tanh", "| torch.tanh, compiled") for dtype in suite.DTYPES
    ]
    assert all(float(ulp) < 2 for _, _, ulp, *_ in cells)


@pytest.mark.full
def test_random_chains_are_certified_and_nothing_is_written(workshop: Workshop) -> None:
    printed = workshop.done(
        "certify", "--random", "1", "--seed", "3", "--sample", "4096", "--device", "cpu"
    )
    head, _, row, _, last, _ = printed.splitlines()
    assert head == "| | chain | value | gradient | broken |"
    assert row.startswith(f"| 3 | {', '.join(random_chains.drawn(3)).replace('*', '·')} | ")
    assert last == "1 of 1 keep every promise on cpu, 4,096 float32 inputs of each tried."
    assert workshop.files() == {}


@pytest.fixture
def random_runs(monkeypatch: pytest.MonkeyPatch) -> list[CertifyOptions]:
    """The options of each run of random chains; chain 7 breaks a promise in the last dtype."""
    asked: list[CertifyOptions] = []

    def certified(seeds: range, options: CertifyOptions) -> Iterator[CertifiedChain]:
        asked.append(options)
        for seed in seeds:
            found = [Evidence(dtype, 1, False, 0, ()) for dtype in ("float32", "float16")]
            broken = ("too large",) if seed == 7 else ()
            yield CertifiedChain(seed, ("x * 2",), (found[0], replace(found[1], broken=broken)))

    monkeypatch.setattr(random_chains, "certified", certified)
    return asked


@pytest.mark.parametrize(("seed", "status", "kept"), [(7, 1, 1), (8, 0, 2)])
def test_a_random_chain_that_breaks_a_promise_decides_the_exit_status(
    workshop: Workshop, random_runs: list[CertifyOptions], seed: int, status: int, kept: int
) -> None:
    result = workshop.run("certify", "--random", "2", "--seed", f"{seed}", "--device", "cpu")
    assert result.exit_code == status
    told = "float16: too large" if status else ""
    assert f"| {seed} | x · 2 |  | {told} |\n" in result.output
    last = f"{kept} of 2 keep every promise on cpu, 300,000 float32 inputs of each tried."
    assert result.output.splitlines()[-2] == last


def test_random_chains_are_of_the_dtypes_and_the_devices_that_are_asked_for(
    workshop: Workshop, random_runs: list[CertifyOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    printed = workshop.done("certify", "--random", "1", "--dtype", "bfloat16", "--sample", "64")
    asked = [(options.devices, options.dtypes, options.sample) for options in random_runs]
    assert asked == [((device,), ("bfloat16",), 64) for device in ("cpu", "cuda")]
    assert printed.count("| | chain | value | gradient | broken |") == 2


@pytest.mark.full
def test_random_chains_are_certified_in_a_dtype_that_is_asked_for(calls: list[str]) -> None:
    options = CertifyOptions(Path(), ("cpu",), ("bfloat16",))
    [one] = random_chains.certified(range(3, 4), options)
    assert [found.dtype for found in one.evidence] == calls == ["bfloat16"]


@pytest.mark.parametrize("words", [("gelu",), ("--at", "1"), ("--resume",)])
def test_random_chains_take_no_specs_and_no_certificates(
    workshop: Workshop, words: tuple[str, ...]
) -> None:
    answer = workshop.refused("certify", "--random", "1", *words)
    assert answer.endswith("Error: --random takes no SPEC, no --at and no --resume\n")


def test_a_suite_without_a_function_of_that_name_lists_them(workshop: Workshop) -> None:
    assert workshop.refused("audit", "nosuch", "--suite", "torch", "--device", "cpu") == (
        "--suite torch: there is no activation 'nosuch' in the suite\n"
        f"  hint: it has {', '.join(suite.FUNCTIONS)}\n"
    )


@pytest.mark.parametrize("words", [("--formula", "x"), ("--inputs", "x")])
def test_a_suite_has_its_own_formulas(workshop: Workshop, words: tuple[str, ...]) -> None:
    answer = workshop.refused("audit", "--suite", "torch", *words)
    told = "Error: --suite has formulas of its own; leave --formula and --inputs out\n"
    assert answer.endswith(told)


def test_a_suite_is_of_the_dtypes_that_are_asked_for(
    workshop: Workshop, thin: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "known", lambda device: iter(()))
    monkeypatch.setattr(torch, "compile", lambda function: function)
    printed = workshop.done(
        "audit", "F.hardswish", "--suite", "torch", "--device", "cpu", "--dtype", "float16"
    )
    rows = [line.split(" | ")[:2] for line in printed.splitlines() if line.startswith("| F.")]
    assert rows == [["| F.hardswish", "float16"], ["| F.hardswish, compiled", "float16"]]


def test_audit_knows_inputs_by_their_names(workshop: Workshop, thin: None) -> None:
    more = ["--inputs", "a, b", "--dtype", "float16"]
    status, lines = audited(workshop, "torch.mul", "a * b", *more)
    assert (status, [line[3:6] for line in lines][1:3]) == (
        0,
        [["gradient", "of", "a"], ["gradient", "of", "b"]],
    )
    assert [line[3:7] for line in lines][3:] == [
        ["beyond:", "value", lines[3][5], "ulp,"],
        ["beyond:", "gradient", "of", "a"],
        ["beyond:", "gradient", "of", "b"],
    ]


# what is no function of tensors

NUMBER = 3


def raises(x: Tensor) -> Tensor:
    raise RuntimeError("no such luck\nat all")


def returns_a_number(x: Tensor) -> float:
    return 3.0


def widens(x: Tensor) -> Tensor:
    return x.double()


def adds_up(x: Tensor) -> Tensor:
    return x.sum()


def writes(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.mul_(2)
    return x * 1


def writes_behind(x: Tensor) -> Tensor:
    x.data.mul_(2)
    return x * 1


def writes_only(x: Tensor) -> Tensor:
    return x.data.mul_(2).clone()


def guesses(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x, 0.5)


WRONG = {
    "raises": "no such luck",
    "returns_a_number": "it returns float, not a tensor",
    "widens": "it makes (N,) torch.float64 on cpu of (N,) torch.float16 on cpu",
    "adds_up": "it makes () torch.float16 on cpu of (N,) torch.float16 on cpu",
    "writes": "it changes its input",
    "writes_behind": "it changes its input",
    "writes_only": "it changes its input",
    "guesses": "it gives other results the second time",
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_function_of_tensors_is_refused(workshop: Workshop, thin: None, name: str) -> None:
    function = f"{__name__}.{name}"
    result = workshop.run("audit", function, "--formula", "x * 2", "--dtype", "float16", "--device", "cpu")
    said = re.sub(r"\(\d+,\)", "(N,)", result.output)
    assert (result.exit_code, said) == (
        2,
        f"{function}: {function} is not a function of tensors that can be certified: {WRONG[name]}\n"
        "  hint: it has to return a new tensor of its input's shape, dtype and device, the same each "
        "time\n",
    )


NOWHERE = {
    "torch.nosuch": "module 'torch' has no attribute 'nosuch'",
    "nosuch.thing": "No module named 'nosuch'",
    f"{__name__}.NUMBER": "it is of type int, which cannot be called",
    "torch.relu(2)": "its arguments need their names",
    "torch.relu(": "'(' was never closed (<unknown>, line 1)",
}


@pytest.mark.parametrize("name", NOWHERE)
def test_a_name_that_leads_nowhere_is_told(workshop: Workshop, name: str) -> None:
    assert workshop.refused("audit", name, "--formula", "x") == (
        f"{name}: {name.partition('(')[0]} leads to nothing that can be called: {NOWHERE[name]}\n"
        "  hint: give a dotted name below a module that can be imported here, such as "
        "torch.nn.functional.gelu\n"
    )


def test_a_mistake_in_the_formula_is_shown_at_its_place(workshop: Workshop) -> None:
    answer = workshop.refused("audit", "torch.relu", "--formula", "relu(xx)")
    assert answer.startswith("formula:4:16: 'xx' is neither an input")
    assert answer.endswith("hint: did you mean 'x'?\n")
