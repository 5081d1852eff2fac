"""The kernel of dropouts' masks, run on the CPU, and PyTorch's on CUDA in terms of it."""

import ctypes
import gc
import subprocess
import sys
import weakref
from functools import cache
from pathlib import Path
from typing import Any

import compiler
import pytest
import torch
from emulated import FLAGS, LAUNCH, SANITIZER, SCALAR_TYPES, Guarded, State, call_type
from torch import Tensor
from torch.utils.cpp_extension import include_paths, library_paths

from fusegen.runtime import build, drawn, library_names, philox
from fusegen.runtime.recipe import recipe_of

SEED = 2**63 + 12345678901
PARTS = 7  # scalars of the kernel
WORD = 2**32 - 1


@cache
def library() -> ctypes.CDLL:
    """The library of the CPU that g++ makes of the kernel's text."""
    text = LAUNCH.sub(r"emulate(\1, \2, ", f'#include "cuda_emulation.h"\n{drawn.texts_of_kernels().cuda}')
    made = ctypes.CDLL(str(compiler.library(text, ["-O1", *FLAGS, *SANITIZER])))
    State.in_dll(made, "emulation").chip = 90
    made.mask_drawn_launch.restype = ctypes.c_char_p
    return made


def bound(folder: Path) -> None:
    """Build and load the kernel's library, which registers the operator, here for the CPU."""
    of = drawn.kernels()
    recipe = recipe_of(of.texts(), *drawn.KERNELS, "cuda")
    names = library_names.definition(of.operators.name, of.name)
    binding = "\n".join(each for each in recipe["cpp_sources"] if "ON_CUDA" not in each[:20])
    kernel = LAUNCH.sub(r"emulate(\1, \2, ", "\n".join(recipe["cuda_sources"]))
    made, sources = folder / "mask.so", (folder / "binding.cpp", folder / "kernel.cpp")
    sources[0].write_text(names + binding.replace('"CUDA"', '"CPU"'), encoding="utf-8")
    sources[1].write_text(f'#include "cuda_emulation.h"\n{kernel}', encoding="utf-8")
    folders = [*(f"-I{path}" for path in include_paths()), *(f"-L{path}" for path in library_paths())]
    command = ["g++", "-O1", *FLAGS, *folders, *map(str, sources), "-ltorch_cpu", "-o", str(made)]
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    load: Any = torch.ops.load_library
    load(made)
    State.in_dll(ctypes.CDLL(str(made)), "emulation").device = -1  # that of tensors on the CPU


def four_numbers(key: int, counter: int) -> tuple[int, int, int, int]:
    """Return four random numbers of 32 bits, from a key of 64 bits and a counter of 128."""
    a, b, c, d = (counter >> shift & WORD for shift in (0, 32, 64, 96))
    for turn in range(10):
        first, second = a * 0xD2511F53, c * 0xCD9E8D57
        low = key + turn * 0x9E3779B9 & WORD
        high = (key >> 32) + turn * 0xBB67AE85 & WORD
        a, b, c, d = second >> 32 ^ b ^ low, second & WORD, first >> 32 ^ d ^ high, first & WORD
    return a, b, c, d


