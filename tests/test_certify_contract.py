"""The contract as written: a sentence for each broken promise, and the file beside it."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Workshop

from fusegen import runtime_text
from fusegen.certify import certificate, contract, recorded, state
from fusegen.certify.certificate import Claim, Json, Kernel, Machine
from fusegen.certify.digest import kernel_digest
from fusegen.certify.findings import (
    Accuracy,
    Evidence,
    Output,
    ReferenceMismatch,
    Relations,
    Sample,
    Special,
    Worst,
)

INF = float("inf")
STRIDED = "one result in every layout: with stride 2, 3 of 2,048 results of value differ"


def erring(ulp: float, **more: int) -> Accuracy:
    return Accuracy((Worst(("0x1.0000000000000p+0",), ulp, "0x1.8p+0", "0x1.0p+0"),), **more)


def evidence(
    dtype: str = "float32",
    *,
    undecided: int = 0,
    related: tuple[str, ...] = (),
    mismatch: ReferenceMismatch | None = None,
    scalars: tuple[Sample, ...] = (),
    **output: Any,
) -> Evidence:
    """Evidence of a value that is perfect but for what is given, and of a gradient that is perfect."""
    value = dataclasses.replace(Output("value", Accuracy(), Accuracy()), **output)
    slope = Output("gradient of x", Accuracy(), Accuracy())
    found = Evidence(dtype, 2**16, False, undecided, (value, slope), mismatch, scalars=scalars)
    return dataclasses.replace(found, relations=Relations(84, related))


def special(input: str, given: str, eager: str, real: str) -> tuple[Special, ...]:
    return (Special(input, given, eager, real),)


def at_scalars(given: Accuracy, eager: Accuracy) -> Sample:
    """The sample of a value with an alpha of 0."""
    return Sample(100, (Output("value", given, eager),), (("alpha", 0.0),))


ENDS = (Special("inf", "1.0", "1.0", "1.0"), Special("-inf", "0.0", "0.0", "0.0"))

# --- the contract ---------------------------------------------------------------------------------------

KEPT: dict[str, tuple[Evidence, str]] = {
    "nothing to say": (evidence(), "accurate"),
    "4 ulp where eager has fewer": (evidence(given=erring(4.001), eager=erring(0.5)), "accurate"),
    "as much as eager": (evidence("float64", given=erring(9.0), eager=erring(9.0)), "accurate"),
    "4 ulp where there is no eager": (evidence(given=erring(4.0), eager=None), "accurate"),
    "results beyond the neighbour in float32": (
        evidence(given=erring(1.5, beyond_neighbour=9), eager=erring(0.5)),
        "accurate",
    ),
    "errors of more than an ulp that are neighbours": (
        evidence("float16", given=erring(1.4, misrounded=1), eager=erring(0.5, misrounded=1)),
        "accurate",
    ),
    "as much as eager at other scalars": (
        evidence(scalars=(at_scalars(erring(1e9), erring(1e9)),)),
        "accurate",
    ),
    "a limit of several tensors": (
        evidence(specials=(Special("-inf", "0.0", "nan", "-0.0", "gate"),)),
        "accurate",
    ),
    "misrounded float32": (evidence(given=erring(1.0, misrounded=9)), "accurate"),
    "misrounded as often as eager": (
        evidence("float16", given=erring(0.7, misrounded=3), eager=erring(0.7, misrounded=3)),
        "accurate",
    ),
    "misrounded where there is no eager": (
        evidence("bfloat16", given=erring(0.7, misrounded=3), eager=None),
        "accurate",
    ),
    "other bits than PyTorch's, as near": (evidence(bits_differ=5), "arithmetic"),
    "large errors that are PyTorch's": (evidence(given=erring(1e9), eager=erring(1e9)), "arithmetic"),
    "overflows where eager overflows": (
        evidence(given=erring(0.5, overflows=2), eager=erring(0.5, overflows=2)),
        "accurate",
    ),
    "a range that is the function's": (evidence(range=(0.0, 1.0, 0.0, 1.0), specials=ENDS), "accurate"),
    "an end that is a value": (evidence(range=(-0.2800001, 9.0, -0.28, 9.0), specials=ENDS), "accurate"),
    "NaN from NaN": (evidence(specials=special("nan", "nan", "nan", "nan")), "accurate"),
    "what eager makes of NaN": (evidence(specials=special("nan", "0.0", "0.0", "nan")), "accurate"),
    "eager's sign of a zero": (evidence(specials=special("-0.0", "0.0", "0.0", "-0.0")), "arithmetic"),
    "the limit": (evidence(specials=special("-inf", "0.0", "nan", "-0.0")), "accurate"),
    "a limit that is no integer, nearly": (
        evidence(specials=special("inf", "0.8650983572006226", "nan", "0.8650984168052673")),
        "accurate",
    ),
    "no limit": (evidence(specials=special("inf", "nan", "nan", "nan")), "accurate"),
    "arithmetic at an infinity": (evidence(specials=special("inf", "nan", "nan", "1.0")), "arithmetic"),
    "large errors of eager": (evidence(given=erring(1e9), eager=erring(1e9)), "eager"),
}
BROKEN: dict[str, tuple[Evidence, str]] = {
    "7 inputs are undecided: more were open than are looked at": (evidence(undecided=7), "accurate"),
    STRIDED: (evidence(related=(STRIDED,)), "eager"),
    "value is between 0.0 and 1.0000001, the function between 0.0 and 1.0": (
        evidence(range=(0.0, 1.0000001, 0.0, 1.0), specials=ENDS), "accurate",
    ),
    "value is between -1e-45 and 1.0, the function between 0.0 and 1.0": (
        evidence(range=(-1e-45, 1.0, 0.0, 1.0), specials=ENDS), "arithmetic",
    ),
    "value is infinite at 2 inputs where it is not": (
        evidence(given=erring(0.5, overflows=2), eager=erring(0.5, overflows=1)), "accurate",
    ),
    "value is infinite at 1 inputs where it is not": (
        evidence(given=erring(0.5, overflows=1), eager=None), "eager",
    ),
    "value at nan is 0.0, not nan; eager gives nan": (
        evidence(specials=special("nan", "0.0", "nan", "nan")), "accurate",
    ),
    "value at nan is 0.0, not nan": (evidence(specials=special("nan", "0.0", "", "nan")), "accurate"),
    "value at -0.0 is 0.0, not -0.0; eager gives -0.0": (
        evidence(specials=special("-0.0", "0.0", "-0.0", "-0.0")), "arithmetic",
    ),
    "value at -inf is nan, and tends to 0.0": (
        evidence(specials=special("-inf", "nan", "nan", "0.0")), "accurate",
    ),
    "value at inf is inf, and tends to 1.0": (
        evidence("float16", specials=special("inf", "inf", "inf", "1.0")), "accurate",
    ),
    "value at inf is 0.9999999403953552, and tends to 1.0": (
        evidence(specials=special("inf", "0.9999999403953552", "1.0", "1.0")), "accurate",
    ),
    "value at inf is 0.8650987148284912, and tends to 0.8650984168052673": (  # five ulp
        evidence(specials=special("inf", "0.8650987148284912", "nan", "0.8650984168052673")), "accurate",
    ),
    "value at inf is 0.8671875, and tends to 0.8662109375": (  # two
        evidence("float16", specials=special("inf", "0.8671875", "nan", "0.8662109375")), "accurate",
    ),
    "value: the error 4.003 ulp exceeds the bound 4 ulp; eager's is 3.9 ulp": (
        evidence(given=erring(4.003), eager=erring(3.9)), "accurate",
    ),
    "value: the error 9.01 ulp exceeds the bound 9 ulp; eager's is 9 ulp": (
        evidence("float64", given=erring(9.01), eager=erring(9.0)), "accurate",
    ),
    "value: the error inf ulp exceeds the bound 4 ulp": (
        evidence(given=erring(INF), eager=None), "accurate",
    ),
    "value: 2 results are neither the correctly rounded value nor its neighbour": (
        evidence("bfloat16", given=erring(1.5, beyond_neighbour=2)), "accurate",
    ),
    "value: 4 results are misrounded, eager has 3": (
        evidence("float16", given=erring(0.7, misrounded=4), eager=erring(0.7, misrounded=3)), "accurate",
    ),
    "value: 1 results are not PyTorch's and further from the exact value": (
        evidence(bits_differ=5, worse_than_eager=1), "arithmetic",
    ),
    "with alpha = 0: value: the error 5 ulp exceeds the bound 4 ulp; eager's is 1 ulp": (
        evidence(scalars=(at_scalars(erring(5.0), erring(1.0)),)), "accurate",
    ),
    "value at gate=inf is nan, and tends to 1.0": (
        evidence(specials=(Special("inf", "nan", "nan", "1.0", "gate"),)), "accurate",
    ),
    "value at gate=nan is 0.0, not nan; eager gives nan": (
        evidence(specials=(Special("nan", "0.0", "nan", "nan", "gate"),)), "accurate",
    ),
}  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("what", KEPT)
def test_a_promise_that_is_kept_is_not_spoken_of(what: str, device: str) -> None:
    assert contract.judged(*KEPT[what], device).broken == ()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("sentence", BROKEN)
def test_a_broken_promise_is_a_sentence(sentence: str, device: str) -> None:
    assert contract.judged(*BROKEN[sentence], device).broken == (sentence,)


def test_eagers_bits_are_promised_on_cuda() -> None:
    found = evidence(bits_differ=2)
    assert contract.judged(found, "eager", "cpu").broken == ()
    assert contract.judged(found, "eager", "cuda").broken == (
        "value: 2 results are not bit-identical to eager's",
    )


def test_every_output_is_judged_and_nothing_else_changes() -> None:
    found = evidence(undecided=1, given=erring(5.0), eager=None)
    slope = dataclasses.replace(found.outputs[1], given=erring(6.0))
    found = dataclasses.replace(found, outputs=(found.outputs[0], slope), broken=("of before",))
    judged = contract.judged(found, "accurate", "cpu")
    assert judged.broken == (
        "1 inputs are undecided: more were open than are looked at",
        "value: the error 5 ulp exceeds the bound 4 ulp",
        "gradient of x: the error 6 ulp exceeds the bound 4 ulp; eager's is 0 ulp",
    )
    assert dataclasses.replace(judged, broken=found.broken) == found


# --- the certificate ------------------------------------------------------------------------------------

HERE = Machine("x86_64 AVX2", "2.13.0", "c++ 12.2.0")
THERE = dataclasses.replace(HERE, torch="2.11.0")
MODULE = '''# Code generated from a spec. DO NOT EDIT.
"""A gate."""

import torch

SHARED_SOURCE = r"""
both
"""
CUDA_SOURCE = r"""
gpu  # not a comment
""" + SHARED_SOURCE
CPU_SOURCE = r"""
// relu
relu
"""
LAYOUT_SOURCE = r"""walk"""
CPU_FLAGS = ["-O3"]  # fast
CUDA_FLAGS = ["-O3"]


def gate(x):
    """The gate."""
    return masked(x)
'''
RICH = evidence(
    undecided=1,
    related=(STRIDED,),
    mismatch=ReferenceMismatch(3, ("0x1.0p+0", "0x1.0p+0", "0x1.8p+0"), ("0x1.0p+1", "0x1.0p+1", "nan")),
    scalars=(at_scalars(erring(0.5), erring(2.0, misrounded=3)),),
    given=erring(0.123456, misrounded=4, beyond_neighbour=5, overflows=6, monotonicity_breaks=7),
    eager=erring(INF),
    bits_differ=8,
    worse_than_eager=9,
    range=(-0.1, INF, -0.0, 1e300),
    specials=(Special("nan", "nan", "nan", "nan"), Special("-0.0", "-0.0", "0.0", "-0.0", "gate")),
)
RICH = dataclasses.replace(
    RICH, ranges={"x": (-1e4, INF)}, beyond=Sample(7, (Output("value", erring(3.0), erring(2.0)),))
)
CLAIM = Claim("gate", "y = x · x", ("float32",))


def written(
    *found: Evidence,
    onto: Json | None = None,
    device: str = "cpu",
    kernel: str = "k1",
    made: Machine = HERE,
    claim: Claim = CLAIM,
) -> Json:
    """A certificate with more evidence in it."""
    whole = onto or {}
    for one in found:
        whole = certificate.with_evidence(whole, claim, Kernel(device, kernel, made), one)
    return whole


def test_a_certificate_is_this_text(golden: Callable[[str, str], None]) -> None:
    judged = contract.judged(RICH, "accurate", "cpu")
    whole = written(judged, evidence("float64"))
    golden("certificate.json", certificate.text(whole))


def test_a_certificate_has_the_same_bytes_each_time() -> None:
    script = (
        "from test_certify_contract import *\nprint(certificate.text(written(RICH, evidence('float64'))))"
    )

    def made(seed: str) -> bytes:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, check=True
        )
        return done.stdout

    assert len({made(seed) for seed in "12"}) == 1


def test_a_certificate_that_is_read_and_written_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "gate.certificate.json"
    whole = written(RICH)
    path.write_text(certificate.text(whole), encoding="utf-8")
    assert state.read(path) == whole
    assert certificate.text(state.read(path)) == certificate.text(whole)
    assert certificate.text(written(RICH, onto=state.read(path))) == certificate.text(whole)


def test_dtypes_gather_in_one_order_and_devices_too() -> None:
    found = [evidence(dtype) for dtype in ("float64", "bfloat16", "float32", "float16")]
    whole = written(*found, onto=written(found[0], device="cuda"))
    assert list(whole) == ["format", "name", "formula", "cpu", "cuda"]
    assert list(whole["cpu"]["dtypes"]) == ["float32", "float16", "bfloat16", "float64"]
    assert list(whole["cuda"]["dtypes"]) == ["float64"]
    other_way = written(found[0], onto=written(*reversed(found)), device="cuda")
    assert certificate.text(other_way) == certificate.text(whole)


@pytest.mark.parametrize(("kernel", "made"), [("k2", HERE), ("k1", THERE)], ids=["kernel", "machine"])
def test_evidence_of_another_kernel_or_machine_goes(kernel: str, made: Machine) -> None:
    before = written(evidence("float32"), evidence("float16"))
    before = written(evidence("float32"), onto=before, device="cuda")
    after = written(evidence("float16"), onto=before, kernel=kernel, made=made)
    assert list(after["cpu"]["dtypes"]) == ["float16"]
    assert after["cpu"]["kernel"] == kernel
    assert after["cuda"] == before["cuda"]


def test_evidence_holds_for_its_kernel_machine_and_dtype() -> None:
    whole = written(evidence("float16"))
    cpu = Kernel("cpu", "k1", HERE)
    assert certificate.holds(whole, cpu, "float16")
    assert not certificate.holds(whole, cpu, "float32")
    for other in (Kernel("cpu", "k2", HERE), Kernel("cpu", "k1", THERE), Kernel("cuda", "k1", HERE)):
        assert not certificate.holds(whole, other, "float16")
    assert not certificate.holds({}, cpu, "float16")


@pytest.mark.parametrize("found", [evidence(), RICH, evidence("float16", eager=None)])
def test_evidence_is_read_as_it_was_written(found: Evidence) -> None:
    shown = json.loads(certificate.text(certificate.shown(found)))
    again = dataclasses.replace(found, mismatch=None, beyond=None, ranges={})
    read = recorded.evidence(found.dtype, shown)
    assert certificate.shown(read) == certificate.shown(again)
    assert (
        contract.judged(read, "accurate", "cpu").broken == contract.judged(found, "accurate", "cpu").broken
    )


# --- the digest -----------------------------------------------------------------------------------------

DECIDES: dict[str, tuple[str, str, set[str]]] = {
    "the CPU's kernel": ("\nrelu", "\ntanh", {"cpu"}),
    "the GPU's kernel": ("gpu", "GPU", {"cuda"}),
    "the kernel of the device that takes what both share": ("\nboth", "\nall", {"cuda"}),
    "flags": ('CPU_FLAGS = ["-O3"]', 'CPU_FLAGS = ["-O3", "-ffast-math"]', {"cpu", "cuda"}),
    "the GPU's flags": ('CUDA_FLAGS = ["-O3"]', 'CUDA_FLAGS = ["-O3", "-use_fast_math"]', {"cuda"}),
    "the layout": ("walk", "run", {"cpu", "cuda"}),
    "the Python": ("masked(x)", "x", {"cpu", "cuda"}),
    "a comment in C++ that is none": ("gpu  #", "gpu #", {"cuda"}),
    "a comment": ("  # fast", "  # faster", set()),
    "the header": ("# Code generated", "# Written", set()),
    "the docstring": ("A gate.", "Another gate.", set()),
    "a function's docstring": ("The gate.", "A gate that is another.", set()),
    "a line of comment in C++": ("// relu", "// another", set()),
    "an empty line": ("import torch\n", "import torch\n\n", set()),
}


@pytest.mark.parametrize("what", DECIDES)
def test_a_digest_covers_what_decides_the_results(what: str) -> None:
    old, new, expected = DECIDES[what]
    assert MODULE.count(old) == 1
    changed = MODULE.replace(old, new)
    assert {
        d for d in certificate.DEVICES if kernel_digest(MODULE, d) != kernel_digest(changed, d)
    } == expected


def test_a_text_that_is_no_python_has_a_digest() -> None:
    assert len({kernel_digest(text, "cpu") for text in ("", "def", "('", "x" * 9)}) == 4


def test_fast_mathematics_makes_a_committed_certificate_stale() -> None:
    """The flags are the runtime's; its comments decide nothing."""
    text = (ROOT / "generated" / "gelu.py").read_text(encoding="utf-8")
    files = runtime_text.files("stable")
    flags = files["flags.py"]
    other = flags.replace('CPU_FLAGS = ["-O3"', 'CPU_FLAGS = ["-ffast-math", "-O3"', 1)
    assert other != flags
    for changed, same in ((other, False), (flags + "# more\n", True)):
        found = kernel_digest(text, "cpu", {**files, "flags.py": changed})
        assert (found == kernel_digest(text, "cpu")) is same
    assert kernel_digest(text.replace("\n    # ", "\n    #  "), "cpu") == kernel_digest(text, "cpu")


