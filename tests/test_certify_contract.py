"""The contract: a sentence for each broken promise, and the worth of the file beside a module."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Workshop

from fusegen.codegen import runtime_text
from fusegen.evidence.certify import certificate_state, certificate_text, contract
from fusegen.evidence.certify.certificate import DEVICES, Certificate, Claim, Kernel, Machine, path_of
from fusegen.evidence.certify.digest import kernel_digest
from fusegen.evidence.certify.findings import (
    Accuracy,
    Breach,
    Evidence,
    Local,
    Output,
    Relations,
    Run,
    Sample,
    Special,
    Tried,
    Worst,
)

STRIDED = "one result in every layout: with stride 2, 3 of 2,048 results of value differ"


def states_of(module: Path, claim: Claim) -> dict[str, str]:
    """The states of the certificate of a module of one kernel."""
    text = module.read_text(encoding="utf-8") if module.exists() else ""
    return certificate_state.states(path_of(module), claim, text)


def erring(ulp: float, **more: int) -> Accuracy:
    return Accuracy((Worst(("0x1.0000000000000p+0",), ulp, "0x1.8p+0", "0x1.0p+0"),), **more)


def evidence(
    dtype: str = "float32",
    *,
    undecided: int = 0,
    breach: str = "",
    related: tuple[str, ...] = (),
    scalars: tuple[Sample, ...] = (),
    **output: Any,
) -> Evidence:
    """Evidence of a value that is perfect but for what is given, and of a gradient that is perfect."""
    plain = Output("value", Accuracy(), Accuracy(), local=broken_by(breach) if breach else Local())
    value = dataclasses.replace(plain, **output)
    slope = Output("gradient of x", Accuracy(), Accuracy())
    found = Evidence(dtype, 2**16, False, undecided, (value, slope), scalars=scalars)
    return dataclasses.replace(found, relations=Relations(84, related))


def broken_by(rule: str) -> Local:
    """An output's errors that break a rule in two cells."""
    return Local(breaches=(Breach(rule, 2, 32640, "cells", 5.31, 4.2, ("0x1.8p+0",)),))


def special(input: str, given: str, eager: str, real: str) -> tuple[Special, ...]:
    return (Special(input, given, eager, real),)


def at_scalars(given: Accuracy, eager: Accuracy, **more: Any) -> Sample:
    """The sample of a value with an alpha of 0."""
    return Sample(100, (Output("value", given, eager, **more),), (("alpha", 0.0),))


ENDS = (Special("inf", "1.0", "1.0", "1.0"), Special("-inf", "0.0", "0.0", "0.0"))

# --- the contract ---------------------------------------------------------------------------------------

