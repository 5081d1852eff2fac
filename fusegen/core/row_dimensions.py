"""The dimensions of the rows that a spec reduces."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

DTYPES = ("float32",)  # that values of rows may have beside elements of 16 bits


@dataclass(frozen=True, slots=True)
class Over:
    """The dimensions of a row, which formulas reduce together.

    Attributes:
        first: the first of them, from the last one on if it is negative.
        count: how many they are; 0 for all from the first on.
        groups: the argument of the constructor that says in how many parts the first one is cut, each of
            which, and all behind it, is a row; empty where it is not cut.
        of_channel: whether a row is all of a channel, dimension 1: of every dimension but this one.
        is_part: whether a row is a part of a whole tensor.
        is_declared: whether the spec says so, and formulas may reduce.
        keeps: whether a value of a row keeps these dimensions, with size 1, as keepdim=True of PyTorch.
        dtype: the dtype of values of rows where elements have 16 bits; empty where it is that of elements.
    """

    first: int
    count: int = 0
    groups: str = ""
    of_channel: bool = False
    is_part: bool = False
    is_declared: bool = True
    keeps: bool = field(default=False, compare=False)
    dtype: str = field(default="", compare=False)

    @property
    def of_views(self) -> "Over":
        """The dimensions of a row in what kernels take, in which a part of the first one is a dimension."""
        return replace(self, first=self.first + 1, groups="") if self.groups else self

    def of(self, rank: int) -> Sequence[int]:
        """Return the dimensions of a row of a tensor of so many; beyond these where it has none."""
        first = self.first + rank * (self.first < 0)
        return (
            (0, *range(2, max(rank, 2)))
            if self.of_channel
            else range(first, first + self.count if self.count else rank)
        )

    def parted(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the sizes of a shape that are of the rows, and those of one."""
        own = self.of(len(shape))
        sizes = [tuple(n for d, n in enumerate(shape) if (d in own) is inside) for inside in (False, True)]
        return sizes[0], sizes[1]

    @property
    def named(self) -> tuple[int, ...]:
        """The dimensions, where they are the same numbers in tensors of any rank."""
        return tuple(range(self.first, self.first + self.count if self.count else 0))

    def __str__(self) -> str:
        """As a spec declares them."""
        named = f'"{self.first} / {self.groups}", ...' if self.groups else ", ".join(map(str, self.named))
        named = "0, 2, ..." if self.of_channel else named
        return f"over: [{named or (f'{self.first}, ...' if self.first else '...')}]"