# --- what a certificate is worth ------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "gate.py"
    path.write_text(MODULE, encoding="utf-8")
    return path


def certified_as(
    module: Path,
    *found: Evidence,
    device: str = "cpu",
    onto: Json | None = None,
    claim: Claim = CLAIM,
) -> Json:
    """A certificate of the module, on disk."""
    digest = kernel_digest(module.read_text(encoding="utf-8"), device)
    whole = written(*found, onto=onto, device=device, kernel=digest, claim=claim)
    certificate.path_of(module).write_text(certificate.text(whole), encoding="utf-8")
    return whole


@pytest.mark.parametrize(
    ("dtype", "ulp", "told"), [("float32", 5.31, "5.3 ulp > 4"), ("float16", 5.31, "1 exception")]
)
def test_broken_promises_in_short(dtype: str, ulp: float, told: str) -> None:
    output = Output("value", Accuracy((Worst(("0x1.0p+0",), ulp, "0x1.0p+0", "0x1.0p+0"),), 1), Accuracy())
    found = Evidence(dtype, 4, False, 0, (output,), broken=("one",))
    assert contract.in_short(found) == told


def test_a_part_is_kept_broken_or_stale(module: Path) -> None:
    assert state.states(module, CLAIM) == {}
    broken = contract.judged(evidence("float16", related=(STRIDED,)), "accurate", "cuda")
    whole = certified_as(module, evidence("float32"))
    certified_as(module, evidence("float32"), broken, device="cuda", onto=whole)
    assert state.states(module, CLAIM) == {"cpu": "ok", "cuda": "float16 1 exception"}
    module.write_text(MODULE.replace("gpu", "GPU"), encoding="utf-8")
    assert state.states(module, CLAIM) == {"cpu": "ok", "cuda": "stale"}
    module.unlink()
    assert state.states(module, CLAIM) == {"cpu": "stale", "cuda": "stale"}


