"""The kernels of linear layers on other chips, and in parts of the terms: they have the bits of wgmma's."""

import ctypes
import functools

import compiler
import pytest
import torch
from emulated import FLAGS, State
from emulated import defined as defined
from linear_emulated import Layer, built, product, text_of
from torch.nn import functional

from benchmarks.products import Product
from fusegen.codegen.runtime_text import INCLUDE
from fusegen.runtime import build, linear_operator
from fusegen.schedule.forms import MULTIPLIED

KERNELS = ("together", "apart")
# rows of the input, terms, features; the multiprocessors of the GPU, which decide the number of parts
SHAPES = {
    "one of each": (1, 4, 4, 2),
    "a step, and rows that are no multiple of four": (3, 37, 6, 2),
    "more tiles than blocks": (70, 64, 392, 2),
    "two parts of a tile": (5, 1100, 40, 2),
    "a part for each level of each tile": (3, 600, 132, 4),
}


@functools.cache
def library_of(kernel: str) -> ctypes.CDLL:
    """The kernel of a weight whose terms lie together or apart, as a library of the CPU."""
    return built(kernel)


def drawn(rows: int, terms: int, features: int) -> Layer:
    """A layer of which some rows go by TF32, and some sums are not finite."""
    draw = torch.Generator().manual_seed(3)
    sizes = (rows, terms), (features, terms), (features,)
    x, weight, bias = (torch.randn(size, generator=draw) for size in sizes)
    x[rows // 3] = functional.one_hot(torch.tensor(terms // 2), terms)
    x[rows // 2, terms // 2] *= 1e30
    if rows > 2:
        x[2, 1] = torch.inf
    return Layer(x, weight, bias)


def assert_same(library: ctypes.CDLL, kernel: str, of: Layer, chips: tuple[int, ...] = (90, 80)) -> None:
    """A layer has the bits of wgmma's, on chips, whole and in parts."""
    expected = product(library, kernel, of)
    assert of.bias is not None
    x, weight, bias = of.x.double(), of.weight.double(), of.bias.double()
    size = functional.linear(x.abs(), weight.abs(), bias.abs())
    error = (expected.double() - functional.linear(x, weight, bias)).abs() / size
    assert error[error.isfinite()].max() <= 2**-21
    levels = -(-of.x.shape[1] // 512)
    for chip in chips:
        for planes in {0, levels if levels > 1 else 0}:
            made = product(library, kernel, of._replace(levels=planes), chip)
            torch.testing.assert_close(made, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.few(2)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_chip_and_number_of_parts_has_the_bits(kernel: str, shape: str) -> None:
    *sizes, multiprocessors = SHAPES[shape]
    library = library_of(kernel)
    State.in_dll(library, "emulation").multiprocessors = multiprocessors
    assert_same(library, kernel, drawn(*sizes))


def test_blocks_take_parts_where_a_gpu_has_more_multiprocessors() -> None:
    """Two tiles of two levels: one kernel more runs, with the last sums."""
    library, of = library_of("together"), drawn(2, 600, 132)
    state = State.in_dll(library, "emulation")
    for state.multiprocessors, planes, launches in ((3, 2, 3), (4, 0, 3), (4, 2, 4), (6, 2, 4)):
        before = state.launches
        product(library, "together", of._replace(levels=planes), 80)
        assert state.launches - before == launches


MEMORY = """#include "linear.h"
extern "C" int64_t bytes(const fusegen::Product& of) { return fusegen::bytes_of_levels(of); }
"""


@pytest.mark.parametrize(
    ("features", "rows", "terms", "levels"),
    [
        (8192, 64, 8192, 16),
        (8193, 64, 8192, 0),  # a tile too many
        (8192, 65, 8192, 0),
        (128, 1, 1024, 0),
        (128, 1, 1025, 3),
        (1, 4096, 70000, 137),
    ],
)
def test_few_tiles_of_many_terms_have_memory_for_parts(
    features: int, rows: int, terms: int, levels: int
) -> None:
    made = ctypes.CDLL(str(compiler.library(MEMORY, ["-O0", *FLAGS, f"-I{INCLUDE}"])))
    made.bytes.restype = ctypes.c_int64
    of = Product(rows=features, columns=rows, terms=terms)
    assert made.bytes(ctypes.byref(of)) == levels * features * rows * 4


FAULTS = {  # and the chips on which they are seen
    "a level in the place of the first one": ("of.levels + number *", "of.levels + 0 * number *", (90, 80)),
    "a wait for one step too few": ("(STAGES - 2)", "(STAGES - 1)", (80,)),
    "a level is added to the next one": ("      this->level.at[k] = 0;", "", (90, 80)),
    "parts are added the other way round": (
        "level_of(of, number) + index", "level_of(of, levels - 1 - number) + index", (90, 80),
    ),
    "a column's power of two stays": ("sum = times_power(sum, -known)", "sum += 0", (90, 80)),
    "a sum that is not finite is kept": ("int(!(fabsf(sum) < INFINITY))", "0", (90, 80)),
    "the last level of a part is lost": ("|| step == of.last - 1", "", (90,)),
    "and that of warps": (" && step < of.last - 1) continue", ") continue", (80,)),
    "parts begin at the tile's": ("first = k % of.parts * each", "first = 0", (90, 80)),
    "the rests are the firsts": ("4 + lane / 8", "lane / 8", (80,)),
    "the second terms are the first": ("{firsts.z, firsts.w}", "{firsts.x, firsts.y}", (80,)),
    "both halves have the first rows": ("(stage), first_row + half * 16", "(stage), first_row", (80,)),
    "no thread waits for others": ("    __syncthreads();\n  }\n  static", "  }\n  static", (80,)),
    "the terms end too late": ("= bytes_of_quad(left - own_quad() * QUAD)", "= 16", (80,)),
    "rests of TF32 are firsts": ("left.big[eight], rest)", "left.big[eight], big)", (80,)),
}  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "fault", [pytest.param(f, marks=[pytest.mark.full] * (k > 1)) for k, f in enumerate(FAULTS)]
)
def test_a_planted_fault_is_seen(fault: str) -> None:
    old, new, chips = FAULTS[fault]
    text = text_of("together")
    assert text.count(old) == 1
    library = built("together", text.replace(old, new))
    with pytest.raises(AssertionError):
        assert_same(library, "together", drawn(3, 1131, 40), chips)


@pytest.mark.parametrize("chip", [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)])
def test_the_chip_decides(monkeypatch: pytest.MonkeyPatch, chip: tuple[int, int]) -> None:
    """As `explain` says."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: chip)
    monkeypatch.setattr(build, "can_load", lambda *of: True)
    linear_operator.has_chip.cache_clear()
    try:
        taken = linear_operator.has_chip(torch.device("cuda", 0))
    finally:
        linear_operator.has_chip.cache_clear()
    by = linear_operator.CHIPS.get(chip)
    assert taken is (chip in ((8, 0), (9, 0)))
    assert taken is (by is not None and f"{by} on sm_{chip[0]}{chip[1]}" in MULTIPLIED)