KEPT: dict[str, tuple[Evidence, str]] = {
    "nothing to say": (evidence(), "accurate"),
    "large errors in cells in which eager's are": (evidence(given=erring(1e9)), "accurate"),
    "large errors near those of eager": (evidence("float64", given=erring(1e9)), "accurate"),
    "a local bound that is none of arithmetic": (evidence(breach="C1"), "arithmetic"),
    "a local bound that is none of eager's bits": (evidence(breach="C1"), "eager"),
    "a quarter misrounded": (evidence(given=erring(1.0, misrounded=2**14)), "accurate"),
    "more misrounded, as eager": (
        evidence(given=erring(1.0, misrounded=2**15), eager=erring(1.0, misrounded=2**15)),
        "accurate",
    ),
    "more misrounded in float64": (evidence("float64", given=erring(1.0, misrounded=2**15)), "accurate"),
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
    **{
        f"value: 2 of 32,640 cells break {rule}: 5.31 ulp, eager 4.2, at 0x1.8p+0": (
            evidence(dtype, breach=rule), "accurate",
        )
        for rule, dtype in (("C1", "float32"), ("C1b", "float32"), ("C2", "float32"), ("C3", "float64"),
                            ("C4", "float16"))
    },
    "value: 2 of 32,640 cells break C1: 5.31 ulp, at 0x1.8p+0": (
        evidence(breach="C1", eager=None), "accurate",
    ),
    "value: 25.00% of the results are misrounded, eager has 0.00% (C5)": (
        evidence(given=erring(1.0, misrounded=2**14 + 1)), "accurate",
    ),
    "value: 50.00% of the results are misrounded, eager has 49.99% (C5)": (
        evidence(given=erring(1.0, misrounded=2**15), eager=erring(1.0, misrounded=2**15 - 5)), "accurate",
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
    "with alpha = 0: value: 2 of 32,640 cells break C3: 5.31 ulp, eager 4.2, at 0x1.8p+0": (
        evidence(scalars=(at_scalars(erring(5.0), erring(1.0), local=broken_by("C3")),)), "accurate",
    ),
    "value at gate=inf is nan, and tends to 1.0": (
        evidence(specials=(Special("inf", "nan", "nan", "1.0", "gate"),)), "accurate",
    ),
    "value at gate=nan is 0.0, not nan; eager gives nan": (
        evidence(specials=(Special("nan", "0.0", "nan", "nan", "gate"),)), "accurate",
    ),
}  # fmt: skip


@pytest.mark.together
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("what", KEPT)
def test_a_promise_that_is_kept_is_not_spoken_of(what: str, device: str) -> None:
    assert contract.judged(*KEPT[what], device).broken == ()


@pytest.mark.together
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
    found = evidence(undecided=1, breach="C1", eager=None, specials=ENDS)
    found = dataclasses.replace(found, scalars=(at_scalars(erring(0.5), erring(0.5)),))
    slope = dataclasses.replace(found.outputs[1], local=broken_by("C2"))
    found = dataclasses.replace(found, outputs=(found.outputs[0], slope), broken=("of before",))
    judged = contract.judged(found, "accurate", "cpu")
    assert judged.broken == (
        "1 inputs are undecided: more were open than are looked at",
        "value: 2 of 32,640 cells break C1: 5.31 ulp, at 0x1.8p+0",
        "gradient of x: 2 of 32,640 cells break C2: 5.31 ulp, eager 4.2, at 0x1.8p+0",
    )
    assert judged.tried == Tried(84, 1, 2)
    assert dataclasses.replace(judged, broken=found.broken, tried=Tried()) == found


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
CLAIM = Claim("gate", "y = x · x", ("float32",))


def written(
    *found: Evidence,
    onto: Certificate | None = None,
    device: str = "cpu",
    kernel: str = "0" * 16,
    made: Machine = HERE,
    claim: Claim = CLAIM,
) -> Certificate:
    whole = onto or Certificate()
    for one in found:
        whole = whole.with_evidence(claim, Kernel(device, kernel, made), one)
    return whole


def dtypes(certificate: Certificate, device: str) -> list[str]:
    return [one.dtype for one in certificate.parts[device].evidence]


def test_dtypes_gather_in_one_order_and_devices_too() -> None:
    found = [evidence(dtype) for dtype in ("float64", "bfloat16", "float32", "float16")]
    whole = written(*found, onto=written(found[0], device="cuda"))
    assert list(whole.parts) == ["cpu", "cuda"]
    assert dtypes(whole, "cpu") == ["float32", "float16", "bfloat16", "float64"]
    assert dtypes(whole, "cuda") == ["float64"]
    assert written(found[0], onto=written(*reversed(found)), device="cuda") == whole


@pytest.mark.parametrize(
    ("kernel", "made"), [("1" * 16, HERE), ("0" * 16, THERE)], ids=["kernel", "machine"]
)
def test_evidence_of_another_kernel_or_machine_goes(kernel: str, made: Machine) -> None:
    before = written(evidence("float32"), evidence("float16"))
    before = written(evidence("float32"), onto=before, device="cuda")
    after = written(evidence("float16"), onto=before, kernel=kernel, made=made)
    assert dtypes(after, "cpu") == ["float16"]
    assert after.parts["cpu"].kernel.digest == kernel
    assert after.parts["cuda"] == before.parts["cuda"]


def test_evidence_of_an_edited_part_goes() -> None:
    before = written(evidence("float32"), evidence("float16"))
    part = dataclasses.replace(before.parts["cpu"], is_edited=True)
    after = written(evidence("float16"), onto=dataclasses.replace(before, parts={"cpu": part}))
    assert (dtypes(after, "cpu"), after.parts["cpu"].is_edited) == (["float16"], False)


@pytest.mark.parametrize("title", ["gate", "door"])
@pytest.mark.parametrize("promise", ["accurate", "arithmetic"])
def test_evidence_of_another_formula_or_promise_goes_on_both_devices(title: str, promise: str) -> None:
    before = written(evidence("float32"), onto=written(evidence("float64"), device="cuda"))
    claim = dataclasses.replace(CLAIM, name=title)
    after = written(dataclasses.replace(evidence("float16"), promise=promise), onto=before, claim=claim)
    same = (title, promise) == ("gate", "accurate")
    assert list(after.parts) == (["cpu", "cuda"] if same else ["cpu"])
    assert dtypes(after, "cpu") == (["float32", "float16"] if same else ["float16"])


def test_an_edit_of_one_part_is_seen_after_the_other_was_renewed(module: Path) -> None:
    whole = certified_as(module, evidence())
    certified_as(module, evidence(), device="cuda", onto=whole)
    path = path_of(module)
    cpu, cuda = path.read_text(encoding="utf-8").split("\ncuda ")
    path.write_text(f"{cpu}\ncuda {cuda.replace('0.00 / 0.00', '0.01 / 0.00')}", encoding="utf-8")
    for _ in range(2):
        assert states_of(module, CLAIM) == {"cpu": "ok", "cuda": "edited"}
        certified_as(module, evidence("float16"), onto=certificate_state.read(path))


def test_evidence_holds_for_its_kernel_machine_and_dtype() -> None:
    whole = written(evidence("float16"))
    cpu = Kernel("cpu", "0" * 16, HERE)
    assert whole.holds(cpu, "float16")
    assert not whole.holds(cpu, "float32")
    for other in (
        Kernel("cpu", "1" * 16, HERE), Kernel("cpu", "0" * 16, THERE), Kernel("cuda", "0" * 16, HERE),
    ):  # fmt: skip
        assert not whole.holds(other, "float16")
    assert not Certificate().holds(cpu, "float16")


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


@pytest.mark.together
@pytest.mark.parametrize("what", DECIDES)
def test_a_digest_covers_what_decides_the_results(what: str) -> None:
    old, new, expected = DECIDES[what]
    assert MODULE.count(old) == 1
    changed = MODULE.replace(old, new)
    assert {d for d in DEVICES if kernel_digest(MODULE, d) != kernel_digest(changed, d)} == expected


def test_a_class_may_have_either_of_its_names_first() -> None:
    text = (ROOT / "generated" / "gelu.py").read_text(encoding="utf-8")
    older = text.replace("class Gelu(", "class ModelNew(").replace("ModelNew = Gelu", "Gelu = ModelNew")
    other = text.replace("class Gelu(", "class Other(")
    assert kernel_digest(older, "cpu") == kernel_digest(text, "cpu") != kernel_digest(other, "cpu")


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
    onto: Certificate | None = None,
    claim: Claim = CLAIM,
) -> Certificate:
    digest = kernel_digest(module.read_text(encoding="utf-8"), device)
    whole = written(*found, onto=onto, device=device, kernel=digest, claim=claim)
    path_of(module).write_text(certificate_text.text(whole), encoding="utf-8")
    return whole


