"""Format 4 of certificates: the text, its width and its length, and that it is read as it was written."""

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from fusegen.evidence.certify import certificate_text
from fusegen.evidence.certify.certificate import (
    DEVICES,
    DTYPES,
    SUFFIX,
    Certificate,
    Claim,
    Kernel,
    Machine,
)
from fusegen.evidence.certify.findings import Accuracy, Evidence, Local, Output, Run, Tried, Worst

HERE = Machine("x86_64 AVX2", "2.13.0+cpu", "c++ 12.2.0")
MOST_WIDE, MOST_LINES, MOST_RUNS = 160, 30, 4
GRADIENT, SWEPT = re.compile(r"^\w+ +gradient of (\w+)", re.MULTILINE), "all 4,294,967,296"
MORE = re.compile(r"^(\w+ +BROKEN | +\S+ to ).*\n", re.MULTILINE)
AT = "0x1.23456789abcdep-1021"  # as long as a double is
RICH = Evidence(
    "float32",
    2**32,
    True,
    0,
    (
        Output(
            "value",
            Accuracy((Worst((AT,), 5.31, "nan", "0x1p+0"),), 10**9, overflows=340),
            Accuracy((Worst((AT,), float("inf"), "nan", "0x1p+0"),), 2 * 10**9, overflows=1356),
            local=Local(
                (9218, 10104),
                blind=40723,
                kept=40334,
                runs=(Run(f"-{AT}", "0x1.8000000000000p+0", 5.3e5, 1.2e8), Run("0x0.0p+0", AT, 9.0, 8.0)),
            ),
        ),
        Output("gradient of x", Accuracy(), Accuracy()),
    ),
    broken=("value: 209 of 32,640 cells break C1: 5.31 ulp, eager 4.2, at 0x1.8p+0", "x" * 200),
    tried=Tried(84, 16, 10),
)
HALF = Evidence(
    "bfloat16",
    2**16,
    True,
    0,
    (
        Output("value", Accuracy((Worst(("0x1.8p+0",), 0.5, "", ""),), 3, 1), Accuracy((), 16, 25)),
        Output("gradient of x", Accuracy()),
    ),
)


def written(*found: Evidence, devices: tuple[str, ...] = ("cpu",), formula: str = "y = x · x") -> str:
    whole = Certificate()
    for device in devices:
        for one in found:
            kernel = Kernel(device, "0123456789abcdef", HERE)
            whole = whole.with_evidence(Claim("gate", formula, ("float32",)), kernel, one)
    return certificate_text.text(whole)


def test_a_certificate_is_this_text(golden: Callable[[str, str], None]) -> None:
    golden("certificate.txt", written(RICH, HALF))


def test_committed_certificates_are_short() -> None:
    """Of one tensor they have few lines, but for sentences of broken promises, and runs."""
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "generated").rglob(f"*{SUFFIX}")}
    assert {path for path, text in texts.items() if max(map(len, text.splitlines())) > MOST_WIDE} == set()
    of_one = {path for path, text in texts.items() if {*GRADIENT.findall(text)} == {"x"} and SWEPT in text}
    assert len(of_one) > 50
    sizes = {path: len(MORE.sub("", texts[path]).splitlines()) for path in of_one}
    assert {path: size for path, size in sizes.items() if size > MOST_LINES} == {}


def test_a_certificate_has_the_same_bytes_each_time() -> None:
    script = "from test_certificate_text import *\nprint(written(RICH, HALF, devices=DEVICES))"

    def made(seed: str) -> bytes:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, check=True
        )
        return done.stdout

    assert len({made(seed) for seed in "12"}) == 1


SIZES = {"float32": (2**32, "-0x1.234562p-126"), "float64": (81920, AT)}
HALVES = (2**16, "-0x1.23p-126")


