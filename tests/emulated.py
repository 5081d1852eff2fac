"""CUDA text run on the CPU, element by element and thread by thread: its library, and calls of its kernels.

Memory around every operand is guarded, outputs start out poisoned, so a wrong index, a write outside, an
element written twice with another value or not at all is seen. What only a GPU knows is not shown here:
its own exp and tanh, its speed, and threads that run at once.
"""

import ctypes
import functools
import math
import mmap
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import compiler
import pytest
import torch
from budget import FULL
from kernels import INTEGERS
from torch import Tensor

EMULATION = Path(__file__).resolve().parent / "emulation"
FLAGS = ["-std=c++17", "-ffp-contract=off", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
FLAGS += ["-pthread", "-Wno-unused", "-Wno-unknown-pragmas", f"-I{EMULATION}"]
SANITIZER = ["-fsanitize=undefined", "-fno-sanitize-recover=undefined"]  # what is undefined ends the test
if not FULL:  # by a signal, without a message of where it is, which takes a third of the time of a build
    SANITIZER += ["-fsanitize-undefined-trap-on-error"]
# one module of each loop, since it doubles the time of a build; with FUSEGEN_FULL every module
SANITIZED = ("hardsigmoid", "gate_test", "relu", "serf", "mish_mish", "broadcast_test", "of_shared")
LAUNCH = re.compile(r"(\w+)<<<(.+?)>>>\(")
SHARED = re.compile(r"extern __shared__ (\w+) (\w+)\[\];")
PREFETCH = re.compile(r"#if __CUDA_ARCH__ >= 900 && .*\n  asm volatile\(.*\n#endif")
INVERSE = re.compile(
    r"(HOST_DEVICE M reciprocal_approx\(M x\) \{\n.*?#endif\n)  return M\(1\) / x;", re.DOTALL
)
FLUSHED = r"""\1  const M y = M(1) / x;
  return sizeof(M) == 4 && fabs(y) < M(0x1p-126f) ? M(0) * y : y;"""  # as rcp.approx.ftz does
TABLE = re.compile(r"(constexpr (?:Prefetch)?Launch \w+\[\] = )\{.*?\{\}\};", re.DOTALL)
PREFETCHES = "constexpr PrefetchLaunch "
CHIPS = {70: (128, 1), 71: (128, 2), 72: (256, 4)}  # threads of a block, and vectors of a thread
AHEAD = 2  # blocks
FIELDS = ("data", "numel", "dtype", "device", "stream", "dense", "aligned", "rank", "size", "stride")
SCALAR_TYPES = {torch.float32: 6, torch.float16: 5, torch.bfloat16: 15, torch.float64: 7}
MAX_RANK, GUARD, POISON = 25, 256, 0xA5
ELEMENTS = "typename F::Elements()"  # the dtypes for which a launch is compiled
STREAM = 0x1234
NORESERVE = 0x4000  # MAP_NORESERVE, which Python names from 3.13 on


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
        ("chip", ctypes.c_int),
        ("threads", ctypes.c_int),
        ("shared", ctypes.c_int),
        ("capturing", ctypes.c_int),
        ("waits", ctypes.c_int64),
        ("fetches", ctypes.c_int64),
        ("fetched_from", ctypes.c_void_p),
        ("fetched_to", ctypes.c_void_p),
        ("told", ctypes.c_int64),
        ("multiprocessors", ctypes.c_int),
    ]


@dataclass(frozen=True)
class Kernel:
    """One kernel of an emulated module."""

    launch: Any
    call: type[ctypes.Structure]
    inputs: int
    outputs: int
    state: State

    def block(self, dtype: torch.dtype, dense: bool = True) -> int:
        """The number of elements that a block computes."""
        threads, vectors = CHIPS[self.state.chip] if dense else (128, 1)
        return vectors * threads * width(dtype)