IN_SHORT = {
    "C1 in 2 cells": evidence(breach="C1"),
    "C1 in 2 cells, C2 in 2 cells": dataclasses.replace(
        evidence(),
        outputs=(
            Output("value", Accuracy(), local=broken_by("C1")),
            Output("gradient of x", Accuracy(), local=broken_by("C2")),
            Output("gradient of y", Accuracy(), local=broken_by("C3")),
        ),
    ),
    "1 exception": evidence(related=(STRIDED,)),
    "2 exceptions": evidence(breach="C1", related=(STRIDED,)),
}


@pytest.mark.parametrize("told", IN_SHORT)
def test_broken_promises_in_short(module: Path, told: str) -> None:
    """Also those of a file, which has the sentences only."""
    found = contract.judged(IN_SHORT[told], "accurate", "cpu")
    assert contract.in_short(found) == told
    certified_as(module, found)
    assert states_of(module, CLAIM) == {"cpu": f"float32 {told}"}


def test_a_part_is_kept_broken_or_stale(module: Path) -> None:
    assert states_of(module, CLAIM) == {}
    broken = contract.judged(evidence("float16", related=(STRIDED,)), "accurate", "cuda")
    whole = certified_as(module, evidence("float32"))
    certified_as(module, evidence("float32"), broken, device="cuda", onto=whole)
    assert states_of(module, CLAIM) == {"cpu": "ok", "cuda": "float16 1 exception"}
    module.write_text(MODULE.replace("gpu", "GPU"), encoding="utf-8")
    assert states_of(module, CLAIM) == {"cpu": "ok", "cuda": "stale"}
    module.unlink()
    assert states_of(module, CLAIM) == {"cpu": "stale", "cuda": "stale"}


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
    assert states_of(module, claim) == {"cpu": "foreign"}