@pytest.mark.parametrize("promise", ["accurate", "arithmetic", "eager"])
def test_a_function_of_one_tensor_has_few_lines(promise: str) -> None:
    """Where no cell is above 4 ulp, whatever else there is to say of its value; each run is a line more."""
    found = []
    for dtype in DTYPES:
        inputs, at = SIZES.get(dtype, HALVES)
        value, slope = RICH.outputs
        blind = value.local.blind if dtype == "float32" else 0  # only a sweep has cells
        local = replace(value.local, runs=(), blind=blind)
        given = replace(value.given, worst=(Worst((at,), 5.31, "", ""),), misrounded=inputs // 2)
        eager = value.eager and replace(value.eager, misrounded=inputs // 2)
        value = replace(value, given=given, eager=eager, local=local)
        found.append(Evidence(dtype, inputs, True, 0, (value, slope), promise=promise))
    text = written(*found, devices=DEVICES)
    assert 2 * len(DTYPES) * len(DEVICES) < len(text.splitlines()) <= MOST_LINES


def number(draw: Random) -> str:
    """A double of any size, at times a short one, as a hexadecimal float."""
    return math.ldexp(draw.choice([0.0, 1.0, -1.5, draw.uniform(-2, 2)]), draw.randint(-1074, 1023)).hex()


def drawn_accuracy(draw: Random, inputs: int, tensors: int) -> Accuracy:
    ulp = draw.choice([0.0, math.inf, 10 ** draw.uniform(-4, 308)])
    worst = (Worst(tuple(number(draw) for _ in range(tensors)), ulp, "", ""),) if ulp else ()
    return Accuracy(worst, *(draw.choice([0, draw.randint(0, inputs)]) for _ in range(3)))


def drawn_output(draw: Random, name: str, inputs: int, tensors: int) -> Output:
    """An output, with all that a certificate holds of it."""
    runs = tuple(
        Run(number(draw), number(draw), draw.uniform(4, 1e9), draw.uniform(0, 1e38))
        for _ in range(draw.randint(0, MOST_RUNS))
    )
    over, blind, differ = (draw.choice([0, draw.randint(0, 2**32)]) for _ in range(3))
    eager = draw.choice([None, drawn_accuracy(draw, inputs, tensors)])
    local = Local((over, draw.choice([0, over])), blind, draw.randint(0, blind), runs)
    return Output(
        name, drawn_accuracy(draw, inputs, tensors), eager, differ, draw.randint(0, differ), local=local
    )


def drawn(draw: Random) -> Certificate:
    """A certificate of a function of up to seven tensors, whose names may be long."""
    tensors = [f"{'x' * draw.choice([1, 40])}{k}" for k in range(draw.randint(1, 7))]
    promise = draw.choice(["accurate", "arithmetic", "eager"])
    claim = Claim("gate" * draw.choice([1, 12]), "y = x · x" * draw.choice([1, 40]), ("float32",))
    whole = Certificate()
    for device in draw.sample(DEVICES, draw.randint(1, 2)):
        for dtype in draw.sample(DTYPES, draw.randint(1, 4)):
            inputs = draw.choice([0, 1, 3, draw.randint(0, 2**32)])
            names = ("value", *(f"gradient of {tensor}" for tensor in tensors))
            found = tuple(drawn_output(draw, name, inputs, len(tensors)) for name in names)
            broken = tuple("a, b: 1.5  " * draw.randint(1, 20) for _ in range(draw.randint(0, 2)))
            tried = Tried(*(draw.randint(0, 999) for _ in range(3)))
            one = Evidence(dtype, inputs, draw.choice([True, False]), 0, found)
            one = replace(one, promise=promise, broken=broken, tried=tried)
            whole = whole.with_evidence(claim, Kernel(device, "0123456789abcdef", HERE), one)
    return whole


def figures(certificate: Certificate) -> Certificate:
    """A certificate as its text holds it: errors to four digits, shares to two places, lines cut."""

    def accuracy(one: Accuracy, inputs: int, dtype: str) -> Accuracy:
        worst = tuple(Worst(w.inputs, one.ulp, "", "") for w in one.worst)
        share = float(f"{100 * one.misrounded / max(inputs, 1):.2f}")
        half = dtype in ("float16", "bfloat16")
        return replace(
            one,
            worst=worst,
            misrounded=round(share * inputs / 100),
            beyond_neighbour=one.beyond_neighbour if half else 0,
        )

    def output(one: Output, of: Evidence) -> Output:
        given = accuracy(one.given, of.inputs, of.dtype)
        eager = one.eager and accuracy(one.eager, of.inputs, of.dtype)
        if eager:
            eager = replace(eager, worst=tuple(replace(worst, inputs=()) for worst in eager.worst))
        runs = tuple(
            replace(run, ulp=float(f"{run.ulp:.4g}"), eager=float(f"{run.eager:.4g}"))
            for run in one.local.runs
        )
        local = replace(one.local, runs=runs)
        found = replace(one, given=given, eager=eager, local=local)
        return replace(found, bits_differ=0, worse_than_eager=0) if of.promise == "accurate" else found

    def evidence(one: Evidence) -> Evidence:
        cut = MOST_WIDE - len(f"{one.dtype:10}BROKEN ")
        broken = tuple(s if len(s) <= cut else f"{s[: cut - 1]}…" for s in one.broken)
        return replace(one, outputs=tuple(output(o, one) for o in one.outputs), broken=broken)

    parts = {
        device: replace(part, evidence=tuple(evidence(one) for one in part.evidence))
        for device, part in certificate.parts.items()
    }
    return replace(certificate, parts=parts)


RANDOM = st.randoms(use_true_random=True)  # of a seed that hypothesis draws


@given(draw=RANDOM)
def test_a_certificate_is_read_as_it_was_written(draw: Random) -> None:
    certificate = drawn(draw)
    text = certificate_text.text(certificate)
    read = certificate_text.read(text)
    assert read == figures(certificate)
    assert certificate_text.text(read) == text
    assert text.endswith("\n")
    assert max(map(len, text.splitlines())) <= MOST_WIDE


@pytest.mark.full
@given(draw=RANDOM, other=st.sampled_from(["", "0", "9", "e", "p", " ", ",", "\n", "-", "inf", "0x1p9999"]))
def test_a_text_with_another_character_is_not_taken_for_what_was_written(draw: Random, other: str) -> None:
    """It is no certificate, or edited in a part; nothing else is raised."""
    text = certificate_text.text(drawn(draw))
    for place in draw.sample(range(len(text) - 1), 8):
        changed = text[:place] + other + text[place + 1 :]
        try:
            read = certificate_text.read(changed)
        except ValueError:
            continue
        edited = any(part.is_edited for part in read.parts.values())
        assert edited or certificate_text.text(read) == text


@pytest.mark.parametrize(("inputs", "lines"), [(1, 1), (5, 1), (8, 2), (16, 3)])
def test_the_worst_input_of_many_tensors_takes_several_lines(inputs: int, lines: int) -> None:
    at = tuple([AT] * inputs)
    found = replace(
        HALF, outputs=(Output("value", Accuracy((Worst(at, 9.0, "", ""),), 3, 1), Accuracy((), 16, 25)),)
    )
    text = written(found)
    [part] = certificate_text.read(text).parts.values()
    assert part.evidence[0].outputs[0].given.worst[0].inputs == at
    assert sum(AT in line for line in text.splitlines()) == lines
