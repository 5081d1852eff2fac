"""The kernels of linear layers by themselves: by wgmma and by mma.sync, whole and in parts of the terms.

    python -m benchmarks.products          # the first four, two minutes on an H100 or H200
    python -m benchmarks.products errors   # errors over the sum of magnitudes, and whether bits are equal
    python -m benchmarks.products large    # the shapes of KernelBench's 13 models, and squares
    python -m benchmarks.products batches  # 1 to 256 rows of 1,024 to 16,384 terms
    python -m benchmarks.products weights  # gradients of small weights, whose terms are rows of the input
    python -m benchmarks.products models   # KernelBench's 13 models with their chains, all by mma.sync

mma.sync runs on every chip from sm_80 on, wgmma on sm_90. Times are medians of CUDA graphs that take turns,
a call each, or several of a short one; the split of the input is timed, what is known of a weight is not.
They are of the GPU alone: a layer's call takes 39 us on the CPU, PyTorch's 20. The column `parts` tells how
many there are, in brackets where a call has none. Bits are those of the first form (`=`), or not (`/`).
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import itertools
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor

from benchmarks import linear
from benchmarks.linear import DEVICE, kinds, medians, rms, table
from fusegen.project import toolkit
from fusegen.runtime import linear_facts, linear_operator

MODELS = (  # rows of the input, terms, features: of several models each
    (1024, 8192, 8192), (2048, 8192, 8192), (16384, 4096, 4096), (128, 16384, 16384), (128, 32768, 32768),
)  # fmt: skip
SQUARES = tuple((size, size, size) for size in (1024, 2048, 4096, 8192))
BATCHES = tuple(
    (rows, terms, features)
    for terms in (1024, 4096, 8192, 16384)
    for features in (1024, 4096, 16384)
    for rows in (1, 4, 8, 16, 32, 64, 128, 256)
)
# rows of the input, which are the terms; features of the layer in front and of its own
WEIGHTS = tuple(
    (features, rows, n) for rows in (4096, 65536) for features, n in ((256, 256), (512, 512), (1024, 1024))
)
ERRORS = ((384, 8192, 768), (64, 4096, 1024))
SHORT = 2**33  # products, below which a graph has several calls
STEP, LEVEL = 32, 16  # terms, steps: as in linear.h


class Product(ctypes.Structure):
    """A product, as linear.h has it."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("left", "right", "bias", "out")),
        *((name, ctypes.c_int64) for name in ("left_pitch", "right_pitch", "rows", "columns", "terms")),
        *((name, ctypes.c_void_p) for name in ("largest", "norm")),
        ("terms_of_left", ctypes.c_int),
        *((name, ctypes.c_void_p) for name in ("halves", "columns_known", "levels")),
        ("parts", ctypes.c_int),
    ]