@dataclass(frozen=True)
class Emulated:
    """A module's CUDA text as a library of the CPU: forward, backward, launches with a mask, and sums."""

    forward: Kernel
    backward: Kernel
    masked: tuple[Any, ...]
    # what gives the bytes of the workspace of a backward call with sums, and its launch
    sums: tuple[Any, ...] = ()


def width(dtype: torch.dtype) -> int:
    return 16 // dtype.itemsize


def shapes(module: ModuleType) -> list[tuple[int, int]]:
    found = re.findall(
        r"^struct (?:For|Back)ward : (?:Elementwise|Broadcasting)<(\d+), (\d+)",
        module.CUDA_SOURCE,
        re.MULTILINE,
    )
    return [(int(inputs), int(outputs)) for inputs, outputs in found]


def run_named(library: ctypes.CDLL, name: str, call: ctypes.Structure, *room: Tensor | None) -> None:
    """Run a function of a library by its name, with memory that it takes, or none; it may not fail."""
    function = getattr(library, name)
    function.restype = ctypes.c_char_p
    error = function(
        ctypes.byref(call), *(ctypes.c_void_p(None if each is None else each.data_ptr()) for each in room)
    )
    assert error is None, error


def by_dtype(text: str, *flags: str, **state: int) -> Callable[[torch.dtype], ctypes.CDLL]:
    """The libraries of a text, of which each has the kernels of a dtype; with FUSEGEN_FULL one has all.

    Args:
        text: whose kernels are launched on the CPU.
        flags: of the compiler, beside those of all texts.
        state: of the emulation, before the first launch.
    """

    @functools.cache
    def library(dtype: torch.dtype) -> ctypes.CDLL:
        own = text if FULL else text.replace(ELEMENTS, f"Dtypes<{str(dtype)[6:].upper()}>()")
        loaded = ctypes.CDLL(str(compiler.library(own, ["-O0", *FLAGS, *flags])))
        for name, value in state.items():
            setattr(State.in_dll(loaded, "emulation"), name, value)
        return loaded

    assert ELEMENTS in text
    return library


def workspace(library: ctypes.CDLL, name: str, call: ctypes.Structure) -> Tensor:
    """The workspace of a call, whose size a function of a library tells; it is NaN before."""
    size = getattr(library, f"{name}_workspace")
    size.restype = ctypes.c_int64
    return torch.full((size(ctypes.byref(call)),), 0xFF, dtype=torch.uint8)


def call_type(tensors: int, params: int) -> type[ctypes.Structure]:
    """The C type of the argument of a launch with so many tensors."""

    class Call(ctypes.Structure):
        _fields_ = [
            ("data", ctypes.c_void_p * tensors),
            ("numel", ctypes.c_int64),
            ("dtype", ctypes.c_int),
            ("device", ctypes.c_int),
            ("stream", ctypes.c_void_p),
            ("dense", ctypes.c_bool),
            ("aligned", ctypes.c_bool),
            ("rank", ctypes.c_int),
            ("size", ctypes.c_int64 * MAX_RANK),
            ("stride", (ctypes.c_int64 * MAX_RANK) * tensors),
            *([("param", ctypes.c_double * params)] if params else []),
        ]

    return Call


def retold(module: ModuleType, *pieces: tuple[str, str]) -> Any:
    """A module in whose CUDA text pieces, each there once, are others; the module itself stays as it is."""
    other: Any = ModuleType(module.__name__)
    vars(other).update(vars(module))
    for old, new in pieces:
        assert other.CUDA_TEXT.count(old) == 1, old
        other.CUDA_TEXT = other.CUDA_TEXT.replace(old, new)
    return other


