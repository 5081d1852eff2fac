"""The very CUDA text of the generated modules, run on the CPU, element by element and thread by thread.

Memory around every operand is guarded, y starts out poisoned, so a wrong index, a write outside, an
element written twice with another value or not at all is seen. What only a GPU knows is not shown here:
its own exp and tanh, its speed, and threads that run at once.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kernels import DTYPES, INTEGERS, POINTWISE, assert_same, compiled, generated, patterns, ulps
from kernels import extensions as extensions
from torch import Tensor

EMULATION = Path(__file__).resolve().parent / "emulation"
FLAGS = ["-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
FLAGS += ["-fsanitize=undefined", "-Wno-unused", "-Wno-unknown-pragmas", f"-I{EMULATION}"]
LAUNCH = re.compile(r"(\w+)<<<(.+?)>>>\(")
SCALAR_TYPES = {torch.float32: 6, torch.float16: 5, torch.bfloat16: 15, torch.float64: 7}
MAX_RANK, GUARD = 25, 256
NORESERVE = 0x4000  # MAP_NORESERVE, which Python names from 3.13 on
SIXTH = 1 / 6

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


class State(ctypes.Structure):
    """Emulation, as the header has it."""

    _fields_ = [
        ("first_block", ctypes.c_int64),
        ("device", ctypes.c_int),
        ("launch_error", ctypes.c_int),
        ("launched_on", ctypes.c_int),
        ("launched_stream", ctypes.c_void_p),
        ("launches", ctypes.c_int64),
        ("blocks", ctypes.c_int64),
    ]


@dataclass(frozen=True)
class Emulated:
    """A module's CUDA text as a library of the CPU."""

    library: ctypes.CDLL
    call: type[ctypes.Structure]
    launch: Any
    inputs: int
    threads: int

    @property
    def state(self) -> State:
        """What the header counts, and takes orders from."""
        return State.in_dll(self.library, "emulation")

    def block(self, dtype: torch.dtype) -> int:
        """How many elements a block computes."""
        return self.threads * self.width(dtype)

    def width(self, dtype: torch.dtype) -> int:
        """How many elements a 16-byte vector holds."""
        return 16 // dtype.itemsize


