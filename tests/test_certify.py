"""The purpose of certification: a fault planted in the text of a module is found, whatever it is.

The kernels are the CPU's; a GPU, where there is one, judges their float32 results as well.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from kernels import DEVICES, with_runtime

from fusegen.codegen import runtime_text
from fusegen.compiler.pipeline import compiled as compile_spec
from fusegen.compiler.stages import real
from fusegen.evidence.certify import contract, enclosures, subject, sweep, tried_inputs
from fusegen.evidence.certify.evaluator import Evaluator
from fusegen.evidence.certify.findings import Evidence
from fusegen.evidence.certify.interval_filter import IntervalFilter
from fusegen.language.library import Library
from fusegen.language.parse import parse_spec
from fusegen.project import build

SPECS = {
    "hardsigmoid": "formula: relu6(x + 3) / 6\nreference: torch.nn.functional.hardsigmoid",
    "relu6": "formula: relu6(x)\nreference: torch.nn.functional.relu6",
    "softsign": "formula: x / (abs(x) + 1)",
    "reglu": "inputs: {gate: {}, up: {}}\nformula: relu(gate) * up",
}
# built without optimisation and in one library, in a third of the time
SOONER = (
    ("flags.py", '"-O3"', '"-O0"'),
    ("recipe.py", '"\\n".join(f"#define {part}" for part in PARTS[kernel])', '""'),
)
RUNTIME = runtime_text.files("stable")


@dataclass(frozen=True)
class Fault:
    """A fault."""

    what: str  # it is
    spec: str  # of the module that has it
    dtype: str  # in which it shows
    # old, new: text of the module, before and after
    old: str
    new: str
    said: str  # part of the sentence that tells of it
    near: float = 1.0  # a float32; the inputs are its neighbours


FURTHER = "results are not PyTorch's and further from the exact value"
LAYOUTS = "one result in every layout: "
RELU6 = "return x < 0 ? M(0) : x > 6 ? M(6) : x;"
FORWARD, ROUNDED = "return relu6(x + M(3)) / M(6);", "k < n; ++k) out[k] = cast_to_storage<T>(in[k]);"
SIGN = "soft_sign(finite_x)"
FAULTS = (
    # PyTorch's bits
    Fault("a constant one place off", "hardsigmoid", "float32", "/ M(6)", "/ M(6.0000005)",
          f"value: 54614 {FURTHER}"),
    Fault("one wrong result", "hardsigmoid", "float32", FORWARD,
          f"if (x == M(1.00001f)) return M(0.666669); {FORWARD}", f"value: 1 {FURTHER}"),
    Fault("<= for < at a kink", "hardsigmoid", "float32", "x < M(3)", "x <= M(3)",
          f"gradient of x: 1 {FURTHER}", 3.0),
    Fault("> for >= at a kink", "relu6", "float32", "x >= M(6)", "x > M(6)",
          f"gradient of x: 1 {FURTHER}", 6.0),
    Fault("double computed in float", "hardsigmoid", "float64", FORWARD,
          "return relu6(float(x) + 3.0f) / 6.0f;", FURTHER),
    # what is special
    Fault("a bound that takes NaN", "relu6", "bfloat16", RELU6, "return x > 6 ? M(6) : x > 0 ? x : M(0);",
          "value at nan is 0.0, not nan; eager gives nan"),
    Fault("-0.0 lost", "relu6", "float32", "return relu6(x);", "return relu6(x + M(0));",
          "value at -0.0 is 0.0, not -0.0; eager gives -0.0"),
    Fault("a limit lost", "softsign", "float32", "clamp_to_highest(clamp_to_lowest(x))", "x",
          "value at inf is nan, and tends to 1.0", 2.0),
    Fault("an end passed", "softsign", "float32", SIGN, f"{SIGN} * M(1.0000001f)",
          "and 1.0000001192092896, the function between", 1e10),
    # where an element lies
    Fault("the rest of a tile left out", "hardsigmoid", "bfloat16", ROUNDED,
          ROUNDED.replace("n;", "n - n % 8;"), LAYOUTS),
    Fault("the rest of a row left out", "hardsigmoid", "float32", "j < n; ++j", "j < n - n % 64; ++j",
          LAYOUTS),
    Fault("steps taken for a row", "hardsigmoid", "float64", "j * step[k]", "j", LAYOUTS),
    # how near it is to the real value
    Fault("a factor off", "softsign", "bfloat16", SIGN, f"{SIGN} * M(0.99f)",
          "results are neither the correctly rounded value nor its neighbour"),
    Fault("a kink of one of two inputs", "reglu", "float32", "gate <= M(0)", "gate < M(0)",
          " boxes break C3: "),
)  # fmt: skip


MODULE = build.module  # which `judged` replaces


def judged(
    folder: Path,
    patch: pytest.MonkeyPatch,
    place: str,
    name: str,
    dtype: str,
    near: float,
    texts: dict[str, str],
) -> Evidence:
    """The evidence at a place of the module of a spec in which some texts are replaced."""
    patch.setattr(IntervalFilter, "place", lambda *_: place)
    every = tried_inputs.every
    patch.setattr(tried_inputs, "every", lambda dtype: every(dtype)[::17])
    patch.setattr(enclosures, "CHUNK", 2**14)  # in this process
    for constant, fewer in {"EACH": 2, "ORDINARY": 2**8, "MOST_KINKS": 4}.items():
        patch.setattr(tried_inputs, constant, fewer)
    bits = int(torch.tensor(near).view(torch.int32)) % 2**32
    patch.setattr(sweep, "runs", lambda count, length: iter([bits // length * length]))
    spec = parse_spec(f"name: {name}\nsummary: A test.\n{SPECS[name]}\n", f"{name}.yaml")
    compiled = compile_spec(spec, Library(ROOT / "specs"))
    text = MODULE(compiled)
    whole = dict(RUNTIME)
    for old, new in texts.items():  # in the module, else in the headers that have it
        holding = [name for name, held in RUNTIME.items() if old in held] if old not in text else []
        assert holding or old in text
        text = text.replace(old, new)
        whole |= {name: whole[name].replace(old, new) for name in holding}
    patch.setattr(build, "module", lambda *_: text)  # so that it is what the spec says
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    for file, old, new in SOONER:
        assert old in whole[file]
        whole[file] = whole[file].replace(old, new)
    patch.setattr(runtime_text, "files", lambda binding: whole)
    with_runtime(folder)
    found = subject.of_spec(compiled, folder)
    evaluator = Evaluator(found, "cpu")
    return contract.judged(evaluator.evidence(dtype, 2**24), found.promise, "cpu")  # a run of 2**16


@pytest.mark.few(1)
@pytest.mark.parametrize("place", DEVICES)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_a_fault_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault, place: str) -> None:
    texts = {fault.old: fault.new}
    found = judged(tmp_path, monkeypatch, place, fault.spec, fault.dtype, fault.near, texts)
    assert any(fault.said in sentence for sentence in found.broken), found.broken


@pytest.mark.full
@pytest.mark.together
@pytest.mark.few(1)
@pytest.mark.parametrize("place", DEVICES)
@pytest.mark.parametrize(("spec", "dtype"), sorted({(fault.spec, fault.dtype) for fault in FAULTS}))
def test_without_it_every_promise_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, dtype: str, place: str
) -> None:
    for near in {fault.near for fault in FAULTS if (fault.spec, fault.dtype) == (spec, dtype)}:
        assert judged(tmp_path, monkeypatch, place, spec, dtype, near, {}).broken == ()


@pytest.mark.parametrize(
    ("device", "gpu", "nvcc", "place"),
    [
        ("cpu", False, True, "cpu"),
        ("cpu", True, False, "cpu"),
        ("cpu", True, True, "cuda"),
        ("cuda", True, True, "cuda"),
    ],
)
def test_a_gpu_filters_wherever_a_filter_can_be_built_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, gpu: bool, nvcc: bool, place: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(
        "fusegen.evidence.certify.interval_filter._nvcc", lambda: tmp_path if nvcc else tmp_path / "none"
    )
    spec = parse_spec("name: one\nsummary: A test.\nformula: x\n", "one.yaml")
    found = real(spec, Library(tmp_path))
    assert IntervalFilter(found, {}).place(device) == place