@pytest.mark.parametrize(
    "claim",
    [
        dataclasses.replace(CLAIM, name="door"),
        dataclasses.replace(CLAIM, formula="y = x"),
        dataclasses.replace(CLAIM, numerics="eager"),
    ],
    ids=["name", "formula", "numerics"],
)
def test_a_certificate_of_another_spec_is_foreign(module: Path, claim: Claim) -> None:
    certified_as(module, evidence())
    assert state.states(module, claim) == {"cpu": "foreign"}


def test_a_certificate_without_a_dtype_is_incomplete(module: Path) -> None:
    certified_as(module, evidence())
    claim = dataclasses.replace(CLAIM, dtypes=("float32", "float64"))
    assert state.states(module, claim) == {"cpu": "incomplete"}


@pytest.mark.parametrize(
    "found",
    [
        evidence(given=erring(5.0), eager=erring(1.0)),
        evidence(undecided=1),
        evidence(specials=special("inf", "nan", "nan", "1.0")),
        evidence(scalars=(at_scalars(erring(5.0), erring(1.0)),)),
        dataclasses.replace(evidence(), broken=("something",)),
    ],
    ids=["error", "undecided", "limit", "scalars", "nothing"],
)
def test_figures_that_break_a_promise_in_silence_are_contradictory(module: Path, found: Evidence) -> None:
    certified_as(module, found)
    assert state.states(module, CLAIM) == {"cpu": "contradictory"}


