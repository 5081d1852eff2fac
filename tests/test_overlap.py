"""Tensors of many dimensions, and tensors to write to that an input lies in."""

from __future__ import annotations

import itertools
import random
import re

import pytest
import torch
import torch.nn.functional as F
from kernels import assert_same, function, generated
from torch import Tensor

SHARED = "some elements of an input and of the written-to tensor share their memory; clone() one of them"


# Many dimensions


def many(dim: int) -> dict[str, Tensor]:
    """Tensors of so many dimensions, nearly all of which have one element."""
    return {
        "last two": torch.randn([1] * (dim - 2) + [3, 5]),
        "outermost and innermost, swapped": torch.randn([3] + [1] * (dim - 2) + [5]).transpose(0, -1),
        "one": torch.randn([1] * dim),
        "none": torch.randn([0] + [1] * (dim - 1)),
    }


@pytest.mark.together
@pytest.mark.parametrize("dim", [64, 65, 66, 100, 1000])
@pytest.mark.parametrize("which", many(3))
def test_any_number_of_dimensions(which: str, dim: int) -> None:
    x, relu = many(dim)[which], function("relu")
    expected = F.relu(x)
    written, copy = torch.empty_like(x), x.clone()
    for actual in (relu(x), relu(x, out=written), relu(copy, inplace=True)):
        assert actual.shape == x.shape
        assert actual.flatten().tolist() == expected.flatten().tolist()
    leaf = x.clone().requires_grad_()
    [gradient] = torch.autograd.grad(relu(leaf).sum(), leaf)
    assert gradient.shape == x.shape
    assert gradient.flatten().tolist() == (x > 0).flatten().float().tolist()


@pytest.mark.parametrize("dim", [64, 65, 100])
def test_any_number_of_dimensions_broadcasts(dim: int) -> None:
    gate, up = torch.randn([1] * (dim - 1) + [4]), torch.randn(3, 4).reshape([3] + [1] * (dim - 2) + [4])
    actual = function("swiglu")(gate, up)
    assert actual.shape == (gate + up).shape
    torch.testing.assert_close(actual.flatten(), (F.silu(gate) * up).flatten())


# Outputs that lie in an input


def parts(x: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Inputs of relu, and tensors to write to, in one tensor of (4, 6)."""
    return {
        "itself": (x, x),
        "itself, with one more dimension": (x[None], x[None]),
        "the same part of rows": (x.view(1, 4, 6)[0, :, 1:], x[:, 1:]),
        "halves of rows": (x[:, :3], x[:, 3:]),
        "even and odd columns": (x[:, ::2], x[:, 1::2]),
        "even and odd rows": (x[::2], x[1::2]),
        "other rows": (x[:2], x[2:]),
        "no rows": (x[:0], x[:0]),
    }


def clashes(x: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """The same where writing destroys what is still to be read."""
    return {
        "the first row, repeated": (x[:1].expand(4, 6), x),
        "the next rows": (x[:3], x[1:]),
        "the next columns": (x[:, :5], x[:, 1:]),
        "the transpose": (x[:, :4].t(), x[:, :4]),
        "rows of every other column": (x[:, ::2], x[:, :3]),
    }


@pytest.mark.parametrize("which", parts(torch.empty(4, 6)))
def test_out_may_lie_beside_an_input_or_be_one(which: str) -> None:
    x = torch.randn(4, 6)
    given, out = parts(x)[which]
    expected = F.relu(given)
    generated("relu").FORWARD_OUT(given, out)
    assert_same(out, expected)


@pytest.mark.parametrize("which", clashes(torch.empty(4, 6)))
def test_out_that_an_input_lies_in_is_refused(which: str) -> None:
    x = torch.randn(4, 6)
    given, out = clashes(x)[which]
    before = x.clone()
    with pytest.raises(RuntimeError) as raised:
        generated("relu").FORWARD_OUT(given, out)
    assert str(raised.value) == f"relu: {SHARED}"
    assert_same(x, before)


def test_out_that_a_broadcast_input_lies_in_is_refused() -> None:
    x, ones = torch.randn(4, 6), torch.ones(4, 6)
    for gate, up in ((x[:1], ones), (ones, x[:, :1]), (x[1], ones), (ones, x[2, 3])):
        with pytest.raises(RuntimeError) as raised:
            generated("swiglu").FORWARD_OUT(gate, up, x)
        assert str(raised.value) == f"swiglu: {SHARED}"


def places(size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> list[int]:
    """Where the elements of a view lie."""
    indices = itertools.product(*map(range, size))
    return [offset + sum(i * s for i, s in zip(index, stride, strict=True)) for index in indices]


def test_overlaps_are_told_exactly() -> None:
    """Of random views of one tensor; elements that are written where they are read do no harm."""
    generator, answers = random.Random(1), set()
    for _ in range(2000):
        size = tuple(generator.randint(1, 4) for _ in range(generator.randint(1, 3)))
        strides = [tuple(generator.choice((1, 2, 3, 5, 7, 12, 24)) for _ in size) for _ in range(2)]
        offsets = [generator.randint(0, 40) for _ in range(2)]
        read, written = (places(size, *view) for view in zip(strides, offsets, strict=True))
        if len(set(written)) < len(written):
            continue
        x = torch.randn(200)
        given, out = (x.as_strided(size, *view) for view in zip(strides, offsets, strict=True))
        expected = F.relu(given)
        clash = read != written and bool(set(read) & set(written))
        answers.add(clash)
        if clash:
            with pytest.raises(RuntimeError, match=f"^relu: {re.escape(SHARED)}$"):
                generated("relu").FORWARD_OUT(given, out)
        else:
            generated("relu").FORWARD_OUT(given, out)
            assert_same(out, expected)
    assert answers == {True, False}
