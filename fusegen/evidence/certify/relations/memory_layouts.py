"""One result in every layout: strides, gaps, ranks, lengths, places in memory, layouts that differ."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from fusegen.evidence.certify.relations.trial import COUNT, SIDE, Case, Compared, Trial
from fusegen.evidence.certify.slopes import Points, differentiated

Layout = Callable[[Tensor], Tensor]  # of a contiguous column: some of its elements, elsewhere in memory


def _square(column: Tensor) -> Tensor:
    return column.view(SIDE, SIDE)


def _volumes(column: Tensor) -> Tensor:
    return column.view(4, 4, 4, 8, 8)


# Neighbours in memory are other points, so that a wrong stride is another result.
LAYOUTS: dict[str, Layout] = {
    "two dimensions": _square,
    "63 x 65": lambda t: t[:4095].view(63, 65),
    "transposed": lambda t: _square(t).t(),
    "63 x 65 transposed": lambda t: t[:4095].view(63, 65).t(),
    "stride 2": lambda t: t[::2],
    "stride 3 from an offset": lambda t: t[1::3],
    "stride 2 in rows": lambda t: _square(t)[:, ::2],
    "rows with gaps": lambda t: _square(t)[:, :60],
    "odd rows with gaps": lambda t: _square(t)[1:, 3:],
    "channels_last": lambda t: t.view(4, 16, 8, 8).contiguous(memory_format=torch.channels_last),
    "channels_last_3d": lambda t: _volumes(t).contiguous(memory_format=torch.channels_last_3d),
    "five dimensions permuted": lambda t: _volumes(t).permute(4, 2, 0, 3, 1),
    "rows expanded": lambda t: t[:SIDE].expand(SIDE, SIDE),
    "columns expanded": lambda t: t[:SIDE].view(SIDE, 1).expand(SIDE, SIDE),
    "rows that overlap": lambda t: t.unfold(0, 16, 8),
    "offset 1": lambda t: t[1:],
    "offset 3": lambda t: t[3:],
    "one row": lambda t: t.view(1, -1),
    "one column": lambda t: t.view(-1, 1),
    "no element": lambda t: t[:0].view(0, 3),
}
LENGTHS = (*range(1, 73), *range(77, 512, 7), 127, 129, 1000, 1023, 1025, 2047)
OFFSETS = (0, 1, 3)
# Dense layouts of one shape that another input does not share.
OTHERS: dict[str, Layout] = {
    "transposed": lambda t: t.view(SIDE, SIDE).t().contiguous().t(),
    "in every second place": lambda t: torch.stack((t, -t), -1)[:, 0].view(SIDE, SIDE),
    "with gaps": lambda t: torch.cat((_square(t), -_square(t)), 1)[:, :SIDE],
}


def layouts(trial: Trial) -> Iterator[Case]:
    """Call a function in each layout, with and without a gradient."""
    for name, layout in LAYOUTS.items():
        yield name, partial(_in_layout, [layout] * len(trial.points))
    for offset in OFFSETS:
        slices = [slice(offset, offset + length) for length in LENGTHS]
        yield f"every length from place {offset}", partial(_parts, slices)
    yield "no dimension", partial(_parts, range(SIDE))
    yield "one element", partial(_parts, [slice(place, place + 1) for place in range(SIDE)])


def layouts_that_differ(trial: Trial) -> Iterator[Case]:
    """Call a function of several tensors where one of them has another layout than the others."""
    if len(trial.points) == 1:
        return
    for k, name in enumerate(trial.names):
        for what, layout in OTHERS.items():
            each: list[Layout] = [_square] * len(trial.points)
            each[k] = layout
            yield f"{name} {what}", partial(_in_layout, each)


def _in_layout(each: list[Layout], trial: Trial) -> list[Compared]:
    index = each[0](torch.arange(COUNT, device=trial.device))
    tensors = tuple(layout(column) for layout, column in zip(each, trial.points, strict=True))
    graded = differentiated(trial.function, tensors)
    return [*trial.same(_value(trial, tensors), index), *trial.same(graded, index)]


def _value(trial: Trial, tensors: Points) -> Points:
    with torch.no_grad():
        return (trial.function(*tensors),)


def _parts(parts: Sequence[slice | int], trial: Trial) -> list[Compared]:
    """Compare the results of a call for each part as one tensor, which takes a tenth of the time."""
    everything = torch.arange(COUNT, device=trial.device)
    index = torch.cat([everything[part].view(-1) for part in parts])
    calls = [tuple(t[part] for t in trial.points) for part in parts]
    values = [_value(trial, tensors) for tensors in calls]
    graded = [differentiated(trial.function, tensors) for tensors in calls]
    return [*trial.same(_joined(values), index), *trial.same(_joined(graded), index)]


def _joined(results: list[Points]) -> Points:
    return tuple(torch.cat([t.reshape(-1) for t in column]) for column in zip(*results, strict=True))
