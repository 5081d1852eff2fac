"""The C++ headers: each compiles alone, none is long, and comments in them void no certificate."""

import shutil
import subprocess
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT, library_spec
from torch.utils.cpp_extension import include_paths

from benchmarks.same_kernels.ptx import nvcc
from fusegen.codegen import runtime_text
from fusegen.codegen.runtime_text import INCLUDE, header
from fusegen.core.header_files import inlined, reached
from fusegen.evidence.certify.digest import kernel_digest
from fusegen.project import build
from fusegen.runtime.sources import LAUNCHES
from fusegen.schedule.plan import choose

HEADERS = sorted(path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*.*"))
MOST_LINES = 250
OTHER_DIM = 'extern "C" int64_t aoti_torch_get_dim(AtenTensorHandle tensor, int64_t* dim);'
AFTER_DIGITS = "cuda/plain_double.cuh"  # plain_double_44.cuh or plain_double_39.cuh includes it
PARTS = (  # of other headers, in their namespace or after their types
    "cuda/pointwise_launch.cuh", "cuda/table_launch.cuh", "cuda/row_columns.cuh", "cuda/watched_float.cuh",
)  # fmt: skip
OF_THE_LIBRARY = "system/half.h"  # which hides PyTorch's header of that name
FOR_NVRTC = {
    f"nvrtc/{name}" for name in (*LAUNCHES, "standard.h", "kernels.cuh")
}  # which test_nvrtc.py compiles
WITH_OTHERS = {AFTER_DIGITS, *PARTS, *FOR_NVRTC}
SLOW = ("pybind.h", "compiled_call/")  # which include PyTorch's own headers
NAMES = ('FUSEGEN_SPACE=""', 'FUSEGEN_MODULE=""', 'FUSEGEN_SYMBOL=""')
CONTEXT = (
    'FUSEGEN_EXPECTED=""',
    "FUSEGEN_DTYPES=AllDtypes",
    "FUSEGEN_OVER=-1",
    "FUSEGEN_INDICES=0",
    "FUSEGEN_CHANNELS=2",
    "FUSEGEN_WINDOW={}",
    "FUSEGEN_IN_FRONT=0u",
    "FUSEGEN_ORDER={1, 0}",
    *NAMES,
)  # what a module says before the binding
INTERFACE = """#pragma once
// Once.
#include <cmath>
int once;
"""


def test_headers_are_short_and_end_with_a_line() -> None:
    for name in HEADERS:
        text = (INCLUDE / name).read_text(encoding="utf-8")
        lines = text.splitlines()
        assert len(lines) <= MOST_LINES, name
        assert max(map(len, lines)) <= 120, name
        assert text.endswith("\n"), name


OF_ROWS = (
    "stable_abi_rows.h", "cpu/rows.h", "cpu/exp_below.h", "cuda/rows.cuh", "cuda/exp_below.cuh",
    "cuda/largest_and_terms.cuh", "cuda/picked_apart.cuh", "cuda/watched_conditions.cuh",
    "cuda/row_total.cuh", "cuda/long_rows.cuh", "stable_abi_indices.h", "cpu/total_of_rows.h",
    "cuda/stable_abi_saved.h", "cuda/stable_abi_wide_saved.h",
    "cpu/placed_rows.h", "cpu/rows_with_results.h", "stable_abi_row_results.h",
    "cpu/scans.h", "cuda/scans.cuh", "stable_abi_parts.h", "cpu/parts.h", "cuda/parts.cuh",
    "cpu/wide_values.h", "cuda/wide_terms.cuh", "cuda/wide_total.cuh", "stable_abi_wide_losses.h",
)  # fmt: skip
OF_CHANNELS = ("stable_abi_channels.h", "cpu/channels.h", "cuda/channels.cuh")
OF_WINDOWS = ("stable_abi_windows.h", "cpu/windows.h", "cuda/window_layouts.cuh")
OF_LINEAR = ("stable_abi_product.h", "stable_abi_multiplied.h", "cuda/product_behind.cuh")
BINDINGS = (
    "stable_abi_bitmask.h", "stable_abi_transposed.h", "stable_abi_convolved.h",
    "stable_abi_names.h", "pybind.h", "cuda/drawn_mask.cuh", "cuda/channels_last.cuh",
)  # fmt: skip


def compiled(source: Path, *command: str) -> None:
    done = subprocess.run([*command, f"-I{INCLUDE}", str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.few(3)
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.full) if name.startswith(SLOW) else name
        for name in HEADERS
        if name.endswith(".h") and name not in {*FOR_NVRTC, OF_THE_LIBRARY}
    ],
)
def test_a_header_compiles_alone(name: str, tmp_path: Path) -> None:
    """Generic functions do after the math library of a device."""
    source = tmp_path / "alone.cpp"
    before = '#include "cpu/math.h"\n' if name.startswith("functions/") else ""
    source.write_text(f'{before}#include "{name}"\n', encoding="utf-8")
    folders = [f"-I{folder}" for folder in (*include_paths(), sysconfig.get_path("include"))]
    compiled(
        source, "g++", "-std=c++17", "-fsyntax-only", "-w", *(f"-D{word}" for word in CONTEXT), *folders
    )


