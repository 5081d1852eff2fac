"""The local bound of float32 functions of one tensor: errors by cell of the input.

A cell is a sign, a binade and the first 6 bits of the fraction: 131,072 neighbouring floats, of which a
sweep keeps the largest error, the number of errors by size and the signs of the exact results.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from fusegen.evidence.certify.findings import Breach, Local
from fusegen.evidence.certify.runs import MOST_RUNS, covered

CELL_BITS = 17
CELL, CELLS = 2**CELL_BITS, 2 ** (32 - CELL_BITS)
LEVELS = 23  # thresholds 4, 8, ..., 2^24 ulp
LIMIT, ROOM = 4.0, 1.0005  # in ulp; ROOM for what the filter leaves undecided of an error
FAR = 5  # of the thresholds, 128 ulp: eager is no yardstick where half of its errors are larger
POSITIVE, NEGATIVE = 1, 2  # signs of exact results, as bits
OURS, EAGER = 0, 1
INFINITE = torch.tensor(3e38).item()  # stands for an infinite error in the bits of a cell


@dataclass(frozen=True)
class Cells:
    """The errors in each cell, of value and slope, and of ours and eager's."""

    worst: Tensor  # int64 of shape (2, 2, CELLS): the bits of the largest error above those of its input
    above: Tensor  # int32 of shape (2, 2, CELLS, LEVELS): the number of errors between each two thresholds
    signs: Tensor  # int32 of shape (2, CELLS): the signs of exact results
    inputs: Tensor  # int32 of shape (CELLS,): how many inputs were judged

    @classmethod
    def on(cls, device: str) -> Cells:
        """Return cells of which nothing is known."""
        worst = torch.zeros(2, 2, CELLS, dtype=torch.int64, device=device)
        counts = ((2, 2, CELLS, LEVELS), (2, CELLS), (CELLS,))
        return cls(worst, *(torch.zeros(shape, dtype=torch.int32, device=device) for shape in counts))

    @property
    def addresses(self) -> list[int]:
        """The addresses of the arrays, in the order of `include/cells.h`."""
        return [t.data_ptr() for t in (self.worst, self.above, self.signs, self.inputs)]

    def on_host(self) -> Cells:
        """Return the cells in the memory of the host."""
        return Cells(*(t.cpu() for t in (self.worst, self.above, self.signs, self.inputs)))

    def add(
        self,
        x: Tensor,  # float32 of n elements
        k: int,  # 0 for the value, 1 for the slope
        who: int,  # `OURS` or `EAGER`
        errors: Tensor,  # float64 of n elements, in ulp
    ) -> None:
        """Add errors at single inputs."""
        bits = patterns(x)
        cell, size = bits >> CELL_BITS, errors.clamp(max=INFINITE).float()
        packed = size.view(torch.int32).long() << 32 | bits
        self.worst[k, who].scatter_reduce_(0, cell, packed, "amax")
        large = size > LIMIT
        level = ((size.view(torch.int32) - 1 >> 23) - 129).clamp(0, LEVELS - 1).long()
        flat = (cell * LEVELS + level)[large]
        self.above[k, who].view(-1).index_add_(0, flat, torch.ones(len(flat), dtype=torch.int32))

    def add_signs(self, x: Tensor, k: int, exact: Tensor) -> None:
        """Add the signs of exact results at single inputs, and for the value (k = 0) their number."""
        cell = patterns(x) >> CELL_BITS
        for sign, has in ((POSITIVE, exact > 0), (NEGATIVE, exact < 0)):
            self.signs[k, cell[has]] |= sign
        if k == 0:
            self.inputs.index_add_(0, cell, torch.ones(len(cell), dtype=torch.int32))

    def largest(self, k: int, who: int) -> Tensor:
        """Return the largest error of each cell, float64, in ulp."""
        size = (self.worst[k, who] >> 32).to(torch.int32).view(torch.float32)
        return torch.where(size < INFINITE, size, torch.inf).double()

    def counts(self, k: int, who: int) -> Tensor:
        """Return how many errors of each cell exceed each threshold, float64 of shape (CELLS, LEVELS)."""
        return self.above[k, who].double().flip(-1).cumsum(-1).flip(-1)

    def worst_input(self, k: int, who: int, cell: int) -> str:
        """Return the input of a cell's largest error, as a hexadecimal float."""
        return _hex(int(self.worst[k, who, cell]) & 0xFFFFFFFF)

    def worst_inputs(self, most: int) -> Tensor:
        """Return the inputs of the largest errors of each column, float32, from different binades."""
        by_binade = self.worst.view(4, 512, -1).amax(-1)
        found = by_binade.sort(-1, descending=True).values[:, :most].flatten()
        bits = sorted(set((found[found >> 32 > 0] & 0xFFFFFFFF).tolist()))
        return torch.tensor(bits, dtype=torch.int64).to(torch.int32).view(torch.float32)

    def changes_sign(self, k: int) -> Tensor:
        """Return a mask of the cells in which, or next to which, the exact result has both signs."""
        seen = self.signs[k][in_order()]
        wide = torch.nn.functional.pad(seen, (1, 1))
        union = wide[:-2] | wide[1:-1] | wide[2:]
        mask = torch.empty(CELLS, dtype=torch.bool)
        mask[in_order()] = union == (POSITIVE | NEGATIVE)
        return mask


