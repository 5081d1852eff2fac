"""The layouts of tensors for kernels that Python launches, and the bytes of a kernel's argument."""

import itertools
import math
from typing import Any

import pytest
import torch
from emulated import call_type
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fusegen.runtime import layouts


@st.composite
def views(draw: st.DrawFn) -> list[Tensor]:
    """Some tensors that broadcast to the shape of the last, each with strides of its own."""
    shape = draw(st.lists(st.integers(1, 4), min_size=0, max_size=4))
    found = []
    for _ in range(draw(st.integers(1, 3))):
        order = draw(st.permutations(range(len(shape))))
        kept = [n if draw(st.booleans()) else 1 for n in shape]
        room = torch.empty([kept[d] * draw(st.integers(1, 2)) for d in order])
        own = room[tuple(slice(0, kept[d]) for d in order)]
        found.append(own.permute([order.index(d) for d in range(len(shape))]))
    return [*found, torch.empty(shape)]


def reached(layout: layouts.Layout) -> set[tuple[int, ...]]:
    """The addresses that a kernel of float32 reaches together, by tensor."""
    indices = itertools.product(*map(range, layout.sizes))
    steps = [(index, layout.strides) for index in indices]
    return {
        tuple(
            pointer + 4 * sum(i * step for i, step in zip(index, own, strict=True))
            for pointer, own in zip(layout.pointers, strides, strict=True)
        )
        for index, strides in steps
    }


@given(views())
def test_a_layout_reaches_what_the_tensors_hold(tensors: list[Tensor]) -> None:
    shape = tensors[-1].shape
    wide = [t.expand(shape) for t in tensors]
    held = {tuple(t[index].data_ptr() for t in wide) for index in itertools.product(*map(range, shape))}
    layout = layouts.layout_of("m", tensors, shape)
    assert reached(layout) == held
    assert layout.numel == math.prod(shape)


@pytest.mark.parametrize(
    ("tensor", "sizes", "strides"),
    [
        (torch.empty(4, 5).T, (20,), (1,)),
        (torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last), (120,), (1,)),
        (torch.empty(4, 6)[:, :5], (4, 5), (6, 1)),
        (torch.empty(2, 4, 6)[:, :, :5], (8, 5), (6, 1)),
        (torch.empty(()), (1,), (1,)),
    ],
)
def test_neighbours_are_merged(tensor: Tensor, sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
    layout = layouts.layout_of("m", [tensor, tensor], tensor.shape)
    assert (layout.sizes, layout.strides) == (sizes, (strides, strides))
    assert layout.dense is (len(sizes) == 1)


@given(views(), st.integers(1, 20))
def test_parts_hold_every_element_once(tensors: list[Tensor], most: int) -> None:
    whole = layouts.layout_of("m", tensors, tensors[-1].shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layouts, "MOST_INDICES", most)
        found = list(layouts.parts(whole, 4))
    assert sum(part.numel for part in found) == whole.numel
    assert set().union(*map(reached, found)) == reached(whole)
    assert all(part.numel <= most for part in found)


def test_too_many_dimensions_are_refused_in_a_sentence() -> None:
    room = torch.empty(1).expand([1] * 26).as_strided([2] * 26, [0] * 26)
    steps = [3**k for k in range(26)]
    many = torch.empty_strided([2] * 26, steps, device="meta")
    with pytest.raises(RuntimeError) as told:
        layouts.layout_of("m", [room, many], many.shape)
    sentence = (
        "m: a kernel walks through at most 25 dimensions that do not merge; .contiguous() merges them"
    )
    assert str(told.value) == sentence


VECTORS = [  # sizes, strides and addresses of two tensors, and whether 4-byte elements come in vectors
    ((8,), ((1,), (1,)), (16, 32), True),
    ((8,), ((1,), (1,)), (16, 36), False),
    ((6,), ((1,), (1,)), (16, 32), False),
    ((2, 8), ((8, 1), (1, 0)), (16, 32), True),
    ((2, 8), ((12, 1), (4, 1)), (16, 32), True),
    ((2, 8), ((10, 1), (8, 1)), (16, 32), False),
    ((2, 8), ((16, 2), (8, 1)), (16, 32), False),
]


@pytest.mark.parametrize(("sizes", "strides", "pointers", "whole"), VECTORS)
def test_vectors(sizes: Any, strides: Any, pointers: Any, whole: bool) -> None:
    assert layouts.in_vectors(layouts.Layout(sizes, strides, pointers), 4) is whole


@pytest.mark.parametrize("params", [(), (0.5, -3.0)])
def test_the_argument_is_that_of_the_headers(params: tuple[float, ...]) -> None:
    """The tests of the emulation compare this structure with the compiler's own layout."""
    layout = layouts.Layout((3, 5), ((5, 1), (0, 1), (10, 2)), (16, 32, 40))
    packed = layouts.packed(layout, torch.float16, True, params)
    found = call_type(3, len(params)).from_buffer_copy(packed)
    assert len(packed) == len(bytes(found))
    assert (list(found.data), found.numel, found.dtype, found.rank) == ([16, 32, 40], 15, 5, 2)
    assert (found.dense, found.aligned, found.stream) == (False, True, None)
    assert list(found.size[:2]) == [3, 5]
    assert [list(own[:2]) for own in found.stride] == [[5, 1], [0, 1], [10, 2]]
    assert list(getattr(found, "param", ())) == list(params)