def emulated(
    module: ModuleType,  # whose text it is
    name: str,  # of its operator
    folder: Path,  # where to build
    params: int = 0,  # how many scalars it is given
    *,
    own: bool = False,  # launch by the module's own tables; else as `CHIPS` says, whatever the size
    level: str = "-O0",  # of g++'s optimisation; more pays where a kernel fits polynomials
) -> Emulated:
    """The library that g++ makes of a module's CUDA text; only the launch is rewritten."""
    text, launches = LAUNCH.subn(r"emulate(\1, \2, ", f'#include "cuda_emulation.h"\n{module.CUDA_TEXT}')
    unstaged = text
    text, staged = SHARED.subn(r"\1* const \2 = shared<\1>();", text)
    # with and without a prefetch; a table is filled, or is in shared memory; a bitmask is written; operands
    in_shared_memory = "table_in_shared_memory" in text
    others = ("filled<F>(", "launch_bitmask", "broadcasting_kernel", "sweeping_kernel")
    sums = unstaged.count("extern __shared__ double room[];")  # which stages of sums have
    more = sum(word in text for word in others) + in_shared_memory + sums
    assert (launches, staged) == (2 + more, in_shared_memory + sums)
    text = PREFETCH.sub("  fetched(from, bytes);", flushing(text))
    if not own:
        text, tables = TABLE.subn(own_rows, text)
        assert tables
    counts = shapes(module)
    assert len(counts) == 2
    layouts = [
        f"sizeof(fusegen::Call<{inputs + outputs}, {params}>)"
        + "".join(f", offsetof(fusegen::Tensors<{inputs + outputs}>, {field})" for field in FIELDS)
        for inputs, outputs in counts
    ]
    text += f'\n#include <cstddef>\nextern "C" {{ size_t layout[] = {{{", ".join(layouts)}}}; }}\n'
    library = folder / f"{name}.so"
    made = compiler.library(text, [level, *FLAGS, *sanitizing(name)])
    shutil.copy(made, library)  # a library of its own has a state of its own
    loaded = ctypes.CDLL(str(library))
    mirrored: list[int] = []
    kernels = []
    for which, (inputs, outputs) in zip(("forward", "backward"), counts, strict=True):
        call = call_type(inputs + outputs, params)
        mirrored += [ctypes.sizeof(call), *(getattr(call, field).offset for field in FIELDS)]
        launch = getattr(loaded, f"{name}_{which}_launch")
        launch.restype = ctypes.c_char_p
        state = State.in_dll(loaded, "emulation")
        state.chip = min(CHIPS)
        kernels.append(Kernel(launch, call, inputs, outputs, state))
    assert list((ctypes.c_size_t * len(mirrored)).in_dll(loaded, "layout")) == mirrored
    masked = [f"{name}_{which}_masked_launch" for which in ("forward", "backward")]
    found = tuple(getattr(loaded, launch) for launch in masked if "launch_bitmask" in text)
    for launch in found:
        launch.restype, launch.argtypes = ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_void_p]
    forward, backward = kernels
    return Emulated(forward, backward, found, _sums(loaded, name) if sums else ())


def flushing(text: str) -> str:
    """Return a text whose approximate reciprocals are 0 where they are subnormal, as on a chip."""
    return INVERSE.sub(FLUSHED, text)


def sanitizing(name: str) -> list[str]:
    """Return the flags by which what is undefined ends the test, for the modules that have them."""
    return SANITIZER if FULL or name in SANITIZED else []


def own_rows(table: re.Match[str]) -> str:
    """A table of launches with the rows of `CHIPS`."""
    ahead = f", {AHEAD}" * table[1].startswith(PREFETCHES)
    rows = ", ".join(f"{{{chip}, ANY, {by[0]}, {by[1]}{ahead}}}" for chip, by in CHIPS.items())
    return f"{table[1]}{{{rows}, {{}}}};"


def _sums(library: ctypes.CDLL, name: str) -> tuple[Any, Any]:
    workspace, reduce = (getattr(library, f"{name}_backward_{which}") for which in ("workspace", "reduce"))
    workspace.restype, workspace.argtypes = ctypes.c_int64, [ctypes.c_void_p]
    reduce.restype, reduce.argtypes = ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_void_p]
    return workspace, reduce


