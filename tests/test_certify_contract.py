"""What is promised and what is written down: a sentence for each broken promise, and the file beside it."""

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

from fusegen.certify import certificate, contract
from fusegen.certify.certificate import Json, Machine, kernel_digest
from fusegen.certify.findings import Accuracy, Alien, Evidence, Output, Special, Worst

INF = float("inf")


def erring(ulp: float, **more: int) -> Accuracy:
    return Accuracy((Worst(("0x1.0000000000000p+0",), ulp, "0x1.8p+0", "0x1.0p+0"),), **more)


def evidence(
    dtype: str = "float32",
    *,
    undecided: int = 0,
    layouts: int = 0,
    alien: Alien | None = None,
    **output: Any,
) -> Evidence:
    """Evidence of a value that is perfect but for what is given, and of a gradient that is perfect."""
    value = dataclasses.replace(Output("value", Accuracy(), Accuracy()), **output)
    slope = Output("gradient of x", Accuracy(), Accuracy())
    return Evidence(dtype, 2**16, False, undecided, layouts, (value, slope), alien)


def special(input: str, given: str, eager: str, real: str) -> tuple[Special, ...]:
    return (Special(input, given, eager, real),)


ENDS = (Special("inf", "1.0", "1.0", "1.0"), Special("-inf", "0.0", "0.0", "0.0"))

# --- the contract ---------------------------------------------------------------------------------------