FUNCTIONS = [
    *(name for name in HEADERS if name.startswith("functions/")),
    *(f"cpu/{name}.h" for name in ("exponential", "hyperbolic", "logarithm", "logistic", "mish", "normal")),
    *(f"cpu/{name}.h" for name in ("roots", "trigonometric", "turns", "exp_below", "selections")),
]


@pytest.mark.few(1)
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("form", ["rows", "scans", "windows", "channels", "parts"])
def test_a_form_stands_beside_all_functions(form: str, tmp_path: Path) -> None:
    """A formula may have any of them: no two headers have one name for two things."""
    source = tmp_path / "together.cpp"
    names = ("cpu/math.h", *FUNCTIONS, f"cpu/{form}.h")
    source.write_text("".join(f'#include "{name}"\n' for name in names), encoding="utf-8")
    folders = [f"-I{folder}" for folder in include_paths()]
    compiled(
        source, "g++", "-std=c++17", "-fsyntax-only", "-w", *(f"-D{word}" for word in CONTEXT), *folders
    )


@pytest.mark.few(1)
@pytest.mark.skipif(nvcc() is None, reason="needs nvcc")
@pytest.mark.parametrize(
    "name", [name for name in HEADERS if name.endswith(".cuh") and name not in WITH_OTHERS]
)
def test_a_header_of_cuda_compiles_alone(name: str, tmp_path: Path) -> None:
    source = tmp_path / "alone.cu"
    source.write_text(f'#include "{name}"\n', encoding="utf-8")
    flags = ("-std=c++17", "-arch=compute_90", "-ptx", "-w", "-o", str(tmp_path / "alone.ptx"))
    compiled(source, str(nvcc()), *flags)


@pytest.mark.full
@pytest.mark.skipif(nvcc() is None, reason="needs nvcc")
def test_a_module_may_have_both_grids_of_cubics(tmp_path: Path) -> None:
    """Forward by octaves, and the gradient in even steps: each pass has the method that is best for it."""
    first, other = library_spec("pade_tanh"), library_spec("mish_mish").facts.backward
    facts = replace(
        first.facts,
        backward=replace(
            first.facts.backward, float_ok=other.float_ok, grid=other.grid, piecewise_pays=True
        ),
    )
    text = build.sources(replace(first, facts=facts, plan=choose(facts, first.spec.dtypes)))["cuda"]
    assert "PiecewiseOctaves, Formula" in text
    assert "PiecewiseUniform, Formula" in text
    source = tmp_path / "both.cu"
    source.write_text(text, encoding="utf-8")
    flags = ("-std=c++17", "-arch=compute_90", "-ptx", "-w", "-o", str(tmp_path / "both.ptx"))
    compiled(source, str(nvcc()), *flags)


def test_every_header_is_reached_by_a_module_or_a_binding() -> None:
    """But for what no spec of the library needs; none has rows."""
    roots = "".join(
        f'#include "{name}"\n' for name in (*BINDINGS, *OF_ROWS, *OF_WINDOWS, *OF_CHANNELS, *OF_LINEAR)
    )
    for path in sorted((ROOT / "generated").glob("*.py")):
        roots += path.read_text(encoding="utf-8")
    kinds = ("octave", "plain_double", "roots", "turns")
    others = {name for name in HEADERS if any(kind in name for kind in kinds)}
    found = {*reached(roots, header)} | others | FOR_NVRTC | {"cuda/in_double.cuh"}
    assert found.union(runtime_text.SYSTEM, runtime_text.CALL) == {*HEADERS}