class Guarded:
    """Room for some elements, `shift` elements off a 16-byte boundary, between guards of poison."""

    def __init__(self, elements: int, dtype: torch.dtype, shift: int = 0) -> None:
        """Poison everything."""
        size = elements * dtype.itemsize
        raw = torch.full((size + 2 * GUARD + 32,), POISON, dtype=torch.uint8)
        start = GUARD + -(raw.data_ptr() + GUARD) % 16 + shift * dtype.itemsize
        self.before, self.room, self.after = raw[:start], raw[start : start + size], raw[start + size :]
        numpy = self.room.numpy()
        self.values = torch.frombuffer(numpy, dtype=dtype) if size else torch.empty(0, dtype=dtype)
        self.address = raw.data_ptr() + start

    def check(self, view: Tensor | None = None) -> None:
        """Nothing around it was written, and of it nothing but the elements of a view."""
        assert bool((self.before == POISON).all())
        assert bool((self.after == POISON).all())
        if view is not None:
            others = torch.ones(self.values.numel(), dtype=torch.bool)
            others.as_strided(view.shape, view.stride()).fill_(False)
            assert bool((self.room.view(-1, view.element_size())[others] == POISON).all())


def extent(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """The number of elements from the first to the last of a view, both included."""
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def launched(kernel: Kernel, call: ctypes.Structure, launches: int = 1) -> None:
    """Launch, and nothing may go wrong."""
    before = kernel.state.launches
    assert kernel.launch(ctypes.byref(call)) is None
    assert kernel.state.launches == before + launches


def huge(elements: int) -> Tensor:
    """Room for so many float16 elements; what is not touched takes no memory."""
    room = mmap.mmap(-1, 2 * elements, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)
    return torch.frombuffer(room, dtype=torch.float16)


def last_part(length: int, row: int = 1) -> tuple[int, int]:
    """Into how many parts a tensor of rows is cut for 32-bit indices, and how many rows the last has."""
    if length * row < 2**31:
        return 1, length
    (first, _), (second, last) = last_part(length // 2, row), last_part(length - length // 2, row)
    return first + second, last


def run(
    kernel: Kernel,
    *inputs: Tensor,
    params: tuple[float, ...] = (),
    shift: int = 0,
    dense: bool = True,
    into: tuple[int, ...] | None = None,
    over: dict[int, int] | None = None,
) -> list[Tensor]:
    """The results of the kernel for some tensors.

    Args:
        kernel: what is launched.
        inputs: all of one shape.
        params: the scalars.
        shift: how many elements off a 16-byte boundary every tensor starts.
        dense: copy them into guarded memory, in a row; else read them in place, by their strides.
        into: the strides of the outputs; in the order of the dimensions, without gaps, if not given.
        over: which outputs are written over which inputs, which are then copied.
    """
    first, over = inputs[0], over or {}
    shape = (first.numel(),) if dense else tuple(first.shape)
    row = tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))
    call = kernel.call()
    call.numel, call.rank, call.dense, call.stream = first.numel(), len(shape), dense, STREAM
    call.dtype, call.device = SCALAR_TYPES[first.dtype], 0
    call.size[: len(shape)] = shape
    if params:
        call.param[:] = params
    rooms: list[Guarded] = []
    tensors: list[Tensor] = []
    outputs: dict[int, Tensor] = {}

    def place(k: int, view: Tensor) -> None:
        call.data[k] = view.data_ptr()
        call.stride[k][: len(shape)] = view.stride()
        tensors.append(view)

    for k, values in enumerate(inputs):
        if not dense and k not in over.values():
            place(k, values)
            continue
        stride = row if dense else values.stride()
        rooms.append(Guarded(extent(shape, stride) if first.numel() else 0, first.dtype, shift))
        place(k, rooms[-1].values.as_strided(shape, stride))
        tensors[-1].copy_(values.reshape(shape))
    for k in range(kernel.outputs):
        if k in over:
            outputs[k] = tensors[over[k]]
        else:
            stride = into or row
            rooms.append(Guarded(extent(shape, stride) if first.numel() else 0, first.dtype, shift))
            outputs[k] = rooms[-1].values.as_strided(shape, stride)
        place(kernel.inputs + k, outputs[k])
    call.aligned = all(address % 16 == 0 for address in call.data)
    copies = [tensor.clone() for tensor in tensors[: kernel.inputs]]
    launched(kernel, call)
    for k, copy in enumerate(copies):
        if k not in over.values():
            assert same_bits(tensors[k], copy)
    for room in rooms:
        own = next((view for view in tensors if view.data_ptr() == room.address), None)
        room.check(own if first.numel() else None)
    return [outputs[k].reshape(first.shape).clone() for k in range(kernel.outputs)]