def patterns(x: Tensor) -> Tensor:
    """Return the bits of float32 numbers as int64."""
    return x.contiguous().view(torch.int32).long() & 0xFFFFFFFF


@cache
def in_order() -> Tensor:
    """Return the cells in the order of their inputs, the negative ones of the largest size first."""
    half = torch.arange(CELLS // 2)
    return torch.cat([half.flip(0) + CELLS // 2, half])


def local(
    cells: Cells,  # of a sweep. Where there is no eager, its errors are 0, so that the bound is 4 ulp
    k: int,  # 0 for the value, 1 for the slope
    factor: float,  # on eager's largest error; 1 where cells are complete, more for the chance of a sample
) -> Local:
    """Return the errors of an output by cell, and what it breaks of the rules C1, C1b and C2."""
    ours, eager = cells.largest(k, OURS), cells.largest(k, EAGER)
    counts, counts_of_eager = cells.counts(k, OURS), cells.counts(k, EAGER)
    blind = (2 * counts_of_eager[:, FAR] > cells.inputs) & ~cells.changes_sign(k)
    bound = (eager * factor).clamp(min=LIMIT)
    over, over_of_eager = ours > LIMIT * ROOM, eager > LIMIT * ROOM
    excess = (counts - counts_of_eager - 3 * counts_of_eager.sqrt() - 3).amax(-1)
    rules = (
        ("C1", ours > bound * ROOM, ours / bound),
        ("C1b", blind & over, ours),
        ("C2", excess > 0, excess),
    )
    tried = int((cells.inputs > 0).sum())
    above = _in_order(ours, eager, over)
    found = (_breach(cells, k, rule, broken, score) for rule, broken, score in rules)
    return Local(
        (int(over.sum()), int(over_of_eager.sum())),
        int(blind.sum()),
        int((blind & ~over).sum()),
        covered(*above, ends_of_cell, MOST_RUNS),
        tuple(replace(breach, of=tried) for breach in found if breach),
        covered(*above, ends_of_cell, CELLS),
    )


def ends_of_cell(place: int) -> tuple[str, str]:
    """Return the least and the largest input of the cell at some place in their order."""
    first = int(in_order()[place]) << CELL_BITS
    ends = _hex(first), _hex(first + CELL - 1)
    return ends if first < 2**31 else ends[::-1]


def _in_order(ours: Tensor, eager: Tensor, over: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the places in order of the cells that are over, with their errors."""
    order = in_order()
    places = torch.nonzero(over[order])[:, 0]
    return places, ours[order][places], eager[order][places]


def _breach(cells: Cells, k: int, rule: str, broken: Tensor, score: Tensor) -> Breach | None:
    """Return the breach of a rule, shown by the cell with the largest score; None if no cell breaks it."""
    if not broken.any():
        return None
    cell = int(torch.where(broken, score, -torch.inf).argmax())
    ours, eager = (float(cells.largest(k, who)[cell]) for who in (OURS, EAGER))
    at = cells.worst_input(k, OURS, cell)
    return Breach(rule, int(broken.sum()), CELLS, "cells", ours, eager, (at,))


def _hex(bits: int) -> str:
    pattern = torch.tensor([bits - 2**32 if bits >= 2**31 else bits], dtype=torch.int32)
    return float(pattern.view(torch.float32)).hex()
