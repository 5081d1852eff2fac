"""Intervals of inputs that cover the cells with errors above 4 ulp, and the ratchet on them."""

import itertools
from collections.abc import Callable, Iterator

from torch import Tensor

from fusegen.evidence.certify.findings import Output, Run

MOST_RUNS = 4
ROOM_TO_GROW, LIMIT = 2.0, 4.0  # on a recorded error; in ulp, below which every error may grow


def covered(
    places: Tensor,  # of the cells in the order of their inputs, rising
    ours: Tensor,  # their largest errors in ulp
    eager: Tensor,  # likewise, of eager's results
    ends: Callable[[int], tuple[str, str]],  # from a place, the least and the largest input
    most: int,  # how many intervals there may be
) -> tuple[Run, ...]:
    """Cover some cells by intervals, those with the smallest gaps joined."""
    if not len(places):
        return ()
    gaps = places.diff()
    cuts = gaps.argsort(descending=True, stable=True)[: most - 1]
    starts = [0, *sorted(int(cut) + 1 for cut in cuts if gaps[cut] > 1), len(places)]
    return tuple(
        Run(
            ends(int(places[begin]))[0],
            ends(int(places[end - 1]))[1],
            float(ours[begin:end].max()),
            float(eager[begin:end].max()),
        )
        for begin, end in itertools.pairwise(starts)
    )


def grown(
    before: Output,  # an output as the certificate has it
    # the same output as it is; of its clusters, since fewer cells may be covered by other runs
    now: Output,
) -> Iterator[str]:
    """Describe errors that exceed twice those of a committed certificate, and new runs (rule C6)."""
    if now.given.ulp > max(LIMIT, ROOM_TO_GROW * before.given.ulp):
        errors = f"{now.given.ulp:.4g} ulp where the certificate has {before.given.ulp:.4g}"
        yield f"{now.name}: the largest error has grown to {errors} (C6)"
    for run in now.local.clusters:
        if not any(_holds(known, run) for known in before.local.runs):
            yield f"{now.name}: errors of {run.ulp:.4g} ulp from {run.low} to {run.high} are new (C6)"


def _holds(known: Run, run: Run) -> bool:
    low, high = (float.fromhex(end) for end in (known.low, known.high))
    inside = low <= float.fromhex(run.low) and float.fromhex(run.high) <= high
    return inside and run.ulp <= max(LIMIT, ROOM_TO_GROW * known.ulp)
