"""The very CUDA text of generated modules, run on the CPU (`emulated`)."""

import ctypes
import itertools
import math
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, reduce
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from budget import share
from conftest import ROOT
from emulated import (
    AHEAD,
    CHIPS,
    MAX_RANK,
    SCALAR_TYPES,
    Emulated,
    Guarded,
    Kernel,
    emulated,
    fill_table,
    huge,
    last_part,
    launched,
    looked_up_by,
    retold,
    run,
    shapes,
    width,
)
from emulated import defined as defined
from kernels import (
    DTYPES,
    NAMES,
    assert_same,
    by_module,
    compiled,
    differences,
    generated,
    nearest,
    patterns,
    ulps,
    units,
)
from torch import Tensor

from fusegen.codegen.printed import LaunchPlan
from fusegen.core.launch import shipped
from fusegen.project import build

SIXTH = 1 / 6
Emulate = Callable[[str], Emulated]  # from the name of a committed module

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

GATE = """\
inputs: {x: {shape: [8, 8]}, gate: {shape: [8, 8]}}
params: {alpha: 0.5, beta: 0.1}
formula: x * clamp(alpha * gate + beta, 0, 1)
"""
EAGER = """\
numerics: eager
formula: relu6((x + 3) * 0.1) / 7 - x * x
"""


def in_math(formula: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """A formula computed in float, or in double, and rounded once."""
    wide = torch.float64 if inputs[0].dtype == torch.float64 else torch.float32
    return formula(*(value.to(wide) for value in inputs)).to(inputs[0].dtype)


def chosen(condition: Tensor, a: Tensor | float, b: Tensor | float) -> Tensor:
    return torch.where(condition, a, b)


@dataclass(frozen=True)
class Exact:
    """A module's arithmetic on CUDA, where a division by 6 may be a product with the rounded 1 / 6."""

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor]
    params: tuple[float, ...] = ()
    from_output: bool = False


def between(x: Tensor, low: float, high: float, value: Tensor) -> Tensor:
    """The value, but 0 where x is not above low, and 0 where it is not below high; NaN keeps it."""
    return chosen(x <= low, 0.0, chosen(x >= high, 0.0, value))


SLOPE = (0.125 + 1 / 3) / 2
EXACT = {
    "hardsigmoid": Exact(
        lambda x: F.relu6(x + 3) * SIXTH,
        lambda g, x: chosen((x > -3) & (x < 3), g * SIXTH, 0.0),
    ),
    "hardswish": Exact(
        lambda x: x * F.relu6(x + 3) * SIXTH,
        lambda g, x: chosen(x <= -3, 0.0, chosen(x < 3, g * (x / 3 + 0.5), g)),
    ),
    "hardtanh": Exact(
        lambda x: x.clamp(-1, 1), lambda g, x: between(x, -1, 1, g), params=(-1.0, 1.0)
    ),
    "relu": Exact(F.relu, lambda g, y: chosen(y <= 0, 0.0, g), from_output=True),
    "rrelu": Exact(
        lambda x: chosen(x > 0, x, x * SLOPE),
        lambda g, x: chosen(x > 0, g, g * SLOPE),
        params=(0.125, 1 / 3),
    ),
}  # fmt: skip
KINKS = (-3.0, 3.0, -2.5, 2.5, 1.0, 6.0)
NEAR = ("softplus", "swiglu")
PARAMS = {name: exact.params for name, exact in EXACT.items()} | {"softplus": (1.5, 20.0)}
PARAMS |= {"elu": (0.3,), "celu": (1.7,)}


@pytest.fixture(scope="module")
def emulate(tmp_path_factory: pytest.TempPathFactory) -> Emulate:
    """A function from the name of a committed module to its emulation, compiled once."""
    folder = tmp_path_factory.mktemp("emulated")
    return cache(lambda name: emulated(generated(name), name, folder, len(PARAMS.get(name, ()))))


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    """Two inputs and two parameters, hence three inputs and two outputs backward."""
    folder = tmp_path_factory.mktemp("gate")
    return emulated(compiled(folder, "gate_test", GATE), "gate_test", folder, params=2)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    """A module with its own tables of launches."""
    return emulated(generated("gelu"), "gelu", tmp_path_factory.mktemp("own"), own=True)


@pytest.fixture(scope="module")
def own_shares() -> tuple[LaunchPlan, ...]:
    """The launch tables that the forward pass of this module plans between its dtypes."""
    return build.launch_plans(build.compiled_file(ROOT / "specs" / "gelu.yaml")).forward


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    """Eager's rounding between operations."""
    folder = tmp_path_factory.mktemp("eager")
    return emulated(compiled(folder, "eager_test", EAGER), "eager_test", folder)


def gated(x: Tensor, gate: Tensor, alpha: float = 0.5, beta: float = 0.1) -> Tensor:
    return in_math(lambda x, g: x * (alpha * g + beta).clamp(0, 1), x, gate)


def gated_back(
    grad: Tensor, x: Tensor, gate: Tensor, alpha: float = 0.5, beta: float = 0.1
) -> list[Tensor]:
    def inside(g: Tensor, x: Tensor, u: Tensor) -> Tensor:
        t = alpha * u + beta
        return chosen((t >= 0) & (t <= 1), g * x * alpha, 0.0)

    through = in_math(lambda g, x, u: g * (alpha * u + beta).clamp(0, 1), grad, x, gate)
    return [through, in_math(inside, grad, x, gate)]


def samples(dtype: torch.dtype, count: int, number: int) -> list[Tensor]:
    """Tensors of values of every kind, each in another order."""
    x = patterns(dtype, count, KINKS)
    return [x.roll(len(x) // 5 * k) for k in range(number)]


@pytest.mark.together
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EXACT)
def test_every_bit_is_that_of_the_formula(emulate: Emulate, name: str, dtype: torch.dtype) -> None:
    exact, emulation = EXACT[name], emulate(name)
    x, g = samples(dtype, 50_000, 2)
    assert_same(run(emulation.forward, x, params=exact.params)[0], in_math(exact.forward, x), x)
    actual = run(emulation.backward, g, x, params=exact.params)
    assert_same(actual[0], in_math(exact.backward, g, x), g, x)


NEARLY: dict[str, Callable[..., Tensor]] = {
    "softplus": lambda x: F.softplus(x, 1.5, 20.0),
    "swiglu": lambda gate, up: F.silu(gate) * up,
}


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NEARLY)
def test_what_approximates_is_near_the_real_function(
    emulate: Emulate, name: str, dtype: torch.dtype
) -> None:
    emulation, formula, params = emulate(name), NEARLY[name], PARAMS.get(name, ())
    generator = torch.Generator().manual_seed(2)
    count = emulation.forward.inputs
    g, *inputs = torch.randn(1 + count, 20_000, dtype=torch.float64, generator=generator).to(dtype) * 4
    leaves = [x.double().clone().requires_grad_() for x in inputs]
    y = formula(*leaves)
    pulled = torch.autograd.grad(y, leaves, g.double())
    found = run(emulation.forward, *inputs, params=params) + run(
        emulation.backward, g, *inputs, params=params
    )
    parts = (g * inputs[-1]).double().abs() if count > 1 else g.double().abs()
    for actual, exact in zip(found, (y.detach(), *pulled), strict=True):
        if dtype.itemsize == 2:
            assert ulps(actual, exact.to(dtype)) <= 1
            assert (actual != exact.to(dtype)).sum() <= 0.01 * actual.numel()
        else:  # where a sum nearly cancels, its parts decide
            error = (actual.double() - exact).abs() / (exact.abs() + parts / 8)
            assert float(error.max()) <= 8 * torch.finfo(dtype).eps