def run_sums(
    emulation: Emulated,
    grad: Tensor,
    *inputs: Tensor,
    of: tuple[int, ...] | None = None,
    over: dict[int, int] | None = None,
    params: tuple[float, ...] = (),
) -> list[Tensor]:
    """The gradients of tensors that broadcast, each in the shape of its tensor.

    Args:
        emulation: whose sums are run.
        grad: the gradient of the result.
        inputs: the tensors.
        of: the tensors whose gradients the outputs are; all, if not given.
        over: which gradients are written over a copy of which tensor: 0 for grad, then the inputs.
        params: the scalars.
    """
    kernel, (workspace, reduce) = emulation.backward, emulation.sums
    call, shape = kernel.call(), tuple(grad.shape)
    call.numel, call.rank, call.dense, call.stream = grad.numel(), len(shape), False, STREAM
    call.dtype, call.size[: len(shape)] = SCALAR_TYPES[grad.dtype], shape
    if params:
        call.param[:] = params
    owners = inputs if of is None else [inputs[k] for k in of]
    rooms = [Guarded(t.numel(), t.dtype) for t in owners]
    results = [room.values.view(t.shape) for room, t in zip(rooms, owners, strict=True)]
    read = [grad, *inputs]
    for k, j in (over or {}).items():
        read[j] = results[k].copy_(read[j])
    for k, view in enumerate((*read, *results)):
        spread = view.expand(shape)
        call.data[k], call.stride[k][: len(shape)] = view.data_ptr(), spread.stride()
    partial = Guarded(workspace(ctypes.byref(call)), torch.uint8)
    assert reduce(ctypes.byref(call), partial.address) is None
    for room in (*rooms, partial):
        room.check()
    return results


def same_bits(a: Tensor, b: Tensor) -> bool:
    """True if two tensors are equal, NaN by NaN."""
    integer = INTEGERS[a.dtype]
    return torch.equal(a.contiguous().view(integer), b.contiguous().view(integer))


def looked_up_by(
    kernel: Kernel, *inputs: Tensor, params: tuple[float, ...] = (), **how: Any
) -> list[Tensor]:
    """The results of the kernel for some tensors, its table being filled before."""
    for device in (0, 1):
        fill_table(kernel, inputs[0].dtype, device, params)
    return run(kernel, *inputs, params=params, **how)


def fill_table(kernel: Kernel, dtype: torch.dtype, device: int, params: tuple[float, ...] = ()) -> int:
    """The number of launches that one element takes on a device."""
    x, before = torch.zeros(8, dtype=dtype), kernel.state.launches
    call = kernel.call()
    tensors = kernel.inputs + kernel.outputs
    call.data[:], call.numel, call.rank = [x.data_ptr()] * tensors, 1, 1
    call.dtype, call.device, call.dense, call.size[0] = SCALAR_TYPES[dtype], device, True, 1
    if params:
        call.param[:] = params
    for k in range(tensors):
        call.stride[k][0] = 1
    assert kernel.launch(ctypes.byref(call)) is None
    return int(kernel.state.launches - before)


@pytest.fixture(autouse=True)
def defined(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nothing a kernel did was undefined: no misaligned vector, no overflow of an index."""
    yield
    assert "runtime error" not in capfd.readouterr().err