WHOLE = certificate_text.text(
    written(evidence(given=erring(0.5), local=Local((1, 2), runs=(Run("0x1p+0", "0x1.8p+0", 9.0, 8.0),))))
)
FOREIGN: dict[str, str | bytes] = {
    "empty": "",
    "binary": b"\xff\xfe\x00",
    "the first line": WHOLE.split("\n")[0],
    "a head": "\n".join(WHOLE.split("\n")[:2]),
    "another format": WHOLE.replace("format 4", "format 5"),
    "an earlier format": '{"format": 2, "cpu": {}, "cuda": {}}',
    "no part": WHOLE.replace("\ncpu ", "\nnpu "),
    "a part without evidence": "\n".join(line for line in WHOLE.split("\n") if "float32" not in line),
    "nothing of what was tried": "\n".join(line for line in WHOLE.split("\n") if "tried" not in line),
    "a count too few": WHOLE.replace("parameters 0", "parameters"),
    "a figure that is none": WHOLE.replace("0.5 / 0 ulp", "0.5 | 0 ulp"),
    "a number that is none": WHOLE.replace("0.5 / 0 ulp", "e / 0 ulp"),
    "a number without end": WHOLE.replace("at 0x1p+0", "at 0x1p+99999"),
    "an input before its error": WHOLE.replace("sample 65,536", "at 0x1p+0"),
    "a share without end": WHOLE.replace("0.00 / 0.00 %", "inf / 0.00 %"),
    "many inputs that are none": WHOLE.replace("at 0x1p+0", f"at {'0x' * 60}\t"),
}


@pytest.mark.together
@pytest.mark.parametrize("what", FOREIGN)
def test_what_is_no_certificate_cannot_be_read(module: Path, what: str) -> None:
    text = FOREIGN[what]
    assert text != WHOLE
    path_of(module).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert states_of(module, CLAIM) == {"cpu": "unreadable", "cuda": "unreadable"}
    assert certificate_state.read(path_of(module)) == Certificate()


def replaced(old: str, new: str) -> Callable[[str], str]:
    def changed(text: str) -> str:
        assert text.count(old) == 1
        return text.replace(old, new)

    return changed


EDITED: dict[str, Callable[[str], str]] = {
    "a digit": replaced("0.5 / 0 ulp", "0.4 / 0 ulp"),
    "a sentence left out": lambda text: re.sub(r"float32   BROKEN .*\n", "", text),
    "the promise": replaced(", accurate\n", ", arithmetic\n"),
    "the title": replaced("# gate", "# door"),
    "the chip": replaced("AVX2", "AVX512"),
    "the digest": lambda text: re.sub(r"(?<=cpu   )\w", lambda digit: "01"[digit[0] == "0"], text),
    "a run left out": replaced("          0x1p+0 to 0x1.8p+0  9 / 8 ulp\n", ""),
    "the sum": lambda text: text[:-3] + ("0" if text[-3] == "1" else "1") + text[-2:],
    "no sum": lambda text: text[: text.index("sum  ")],
}