@pytest.mark.full
def test_an_exponential_is_finite_up_to_the_largest_float(tmp_path: Path) -> None:
    module = compiled(tmp_path, "power_test", "formula: exp(x)")
    x = torch.cat([torch.linspace(88, 88.8, 801), torch.linspace(-104, -87, 1701)])
    x = torch.cat([x, torch.tensor([math.inf, -math.inf, math.nan])])
    [actual] = run(emulated(module, "power_test", tmp_path).forward, x)
    assert ulps(actual, x.double().exp().float()) <= 1


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_chain_is_near_its_steps(emulate: Emulate, dtype: torch.dtype) -> None:
    emulation = emulate("relu_hardswish")
    x = patterns(dtype, 50_000, KINKS)
    x = x[~(x.abs() > torch.finfo(x.dtype).max / 8)]  # where x * 6 overflows the two differ on purpose
    [actual] = run(emulation.forward, x)
    assert ulps(actual, in_math(EXACT["hardswish"].forward, F.relu(x))) <= (2 if dtype.itemsize > 2 else 1)
    huge = torch.tensor([torch.finfo(dtype).max, torch.inf, torch.nan, -torch.inf], dtype=dtype)
    [actual] = run(emulation.forward, huge)
    assert actual[1] == torch.inf
    assert actual[2].isnan()
    assert actual[3] == 0
    g = torch.ones(6, dtype=dtype)
    kinks = torch.tensor([-1.0, -0.0, 0.0, 1.5, 3.0, 4.0], dtype=dtype)
    assert run(emulation.backward, g, kinks)[0].tolist() == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]


def test_every_kind_of_kernel_is_emulated() -> None:
    """As many inputs and outputs as a committed module has, with and without scalars of the host."""
    every = {count for name in NAMES for count in shapes(generated(name))}
    assert every == {count for name in (*EXACT, *NEARLY) for count in shapes(generated(name))}
    assert "const double slope = " in generated("rrelu").CUDA_SOURCE


@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "chip"), [("hardsigmoid", 70), ("hardsigmoid", 72), ("sigmoid", 71), ("hardsigmoid", None)]
)
def test_every_length_leaves_no_element_out(
    emulate: Emulate, name: str, dtype: torch.dtype, chip: int | None
) -> None:
    """Every residue of the vector's width, of the block and of a thread's; misaligned without a chip."""
    emulation, aligned = emulate(name), chip is not None
    emulation.forward.state.chip = chip or 70
    block = emulation.forward.block(dtype)
    longest = 2 * block + width(dtype)
    generator = torch.Generator().manual_seed(1)
    x, g = torch.randn(2, longest, generator=generator, dtype=dtype) * 2
    if name in EXACT:
        forward, backward = in_math(EXACT[name].forward, x), in_math(EXACT[name].backward, g, x)
    else:  # element by element
        forward, backward = (
            torch.cat([run(kernel, *row)[0] for row in zip(*(t.split(1) for t in given), strict=True)])
            for kernel, given in ((emulation.forward, (x,)), (emulation.backward, (g, x)))
        )
    step = longest // 75 | 1
    lengths = {*range(1, 2 * width(dtype) + 1), *range(1, longest + 1, step)}
    for edge in (CHIPS[chip or 70][0], block, 2 * block):
        lengths |= set(range(edge - width(dtype) - 1, edge + width(dtype) + 1))
    for n in sorted(lengths):
        shift = 0 if aligned else 1
        assert torch.equal(run(emulation.forward, x[:n], shift=shift)[0], forward[:n]), n
        assert torch.equal(run(emulation.backward, g[:n], x[:n], shift=shift)[0], backward[:n]), n


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_misalignment_is_read_element_by_element(emulate: Emulate, dtype: torch.dtype) -> None:
    emulation = emulate("hardswish")
    x, g = torch.randn(2, 2 * emulation.forward.block(dtype) + 3).to(dtype)
    for shift in range(1, width(dtype)):
        assert_same(run(emulation.forward, x, shift=shift)[0], in_math(EXACT["hardswish"].forward, x), x)
        actual = run(emulation.backward, g, x, shift=shift)
        assert_same(actual[0], in_math(EXACT["hardswish"].backward, g, x), g, x)


