"""Other calls of a function of rows, whose results have the same bits, and rows with special values.

The bits of a row depend on the row alone: not on the batch, on strides, on its place in memory or the run.
A gradient is linear in the incoming one, bit by bit where that is multiplied by a power of two. NaN and
infinities are where eager has them, or PyTorch's operations in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fusegen.evidence.certify import exact
from fusegen.evidence.certify.findings import Relations
from fusegen.evidence.certify.rows.families import Group
from fusegen.evidence.certify.rows.row_layouts import apart

if TYPE_CHECKING:
    from fusegen.evidence.certify.rows.row_evaluator import RowEvaluator

ROWS = 6
POWERS = (-3, 1, 6)  # of two, which the incoming gradient is multiplied by
Arrangement = Callable[[Tensor], Tensor]  # the same numbers elsewhere in memory
Said = Iterator[tuple[str, int]]  # a case, and how many results differ


def _with_gaps(t: Tensor, offset: int) -> Tensor:
    wide = t.new_zeros(*t.shape[:-1], t.shape[-1] + 5)[..., offset : t.shape[-1] + offset]
    return wide.copy_(t)


ARRANGED: dict[str, Arrangement] = {
    "run again": lambda t: t,
    "with gaps": lambda t: _with_gaps(t, 0),
    "unaligned": lambda t: _with_gaps(t, 1),
    "elements apart": apart,
    "side by side": lambda t: t.contiguous(),
}
SPECIALS: dict[str, Callable[[Tensor], Tensor]] = {
    "a NaN first": lambda row: _put(row, 0, torch.nan),
    "a NaN last": lambda row: _put(row, -1, torch.nan),
    "an infinity": lambda row: _put(row, 1, torch.inf),
    "minus infinity": lambda row: _put(row, 1, -torch.inf),
    "both infinities": lambda row: _put(_put(row, 1, torch.inf), 2, -torch.inf),
    "infinities alone": lambda row: torch.full_like(row, torch.inf),
    "minus infinities alone": lambda row: torch.full_like(row, -torch.inf),
    "zeros alone": torch.zeros_like,
}


def _put(row: Tensor, place: int, value: float) -> Tensor:
    row[place] = value
    return row


def judged(evaluator: RowEvaluator, dtype: torch.dtype) -> Relations:
    """Return how many cases kept their relation, and a sentence for each relation that is broken."""
    kept, specials, broken = 0, 0, {}
    for length in evaluator.subject.lengths:
        for case, count in _same_bits(evaluator, dtype, length):
            kept += not count
            if count:
                broken[f"one result of rows of {length}, {case}"] = count
    for case, count in _specials(evaluator, dtype):
        specials += 1
        if count:
            broken[f"rows with {case}: NaN and infinities as in eager"] = count
    sentences = (f"{case}: {count:,} results differ" for case, count in broken.items())
    return Relations(kept, tuple(sentences), specials)


def _same_bits(evaluator: RowEvaluator, dtype: torch.dtype, length: int) -> Said:
    given, subject = evaluator.subject.given, evaluator.subject
    tensors, incoming = evaluator.tensors(Group("normal", ROWS, length), dtype)
    expected = evaluator.results(given, tensors, incoming)
    for case, arranged in ARRANGED.items():
        there = tuple(arranged(t) if t.dim() == tensors[0].dim() else t for t in tensors)
        incoming_there = tuple(arranged(t) if t.dim() > 1 else t for t in incoming)
        yield case, _differ(evaluator.results(given, there, incoming_there), expected)
    count = len(incoming)
    is_feature = [*[False] * count, *(name in subject.features for name in subject.program.inputs)]
    alone = 0
    for k in range(ROWS):
        own = tuple(t if f else t[k : k + 1] for t, f in zip(tensors, is_feature[count:], strict=True))
        found = evaluator.results(given, own, tuple(t[k : k + 1] for t in incoming))
        parts = [
            whole.reshape(ROWS, -1)[k] for whole, f in zip(expected, is_feature, strict=False) if not f
        ]
        alone += _differ([t for t, f in zip(found, is_feature, strict=False) if not f], parts)
    yield "each alone", alone
    for power in POWERS:
        scaled = evaluator.results(given, tensors, tuple(t * 2.0**power for t in incoming))[count:]
        tiny = torch.finfo(dtype).tiny * 2.0 ** max(POWERS)
        differing = 0
        for got, one in zip(scaled, expected[count:], strict=True):
            fair = (one.abs() >= tiny) & (got.abs() >= tiny) & got.isfinite()
            differing += int((exact.bits_differ(got, one * 2.0**power) & fair).sum())
        yield f"at 2^{power} times the incoming gradient", differing


def _differ(got: list[Tensor] | tuple[Tensor, ...], wanted: list[Tensor] | tuple[Tensor, ...]) -> int:
    pairs = zip(got, wanted, strict=True)
    return sum(int(exact.bits_differ(a, b).sum()) for a, b in pairs)


def _specials(evaluator: RowEvaluator, dtype: torch.dtype) -> Said:
    for length in evaluator.subject.lengths[:2]:
        (first, *others), incoming = evaluator.tensors(Group("normal", 1, length), dtype)
        for case, change in SPECIALS.items():
            row = change(first.flatten().clone()).reshape(first.shape)
            subject, tensors = evaluator.subject, (row, *others)
            ours, eager = (evaluator.results(f, tensors, incoming) for f in (subject.given, subject.eager))
            wide = tuple(t.double() for t in tensors)  # which holds an eps that 16 bits round to 0
            plain = evaluator.results(subject.compared, wide, tuple(t.double() for t in incoming))
            each = zip(ours, eager, plain, strict=True)
            otherwise = torch.ne if subject.finds else _otherwise
            yield (
                f"{case}, of {length}",
                sum(int((otherwise(a, b) & otherwise(a, c.to(a.dtype))).sum()) for a, b, c in each),
            )


def _otherwise(got: Tensor, eager: Tensor) -> Tensor:
    """Return a mask of results that are NaN or infinite where eager's are not, or the other way round."""
    infinite = (got.isinf() | eager.isinf()) & (got != eager)
    return (got.isnan() != eager.isnan()) | infinite