@dataclass
class Layer:
    """A layer of matrices without a bias, and the memory of its kernels."""

    x: Tensor
    weight: Tensor  # whose terms lie side by side, or the transposed of one whose rows do

    def __post_init__(self) -> None:
        """Have the memory."""
        (columns, terms), rows = self.x.shape, self.weight.shape[0]
        made = functools.partial(torch.empty, device=self.x.device)
        self.out = made(columns, rows)
        self.halves = made(columns * -(-terms // STEP) * STEP)
        self.known = made(1 + -(-columns // 64) + columns, dtype=torch.int32)
        levels = -(-terms // (STEP * LEVEL))
        self.tiles = -(-rows // 128) * -(-columns // 64)
        self.most = most_parts(levels, self.tiles)
        self.levels = made(levels if self.most > 1 else 0, columns, rows)
        self.largest, self.norm = linear_facts.facts_of(self.weight)
        self.kernel = "together" if self.weight.stride(1) == 1 else "apart"
        self.taken = self.tiles <= 64 and levels >= 3  # as in linear.h

    def product(self, parts: int) -> Product:
        """Return the product, whole or in parts."""
        pitch = self.weight.stride(0 if self.kernel == "together" else 1)
        data = (t.data_ptr() for t in (self.weight, self.x))
        levels = self.levels.data_ptr() if parts > 1 else None
        return Product(
            *data, None, self.out.data_ptr(), pitch, self.x.stride(0), self.weight.shape[0], *self.x.shape,
            self.largest.data_ptr(), self.norm.data_ptr(), int(self.kernel == "apart"),
            self.halves.data_ptr(), self.known.data_ptr(), levels, 0,
        )  # fmt: skip


def most_parts(levels: int, tiles: int) -> int:
    """Return into how many parts a launch divides the terms."""
    each = -(-levels // max(torch.cuda.get_device_properties(DEVICE).multi_processor_count // tiles, 1))
    return -(-levels // each)


def compiled(by: str, folder: Path) -> ctypes.CDLL:
    """Return the kernels compiled for this GPU, by wgmma or by mma.sync."""
    chip = "{}{}".format(*torch.cuda.get_device_capability()) + "a" * (by == "wgmma")
    home = toolkit.home()
    assert home is not None, "no nvcc"
    source, made = folder / f"{by}.cu", folder / f"{by}.so"
    source.write_text(linear_operator.texts_of_kernels().cuda, encoding="utf-8")
    flags = ["-std=c++17", "-O3", "--fmad=false", "-shared", "-Xcompiler", "-fPIC", "--cudart=none"]
    flags += [f"-gencode=arch=compute_{chip},code=sm_{chip}", *["-DFUSEGEN_SM90A"] * (by == "wgmma")]
    linked = ["-Xlinker", str(toolkit.cudart(home)), "-o", str(made)]
    subprocess.run([*toolkit.nvcc(home), *flags, str(source), *linked], check=True)
    return ctypes.CDLL(str(made))


Kernel = Callable[[Layer, int], Tensor]  # of a layer, in parts


@functools.lru_cache(None)
def kernels() -> dict[str, Kernel]:
    """Return the kernels that this GPU has, by what multiplies."""
    names = ["wgmma"] * (torch.cuda.get_device_capability() == (9, 0)) + ["mma.sync"]
    with tempfile.TemporaryDirectory() as folder:
        return {by: functools.partial(run, compiled(by, Path(folder))) for by in names}


def run(of: ctypes.CDLL, layer: Layer, parts: int) -> Tensor:
    """Return a layer by kernels, on the stream in use."""
    launch: Any = getattr(of, f"linear_{layer.kernel}_launch")
    launch.restype = ctypes.c_char_p
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    error = launch(ctypes.byref(layer.product(parts)), torch.cuda.current_device(), stream)
    assert error is None, error
    return layer.out


def forms(layer: Layer) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """Yield the calls of a layer: what multiplies it, whole and in parts."""
    for (by, kernel), parts in itertools.product(kernels().items(), sorted({1, layer.most})):
        yield f"{by}{' in parts' * (parts > 1)}", functools.partial(kernel, layer, parts)


def captured(call: Callable[[], object], count: int) -> Callable[[], None]:
    """Return the replay of some calls as one graph."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    replay: Callable[[], None] = graph.replay
    return replay


def times(
    title: str, layers: Callable[[int, int, int], Layer], shapes: tuple[tuple[int, int, int], ...]
) -> None:
    """Print the times of layers of some shapes."""
    columns = [f"{by}{form}, us" for by in kernels() for form in ("", " in parts")]
    table(title, "cuBLAS, us", *columns, "parts", "best over cuBLAS", "TFLOP/s")
    for rows, terms, features in shapes:
        layer = layers(rows, terms, features)
        library: Callable[[], Tensor] = functools.partial(torch.mm, layer.x, layer.weight.t())
        calls = [library, *(call for _, call in forms(layer))]
        count = 1 if rows * terms * features > SHORT else 8
        eager, *own = (1e3 * time / count for time in medians([captured(call, count) for call in calls], 7))
        found = dict(zip((name for name, _ in forms(layer)), own, strict=True))
        cells = [f"{found[name]:.1f}" if name in found else "" for name in (c[:-4] for c in columns)]
        parts = str(layer.most) if layer.taken or layer.most == 1 else f"({layer.most})"
        rate = 2e-6 * rows * terms * features / min(own)
        told = " | ".join((*cells, parts, f"{eager / min(own):.2f}", f"{rate:.0f}"))
        print(f"| {rows} x {terms} x {features} | {eager:.1f} | {told} |", flush=True)
        del layer, calls
        torch.cuda.empty_cache()


def layer_of(rows: int, terms: int, features: int) -> Layer:
    """Return a layer of normal numbers."""
    return Layer(torch.randn(rows, terms, device=DEVICE), torch.randn(features, terms, device=DEVICE))


def weight_of(rows: int, terms: int, features: int) -> Layer:
    """Return the layer that is the gradient of a weight, whose transposed input has its terms apart."""
    return Layer(torch.randn(rows, terms, device=DEVICE), torch.randn(terms, features, device=DEVICE).t())


def errors() -> None:
    """Print errors over the sum of magnitudes, and whether all forms have one form's bits."""
    for shape in ERRORS:
        names = [name for name, _ in forms(layer_of(*shape))]
        table(" x ".join(map(str, shape)), "eager's rms", "largest", *names, "kept", "bits")
        for kind, (x, weight) in kinds(*shape).items():
            layer = Layer(x, weight)
            size, exact = x.double().abs() @ weight.double().abs().t(), x.double() @ weight.double().t()
            eager = (x @ weight.t() - exact).abs() / size
            made = [call().clone() for _, call in forms(layer)]
            own = [(y.double() - exact).abs() / size for y in made]
            bound = max(rms(eager), 2**-24), max(float(eager.max()), 2**-22)
            kept = all(rms(e) <= bound[0] and float(e.max()) <= bound[1] for e in own)
            cells = [f"{rms(e):.1e}, {float(e.max()):.1e}" for e in own]
            alike = "".join("=" if torch.equal(y, made[0]) else "/" for y in made[1:])
            told = " | ".join((*cells, "yes" if kept else "NO", alike))
            print(f"| {kind} | {rms(eager):.1e} | {float(eager.max()):.1e} | {told} |", flush=True)


def models() -> None:
    """Print the times of models whose libraries are compiled without the instructions of sm_90a."""
    importlib.import_module("generated._runtime.targets").FEATURES.clear()
    linear.models()


PARTS: dict[str, Callable[[], None]] = {
    "errors": errors,
    "large": functools.partial(times, "rows x terms x features", layer_of, MODELS + SQUARES),
    "batches": functools.partial(times, "rows x terms x features", layer_of, BATCHES),
    "weights": functools.partial(times, "features x rows x terms of the weight", weight_of, WEIGHTS),
    "models": models,
}


@click.command(help="\b\n" + str(__doc__).replace("\n\n", "\n\n\b\n"))
@click.argument("parts", nargs=-1, type=click.Choice([*PARTS]))
def main(parts: tuple[str, ...]) -> None:
    """Print the tables of the parts."""
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for part in parts or [*PARTS][:-1]:
        PARTS[part]()


if __name__ == "__main__":
    main()