def emulated(module: ModuleType, name: str, folder: Path, inputs: int = 1, params: int = 0) -> Emulated:
    """The library that g++ makes of a module's CUDA text; only the launch is rewritten."""
    text = module.CALL_SOURCE + module.CUDA_PRELUDE + module.CUDA_SOURCE
    text, launches = LAUNCH.subn(r"emulate(\1, \2, ", text)
    assert launches == 1
    layout = "".join(f", offsetof(Call, {field})" for field in ("out", "rank", "size", "stride"))
    text += f'\n#include <cstddef>\nextern "C" {{ size_t layout[] = {{sizeof(Call){layout}}}; }}\n'
    source, library = folder / f"{name}.cpp", folder / f"{name}.so"
    source.write_text(text, encoding="utf-8")
    done = subprocess.run(["g++", *FLAGS, str(source), "-o", str(library)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    class Call(ctypes.Structure):
        """What a launch is given."""

        _fields_ = [
            ("in_", ctypes.c_void_p * inputs),
            ("out", ctypes.c_void_p),
            ("numel", ctypes.c_int64),
            ("dtype", ctypes.c_int),
            ("device", ctypes.c_int),
            ("dense", ctypes.c_bool),
            ("aligned", ctypes.c_bool),
            ("rank", ctypes.c_int),
            ("size", ctypes.c_int64 * MAX_RANK),
            ("stride", (ctypes.c_int64 * MAX_RANK) * inputs),
            *([("param", ctypes.c_double * params)] if params else []),
        ]

    loaded = ctypes.CDLL(str(library))
    mirrored = [
        ctypes.sizeof(Call),
        Call.out.offset,
        Call.rank.offset,
        Call.size.offset,
        Call.stride.offset,
    ]
    assert list((ctypes.c_size_t * 5).in_dll(loaded, "layout")) == mirrored
    launch = getattr(loaded, f"{name}_launch")
    launch.restype = ctypes.c_char_p
    [threads] = re.findall(r"constexpr int THREADS = (\d+);", text)
    return Emulated(loaded, Call, launch, inputs, int(threads))


class Guarded:
    """Room for some elements, `shift` elements off a 16-byte boundary, between guards of poison."""

    def __init__(self, elements: int, dtype: torch.dtype, shift: int = 0) -> None:
        """Poison everything."""
        size = elements * dtype.itemsize
        raw = torch.full((size + 2 * GUARD + 32,), 0xA5, dtype=torch.uint8)
        start = GUARD + -(raw.data_ptr() + GUARD) % 16 + shift * dtype.itemsize
        self.before, self.after = raw[:start], raw[start + size :]
        room = raw[start : start + size]
        self.values = torch.frombuffer(room.numpy(), dtype=dtype) if size else torch.empty(0, dtype=dtype)
        self.address = raw.data_ptr() + start

    def check(self) -> None:
        """Nothing around it was written."""
        assert bool((self.before == 0xA5).all())
        assert bool((self.after == 0xA5).all())


def run(
    emulation: Emulated,
    inputs: list[Tensor],
    *,
    params: tuple[float, ...] = (),
    shift: int = 0,
    dense: bool = True,
) -> Tensor:
    """What the kernel makes of some tensors: copies in guarded memory if `dense`, else read in place."""
    first = inputs[0]
    call = emulation.call()
    out = Guarded(first.numel(), first.dtype, shift)
    rooms = []
    for k, values in enumerate(inputs):
        if dense:
            rooms.append(Guarded(values.numel(), values.dtype, shift))
            rooms[-1].values.copy_(values)
            call.in_[k], call.stride[k][0] = rooms[-1].address, 1
        else:
            call.in_[k] = values.data_ptr()
            for d, step in enumerate(values.stride()):
                call.stride[k][d] = step
    sizes = [first.numel()] if dense else list(first.shape)
    for d, size in enumerate(sizes):
        call.size[d] = size
    call.out, call.numel, call.rank = out.address, first.numel(), len(sizes)
    call.dtype, call.device, call.dense = SCALAR_TYPES[first.dtype], 0, dense
    call.aligned = all(address % 16 == 0 for address in (call.out, *call.in_))
    for k, value in enumerate(params):
        call.param[k] = value
    assert emulation.launch(ctypes.byref(call)) is None
    for room in (out, *rooms):
        room.check()
    return out.values.reshape(first.shape)


@pytest.fixture(autouse=True)
def defined(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nothing a kernel did was undefined: no misaligned vector, no overflow of an index."""
    yield
    assert "runtime error" not in capfd.readouterr().err


def in_math(formula: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """A formula computed in float, or in double, and rounded once."""
    math = torch.float64 if inputs[0].dtype == torch.float64 else torch.float32
    return formula(*(value.to(math) for value in inputs)).to(inputs[0].dtype)


# What each module's arithmetic is on CUDA, where dividing by 6 is multiplying by the rounded 1 / 6.
EXACT: dict[str, Callable[[Tensor], Tensor]] = {
    "hardsigmoid": lambda x: F.relu6(x + 3) * SIXTH,
    "hardsigmoid_keras": lambda x: (0.2 * x + 0.5).clamp(0, 1),
    "hardswish": lambda x: x * F.relu6(x + 3) * SIXTH,
    "hardtanh": lambda x: x.clamp(-1, 1),
    "relu": F.relu,
    "relu6": F.relu6,
}
PARAMS = {"hardtanh": (-1.0, 1.0)}
KINKS = (-3.0, 3.0, -2.5, 2.5, 1.0, 6.0)


@pytest.fixture(scope="module")
def emulate(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Emulated]:
    """A function from the name of a committed module to its emulation, compiled once."""
    folder, made = tmp_path_factory.mktemp("emulated"), dict[str, Emulated]()

    def get(name: str) -> Emulated:
        if name not in made:
            made[name] = emulated(generated(name), name, folder, params=len(PARAMS.get(name, ())))
        return made[name]

    return get


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    """Two inputs and two parameters."""
    folder = tmp_path_factory.mktemp("gate")
    return emulated(compiled(folder, "gate_test", GATE), "gate_test", folder, inputs=2, params=2)


def gated(x: Tensor, gate: Tensor, alpha: float = 0.5, beta: float = 0.1) -> Tensor:
    return in_math(lambda x, g: x * (alpha * g + beta).clamp(0, 1), x, gate)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EXACT)
def test_every_bit_is_that_of_the_formula(
    emulate: Callable[[str], Emulated], name: str, dtype: torch.dtype
) -> None:
    x = patterns(dtype, 50_000, KINKS)
    actual = run(emulate(name), [x], params=PARAMS.get(name, ()))
    assert_same(actual, in_math(EXACT[name], x), x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["relu_hardswish", "conv_relu_hardswish"])
def test_a_chain_is_near_its_steps(
    emulate: Callable[[str], Emulated], name: str, dtype: torch.dtype
) -> None:
    x = patterns(dtype, 50_000, KINKS)
    x = x[~(x.abs() > torch.finfo(x.dtype).max / 8)]  # where x * 6 overflows the two differ on purpose
    steps = in_math(EXACT["hardswish"], F.relu(x))
    assert ulps(run(emulate(name), [x]), steps) <= (2 if dtype.itemsize > 2 else 1)
    huge = torch.tensor([torch.finfo(dtype).max, torch.inf, torch.nan, -torch.inf], dtype=dtype)
    assert run(emulate(name), [huge]).tolist()[1] == torch.inf
    assert run(emulate(name), [huge])[2].isnan()
    assert run(emulate(name), [huge]).tolist()[3] == 0


def test_all_committed_modules_are_emulated() -> None:
    assert {*EXACT, "relu_hardswish"} == set(POINTWISE)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("aligned", [True, False])
def test_every_length_leaves_no_element_out(
    emulate: Callable[[str], Emulated], dtype: torch.dtype, aligned: bool
) -> None:
    """Every residue of the vector's width, of the block, and of a thread's share."""
    emulation = emulate("hardsigmoid")
    block, width = emulation.block(dtype), emulation.width(dtype)
    longest = 2 * block + width
    x = torch.randn(longest, generator=torch.Generator().manual_seed(1), dtype=dtype) * 2
    expected = in_math(EXACT["hardsigmoid"], x)
    lengths = {*range(1, 2 * width + 1), *range(1, longest + 1, 7 if width > 2 else 3)}
    for edge in (emulation.threads, block, 2 * block):
        lengths |= set(range(edge - width - 1, edge + width + 1))
    for n in sorted(lengths):
        actual = run(emulation, [x[:n]], shift=0 if aligned else 1)
        assert torch.equal(actual, expected[:n]), n


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_misalignment_is_read_element_by_element(
    emulate: Callable[[str], Emulated], dtype: torch.dtype
) -> None:
    emulation = emulate("hardswish")
    x = torch.randn(2 * emulation.block(dtype) + 3, dtype=dtype)
    expected = in_math(EXACT["hardswish"], x)
    for shift in range(1, emulation.width(dtype)):
        assert_same(run(emulation, [x], shift=shift), expected, x)


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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", views(torch.float32))
def test_a_strided_input_is_read_where_it_lies(
    emulate: Callable[[str], Emulated], layout: str, dtype: torch.dtype
) -> None:
    x = views(dtype)[layout]
    actual = run(emulate("hardsigmoid"), [x], dense=False)
    assert_same(actual, in_math(EXACT["hardsigmoid"], x), x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_inputs_and_two_parameters(gate: Emulated, dtype: torch.dtype) -> None:
    n = 2 * gate.block(dtype) + gate.width(dtype) - 1
    x, g = torch.randn(2, n, dtype=dtype, generator=torch.Generator().manual_seed(3)) * 3
    for shift in range(gate.width(dtype)):
        assert_same(run(gate, [x, g], params=(0.5, 0.1), shift=shift), gated(x, g), x, g)
    assert_same(run(gate, [x, g], params=(-2.0, 7.0)), gated(x, g, -2.0, 7.0), x, g)


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
    actual = run(gate, [of[a], of[b]], params=(0.5, 0.1), dense=False)
    assert_same(actual, gated(of[a], of[b]), of[a], of[b])


@pytest.mark.parametrize("dtype", DTYPES)
def test_eager_numerics_round_after_every_step(tmp_path: Path, dtype: torch.dtype) -> None:
    module = compiled(tmp_path, "eager_test", EAGER)
    x = patterns(dtype, 20_000, (-3.0, 57.0))

    def step(formula: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        return in_math(formula, *inputs)

    bounded = step(F.relu6, step(lambda v: v * 0.1, step(lambda v: v + 3, x)))
    scaled = step(lambda v: v * torch.tensor(1 / 7, dtype=torch.float64).to(v.dtype), bounded)
    expected = step(lambda a, b: a - b, scaled, step(lambda v: v * v, x))
    assert_same(run(emulated(module, "eager_test", tmp_path), [x]), expected, x)
    once = in_math(lambda v: F.relu6((v + 3) * 0.1) * SIXTH * 6 / 7 - v * v, x)
    assert dtype.itemsize > 2 or (once.view(INTEGERS[dtype]) != expected.view(INTEGERS[dtype])).any()


def huge(elements: int) -> Tensor:
    """Room for so many float16 elements; what is not touched takes no memory."""
    room = mmap.mmap(-1, 2 * elements, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)
    return torch.frombuffer(room, dtype=torch.float16)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("beyond", [2**31, 2**32])
def test_the_far_end_of_a_huge_tensor_is_reached(
    emulate: Callable[[str], Emulated], beyond: int, aligned: bool
) -> None:
    """Indices beyond 31 and 32 bits: only the last blocks are run, on memory that is never touched."""
    emulation, shift = emulate("hardsigmoid"), 0 if aligned else 3
    n = beyond + 777
    x, y = huge(n + 8)[shift:], huge(n + 8)[shift:]
    tail = slice(n - 4000, n)
    x[tail] = torch.randn(4000, dtype=torch.float16)
    call = emulation.call()
    call.in_[0], call.out, call.numel, call.rank = x.data_ptr(), y.data_ptr(), n, 1
    call.dtype, call.dense, call.aligned = SCALAR_TYPES[torch.float16], True, aligned
    call.size[0], call.stride[0][0] = n, 1
    emulation.state.first_block = (n - 4000) // emulation.block(torch.float16)
    try:
        assert emulation.launch(ctypes.byref(call)) is None
    finally:
        emulation.state.first_block = 0
    assert emulation.state.blocks == -(-n // emulation.block(torch.float16))
    assert_same(y[tail], in_math(EXACT["hardsigmoid"], x[tail]), x[tail])
    assert y[n:].tolist() == [0.0] * (8 - shift)


@pytest.mark.parametrize("beyond", [2**31 - 4000, 2**31, 2**32])
def test_the_far_end_of_a_huge_view_is_reached(emulate: Callable[[str], Emulated], beyond: int) -> None:
    """An expanded row: many more elements than a 32-bit index counts, and a small tensor."""
    emulation = emulate("hardsigmoid")
    row = torch.randn(1000, dtype=torch.float16)
    rows = beyond // 1000 + 2
    n = rows * 1000
    y = huge(n)
    call = emulation.call()
    call.in_[0], call.out, call.numel, call.rank = row.data_ptr(), y.data_ptr(), n, 2
    call.dtype, call.dense, call.aligned = SCALAR_TYPES[torch.float16], False, True
    call.size[0], call.size[1], call.stride[0][0], call.stride[0][1] = rows, 1000, 0, 1
    emulation.state.first_block = (n - 3000) // emulation.block(torch.float16)
    try:
        assert emulation.launch(ctypes.byref(call)) is None
    finally:
        emulation.state.first_block = 0
    assert_same(y[-3000:].view(3, 1000), in_math(EXACT["hardsigmoid"], row).expand(3, 1000))


def test_a_launch_goes_to_the_stream_of_the_tensors_device(emulate: Callable[[str], Emulated]) -> None:
    emulation = emulate("relu")
    x, y = torch.randn(8), torch.zeros(8)
    call = emulation.call()
    call.in_[0], call.out, call.numel, call.rank = x.data_ptr(), y.data_ptr(), 8, 1
    call.dtype, call.dense, call.size[0], call.stride[0][0] = 6, True, 8, 1
    for current, device in itertools.product((0, 1), repeat=2):
        emulation.state.device, call.device = current, device
        y.zero_()
        before = emulation.state.launches
        assert emulation.launch(ctypes.byref(call)) is None
        assert emulation.state.launches == before + 1
        assert (emulation.state.launched_on, emulation.state.launched_stream) == (device, 0x1000 + device)
        assert emulation.state.device == current
        assert_same(y, F.relu(x))
    emulation.state.device = 0


def test_what_goes_wrong_is_reported(emulate: Callable[[str], Emulated]) -> None:
    emulation = emulate("relu")
    x, y = torch.randn(8), torch.zeros(8)
    call = emulation.call()
    call.in_[0], call.out, call.numel, call.rank = x.data_ptr(), y.data_ptr(), 8, 1
    call.dtype, call.dense, call.size[0], call.stride[0][0] = 6, True, 8, 1
    emulation.state.launch_error = 1
    assert emulation.launch(ctypes.byref(call)) == b"invalid argument"
    assert emulation.launch(ctypes.byref(call)) is None
    call.device, launches = 2, emulation.state.launches
    assert emulation.launch(ctypes.byref(call)) == b"invalid device ordinal"
    assert (emulation.state.launches, emulation.state.device) == (launches, 0)
