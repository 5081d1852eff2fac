"""The tensors of a spec with rows that have one row for all, or one value for neighbours in a row."""

from collections.abc import Sequence

from fusegen.compiler.row_kernels import CompiledRows
from fusegen.core.spec import Input, Spec


def channels(spec: Spec) -> tuple[str, ...]:
    """Return the tensors of one dimension, behind which rows have others: neighbours share their values."""
    assert spec.over is not None
    rank = len(spec.inputs[0].shape)
    begins = spec.over.of(rank)[0]
    if spec.over.count or begins not in (1, 2) or (rank == 2 and not spec.over.groups):
        return ()  # then neighbours in a row do not share values
    return tuple(each.name for each in spec.tensors[1:] if _is_of_channels(each, rank))


def _is_of_channels(of: Input, rank: int) -> bool:
    """Return True if a tensor has one value for each channel, dimension 1 of tensors of some rank."""
    if of.along is not None:
        return of.along == 1
    shape = (1,) * (rank - len(of.shape)) + of.shape
    return of.index is None and [d for d, size in enumerate(shape) if size != 1] == [1]


def summed(of: CompiledRows) -> tuple[str, ...]:
    """Return the tensors whose gradients kernels sum over the rows; those of scans take one shape only."""
    return () if of.scans else features(of.spec)


def features(spec: Spec) -> tuple[str, ...]:
    """Return the tensors that have one row for all, by their declared shapes, or one value a channel."""
    if found := channels(spec):
        return found
    first = spec.inputs[0]
    rank = len(first.shape)
    assert spec.over is not None
    row = spec.over.of(rank)
    others = [each for each in spec.tensors if each is not first and each.index is None]
    return tuple(each.name for each in others if _has_one_row(each, rank, row))


def _has_one_row(of: Input, rank: int, row: Sequence[int]) -> bool:
    shape = (1,) * (rank - len(of.shape)) + of.shape
    return all(size == 1 for d, size in enumerate(shape) if d not in row)