def test_a_header_stands_once_where_it_is_first_included() -> None:
    headers = {"once.h": INTERFACE, "twice.h": '#pragma once\n#include "once.h"\nint twice;\n'}
    text = '#include "twice.h"\n#include "once.h"\nint own;\n'
    assert (
        inlined(text, headers.__getitem__)
        == "// Once.\n#include <cmath>\nint once;\nint twice;\nint own;\n"
    )
    assert reached(text, headers.__getitem__) == ("twice.h", "once.h")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_comment_of_a_header_voids_no_certificate(device: str) -> None:
    module = "".join(
        f'{name} = r"""\n#include "once.h"\nint own;\n"""\n' for name in ("CUDA_SOURCE", "CPU_SOURCE")
    )
    files = runtime_text.files("stable") | {"include/once.h": INTERFACE, "include/other.h": "int other;\n"}

    def digest(header: str, other: str = "int other;\n") -> str:
        return kernel_digest(module, device, files | {"include/once.h": header, "include/other.h": other})

    before = kernel_digest(module, device, files)
    assert digest(INTERFACE.replace("// Once.", "// Twice.\n").replace("once;", "once;  // said")) == before
    assert digest(INTERFACE, "int another;\n") == before
    assert digest(INTERFACE.replace("int once", "long once")) != before


@pytest.mark.parametrize(("name", "most"), [("hardsigmoid", 100), ("gelu", 100), ("swiglu", 120)])
def test_a_modules_own_cpp_is_short(name: str, most: int) -> None:
    text = build.module(library_spec(name))
    own = text[text.index('_SOURCE = r"""') : text.index("\n\n\ndef eager(")]
    assert len(own.splitlines()) <= most


QUOTIENTS = r"""
#include "cpu/math.h"
#include "cpu/selections.h"
#include <cstdio>
#include <cstring>
int main() {
  const float values[] = {0.0f, 1.0f, 3.0f, 7.0f, 1e-30f, 1.1754944e-38f, 1.9f, 3.1e30f, INFINITY, NAN};
  int wrong = 0;
  for (float a : values)
    for (float b : values)
      for (int signs = 0; signs < 4; ++signs) {
        const float x = signs & 1 ? -a : a, y = signs & 2 ? -b : b;
        const float expected = x / y, found = fusegen::quotient(x, y);
        const bool both_nan = expected != expected && found != found;
        const bool same = both_nan || std::memcmp(&expected, &found, sizeof found) == 0;
        if (!same) std::printf("%a / %a is %a, not %a\n", x, y, expected, found), ++wrong;
      }
  uint32_t state = 1;  // of dividends with all bits, whose remainders are subnormal
  for (int i = 0; i < 100000; ++i) {
    state = state * 1664525u + 1013904223u;
    const float x = std::ldexp(1.0f + (state >> 9) * 0x1p-23f, -124 + int(state >> 4) % 24);
    const float expected = x / 0.025f, found = fusegen::quotient(x, 0.025f);
    if (expected != found) std::printf("%a / 0.025 is %a, not %a\n", x, expected, found), ++wrong;
  }
  return wrong != 0;
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_quotient_has_the_bits_of_a_division(tmp_path: Path) -> None:
    source, program = tmp_path / "quotients.cpp", tmp_path / "quotients"
    source.write_text(QUOTIENTS, encoding="utf-8")
    compiled(source, "g++", "-std=c++17", "-O2", "-march=native", "-o", str(program))
    done = subprocess.run([program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_declarations_of_pytorchs_functions_are_its_own(tmp_path: Path) -> None:
    """A compiler refuses two declarations of a function that differ in more than names of arguments."""
    source, text = (
        tmp_path / "both.cpp",
        '#include <torch/csrc/stable/c/shim.h>\n#include "system/shim.h"\n',
    )
    command = ("g++", "-std=c++17", "-fsyntax-only", *(f"-I{folder}" for folder in include_paths()))
    source.write_text(text, encoding="utf-8")
    compiled(source, *command)
    source.write_text(f"{text}{OTHER_DIM}\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="aoti_torch_get_dim"):
        compiled(source, *command)
