"""Random and mutated specs: no traceback, no hang, nothing written on failure, modules that compile.

Spec k is the same in every run; FUSEGEN_FUZZ says how many are built. `test_random_formulas.py` holds the
results of random formulas against float64.
"""

import os
import random
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
from conftest import Workshop
from grammar import CONSTANTS, OPERATIONS, SPECS, term
from test_cuda_text import NVCC, grouped, nvcc, whole_text

COUNT = int(os.environ.get("FUSEGEN_FUZZ", "4"))
COMPILED = max(6, COUNT // 50)  # of those, by nvcc
PATIENCE = 30.0  # seconds of the processor's time, which stops a hang: the slowest of 300 takes 6 to 9
SPEC = "specs/it.yaml"
HEAD = "name: it\nsummary: A test.\n"
PARAMS = ("0", "1", "-0.25", "0.5", "30", "1e-3")
STEPS = (
    "x * alpha",
    "x + 1",
    "x / 6",
    "x * sigmoid(x)",
    "1 - x",
    "hardtanh(min_val=-2)",
    "clamp_min(min=0)",
)
DTYPES = ("float32", "float16", "bfloat16", "float64")
PIECES = "abx019(){}[]:,'\"#&*!|>%@`-+/.\\?=<>\n\t \u2028\u00e9\0"
KNOWN = (  # nvcc refused what these made
    "params: {omega: 30}\nformula: sin(omega * x)",
    "inputs: {x: {}, y: {}}\nformula: sin(x * y)",
    "inputs: {x: {}, y: {}}\nformula: sqrt(exp2(x)) + y",
)


def body(chance: random.Random) -> str:
    """A spec over the grammar, but for its name and its summary."""
    inputs = ("x", "y", "z")[: chance.choices((1, 2, 3), (6, 3, 1))[0]]
    params = ("alpha", "beta")[: chance.choices((0, 1, 2), (5, 3, 2))[0]]
    leaves = (*inputs, *inputs, *inputs, *params, *CONSTANTS)
    lines = ["inputs: {" + ", ".join(f"{name}: {{}}" for name in inputs) + "}"]
    lines += ["params: {" + ", ".join(f"{name}: {chance.choice(PARAMS)}" for name in params) + "}"]
    if chance.random() < 0.2:
        lines.append(f"dtypes: [{', '.join(chance.sample(DTYPES, chance.randint(1, 4)))}]")
    if chance.random() < 0.15:
        lines.append("numerics: eager")
    if chance.random() < 0.1:
        lines.append("assume: {x: '[-4, 4]'}")
    if chance.random() < 0.25:
        names = (*SPECS.names(), *OPERATIONS, *STEPS)
        steps = ", ".join(f'"{chance.choice(names)}"' for _ in range(chance.randint(1, 5)))
        return "\n".join([*lines[2:], f"params: {{alpha: 0.5}}\nchain: [{steps}, x * alpha]"])
    # what is not read is refused, so that all of it is
    every = " + ".join((*inputs, *params))
    formula = f"{term(chance, chance.randint(1, 3), leaves)} * tanh({every})"
    return "\n".join([*lines, f'formula: "{formula}"'])


def text(number: int) -> str:
    """The spec of a number; of every three one is mutated."""
    chance = random.Random(f"spec {number}")
    found = HEAD + body(chance) + "\n"
    for _ in range(chance.randint(1, 4) if number % 3 == 0 else 0):
        start = chance.randrange(len(found))
        end = start + chance.randint(0, 6)
        found = found[:start] + chance.choice(PIECES) * chance.choice((1, 1, 1, 300)) + found[end:]
    return found


class Hang(Exception):
    """A spec took so long that it would not end."""


@contextmanager
def patience() -> Iterator[None]:
    """Raises Hang within the block after so much of the processor's time."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.mark.parametrize("number", range(COUNT))
def test_a_random_spec_is_built_or_refused(number: int, workshop: Workshop) -> None:
    workshop.file(SPEC, text(number))
    before = workshop.files()
    with patience():
        result = workshop.run("build", SPEC)
    if result.exit_code == 2:
        assert re.match(rf"{SPEC}(:\d+:\d+)?: \S", result.output), result.output
        assert workshop.files() == before
    else:
        written = {SPEC, "generated/it.py", "generated/MANIFEST.toml"}
        found = {name for name in workshop.files() if not name.startswith("generated/_runtime/")}
        assert (result.exit_code, found) == (0, written)
        compile(workshop.files()["generated/it.py"], "it.py", "exec")


def valid(workshop: Workshop, count: int) -> Iterator[str]:
    """The first numbers' bodies that the compiler takes."""
    number = 1
    while count:
        workshop.file(SPEC, text(number))
        if number % 3 and workshop.run("build", SPEC).exit_code == 0:
            count -= 1
            yield text(number)
        number += 1


@pytest.mark.full
@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
@pytest.mark.parametrize("first", range(-1, COMPILED, 3))
def test_nvcc_compiles_what_random_specs_make(first: int, workshop: Workshop) -> None:
    known = [f"{HEAD}{each}\n" for each in KNOWN]
    bodies = known if first < 0 else list(valid(workshop, first + 3))[first:]
    texts = {}
    for k, each in enumerate(bodies):
        path = workshop.file(f"specs/spec{k}.yaml", each.replace("name: it", f"name: spec{k}"))
        texts[f"spec{k}"] = whole_text(path)
    nvcc(workshop.folder, "text", grouped(texts), "-O0", "--fmad=false", "-arch=compute_90", "-ptx")