def number_of(place: philox.Place, element: int) -> int:
    """Return the random number that decides an element of a mask, as cuda/drawn_mask.cuh has it."""
    turn, thread = divmod(element // place.width, place.threads)
    block = place.offset // 4 + turn * (place.width // 4) + element % place.width // 4
    return four_numbers(place.seed, thread << 64 | block)[element % 4]


def filled_by_kernel(like: Tensor, place: philox.Place, p: float, shift: int = 0) -> Tensor:
    """The mask of a place as the kernel writes it into guarded memory, some elements off 16 bytes."""
    numel, call = like.numel(), call_type(2, PARTS)()
    room = Guarded(numel, like.dtype, shift)
    call.numel, call.rank, call.dense, call.aligned = numel, 1, True, shift == 0
    call.dtype, call.size[0], call.param[:] = SCALAR_TYPES[like.dtype], numel, drawn.scalars_of(place, p)
    for k in range(2):
        call.data[k], call.stride[k][0] = room.address, 1
    error = library().mask_drawn_launch(ctypes.byref(call))
    assert error is None, error.decode()
    room.check()
    return room.values.clone()


def mask_of(place: philox.Place, like: Tensor, p: float) -> Tensor:
    """The mask of a place in double, from the numbers as Python computes them."""
    below = philox.threshold(p)
    kept = [float(number_of(place, i) < below) for i in range(like.numel())]
    return torch.tensor(kept, dtype=torch.float64).reshape(like.shape)


class Generator:
    """A generator of a GPU."""

    seed, offset = 7, 40

    def initial_seed(self) -> int:
        """Return the seed."""
        return self.seed

    def get_offset(self) -> int:
        """Return how many numbers each thread has drawn."""
        return self.offset

    def set_offset(self, offset: int) -> None:
        """Say how many numbers each thread has drawn."""
        self.offset = offset

    def manual_seed(self, seed: int) -> None:
        """Begin at the first number of a seed."""
        self.seed, self.offset = seed, 0

    def get_state(self) -> tuple[int, int]:
        """Return the seed and the offset."""
        return self.seed, self.offset

    def set_state(self, state: tuple[int, int]) -> None:
        """Go back to a seed and an offset."""
        self.seed, self.offset = state


class Drawing:
    """The CPU in place of a GPU whose masks the emulated kernel draws, for a module or the runtime."""

    def __init__(self, kernels: Any, monkeypatch: pytest.MonkeyPatch, theirs: int = 4) -> None:
        """Patch the runtime; a thread of PyTorch's kernel takes `theirs` neighbours at most."""
        self.generator, self.theirs, self.fills = Generator(), theirs, 0
        self.places: list[philox.Place] = []
        self.masks: list[weakref.ref[Tensor]] = []
        own = "fusegen.runtime" if kernels is None else type(kernels).__module__.rpartition(".")[0]
        runtime = sys.modules[f"{own}.drawn"]
        monkeypatch.setattr(torch.cuda, "default_generators", {None: self.generator})
        monkeypatch.setattr(runtime, "threads", lambda device, numel: min(512, -(-numel // 256) * 256))
        monkeypatch.setattr(runtime, "fill", self.fill)
        if kernels is None:
            monkeypatch.setattr(torch, "native_dropout", self.native)
            monkeypatch.setattr(build, "can_load", lambda *of: True)
            return
        dropouts: Any = sys.modules[f"{own}.dropouts"]
        monkeypatch.setattr(runtime, "can_draw", lambda empty: empty.dtype in drawn.DTYPES)
        monkeypatch.setattr(runtime, "widest", lambda device, dtype: theirs)
        monkeypatch.setitem(dropouts.DRAWN, "cpu", dropouts._on_cuda)

    def fill(self, empty: Tensor, place: Any, p: float) -> Tensor:
        """Fill a mask by the emulated kernel."""
        self.fills += 1
        self.places.append(place)
        self.masks.append(weakref.ref(empty))
        return empty.copy_(filled_by_kernel(empty, place, p).view(empty.shape))

    def native(self, like: Tensor, p: float, train: bool) -> tuple[Tensor, Tensor]:
        """PyTorch's dropout: its mask, and where that leaves the generator."""
        of = self.generator
        width = next(width for width in (8, 4, 2) if width <= self.theirs and like.numel() % width == 0)
        threads = min(512, -(-like.numel() // 256) * 256)
        place = philox.Place(of.seed, of.offset, threads, max(width, 4))
        of.offset += philox.drawn_by(like.numel(), threads)
        kept = filled_by_kernel(like, place, p) != 0
        return like, kept if width >= 4 else kept.flip(0)

    def refuse(self) -> Tensor:
        """Fail as a build does."""
        raise RuntimeError("mask: the drawn kernel did not compile for cuda")

    def living(self) -> int:
        """Return how many masks are still in memory."""
        gc.collect()
        return sum(mask() is not None for mask in self.masks)