def views(dtype: torch.dtype) -> dict[str, Tensor]:
    """Views that no flat walk can read, of one to four dimensions.

    In those of the second part each row comes in whole vectors, or misses that by one thing.
    """
    base = torch.arange(80_000, dtype=torch.float64).remainder(911).sub(400).div(64).to(dtype)
    base = base[-(base.data_ptr() // dtype.itemsize) % (16 // dtype.itemsize) :]
    tiles = base[:76_800].view(150, 4, 128)
    return {
        "step": base[:39_000:3],
        "reversed order": base[:33_000].view(100, 330).t(),
        "step in a row": base[:33_000].view(110, 300)[3:, 1::2],
        "expanded row": base[:301].expand(37, 301),
        "expanded column": base[:37].view(37, 1).expand(37, 301),
        "one value": base[7:8].expand(4099),
        "rotated": base[:30_030].view(11, 39, 70).permute(2, 0, 1),
        "box": base[:30_030].view(11, 39, 70)[1:-1, ::2, 5:66],
        "four": base[:36_960].view(11, 8, 20, 21).permute(3, 1, 0, 2)[2:, ::3, :, 1:],
        "overlapping": base.as_strided((50, 7, 9, 11), (5, 3, 2, 1)),
        "vectors": tiles[:, 1:3, 16:64],
        "vectors, expanded": tiles[3:4, ::2, :64].expand(99, 2, 64),
        "vectors, permuted": tiles.transpose(0, 1)[..., 32:],
        "vectors, one off": tiles[:, 1:3, 17:65],
        "vectors, one more": tiles[:, 1:3, 16:65],
        "vectors, odd rows": base[: 129 * 500].view(250, 2, 129)[:, :, :64],
        "vectors, odd planes": base[: 257 * 200].view(200, 257)[:, :256].view(200, 2, 128)[..., :64],
        "vectors, odd overlap": base.as_strided((300, 64), (7, 1)),
    }


@pytest.mark.together
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", views(torch.float32))
def test_a_strided_input_is_read_where_it_lies(emulate: Emulate, layout: str, dtype: torch.dtype) -> None:
    emulation, x = emulate("hardsigmoid"), views(dtype)[layout]
    [actual] = run(emulation.forward, x, dense=False)
    assert_same(actual, in_math(EXACT["hardsigmoid"].forward, x), x)
    g = x.contiguous().flip(0)
    [actual] = run(emulation.backward, g, x, dense=False)
    assert_same(actual, in_math(EXACT["hardsigmoid"].backward, g, x), g, x)


def written_into(shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Strides of outputs of three dimensions: with gaps, in another order, whole vectors apart or not."""
    a, b, c = shape
    return {
        "gaps": (b * c * 2, c * 2, 2),
        "last first": (1, a, a * b),
        "middle last": (b * c, 1, b),
        "rows of vectors": (b * (c + 16), c + 16, 1),
        "odd rows": (b * (c + 1), c + 1, 1),
    }


@pytest.mark.few(3)
@pytest.mark.together
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", written_into((1, 1, 1)))
def test_a_strided_output_is_written_where_it_lies(
    emulate: Emulate, gate: Emulated, layout: str, dtype: torch.dtype
) -> None:
    """And nothing between its elements."""
    shape = (23, 5, 32)
    into = written_into(shape)[layout]
    generator = torch.Generator().manual_seed(4)
    x, u, g = (torch.randn(3, *shape, generator=generator) * 3).to(dtype)
    spread = x[:, :1].expand(shape)
    for one in (x, spread):
        [actual] = run(emulate("hardswish").forward, one, dense=False, into=into)
        assert_same(actual, in_math(EXACT["hardswish"].forward, one), one)
        found = run(gate.backward, g, one, u, params=(0.5, 0.1), dense=False, into=into)
        for actual, expected in zip(found, gated_back(g, one, u), strict=True):
            assert_same(actual, expected, g, one, u)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_end_within_a_vector_are_walked_element_by_element(
    emulate: Emulate, dtype: torch.dtype
) -> None:
    """Though each of them starts where a vector may."""
    room = Guarded(23 * 5 * 64, dtype)
    room.values.copy_(torch.randn(23 * 5 * 64, generator=torch.Generator().manual_seed(6)) * 3)
    whole = room.values.view(23, 5, 64)
    for length in range(33, 65):
        x = whole[..., :length]
        [actual] = run(emulate("hardswish").forward, x, dense=False, into=(5 * 64, 64, 1))
        assert_same(actual, in_math(EXACT["hardswish"].forward, x), x)


@pytest.mark.together
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("shift", [0, 1])
def test_an_output_may_be_an_input(
    emulate: Emulate, gate: Emulated, dtype: torch.dtype, dense: bool, shift: int
) -> None:
    """Each element is read before it is written; the other way round would read what was written."""
    generator = torch.Generator().manual_seed(5)
    x, u, g = (torch.randn(3, 41, 3, 64, generator=generator) * 3).to(dtype)
    if not dense:
        x, u, g = (one.transpose(0, 1)[..., 8:40] for one in (x, u, g))

    def over(kernel: Kernel, *inputs: Tensor, **outputs: int) -> list[Tensor]:
        chosen = {int(k[1:]): source for k, source in outputs.items()}
        params = (0.5, 0.1) if kernel.inputs > 1 else ()
        return run(kernel, *inputs, params=params, shift=shift, dense=dense, over=chosen)

    [actual] = over(emulate("hardswish").forward, x, y0=0)
    assert_same(actual, in_math(EXACT["hardswish"].forward, x), x)
    for source in (0, 1):
        [actual] = over(gate.forward, x, u, y0=source)
        assert_same(actual, gated(x, u), x, u)
    for first, second in ((1, 2), (2, 1), (0, 2), (1, 0)):
        found = over(gate.backward, g, x, u, y0=first, y1=second)
        for actual, expected in zip(found, gated_back(g, x, u), strict=True):
            assert_same(actual, expected, g, x, u)


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_inputs_and_two_parameters(gate: Emulated, dtype: torch.dtype) -> None:
    n = 2 * gate.forward.block(dtype) + width(dtype) - 1
    x, u, g = (torch.randn(3, n, generator=torch.Generator().manual_seed(3)) * 3).to(dtype)
    cases = [((-2.0, 7.0), 0), *(((0.5, 0.1), shift) for shift in range(width(dtype)))]
    for params, shift in cases:
        [actual] = run(gate.forward, x, u, params=params, shift=shift)
        assert_same(actual, gated(x, u, *params), x, u)
        found = run(gate.backward, g, x, u, params=params, shift=shift)
        for actual, expected in zip(found, gated_back(g, x, u, *params), strict=True):
            assert_same(actual, expected, g, x, u)


@pytest.mark.together
@pytest.mark.parametrize(("a", "b"), [*itertools.permutations(("rotated", "row", "column", "value"), 2)])
def test_each_input_is_read_by_its_own_strides(gate: Emulated, a: str, b: str) -> None:
    base = torch.arange(5000, dtype=torch.float32).remainder(97).sub(48).div(16)
    shape = (13, 11, 29)
    of = {
        "rotated": base[: 13 * 11 * 29].view(29, 13, 11).permute(1, 2, 0),
        "row": base[:29].expand(shape),
        "column": base[:13].view(13, 1, 1).expand(shape),
        "value": base[17:18].expand(shape),
    }
    x, u, g = of[a], of[b], base[100 : 100 + 13].view(13, 1, 1).expand(shape)
    assert_same(run(gate.forward, x, u, params=(0.5, 0.1), dense=False)[0], gated(x, u), x, u)
    found = run(gate.backward, g, x, u, params=(0.5, 0.1), dense=False)
    for actual, expected in zip(found, gated_back(g, x, u), strict=True):
        assert_same(actual, expected, g, x, u)


def test_as_many_dimensions_as_there_may_be_are_walked(emulate: Emulate) -> None:
    shape = tuple(2 if d % 2 else 1 for d in range(MAX_RANK))
    x = torch.randn(shape).permute(*reversed(range(MAX_RANK)))
    [actual] = run(emulate("hardsigmoid").forward, x, dense=False)
    assert_same(actual, in_math(EXACT["hardsigmoid"].forward, x), x)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
def test_eager_numerics_round_after_every_step(eager: Emulated, dtype: torch.dtype) -> None:
    x, g = samples(dtype, 20_000, 2)

    def step(formula: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        return in_math(formula, *inputs)

    seventh = torch.tensor(1 / 7, dtype=torch.float64)
    t = step(lambda v: v * 0.1, step(lambda v: v + 3, x))
    scaled = step(lambda v: v * seventh.to(v.dtype), step(F.relu6, t))
    expected = step(lambda a, b: a - b, scaled, step(lambda v: v * v, x))
    assert_same(run(eager.forward, x)[0], expected, x)
    once = in_math(lambda v: F.relu6((v + 3) * 0.1) * seventh.to(v.dtype) - v * v, x)
    assert dtype.itemsize > 2 or differences(once, expected).any()

    square = step(lambda a, v: a * v, -g, x)  # of each of the factors
    back = step(lambda v: v * seventh.to(v.dtype), g)
    back = step(lambda v: v * 0.1, in_math(lambda v, a: between(v, 0, 6, a), t, back))
    sums = [
        reduce(lambda a, b: step(torch.add, a, b), parts)
        for parts in itertools.permutations((square, square, back))
    ]
    [actual] = run(eager.backward, g, x)
    wrong = [int(differences(actual, total).sum()) for total in sums]
    assert 0 in wrong, wrong


@pytest.mark.full
@pytest.mark.parametrize("alpha", [0.75, -2.0])
def test_the_host_computes_functions_of_parameters_in_double(tmp_path: Path, alpha: float) -> None:
    body = "params: {alpha: 0.5}\nformula: x * exp(alpha) + maximum(alpha, 0.25) * sigmoid(alpha)\n"
    emulation = emulated(compiled(tmp_path, "host_test", body), "host_test", tmp_path, params=1)
    x, g = torch.randn(2, 100)
    slope, shift = math.exp(alpha), max(alpha, 0.25) / (1 + math.exp(-alpha))
    [actual] = run(emulation.forward, x, params=(alpha,))
    torch.testing.assert_close(actual, x * slope + shift)
    assert_same(run(emulation.backward, g, x, params=(alpha,))[0], g * slope, g)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("beyond", [2**31, 2**32])
def test_the_far_end_of_a_huge_tensor_is_reached(emulate: Emulate, beyond: int, aligned: bool) -> None:
    """Indices beyond 31 and 32 bits: only the last blocks are run, on memory that is never touched."""
    kernel, shift = emulate("hardsigmoid").forward, 0 if aligned else 3
    n = beyond + 777
    x, y = huge(n + 8)[shift:], huge(n + 8)[shift:]
    tail = slice(n - 4000, n)
    x[tail] = torch.randn(4000, dtype=torch.float16)
    call = kernel.call()
    call.data[:], call.numel, call.rank = (x.data_ptr(), y.data_ptr()), n, 1
    call.dtype, call.dense, call.aligned = SCALAR_TYPES[torch.float16], True, aligned
    call.size[0], call.stride[0][0], call.stride[1][0] = n, 1, 1
    parts, last = (1, n) if aligned else last_part(n)
    block = kernel.block(torch.float16, aligned)
    kernel.state.first_block = (last - 4000) // block
    try:
        launched(kernel, call, parts)
    finally:
        kernel.state.first_block = 0
    assert kernel.state.blocks == -(-last // block)
    assert_same(y[tail], in_math(EXACT["hardsigmoid"].forward, x[tail]), x[tail])
    assert y[n:].tolist() == [0.0] * (8 - shift)


@pytest.mark.parametrize("beyond", [2**31 - 4000, 2**31, 2**32])
def test_the_far_end_of_a_huge_view_is_reached(emulate: Emulate, beyond: int) -> None:
    """An expanded row: many more elements than a 32-bit index counts, and a small tensor."""
    kernel = emulate("hardsigmoid").forward
    row = torch.randn(1000, dtype=torch.float16)
    rows = beyond // 1000 + 2
    n = rows * 1000
    y = huge(n)
    call = kernel.call()
    call.data[:], call.numel, call.rank = (row.data_ptr(), y.data_ptr()), n, 2
    call.dtype, call.dense, call.aligned = SCALAR_TYPES[torch.float16], False, True
    call.size[:2], call.stride[0][:2], call.stride[1][:2] = (rows, 1000), (0, 1), (1000, 1)
    parts, last = last_part(rows, 1000)
    kernel.state.first_block = (last * 1000 - 3000) // kernel.block(torch.float16, False)
    try:
        launched(kernel, call, parts)
    finally:
        kernel.state.first_block = 0
    expected = in_math(EXACT["hardsigmoid"].forward, row).expand(3, 1000)
    assert_same(y[-3000:].view(3, 1000), expected)


@pytest.mark.together
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chip", [70, 80, 86, 89, 90, 100, 120])
@pytest.mark.parametrize("kib", [1, 8191, 8192, 8193, 16384, 16385, 2**21])
def test_a_launch_is_as_the_table_says(
    own: Emulated, own_shares: tuple[LaunchPlan, ...], dtype: torch.dtype, chip: int, kib: int
) -> None:
    kernel, state = own.forward, own.forward.state
    state.first_block = 0
    fill_table(kernel, dtype, 0)
    x = torch.zeros(4096, dtype=torch.uint8)
    n = kib * 1024 // dtype.itemsize
    call = kernel.call()
    call.data[:], call.numel, call.rank = (x.data_ptr(), x.data_ptr()), n, 1
    call.dtype, call.dense, call.aligned = SCALAR_TYPES[dtype], True, True
    call.size[0], call.stride[0][0], call.stride[1][0] = n, 1, 1
    state.chip, state.first_block = chip, 2**62  # no block is run
    launched(kernel, call)
    bits = 8 * dtype.itemsize
    [plan] = [plan for plan in own_shares if plan.bits == bits]
    rows = shipped().at(chip, "gelu_forward", plan.rows, bits)
    row = next(row for row in rows if row.kib is None or kib <= row.kib)
    assert state.threads == row.threads
    assert state.blocks == -(-n // (row.threads * row.vectors * width(dtype)))


@pytest.mark.few(1)
@pytest.mark.together
@pytest.mark.parametrize("name", ["silu_hardswish", "mish_mish"])  # by a formula, and by polynomials
@pytest.mark.parametrize("which", ["forward", "backward"])
@pytest.mark.parametrize("chip", CHIPS)
def test_a_block_asks_for_what_a_later_whole_one_will_read(
    emulate: Emulate, name: str, which: str, chip: int
) -> None:
    kernel: Kernel = getattr(emulate(name), which)
    kernel.state.chip = chip
    fill_table(kernel, torch.float32, 0)
    block, blocks = kernel.block(torch.float32), AHEAD + 3
    kernel.state.fetches = 0
    x = torch.randn(blocks * block + 5)  # and a last block that is none
    run(kernel, *[x] * kernel.inputs)
    assert kernel.state.fetches == kernel.inputs * (blocks - AHEAD)
    if kernel.inputs == 1:
        assert kernel.state.fetched_to - kernel.state.fetched_from == (blocks - AHEAD) * block * 4
    kernel.state.fetches = 0
    run(kernel, *[x[: AHEAD * block + 5]] * kernel.inputs)
    assert kernel.state.fetches == 0
    kernel.state.chip = min(CHIPS)


@pytest.mark.parametrize("which", ["forward", "backward"])
def test_a_launch_goes_to_the_given_stream_of_the_tensors_device(emulate: Emulate, which: str) -> None:
    kernel: Kernel = getattr(emulate("relu"), which)
    x, y = torch.randn(8), torch.zeros(8)
    call = kernel.call()
    call.data[:], call.numel, call.rank = (*[x.data_ptr()] * kernel.inputs, y.data_ptr()), 8, 1
    call.dtype, call.dense, call.size[0] = SCALAR_TYPES[x.dtype], True, 8
    for k in range(kernel.inputs + 1):
        call.stride[k][0] = 1
    for current, device in itertools.product((0, 1), repeat=2):
        kernel.state.device, call.device, call.stream = current, device, 0x1000 + device
        y.zero_()
        launched(kernel, call)
        assert (kernel.state.launched_on, kernel.state.launched_stream) == (device, 0x1000 + device)
        assert kernel.state.device == current
        assert_same(y, F.relu(x))
    kernel.state.device = 0


def test_what_goes_wrong_is_reported(emulate: Emulate) -> None:
    kernel = emulate("relu").forward
    x, y = torch.randn(8), torch.zeros(8)
    call = kernel.call()
    call.data[:], call.numel, call.rank = (x.data_ptr(), y.data_ptr()), 8, 1
    call.dtype, call.dense, call.size[0] = SCALAR_TYPES[x.dtype], True, 8
    call.stride[0][0], call.stride[1][0] = 1, 1
    kernel.state.launch_error = 1
    assert kernel.launch(ctypes.byref(call)) == b"invalid argument"
    assert kernel.launch(ctypes.byref(call)) is None
    call.device, launches = 2, kernel.state.launches
    assert kernel.launch(ctypes.byref(call)) == b"invalid device ordinal"
    assert (kernel.state.launches, kernel.state.device) == (launches, 0)


# --- results that are polynomials -----------------------------------------------------------------------

PIECED = {  # and where the function or its gradient is 0, on the way from one sign to the other
    "gelu_gelu": (-0.7518,),
    "mish_mish": (-1.1925,),
    "mish_tanh": (-1.1925,),
    "scale_tanh_scale_sigmoid": (),
    "serf": (-1.1918,),
    "silu_scale_silu": (-1.2785,),
    "softplus_tanh_mish_silu_hardtanh": (),
    "subtract_mish": (0.7, -0.4925),
    "tanh_gelu_mish_silu_sigmoid": (-0.9775,),
    "tanh_of_silu_then_gelu_hardtanh": (-1.2785,),
}
BORDERS = torch.arange(-65 * 256, 65 * 256 + 1, dtype=torch.float32) / 256  # between centres, and these
ENDS = torch.tensor(
    [0.0, -0.0, 1e-45, -1e-45, 64.5, -64.5, 88.0, -88.0, -103.0, 1e30, -1e30, 3.4e38, -3.4e38]
)


@pytest.fixture(scope="module")
def emulate_formula(tmp_path_factory: pytest.TempPathFactory) -> Emulate:
    """A module whose pieces all hold NaN, so that everything is computed as the formula says."""

    def build(name: str) -> Emulated:
        module: Any = ModuleType(name)
        vars(module).update(vars(generated(name)))
        module.CUDA_TEXT, count = re.subn(r"result<F>\(in, value\(.*\)\);", "NAN;", module.CUDA_TEXT)
        assert count == 2
        return emulated(module, name, tmp_path_factory.mktemp(name))

    return cache(build)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", by_module(PIECED))
def test_a_polynomial_errs_by_less_than_two_units_from_border_to_border(
    emulate: Emulate, name: str
) -> None:
    kernels = emulate(name)
    inside = BORDERS + torch.linspace(0.0, 1 / 256, len(BORDERS))
    x = torch.cat([BORDERS, BORDERS.nextafter(ENDS[-1]), BORDERS.nextafter(ENDS[-2]), inside, ENDS])
    x = torch.cat([x, *(zero + torch.linspace(-1 / 16, 1 / 16, 10_001) for zero in PIECED[name])])
    away = torch.stack([(x - zero).abs() > 1 / 16 for zero in (*PIECED[name], 1e9)]).all(0)
    for kernel, exactly, inputs in (
        (kernels.forward, generated(name).KERNELS.forward, (x,)),
        (kernels.backward, generated(name).BACKWARD, (torch.ones_like(x), x)),
    ):
        [y] = looked_up_by(kernel, *inputs)
        exact = exactly(*(t.double() for t in inputs))
        errors, within = units(y, exact), (x.abs() < 64) & (exact.abs() > 2.0**-80)
        assert errors[within & away].max() < 2
        assert errors[within].max() < 3  # next to a zero
        assert errors.max() < 4


@pytest.mark.parametrize("name", by_module(PIECED))
def test_far_out_a_line_gives_the_real_value_rounded_once(emulate: Emulate, name: str) -> None:
    """That is half of all floats."""
    x = torch.cat([sign * torch.logspace(3, 38, 1_001) for sign in (1, -1)])
    for which in ("forward", "backward"):
        kernel, exactly = getattr(emulate(name), which), getattr(generated(name), which.upper())
        inputs = [torch.ones_like(x)] * (kernel.inputs - 1) + [x]
        [y] = looked_up_by(kernel, *inputs)
        exact = exactly(*(t.double() for t in inputs))
        assert_same(y, exact.float(), x)


@pytest.mark.full
@pytest.mark.parametrize("name", by_module(PIECED))
def test_a_chain_computed_as_the_formula_says_errs_by_less_than_four_units(
    emulate_formula: Emulate, name: str
) -> None:
    """An argument that the function before had rounded would be magnified: by 50 units in subtract_mish."""
    x = torch.cat([torch.linspace(-100, -2, 40_001), torch.linspace(-2, 40, 20_001)])
    [y] = looked_up_by(emulate_formula(name).forward, x)
    exact = generated(name).KERNELS.forward(x.double())
    away = torch.stack([(x - zero).abs() > 0.5 for zero in (*PIECED[name], 1e9)]).all(0)
    assert units(y, exact)[away].max() < 4


SMOOTH = ["mish_mish", "softplus_tanh_mish_silu_hardtanh", "subtract_mish", "tanh_gelu_mish_silu_sigmoid"]


@pytest.mark.full
@pytest.mark.parametrize("name", by_module(SMOOTH))
def test_nearly_all_results_are_polynomials(name: str, tmp_path: Path) -> None:
    """Beyond the last step, too, and around a zero: the formula takes ten times as long."""
    formula = "if (!try_around_zero(in, out)) F::template element<T>(in, out, p);"
    kernels = emulated(retold(generated(name), (formula, "try_around_zero(in, out);")), name, tmp_path)
    x = torch.randn(50_000, generator=torch.Generator().manual_seed(3)) * 4
    far = torch.tensor([63.99, 64.0, 64.01, 1e3, 1e30, 3.4e38, 0.0])
    for kernel in (kernels.forward, kernels.backward):
        others = [] if kernel.inputs == 1 else [torch.ones_like(x)]
        [y] = looked_up_by(kernel, *others, x)
        assert not y.isnan().any()
        [y] = looked_up_by(kernel, *(other[: len(far)] for other in others), far)
        assert not y.isnan().any()


@pytest.mark.full
@pytest.mark.parametrize("name", ["subtract_mish", *by_module(("gelu_gelu", "serf"))])
def test_next_to_a_zero_a_vector_of_slopes_is_settled_where_it_is(name: str, tmp_path: Path) -> None:
    """It is not read again, as what the formula computes is."""
    module = retold(generated(name), ("if (left != 0) second_phase<F, T, VECTORS, M>(call, left, p);", ""))
    x = PIECED[name][-1] + torch.linspace(-1 / 64, 1 / 64, 64 * 1024)  # whole blocks
    grad = torch.ones_like(x)
    [y] = looked_up_by(emulated(module, name, tmp_path).backward, grad, x)
    errors = units(y, generated(name).BACKWARD(grad.double(), x.double()))
    assert errors.max() < 3


@pytest.mark.full
@pytest.mark.parametrize("which", ["backward", "forward"])
@pytest.mark.parametrize("name", ["silu_half_clamp_tanh_clamp", "mish_mish", "subtract_mish"])
def test_what_no_polynomial_gives_the_formula_does(
    emulate: Emulate, emulate_formula: Emulate, name: str, which: str
) -> None:
    """Infinities and NaN, of a number or of its gradient, and the neighbourhood of a kink."""
    x = torch.cat(
        [torch.tensor([torch.inf, -torch.inf, torch.nan]), 2.218 + torch.linspace(-1 / 512, 1 / 512, 101)]
    )
    kernel, formula = (getattr(one(name), which) for one in (emulate, emulate_formula))
    others = [[], [torch.full_like(x, 0.75)]][kernel.inputs - 1]
    [found], [expected] = looked_up_by(kernel, *others, x), looked_up_by(formula, *others, x)
    assert_same(found[:3], expected[:3], x[:3])
    if name == "silu_half_clamp_tanh_clamp":
        assert_same(found, expected, x)
    for grad in (torch.inf, -torch.inf, torch.nan)[: 3 * len(others)]:
        g, ordinary = torch.full((3,), grad), torch.tensor([-100.0, 0.5, 70.0])
        [found], [expected] = (looked_up_by(one, g, ordinary) for one in (kernel, formula))
        assert_same(found, expected, ordinary)


@pytest.mark.full
@pytest.mark.parametrize("chip", CHIPS)
def test_what_is_left_is_settled_in_every_vector_of_a_thread(
    emulate: Emulate, emulate_formula: Emulate, chip: int
) -> None:
    """Many neighbours at once, next to kinks, and none beside them."""
    kernel, formula = (one("silu_half_clamp_tanh_clamp").backward for one in (emulate, emulate_formula))
    x = torch.rand(3 * 4096 + 5, generator=torch.Generator().manual_seed(4)) * 8 - 4
    x[::3] = 2.218
    x[1::7] = torch.nan
    grad = torch.full_like(x, 0.75)
    kernel.state.chip = chip
    [found], [expected] = looked_up_by(kernel, grad, x), looked_up_by(formula, grad, x)
    kernel.state.chip = min(CHIPS)
    at = (x == 2.218) | x.isnan()
    assert_same(found[at], expected[at], x[at])
    assert_same(found, looked_up_by(kernel, grad, x)[0], x)


@pytest.mark.full
def test_a_jump_from_one_sign_to_the_other_is_no_zero(tmp_path: Path) -> None:
    body = "chain: [mish, mish, 'where(x > 0.2, x, -x)']"
    shutil.copy(ROOT / "specs" / "mish.yaml", tmp_path)
    module = compiled(tmp_path, "jump", body)
    assert "UniformGrid GRID = {{" in module.CUDA_SOURCE
    x = torch.linspace(0.30, 0.50, 5001)
    [y] = looked_up_by(emulated(module, "jump", tmp_path).forward, x)
    exact = F.mish(F.mish(x.double()))
    exact = torch.where(exact > 0.2, exact, -exact)
    assert (y > 0).any()
    assert (y < 0).any()
    assert units(y, exact).max() < 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_only_floats_are_polynomials(emulate: Emulate, dtype: torch.dtype) -> None:
    x = torch.linspace(-20, 20, 20_001).to(dtype)
    [y] = looked_up_by(emulate("subtract_mish").forward, x)
    assert_same(y, nearest(F.mish(x.double() - 0.7), dtype), x)


def test_a_gradient_of_nothing_is_positive(emulate: Emulate) -> None:
    x = torch.tensor([2.5, 80.0, 1e30])
    [found] = looked_up_by(emulate("silu_half_clamp_tanh_clamp").backward, torch.full_like(x, -2.0), x)
    assert_same(found, torch.zeros_like(x))


@pytest.mark.parametrize("which", ["forward", "backward"])
def test_a_polynomial_is_the_same_wherever_a_tensor_lies(emulate: Emulate, which: str) -> None:
    kernel = getattr(emulate("mish_mish"), which)
    x = torch.randn(61, 83).mul_(9)
    inputs = [x.flip(0), x][2 - kernel.inputs :]
    [expected] = looked_up_by(kernel, *inputs)
    for shift in (1, 3):
        [found] = looked_up_by(kernel, *inputs, shift=shift)
        assert_same(found, expected, *inputs)
    turned = [t.t().contiguous().t() for t in inputs]
    [found] = looked_up_by(kernel, *turned, dense=False)
    assert_same(found, expected, *inputs)
    [found] = looked_up_by(kernel, *inputs, over={0: kernel.inputs - 1})
    assert_same(found, expected, *inputs)


# --- results that are looked up -------------------------------------------------------------------------

HALVES = (torch.bfloat16, torch.float16)
SHARED_BYTES = 2 * 65_536 + 2 * 1024 * 16  # that a block needs for a function of float16


@pytest.fixture
def looked_up(emulate: Emulate) -> Iterator[Emulated]:
    """serf, whose 16-bit results are looked up both ways, where all is in global memory."""
    emulation = emulate("serf")
    yield emulation
    state = emulation.forward.state
    state.shared, state.capturing, state.device = 0, 0, 0


def every(dtype: torch.dtype) -> Tensor:
    return torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)


def serf_in_double(x: Tensor) -> Tensor:
    return x.double() * torch.erf(F.softplus(x.double(), threshold=100.0))


@pytest.mark.parametrize("dtype", HALVES)
def test_what_is_looked_up_is_the_real_value_rounded_once(looked_up: Emulated, dtype: torch.dtype) -> None:
    x = every(dtype)
    ordinary = x.isfinite() & (x > -30)  # below, erf of a double has lost its digits
    [y] = looked_up_by(looked_up.forward, x)
    assert_same(y[ordinary], nearest(serf_in_double(x[ordinary]), dtype), x[ordinary])
    assert y[x.isnan()].isnan().all()
    assert y[x == torch.inf].item() == torch.inf


@pytest.mark.parametrize("dtype", HALVES)
def test_a_gradient_is_its_product_with_a_slope_of_sixteen_digits(
    looked_up: Emulated, dtype: torch.dtype
) -> None:
    x = every(dtype)
    x = x[x.isfinite() & (x.abs() < 30)]
    leaf = x.double().requires_grad_()
    [slope] = torch.autograd.grad(serf_in_double(leaf).sum(), leaf)
    [once] = looked_up_by(looked_up.backward, torch.ones_like(x), x)
    assert_same(once, nearest(slope, dtype), x)
    for grad in (-3.25, 0.00372, 117.0):
        g = torch.full_like(x, grad)
        [actual] = looked_up_by(looked_up.backward, g, x)
        exact = g.double() * slope
        steps = (actual.view(torch.int16).int() - nearest(exact, dtype).view(torch.int16).int()).abs()
        assert steps[exact != 0].max() <= 1
        assert (steps > 0).float().mean() < 0.05
    g = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0], dtype=dtype)
    [actual] = looked_up_by(looked_up.backward, g, torch.full_like(g, 0.5))
    assert_same(actual, g)


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32])
def test_where_there_is_no_slope_no_gradient_comes_through(emulate: Emulate, dtype: torch.dtype) -> None:
    """Not even an infinite one, of which a product with 0 would make NaN."""
    kernel = emulate("silu_half_clamp_tanh_clamp").backward
    x = torch.tensor([-3.0, 2.0, 2.25, 300.0, torch.inf, torch.nan], dtype=dtype)
    [actual] = looked_up_by(kernel, torch.full_like(x, torch.inf), x)
    assert_same(actual, torch.tensor([-torch.inf, torch.inf, 0.0, 0.0, 0.0, torch.nan], dtype=dtype), x)


def test_in_shared_memory_the_same_is_found(looked_up: Emulated, staged: Emulated) -> None:
    """Whatever is left of the last vector and of the last turn of the blocks."""
    kernel = staged.forward
    x = every(torch.float16)
    for n in (65_536, 65_535, 65_529, 16_384 + 8, 16_384, 4096 + 1, 4096):
        kernel.state.shared = SHARED_BYTES
        [found] = looked_up_by(kernel, x[:n])
        assert (kernel.state.threads, kernel.state.blocks) == (768 if n >= 65_529 else 1024, 2)
        [expected] = looked_up_by(looked_up.forward, x[:n])
        assert_same(found, expected, x[:n])
    kernel.state.shared = SHARED_BYTES - 1
    [found] = looked_up_by(kernel, x[:n])
    assert kernel.state.threads == 128  # where a block cannot have as much
    assert_same(found, expected, x[:n])


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    """serf, where tensors of 4,096 elements are already enough and ones of 65,529 large."""
    module: Any = ModuleType("serf")
    vars(module).update(vars(generated("serf")))
    for power, least in ((18, 4096), (26, 65_529)):
        module.CUDA_TEXT, count = re.subn(rf"int64_t\(1\) << {power}", str(least), module.CUDA_TEXT)
        assert count == 1
    return emulated(module, "serf", tmp_path_factory.mktemp("staged"))


@pytest.mark.parametrize("shift", [0, 1, 3])
@pytest.mark.parametrize("over", [None, {0: 0}])
def test_where_a_tensor_lies_does_not_matter(
    looked_up: Emulated, staged: Emulated, shift: int, over: dict[int, int] | None
) -> None:
    staged.forward.state.shared = SHARED_BYTES
    x = every(torch.float16)[:20_001]
    [expected] = looked_up_by(looked_up.forward, x)
    [found] = looked_up_by(staged.forward, x, shift=shift, over=over)
    assert staged.forward.state.threads == (128 if shift else 1024)
    assert_same(found, expected, x)
    spread = every(torch.float16).view(256, 256).t()
    [found] = looked_up_by(staged.forward, spread, dense=False)
    assert_same(found.t().reshape(-1), looked_up_by(looked_up.forward, spread.t().reshape(-1))[0])


@pytest.mark.parametrize(("which", "dtype"), [("backward", torch.float16), ("forward", torch.bfloat16)])
def test_only_functions_of_float16_are_found_in_shared_memory(
    staged: Emulated, which: str, dtype: torch.dtype
) -> None:
    kernel = getattr(staged, which)
    kernel.state.shared = SHARED_BYTES
    looked_up_by(kernel, *[every(dtype)] * kernel.inputs)
    assert kernel.state.threads == 128


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_what_is_looked_up_is_filled_once_a_device_and_waited_for(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    kernel = emulated(generated("serf"), "serf", tmp_path).forward
    state = kernel.state
    state.capturing = 1  # nobody can wait, so that it is filled each time
    assert [fill_table(kernel, dtype, 0) for _ in range(3)] == [2, 2, 2]
    assert state.waits == 0
    state.capturing = 0
    assert [fill_table(kernel, dtype, 0) for _ in range(3)] == [2, 1, 1]
    assert state.waits == 1
    state.capturing = 1
    assert fill_table(kernel, dtype, 0) == 1
    assert fill_table(kernel, torch.float16, 0) == 2  # another table
    state.capturing = 0
    assert [fill_table(kernel, dtype, 1) for _ in range(2)] == [2, 1]
    assert state.waits == 2


@pytest.mark.parametrize("dtype", HALVES)
def test_with_the_scalars_of_the_spec_results_are_looked_up(emulate: Emulate, dtype: torch.dtype) -> None:
    """With others they are tested, and nothing is filled."""
    kernel, x = emulate("softplus").forward, every(dtype)
    x = x[x.isfinite()]
    assert [fill_table(kernel, dtype, 0, (1.5, 20.0)) for _ in range(2)] == [1, 1]
    [y] = looked_up_by(kernel, x, params=(1.0, 20.0))
    assert_same(y, nearest(F.softplus(x.double(), 1.0, 20.0), dtype), x)
    assert fill_table(kernel, dtype, 0, (1.0, 20.0)) == 1
    for beta, threshold in ((1.5, 20.0), (1.0, 5.0)):
        [y] = run(kernel, x, params=(beta, threshold))
        assert_same(y, nearest(F.softplus(x.double(), beta, threshold), dtype), x)


# --- results that are tested ----------------------------------------------------------------------------

TESTED: dict[str, tuple[float, ...]] = {  # and their scalars
    "sigmoid": (),
    "silu": (),
    "softplus": (0.3, 20.0),  # 0.3 is no float, and the nearest one gives other results
    "elu": (0.3,),
    "celu": (1.7,),
}


def all_rounded(name: str, dtype: torch.dtype) -> tuple[Tensor, dict[str, Tensor]]:
    """All numbers, and what float64's kernels make of them, rounded once."""
    x = share(every(dtype))
    x = x[x.isfinite() & (x.abs() > 2.0**-60)]  # below, double has too few digits to tell x / 2 from a tie
    module, params = generated(name), TESTED[name]
    y = module.KERNELS.forward(x.double(), *params)
    slope = module.KERNELS.backward(torch.ones_like(y), x.double(), *params)
    return x, {"forward": nearest(y, dtype), "backward": nearest(slope, dtype)}


def both_of(kernels: Emulated) -> tuple[tuple[str, Kernel], ...]:
    return ("forward", kernels.forward), ("backward", kernels.backward)


def given(kernel: Kernel, x: Tensor) -> list[Tensor]:
    return [torch.ones_like(x)] * (kernel.inputs - 1) + [x]


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", by_module(TESTED))
def test_what_is_tested_is_the_real_value_rounded_once(
    emulate: Emulate, name: str, dtype: torch.dtype
) -> None:
    """But for one of softplus, where 0.3 x, rounded, is far from 0."""
    x, expected = all_rounded(name, dtype)
    for which, kernel in both_of(emulate(name)):
        [y] = run(kernel, *given(kernel, x), params=TESTED[name])
        assert int((y != expected[which]).sum()) <= ((name, which) == ("softplus", "forward"))


@pytest.mark.full
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("name", "of", "by"),
    [
        ("sigmoid", "return exp2f(x);", "return exp2f(x) * 1.0000001f;"),  # as far off as the chip's may be
        ("silu", "MARGIN = 0x1p-21f", "MARGIN = 0x1p-3f"),  # all in doubt
    ],
)
def test_double_decides_what_is_in_doubt(
    tmp_path: Path, name: str, of: str, by: str, dtype: torch.dtype
) -> None:
    kernels = emulated(retold(generated(name), (of, by)), name, tmp_path)
    x, expected = all_rounded(name, dtype)
    for which, kernel in both_of(kernels):
        for chip in CHIPS:
            kernel.state.chip = chip
            for n in (len(x), 8192 + 8, 4095, 7, 1):
                [y] = run(kernel, *given(kernel, x[:n]))
                assert torch.equal(y, expected[which][:n])


@pytest.mark.parametrize("dtype", HALVES)
def test_what_is_tested_is_the_same_wherever_a_tensor_lies(emulate: Emulate, dtype: torch.dtype) -> None:
    """And when it is written over what it is computed from."""
    x, expected = all_rounded("silu", dtype)
    x = x[: len(x) // 512 * 512]
    for which, kernel in both_of(emulate("silu")):
        inputs, wanted = given(kernel, x), expected[which][: len(x)]
        for shift in (1, 3):
            assert torch.equal(run(kernel, *inputs, shift=shift)[0], wanted)
        for k in range(kernel.inputs):
            assert torch.equal(run(kernel, *inputs, over={0: k})[0], wanted)
        spread = [t.view(-1, 512).t() for t in inputs]
        [y] = run(kernel, *spread, dense=False)
        assert torch.equal(y.t().reshape(-1), wanted)
        halves = [torch.cat([t.view(-1, 512)] * 2, 1)[:, :512] for t in inputs]  # in vectors
        [y] = run(kernel, *halves, dense=False)
        assert torch.equal(y.reshape(-1), wanted)


@pytest.mark.full
@pytest.mark.parametrize("dtype", HALVES)
def test_all_results_of_an_element_are_tested(emulate: Emulate, dtype: torch.dtype) -> None:
    """Two tensors, and their two gradients, with an incoming gradient that is not 1."""
    x = share(every(dtype))
    b = x[x.isfinite() & (x.abs() < 60) & (x.abs() > 2.0**-60)]
    a, g = torch.full_like(b, 1.7), torch.full_like(b, -0.0371)
    wide = [t.double() for t in (g, a, b)]
    exact = [generated("glu").KERNELS.forward(*wide[1:]), *generated("glu").BACKWARD(*wide)]
    kernels = emulate("glu")
    found = run(kernels.forward, a, b) + run(kernels.backward, g, a, b)
    for actual, real in zip(found, exact, strict=True):
        assert torch.equal(actual, nearest(real, dtype))
