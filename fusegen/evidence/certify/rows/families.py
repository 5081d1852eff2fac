"""The rows that a function is tried on: some of each kind at each length, the same each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from zlib import crc32

import torch
from torch import Generator, Tensor

from fusegen.evidence.certify.certificate import SEED

Draw = Callable[[tuple[int, int], Generator, torch.dtype], Tensor]
SIZES = {torch.float16: (1e4, 1e-4), torch.float64: (1e100, 1e-100)}  # of large and of tiny elements
OTHERS = (1e30, 1e-30)
# How many rows of each length; lanes, blocks and clusters hold other lengths, of whole vectors and not.
LENGTHS = {1: 4, 2: 4, 3: 4, 7: 4, 8: 4, 31: 4, 64: 4, 1000: 2, 1024: 2, 4096: 1, 8193: 1, 50001: 1}
LONG, OF_LONG = 10**4, ("normal", "shifted", "cancelling")  # the kinds of the longest rows


@dataclass(frozen=True)
class Group:
    """Some rows of a kind and a length."""

    kind: str  # of the elements, a key of `KINDS`
    # rows, length: how many, and of how many elements
    rows: int
    length: int

    @property
    def place(self) -> str:
        """The group in words: ``outlier of 4096``."""
        return f"{self.kind} of {self.length}"

    def generator(self, dtype: torch.dtype) -> Generator:
        """Return a generator that draws the same each time."""
        return Generator().manual_seed(SEED + crc32(f"{self.place} {dtype}".encode()))

    def drawn(self, generator: Generator, dtype: torch.dtype) -> Tensor:
        """Return the rows."""
        return KINDS[self.kind]((self.rows, self.length), generator, dtype).to(dtype)


def groups(most: int, longest: int = 0) -> Iterator[Group]:
    """Return the groups, the shortest rows first, of at most so many elements in all.

    Args:
        most: how many.
        longest: the length of one row more, where kernels of their own have rows that are so long.
    """
    for length, rows in (LENGTHS | ({longest: 1} if longest else {})).items():
        for kind in KINDS if length < LONG else OF_LONG:
            most -= rows * length
            if most >= 0:
                yield Group(kind, rows, length)
            if length == longest:
                break


def within(rows: Tensor, low: float, high: float) -> Tensor:
    """Return numbers of a range in place of others: their sizes from an end on, or shares of it."""
    if high - low < inf:
        return low + (high - low) * (rows.abs() % 1)
    return low + rows.abs() if low > -inf else high - rows.abs()


def normal(shape: tuple[int, ...], generator: Generator, dtype: torch.dtype) -> Tensor:
    """Return normal numbers."""
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _uniform(shape: tuple[int, int], generator: Generator, dtype: torch.dtype) -> Tensor:
    return torch.rand(shape, generator=generator, dtype=torch.float64)


def _cancelling(shape: tuple[int, int], generator: Generator, dtype: torch.dtype) -> Tensor:
    """Return rows of numbers and their opposites, in a random order, whose sum is 0 at even lengths."""
    half = normal((shape[0], shape[1] // 2), generator, dtype).to(dtype).double()
    whole = torch.cat([half, -half, half.new_full((shape[0], shape[1] % 2), 2.0**-10)], 1)
    return whole[:, torch.randperm(shape[1], generator=generator)]


def _with_an_outlier(shape: tuple[int, int], generator: Generator, dtype: torch.dtype) -> Tensor:
    found = normal(shape, generator, dtype)
    found[:, -1] = 30  # the last one, which a kernel is most likely to lose
    return found


def _wide(shape: tuple[int, int], generator: Generator, dtype: torch.dtype) -> Tensor:
    exponents = torch.rand(shape, generator=generator, dtype=torch.float64) * 20 - 14
    return normal(shape, generator, dtype).sign() * torch.exp2(exponents)


KINDS: dict[str, Draw] = {
    "uniform": _uniform,
    "normal": normal,
    "large": lambda shape, g, dtype: normal(shape, g, dtype) * SIZES.get(dtype, OTHERS)[0],
    "tiny": lambda shape, g, dtype: normal(shape, g, dtype) * SIZES.get(dtype, OTHERS)[1],
    "constant": lambda shape, g, dtype: normal((shape[0], 1), g, dtype).expand(shape),
    "shifted": lambda shape, g, dtype: normal(shape, g, dtype) + min(2**20, 2**-3 / torch.finfo(dtype).eps),
    "cancelling": _cancelling,
    "outlier": _with_an_outlier,
    "tied": lambda shape, g, dtype: torch.randint(-3, 4, shape, generator=g).double(),
    "wide": _wide,
}
