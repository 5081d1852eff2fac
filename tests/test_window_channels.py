"""Windows of tensors whose channels lie side by side: the bits of those in NCHW, by emulated CUDA."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
import torch
from budget import thinned
from hypothesis import given as given_examples
from hypothesis import strategies as st
from kernels import DTYPES, GENERATED, INTEGERS, generated
from test_rows import made
from torch import Tensor
from windows_emulated import Windows, emulated_kernels

THREADS = 128  # of a block
CHANNELS = {"vectors": 16, "odd": 13, "unaligned": 16, "one image": 16, "no batch": 16, "few": 6}
SIZES = {1: (38,), 2: (13, 14), 3: (9, 10, 12)}  # of a plane, by the dimensions of a window
NAMES = sorted(
    f"{path.parent.name}/{path.stem}"
    for path in GENERATED.glob("*/*.py")
    if "KERNELS = Windows(" in path.read_text(encoding="utf-8")
)
CASES = {  # beside the committed ones
    "several": (  # results of a thread, and operands of the shape of the first
        "inputs: {x: {shape: [2, 16, 13, 14]}, y: {shape: [2, 16, 13, 14]}, b: {shape: [16, 1, 1]}}\n"
        "formula: avg_pool2d(x * y + b, 3, 2, 1, ceil_mode=True, count_include_pad=False)\n"
    ),
    "divided": (
        "inputs: {x: {shape: [2, 16, 13, 14]}}\n"
        "formula: exp(avg_pool2d(x, (5, 2), (3, 1), (2, 1), divisor_override=7))\n"
    ),
    "dilated": (
        "inputs: {x: {shape: [2, 16, 13, 14]}}\n"
        "formula: max_pool2d(x, (2, 3), stride=(1, 2), padding=1, dilation=(2, 1), ceil_mode=True)\n"
    ),
    "of_volumes": (
        "inputs: {x: {shape: [2, 16, 9, 10, 12]}, b: {shape: [16, 1, 1, 1]}}\n"
        "formula: b * min_pool3d(x - 1, 3, stride=(1, 2, 1), padding=1)\n"
    ),
    "overlapping": "inputs: {x: {shape: [2, 16, 13, 14]}}\nformula: avg_pool2d(x, 3, 1, 1)\n",
    "summed": "inputs: {x: {shape: [2, 16, 38]}}\nformula: sum_pool1d(x * x, 9, stride=2, padding=4)\n",
    "wide": "inputs: {x: {shape: [2, 16, 38]}}\nformula: avg_pool1d(x, 20, stride=3)\n",
}


def windows_of(module: ModuleType) -> Iterator[Windows]:
    """The kernels of a module with a pooling that is not adaptive."""
    for kernels in list(vars(module).values()):
        if type(kernels).__name__ == "Windows" and len(kernels.window) > 1:
            yield emulated_kernels(kernels)


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModuleType]:
    folder = tmp_path_factory.mktemp("channels")
    return functools.cache(lambda name: made(folder, name, CASES[name]))


@dataclass(frozen=True)
class Given:
    """The tensors of a call, and its scalars."""

    tensors: list[Tensor]
    params: tuple[float, ...]


def given(kernels: Any, channels: int, dtype: torch.dtype, full: frozenset[int] = frozenset()) -> Given:
    """Tensors in NCHW: the first one whole, with special values, and others for each channel, or full."""
    generator = torch.Generator().manual_seed(channels)
    shape = torch.Size((2, channels, *SIZES[kernels.rank]))
    result = torch.Size(kernels.sizes(shape))
    tensors = []
    for k in range(kernels.inputs):
        own = shape if kernels.is_front(k) else result
        sizes = own if k == 0 or k in full else (channels, *[1] * kernels.rank)
        drawn = torch.randn(sizes, generator=generator)
        tensors.append(drawn.mul(3).to(dtype).expand(own))
    flat = tensors[0].view(-1)
    for k, value in enumerate((math.nan, math.inf, -math.inf, 0.0, -0.0)):
        flat[17 + 5 * k :: 401] = value
    return Given(tensors, tuple(0.75 + k for k in range(kernels.signature.params)))


def last(t: Tensor) -> Tensor:
    """The same elements with the channels side by side, unless some are expanded."""
    if 0 in t.stride():
        return t
    return t.movedim(1, -1).contiguous().movedim(-1, 1)


def laid(t: Tensor, layout: str) -> Tensor:
    if layout == "unaligned" and 0 not in t.stride():
        moved = last(t)
        room = torch.empty(t.numel() + 1, dtype=t.dtype, device=t.device)[1:]
        return room.as_strided(moved.shape, moved.stride(), 1).copy_(moved)
    return last(t)


def bits(t: Tensor) -> Tensor:
    return t.contiguous().view(INTEGERS[t.dtype])


def results_along(of: Windows, d: int) -> int:
    """The results of a thread along a dimension of three."""
    k = d - (3 - of.kernels.rank)
    if k < 0:
        return 1
    kernel, stride, _, dilation = (numbers[k] for numbers in of.kernels.window[:4])
    return 2 if d and dilation == 1 and stride < kernel <= 8 else 1


def blocks(of: Windows, result: Tensor, width: int) -> int:
    """The blocks of a launch by threads along the channels, of which each has so many."""
    rank = of.kernels.rank
    out = (*[1] * (3 - rank), *result.shape[-rank:])
    places = [math.ceil(out[d] / results_along(of, d)) for d in range(3)]
    return math.ceil(math.prod((result.shape[0], result.shape[1] // width, *places)) / THREADS)


def same_bits(of: Windows, layout: str, dtype: torch.dtype, full: frozenset[int] = frozenset()) -> None:
    """Compare results of tensors whose channels lie side by side with those of NCHW."""
    call = given(of.kernels, CHANNELS[layout], dtype, full)
    if layout in ("one image", "no batch"):
        call = Given([t[:1] for t in call.tensors], call.params)
    expected = of.forward(call.tensors, call.params)
    moved = [laid(t, layout) for t in call.tensors]
    for out in (torch.empty_like(expected), last(torch.empty_like(expected))):
        if layout == "no batch":
            of.forward([t[0] for t in moved], call.params, out[0])
        else:
            of.forward(moved, call.params, out)
        assert torch.equal(bits(out), bits(expected)), layout
    exact = "EXACT = true" in of.kernels.sources.cuda and "Added>" not in of.kernels.sources.cuda
    sizes = dtype.itemsize, 2 if exact and dtype.itemsize < 8 else 4
    width = 16 // max(sizes)
    whole = layout != "unaligned" and CHANNELS[layout] % width == 0
    assert of.blocks(dtype) == blocks(of, expected, width if whole else 1)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", thinned(NAMES))
def test_committed_windows_have_the_bits_of_nchw(name: str, dtype: torch.dtype) -> None:
    for of in windows_of(generated(name)):
        for layout in CHANNELS:
            same_bits(of, layout, dtype)


@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_windows_have_the_bits_of_nchw(specs: Any, name: str, dtype: torch.dtype) -> None:
    """Of all folds, numbers and dimensions, with tensors of any shape beside the first one."""
    [of] = windows_of(specs(name))
    for layout in CHANNELS:
        for full in (frozenset[int](), frozenset(range(of.kernels.inputs))):
            same_bits(of, layout, dtype, full)


@pytest.mark.full
def test_tensors_of_two_layouts_are_pooled_as_in_nchw(specs: Any) -> None:
    """As many are read across as along whatever threads do."""
    [of] = windows_of(specs("several"))
    call = given(of.kernels, 16, torch.float32, frozenset({1}))
    expected = of.forward(call.tensors, call.params)
    of_nchw = of.blocks(torch.float32)
    mixed = [last(call.tensors[0]), *call.tensors[1:]]
    assert torch.equal(bits(of.forward(mixed, call.params)), bits(expected))
    assert of.blocks(torch.float32) == of_nchw


@pytest.mark.full
@given_examples(st.data())
def test_tensors_of_any_size_have_the_bits_of_nchw(specs: Any, data: Any) -> None:
    """Of one channel or image, and with fewer results than a thread has."""
    [of] = windows_of(specs(data.draw(st.sampled_from(["dilated", "divided", "overlapping"]))))
    sizes = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 9), *[st.integers(3, 9)] * 2))
    x = torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)))
    params = (0.75,) * of.kernels.signature.params
    expected = of.forward([x], params)
    for out in (torch.empty_like(expected), last(torch.empty_like(expected))):
        assert torch.equal(bits(of.forward([last(x)], params, out)), bits(expected))