KEPT: dict[str, tuple[Evidence, str]] = {
    "nothing to say": (evidence(), "accurate"),
    "4 units where eager has 4": (evidence(given=erring(4.001), eager=erring(9.0)), "accurate"),
    "2 units where eager has fewer": (
        evidence("float64", given=erring(2.0), eager=erring(0.5)),
        "accurate",
    ),
    "4 units where there is no eager": (evidence(given=erring(4.0), eager=None), "accurate"),
    "misrounded float32": (evidence(given=erring(1.0, misrounded=9)), "accurate"),
    "misrounded as often as eager": (
        evidence("float16", given=erring(0.7, misrounded=3), eager=erring(0.7, misrounded=3)),
        "accurate",
    ),
    "misrounded where there is no eager": (
        evidence("bfloat16", given=erring(0.7, misrounded=3), eager=None),
        "accurate",
    ),
    "other bits than PyTorch's, as near": (evidence(differing=5), "arithmetic"),
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
    "7 inputs could not be decided": (evidence(undecided=7), "accurate"),
    "3 results change with the length or the place of the tensor": (evidence(layouts=3), "eager"),
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
    "value at inf is 0.8650987148284912, and tends to 0.8650984168052673": (  # five units
        evidence(specials=special("inf", "0.8650987148284912", "nan", "0.8650984168052673")), "accurate",
    ),
    "value at inf is 0.8671875, and tends to 0.8662109375": (  # two
        evidence("float16", specials=special("inf", "0.8671875", "nan", "0.8662109375")), "accurate",
    ),
    "value errs by 4.003 units in the last place, eager by 9; 4 are allowed": (
        evidence(given=erring(4.003), eager=erring(9.0)), "accurate",
    ),
    "value errs by 3 units in the last place, eager by 2.5; 2.5 are allowed": (
        evidence("float64", given=erring(3.0), eager=erring(2.5)), "accurate",
    ),
    "value errs by 2.5 units in the last place, eager by 0.5; 2 are allowed": (
        evidence(given=erring(2.5), eager=erring(0.5)), "accurate",
    ),
    "value errs by inf units in the last place; 4 are allowed": (
        evidence(given=erring(INF), eager=None), "accurate",
    ),
    "value: 2 results are not next to the correctly rounded one": (
        evidence("bfloat16", given=erring(1.5, far=2)), "accurate",
    ),
    "value: 4 results are not correctly rounded, of eager's 3": (
        evidence("float16", given=erring(0.7, misrounded=4), eager=erring(0.7, misrounded=3)), "accurate",
    ),
    "value: 1 results are not PyTorch's, and further from the real value": (
        evidence(differing=5, further=1), "arithmetic",
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
    found = evidence(differing=2)
    assert contract.judged(found, "eager", "cpu").broken == ()
    assert contract.judged(found, "eager", "cuda").broken == (
        "value: 2 results are not eager's to the bit",
    )


def test_every_output_is_judged_and_nothing_else_changes() -> None:
    found = evidence(undecided=1, given=erring(5.0), eager=None)
    slope = dataclasses.replace(found.outputs[1], given=erring(6.0))
    found = dataclasses.replace(found, outputs=(found.outputs[0], slope), broken=("of before",))
    judged = contract.judged(found, "accurate", "cpu")
    assert judged.broken == (
        "1 inputs could not be decided",
        "value errs by 5 units in the last place; 4 are allowed",
        "gradient of x errs by 6 units in the last place, eager by 0; 2 are allowed",
    )
    assert dataclasses.replace(judged, broken=found.broken) == found


# --- the certificate ------------------------------------------------------------------------------------

HERE = Machine("x86_64 AVX2", "2.13.0", "c++ 12.2.0")
THERE = dataclasses.replace(HERE, torch="2.11.0")
TEXTS = {
    "CALL_SOURCE": "call",
    "ARITHMETIC_SOURCE": "fma",
    "CPU_PRELUDE": "load",
    "CPU_SOURCE": "relu",
    "CUDA_SOURCE": "gpu",
}
MODULE = "".join(f'{name} = r"""\n{text}"""\n' for name, text in TEXTS.items())
RICH = evidence(
    undecided=1,
    layouts=2,
    alien=Alien(3, ("0x1.0p+0", "0x1.0p+0", "0x1.8p+0"), ("0x1.0p+1", "0x1.0p+1", "nan")),
    given=erring(0.123456, misrounded=4, far=5, overflows=6, falls=7),
    eager=erring(INF),
    differing=8,
    further=9,
    range=(-0.1, INF, -0.0, 1e300),
    specials=(Special("nan", "nan", "nan", "nan"), Special("-0.0", "-0.0", "0.0", "-0.0")),
)


def written(
    *found: Evidence,
    onto: Json | None = None,
    device: str = "cpu",
    kernel: str = "k1",
    made: Machine = HERE,
) -> Json:
    """A certificate with more evidence in it."""
    whole = onto or {}
    for one in found:
        whole = certificate.with_evidence(whole, "gate", "y = x · x", device, kernel, made, one)
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
    assert certificate.read(path) == whole
    assert certificate.text(certificate.read(path)) == certificate.text(whole)
    assert certificate.text(written(RICH, onto=certificate.read(path))) == certificate.text(whole)


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
    assert certificate.holds(whole, "cpu", "k1", HERE, "float16")
    assert not certificate.holds(whole, "cpu", "k1", HERE, "float32")
    assert not certificate.holds(whole, "cpu", "k2", HERE, "float16")
    assert not certificate.holds(whole, "cpu", "k1", THERE, "float16")
    assert not certificate.holds(whole, "cuda", "k1", HERE, "float16")
    assert not certificate.holds({}, "cpu", "k1", HERE, "float16")


def test_a_kernel_is_known_by_the_texts_it_is_compiled_from() -> None:
    cpu, cuda = (kernel_digest(MODULE, device) for device in ("cpu", "cuda"))
    assert len({cpu, cuda}) == 2
    assert kernel_digest(MODULE.replace("relu", "tanh"), "cpu") != cpu
    assert kernel_digest(MODULE.replace("relu", "tanh"), "cuda") == cuda
    assert kernel_digest(MODULE.replace("call", "Call"), "cuda") != cuda
    assert kernel_digest("# another line\n" + MODULE, "cpu") == cpu


def test_every_committed_module_has_two_kernels() -> None:
    for path in (ROOT / "generated").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        empty = {kernel_digest("", device) for device in certificate.PARTS}
        assert not empty & {kernel_digest(text, device) for device in certificate.PARTS}


def test_a_part_is_kept_broken_or_stale(tmp_path: Path) -> None:
    module = tmp_path / "gate.py"
    module.write_text(MODULE, encoding="utf-8")
    assert certificate.states(module) == {}
    kernels = {device: kernel_digest(MODULE, device) for device in ("cpu", "cuda")}
    broken = contract.judged(evidence("float16", layouts=1), "accurate", "cuda")
    whole = written(evidence("float16"), kernel=kernels["cpu"])
    whole = written(evidence("float32"), broken, onto=whole, device="cuda", kernel=kernels["cuda"])
    certificate.path_of(module).write_text(certificate.text(whole), encoding="utf-8")
    assert certificate.states(module) == {"cpu": "kept", "cuda": "broken"}
    module.write_text(MODULE.replace("gpu", "GPU"), encoding="utf-8")
    assert certificate.states(module) == {"cpu": "kept", "cuda": "stale"}
    module.unlink()
    assert certificate.states(module) == {"cpu": "stale", "cuda": "stale"}


FOREIGN: dict[str, str | bytes] = {
    "cut off": certificate.text(written(RICH))[:-40],
    "empty": "",
    "binary": b"\xff\xfe\x00",
    "a list": "[1]",
    "another format": '{"format": 2, "cpu": {}}',
    "no format": "{}",
    "another file of this format": '{"format": 1, "cpu": 3}',
    "a part without evidence": '{"format": 1, "cpu": {"kernel": "k1"}}',
}


@pytest.mark.parametrize("what", FOREIGN)
def test_what_is_no_certificate_counts_as_none(tmp_path: Path, what: str) -> None:
    module, text = tmp_path / "gate.py", FOREIGN[what]
    module.write_text(MODULE, encoding="utf-8")
    path = certificate.path_of(module)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert certificate.read(path) == {}
    assert certificate.states(module) == {}


# --- the verbs that read it -----------------------------------------------------------------------------


@pytest.fixture
def certified(workshop: Workshop) -> Workshop:
    """A workshop with three specs: one certified, one with a broken promise, one without a certificate."""
    for name, layouts in (("broken", 1), ("kept", 0), ("none", None)):
        workshop.spec(name, "formula: x + 1")
        assert workshop.run("build", name).exit_code == 0
        if layouts is not None:
            module = Path(f"generated/{name}.py").read_text(encoding="utf-8")
            found = contract.judged(evidence("float16", layouts=layouts), "accurate", "cpu")
            whole = written(found, kernel=kernel_digest(module, "cpu"))
            workshop.file(f"generated/{name}.certificate.json", certificate.text(whole))
    return workshop


def states(workshop: Workshop) -> list[list[str]]:
    return [line.split("\t")[3:] for line in workshop.run("list").output.splitlines()]


def test_list_shows_what_certificates_say(certified: Workshop) -> None:
    assert states(certified) == [["current", "cpu broken"], ["current", "cpu kept"], ["current", "none"]]
    certified.spec("kept", "formula: x + 2")
    certified.run("build", "kept")
    assert states(certified)[1] == ["current", "cpu stale"]


def test_check_tells_of_stale_certificates_and_is_content(certified: Workshop) -> None:
    assert certified.run("check").output == "3 modules are what their specs say\n"
    certified.spec("kept", "formula: x + 2")
    certified.run("build", "kept")
    result = certified.run("check")
    assert (result.exit_code, result.stdout) == (0, "3 modules are what their specs say\n")
    assert result.stderr == (
        "generated/kept.py: its certificate is of another kernel (cpu); "
        "run 'python -m fusegen certify kept'\n"
    )


def test_build_leaves_certificates_alone(certified: Workshop) -> None:
    before = certified.files()
    assert certified.run("build").output == "unchanged: 3 modules\n"
    assert certified.files() == before


def test_a_certificate_is_json_and_ends_its_line() -> None:
    text = certificate.text(written(RICH))
    assert json.loads(text)["cpu"]["dtypes"]["float32"]["value"]["eager"]["ulp"] == "inf"
    assert text.endswith("}\n")
    assert text.isascii()
