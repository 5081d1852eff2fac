"""Libraries of a dtype each: what a call builds, what another dtype builds, and how it fails."""

import re
from pathlib import Path

import pytest
from conftest import Workshop
from processes import script, told

from fusegen.runtime import recipe

ROWS = "inputs: {x: {shape: [4, 8], fill: randn}}\nover: [-1]\nformula: x * exp(x - max(x)) / sum(x * x)\n"
# the files that a compiler compiles, and what they are compiled for
COUNTED = """case "$*" in *main.cpp*|*binding.cpp*)
  grep -ho 'Dtypes<[A-Z0-9]*>()\\|FUSEGEN_BY_DTYPE$' *.cpp | sort -u >> {count};; esac
exec c++ $(echo "$@" | sed s/-O3/-O0/)
"""
USE = """
import threading, torch
from generated.gelu import gelu
from generated.silu import silu
def both(function, dtype):
    x = torch.linspace(-3, 3, 16, dtype=dtype, requires_grad=True)
    y = function(x)
    y.sum().backward()
    like = getattr(torch.nn.functional, function.__name__)
    assert torch.allclose(y, like(x), atol=2e-3)
    assert x.grad.isfinite().all()
"""
THREADS = """
threads = [threading.Thread(target=both, args=(gelu, d)) for d in (torch.float16, torch.float64) * 2]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
FAILING = """case "$*" in *main.cpp*) grep -q 'Dtypes<FLOAT16>()' main.cpp && exit 1;; esac
exec c++ $(echo "$@" | sed s/-O3/-O0/)
"""
FAILS = """
import torch
from generated.gelu import gelu
for dtype in (torch.float32, torch.float16, torch.float16, torch.float32, torch.int32):
    try:
        print(gelu(torch.zeros(2, dtype=dtype)).tolist())
    except RuntimeError as error:
        print(error)
"""
BITS = """
import zlib, torch
from generated.rowed import rowed
for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
    x = (torch.linspace(-3, 3, 264) ** 3).reshape(8, 33).to(dtype).requires_grad_()
    y = rowed(x)
    (grad,) = torch.autograd.grad((y * x.detach()).sum(), x)
    for each in (y, grad):
        print(dtype, zlib.crc32(bytes(each.detach().view(torch.uint8).flatten().tolist())))
"""


def test_a_call_builds_its_dtype_and_equal_bindings_once(tmp_path: Path) -> None:
    """Forward and backward, side by side; another module shares the bindings, another dtype, too."""
    count = tmp_path / "count"
    compiler = script(tmp_path, "counting", COUNTED.format(count=count))

    def built(code: str) -> list[str]:
        count.unlink(missing_ok=True)
        told(USE + code, tmp_path / "builds", CXX=compiler)
        return sorted(count.read_text(encoding="utf-8").split()) if count.exists() else []

    bindings, float32 = ["FUSEGEN_BY_DTYPE"] * 2, ["Dtypes<FLOAT32>()"] * 2
    assert built("both(gelu, torch.float32)") == [*float32, *bindings]
    assert built("both(gelu, torch.float32)") == []
    assert built("both(silu, torch.float32)") == float32
    assert built(THREADS) == ["Dtypes<FLOAT16>()"] * 2 + ["Dtypes<FLOAT64>()"] * 2


def test_a_dtype_that_does_not_compile_is_one_sentence_and_others_run(tmp_path: Path) -> None:
    compiler = script(tmp_path, "failing", FAILING)
    lines = told(FAILS, tmp_path / "builds", CXX=compiler).splitlines()
    message = r"gelu: the forward kernel did not compile for cpu; the compiler's output is in .*\.log"
    assert [lines[0], lines[3]] == ["[0.0, 0.0]"] * 2
    assert re.fullmatch(message, lines[1])
    assert lines[1] == lines[2]
    assert len(lines) == 5  # an integer is eager's to refuse


@pytest.mark.full
def test_a_library_of_a_dtype_has_the_bits_of_one_of_all(workshop: Workshop) -> None:
    """Of one that is compiled ahead of time, which has the loops for all dtypes."""
    workshop.build("rowed", ROWS)
    assert workshop.run("compile", "--device", "cpu").exit_code == 0
    env = {"PYTHONPATH": str(workshop.folder), "FUSEGEN_LIBRARIES": ""}
    ahead = told(BITS, workshop.folder / "none", **env, CXX="/nonexistent")
    assert not (workshop.folder / "none/fusegen").exists()
    assert told(BITS, workshop.folder / "builds", **env | {"FUSEGEN_LIBRARIES": "none"}) == ahead
    assert len(ahead.splitlines()) == 8


def test_every_loop_is_compiled_for_the_dtypes_of_one_expression() -> None:
    """Which a build for one dtype replaces: no header of the CPU asks for the dtypes in other words."""
    folder = Path("fusegen/runtime/include/cpu")
    texts = [path.read_text(encoding="utf-8") for path in folder.glob("*.h")]
    asked = [line for text in texts for line in text.splitlines() if re.search(r"::Elements\b", line)]
    assert len(asked) >= 7
    assert all(recipe.ELEMENTS in line for line in asked)