@pytest.mark.parametrize("what", EDITED)
def test_an_edited_part_is_told_from_one_that_was_written(module: Path, what: str) -> None:
    local = Local((1, 2), runs=(Run("0x1p+0", "0x1.8p+0", 9.0, 8.0),))
    found = evidence(given=erring(0.5), local=local)
    certified_as(module, dataclasses.replace(found, broken=("value: 1 of 9 cells break C1: 9 ulp",)))
    path = path_of(module)
    before = path.read_text(encoding="utf-8")
    path.write_text(EDITED[what](before), encoding="utf-8")
    assert path.read_text(encoding="utf-8") != before
    assert states_of(module, CLAIM) == {"cpu": "edited"}


@pytest.mark.parametrize("missing", [2, 18, 27, 60, 400])
def test_a_part_that_was_cut_off_is_seen(module: Path, missing: int) -> None:
    """In its last line, before it, or in another line, which makes it no certificate."""
    whole = certified_as(module, evidence(), evidence("float16"))
    certified_as(module, evidence(), device="cuda", onto=whole)
    path_of(module).write_text(path_of(module).read_text(encoding="utf-8")[:-missing], encoding="utf-8")
    edited = {"cpu": "ok", "cuda": "edited"}
    found = states_of(module, CLAIM)
    assert found == (edited if missing <= 27 else dict.fromkeys(DEVICES, "unreadable"))


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
    return [line.split("\t")[3:5] for line in workshop.run("list").output.splitlines()]


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
    "foreign": ("# kept: ", "# broken: ", "has another name, formula or promise than the spec"),
    "edited": ("sample 65,536", "all 65,536", "was edited or cut off after it was written"),
    "unreadable": ("# format", "# form", "cannot be read"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_check_fails_for_certificates_that_are_wrong(certified: Workshop, name: str) -> None:
    """Nobody gets them by building and certifying."""
    path = Path("generated/kept.certificate.txt")
    old, new, said = OTHERS[name]
    if name == "foreign":
        found = contract.judged(evidence("float16"), "accurate", "cpu")
        certified_as(Path("generated/kept.py"), found, claim=Claim("broken", "y = x + 1", ("float16",)))
    else:
        path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    assert path.read_text(encoding="utf-8").count(new)
    devices = ["cpu", "cuda"] if name == "unreadable" else ["cpu"]
    assert states(certified)[1] == ["current", ", ".join(f"{device} {name}" for device in devices)]
    result = certified.run("check")
    assert result.exit_code == 1
    told = (
        f"generated/kept.py: its certificate {said} ({', '.join(devices)}); "
        "run 'python -m fusegen certify kept'\n"
    )
    assert told in result.stderr
    assert certified.run("check", "kept").exit_code == 1
    assert certified.run("check", "none").exit_code == 0


def test_check_tells_of_a_dtype_without_evidence(certified: Workshop) -> None:
    certified.spec("kept", "formula: x + 1\ndtypes: [float16, float64]")
    certified.run("build", "kept")
    text = Path("generated/kept.py").read_text(encoding="utf-8")
    path = Path("generated/kept.certificate.txt")
    found = certificate_state.read(path).with_digest("cpu", kernel_digest(text, "cpu"))
    path.write_text(certificate_text.text(found), encoding="utf-8")
    assert states(certified)[1] == ["current", "cpu incomplete"]
    assert "its certificate lacks a dtype of the spec (cpu)" in certified.run("check").stderr


def test_build_leaves_certificates_alone(certified: Workshop) -> None:
    before = certified.files()
    told = certified.run("build").output.splitlines()
    assert told[0] == "unchanged: 3 modules"
    assert [line.partition(":")[0] for line in told[1:]] == ["broken"]  # its certificate says so
    assert certified.files() == before