def test_a_file_of_an_earlier_format_is_stale(module: Path) -> None:
    certificate.path_of(module).write_text('{"format": 1, "cpu": {}, "cuda": {}}', encoding="utf-8")
    assert state.states(module, CLAIM) == {"cpu": "stale", "cuda": "stale"}
    assert state.read(certificate.path_of(module)) == {}


FOREIGN: dict[str, str | bytes] = {
    "cut off": certificate.text(written(RICH))[:-40],
    "empty": "",
    "binary": b"\xff\xfe\x00",
    "a list": "[1]",
    "deep": "[" * 100_000 + "]" * 100_000,
    "deep objects": '{"format":' * 100_000 + "1" + "}" * 100_000,
    "no format": "{}",
    "a format that is none": '{"format": "two"}',
    "no part": '{"format": 2}',
    "another file of this format": '{"format": 2, "cpu": 3}',
    "a part without evidence": '{"format": 2, "cpu": {"kernel": "k1"}}',
    "a part without dtypes": certificate.text(
        {**written(), "format": 2, "cpu": {"kernel": "", "dtypes": {}}}
    ),
    "evidence of nothing": certificate.text(written(evidence())).replace('"inputs": 65536,', ""),
    "a number that is none": certificate.text(written(evidence())).replace("65536", '"many"'),
    "another largest error": certificate.text(written(RICH)).replace('"ulp": 0.1235', '"ulp": 0.12'),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_what_is_no_certificate_cannot_be_read(module: Path, what: str) -> None:
    text = FOREIGN[what]
    path = certificate.path_of(module)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert state.states(module, CLAIM) == {"cpu": "unreadable", "cuda": "unreadable"}
    assert state.read(path) == {} or what == "no part"


# --- the verbs that read it -----------------------------------------------------------------------------


@pytest.fixture
def certified(workshop: Workshop) -> Workshop:
    """A workshop with three specs: one certified, one with a broken promise, one without a certificate."""
    for name, related in (("broken", (STRIDED,)), ("kept", ()), ("none", None)):
        workshop.spec(name, "formula: x + 1\ndtypes: [float16]")
        assert workshop.run("build", name).exit_code == 0
        if related is not None:
            found = contract.judged(evidence("float16", related=related), "accurate", "cpu")
            claim = Claim(name, "y = x + 1", ("float16",))
            certified_as(Path(f"generated/{name}.py"), found, claim=claim)
    return workshop


def states(workshop: Workshop) -> list[list[str]]:
    return [line.split("\t")[3:] for line in workshop.run("list").output.splitlines()]


def test_list_shows_what_certificates_say(certified: Workshop) -> None:
    assert states(certified) == [
        ["current", "cpu float16 1 exception"],
        ["current", "cpu ok"],
        ["current", "none"],
    ]
    certified.spec("kept", "formula: x + 2\ndtypes: [float16]")
    certified.run("build", "kept")
    assert states(certified)[1] == ["current", "cpu stale"]


def test_check_tells_of_stale_certificates_and_is_content(certified: Workshop) -> None:
    assert (
        certified.run("check").output
        == "3 modules are what their specs say, 1 of them without a certificate\n"
    )
    certified.spec("kept", "formula: x + 2\ndtypes: [float16]")
    certified.run("build", "kept")
    result = certified.run("check")
    assert (result.exit_code, result.stdout) == (
        0,
        "3 modules are what their specs say, 1 of them without a certificate\n",
    )
    assert result.stderr == (
        "generated/kept.py: its certificate is of another kernel (cpu); "
        "run 'python -m fusegen certify kept'\n"
    )


OTHERS = {
    "foreign": ('"name": "kept"', '"name": "broken"', "has another name, formula or promise than the spec"),
    "contradictory": (
        '"broken": []',
        '"broken": ["x"]',
        "has figures that break other promises than it says",
    ),
    "unreadable": ('"format"', "", "cannot be read"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_check_and_list_tell_of_every_other_state(certified: Workshop, name: str) -> None:
    path = Path("generated/kept.certificate.json")
    old, new, said = OTHERS[name]
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    devices = ["cpu", "cuda"] if name == "unreadable" else ["cpu"]
    assert states(certified)[1] == ["current", ", ".join(f"{device} {name}" for device in devices)]
    result = certified.run("check")
    assert (result.exit_code, result.stderr) == (
        0,
        f"generated/kept.py: its certificate {said} ({', '.join(devices)}); "
        "run 'python -m fusegen certify kept'\n",
    )


def test_check_tells_of_a_dtype_without_evidence(certified: Workshop) -> None:
    certified.spec("kept", "formula: x + 1\ndtypes: [float16, float64]")
    certified.run("build", "kept")
    text = Path("generated/kept.py").read_text(encoding="utf-8")
    path = Path("generated/kept.certificate.json")
    found = json.loads(path.read_text(encoding="utf-8"))
    found["cpu"]["kernel"] = kernel_digest(text, "cpu")
    path.write_text(certificate.text(found), encoding="utf-8")
    assert states(certified)[1] == ["current", "cpu incomplete"]
    assert "its certificate lacks a dtype of the spec (cpu)" in certified.run("check").stderr


def test_build_leaves_certificates_alone(certified: Workshop) -> None:
    before = certified.files()
    assert certified.run("build").output == "unchanged: 3 modules\n"
    assert certified.files() == before


def test_a_certificate_is_json_and_ends_its_line() -> None:
    text = certificate.text(written(RICH))
    assert json.loads(text)["cpu"]["dtypes"]["float32"]["value"]["eager"]["ulp"] == "inf"
    assert text.endswith("}\n")
    assert text.isascii()
