"""The local bound: errors by cell, box and binade, the intervals that cover cells, and the ratchet."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_certify_judged import evaluator
from torch import Tensor

from fusegen.core.term import Name
from fusegen.evidence.certify import boxes, cells, exact, runs, tried_inputs
from fusegen.evidence.certify.cells import CELL, CELLS, EAGER, LEVELS, OURS, Cells
from fusegen.evidence.certify.compared import Compared
from fusegen.evidence.certify.findings import Accuracy, Breach, Local, Output, Run, Worst

X, Y = Name("x"), Name("y")
INF = math.inf
ONE = 0x3F800000 // CELL  # the cell from 1 to 1 + 2^-6
THRESHOLDS = [4.0 * 2**level for level in range(LEVELS)]


def floats(patterns: Sequence[int]) -> Tensor:
    bits = torch.tensor(patterns)
    return (bits - 2**32 * (bits >= 2**31)).to(torch.int32).view(torch.float32)


def floats_in(cell: int, count: int) -> Tensor:
    return floats(range(cell * CELL, cell * CELL + count))


def filled(
    rows: dict[int, tuple[list[float], list[float]]], signs: dict[int, list[float]] | None = None
) -> Cells:
    """Cells with errors of ours and of eager's, and exact results, which are 1 unless given."""
    found = Cells.on("cpu")
    for cell, errors in rows.items():
        x = floats_in(cell, len(errors[0]))
        for who, of in zip((OURS, EAGER), errors, strict=True):
            found.add(x, 0, who, torch.tensor(of, dtype=torch.float64))
        found.add_signs(x, 0, torch.ones(len(x)))
    for cell, values in (signs or {}).items():
        found.add_signs(floats_in(cell, len(values)), 0, torch.tensor(values))
    return found


# --- what a cell keeps ----------------------------------------------------------------------------------

EDGES = [float(torch.tensor(t).nextafter(torch.tensor(end))) for t in THRESHOLDS for end in (0.0, INF)]
SIZES = [0.0, 0.5, *THRESHOLDS, *EDGES, 2.0**27, 2.0**100, INF]


@pytest.mark.parametrize("seed", range(3))
def test_a_cell_has_its_largest_error_and_counts_of_errors(seed: int) -> None:
    draw = Random(seed)
    used = [0, CELLS // 2, *(draw.randrange(CELLS) & ~0x4000 for _ in range(20))]
    rows = {draw.choice(used) * CELL + draw.randrange(CELL): draw.choice(SIZES) for _ in range(600)}
    x = floats([*rows])
    sizes = torch.tensor([*rows.values()], dtype=torch.float64)
    found = Cells.on("cpu")
    for part in (slice(None, 200), slice(200, None)):
        found.add(x[part], 1, EAGER, sizes[part])
    largest, counts = found.largest(1, EAGER), found.counts(1, EAGER)
    for cell in {pattern // CELL for pattern in rows}:
        inside = {pattern: size for pattern, size in rows.items() if pattern // CELL == cell}
        most = max(inside.values())
        assert largest[cell] == most
        assert counts[cell].tolist() == [sum(size > t for size in inside.values()) for t in THRESHOLDS]
        at = {float(floats([pattern])).hex() for pattern, size in inside.items() if size == most}
        assert most == 0 or found.worst_input(1, EAGER, cell) in at
    assert int(counts.sum()) == sum(size > t for size in rows.values() for t in THRESHOLDS)
    assert not found.largest(0, OURS).any()
    assert not found.above[0].any()


def test_cells_lie_side_by_side_in_the_order_of_their_inputs() -> None:
    ends = [tuple(map(float.fromhex, cells.ends_of_cell(place))) for place in range(256, CELLS - 256, 1000)]
    assert all(low <= high for low, high in ends)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(ends))
    first, second = (tuple(map(float.fromhex, cells.ends_of_cell(CELLS // 2 + k))) for k in (-1, 0))
    assert (first[1], math.copysign(1, first[1]), second[0]) == (0, -1, 0)
    place = cells.in_order().tolist().index(ONE)
    assert cells.ends_of_cell(place) == ((1.0).hex(), (1 + 2**-6 - 2**-23).hex())


def test_the_worst_inputs_are_of_different_binades() -> None:
    rows = {ONE: ([9.0, 1.0], [0.0, 7.0]), ONE + 1: ([8.0], [0.0]), ONE + 64: ([5.0], [0.0])}
    found = filled(rows).worst_inputs(2).tolist()
    assert found == [1.0, 1 + 2**-23, 2.0]


# --- C1, C1b and C2 -------------------------------------------------------------------------------------

Rows = dict[int, tuple[list[float], list[float]]]
MANY = 64
BLIND = ([3.0] * MANY, [1e6] * MANY)  # eager is no yardstick


def some(count: int, size: float, *others: float) -> list[float]:
    """Errors of a cell, so many of them of some size, others as given."""
    return [*([size] * count), *others, *([0.0] * (MANY - count - len(others)))]


KEPT: dict[str, Rows] = {
    "4 ulp where eager has none": {ONE: (some(MANY, 4.0), some(0, 0.0))},
    "what the filter leaves open": {ONE: (some(1, 4.0019), some(0, 0.0))},
    "as much as eager in the cell": {ONE: (some(1, 9.0), some(1, 9.0))},
    "within 4 ulp where eager is no yardstick": {ONE: BLIND},
    "seven of one": {ONE: (some(7, 5.0), some(1, 5.0))},
    "as many as eager": {ONE: (some(MANY, 100.0), some(MANY, 100.0))},
    "infinite as eager": {ONE: (some(1, INF), some(1, INF))},
    "half of eager's errors are large": {ONE: (some(32, 5.0), some(32, 1e6))},
    "eager's median is 128 ulp": {ONE: (some(33, 5.0), some(33, 128.0))},
}
BROKEN: dict[str, tuple[Rows, Breach]] = {
    "C1": ({ONE: (some(1, 4.5), some(1, 3.0))}, Breach("C1", 1, 1, "cells", 4.5, 3.0, ((1.0).hex(),))),
    "C1 beside a cell with larger errors of eager": (
        {ONE: (some(0, 0.0), some(1, 1e6)), ONE + 1: (some(0, 0.0, 0.0, 9.0), some(1, 8.0))},
        Breach("C1", 1, 2, "cells", 9.0, 8.0, ((1 + 2**-6 + 2**-23).hex(),)),
    ),
    "C1 where it is worst": (
        {ONE: (some(1, 9.0), some(1, 8.0)), ONE + 9: (some(1, 7.0), some(1, 5.0))},
        Breach("C1", 2, 2, "cells", 7.0, 5.0, ((1 + 9 * 2**-6).hex(),)),
    ),
    "C1 infinite": (
        {ONE: (some(1, INF), some(1, 1e9))},
        Breach("C1", 1, 1, "cells", INF, 1e9, ((1.0).hex(),)),
    ),
    "C1b": (
        {ONE: (some(1, 5.0), some(33, 130.0))},
        Breach("C1b", 1, 1, "cells", 5.0, 130.0, ((1.0).hex(),)),
    ),
    "C2 of 4 ulp": (
        {ONE: (some(8, 5.0), some(1, 5.0))},
        Breach("C2", 1, 1, "cells", 5.0, 5.0, ((1 + 7 * 2**-23).hex(),)),
    ),
    "C2 of 32 ulp": (
        {ONE: (some(8, 60.0), some(20, 20.0, 64.0))},
        Breach("C2", 1, 1, "cells", 60.0, 64.0, ((1 + 7 * 2**-23).hex(),)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", KEPT)
def test_a_cell_as_good_as_eagers_breaks_nothing(what: str) -> None:
    assert cells.local(filled(KEPT[what]), 0, 1.0).breaches == ()


@pytest.mark.parametrize("what", BROKEN)
def test_a_cell_worse_than_eagers_breaks_a_rule(what: str) -> None:
    rows, breach = BROKEN[what]
    assert cells.local(filled(rows), 0, 1.0).breaches == (breach,)


def test_the_chance_of_a_sample_is_allowed_for() -> None:
    found = filled({ONE: (some(1, 15.9), some(1, 8.0))})
    assert [breach.rule for breach in cells.local(found, 0, 1.0).breaches] == ["C1"]
    assert cells.local(found, 0, 2.0).breaches == ()


SIGNS = {
    "in the cell": ({ONE: [1.0, -1.0]}, True),
    "in the next cell": ({ONE + 1: [-1.0]}, True),
    "in the cell before": ({ONE - 1: [-1.0]}, True),
    "from the next cell to the one behind": ({ONE + 2: [-1.0]}, False),
    "in no cell": ({ONE + 1: [1.0]}, False),
    "never, with zeros": ({ONE: [0.0]}, False),
}


@pytest.mark.parametrize("where", SIGNS)
def test_next_to_a_change_of_sign_eager_is_a_yardstick(where: str) -> None:
    signs, is_exempt = SIGNS[where]
    found = cells.local(filled({ONE: (some(1, 5.0), some(64, 1e6))}, signs), 0, 1.0)
    assert [breach.rule for breach in found.breaches] == ([] if is_exempt else ["C1b"])
    assert (found.blind, found.kept) == (int(not is_exempt), 0)


def test_a_change_of_sign_at_zero_is_one_of_neighbours() -> None:
    least, negative = 0, CELLS // 2
    found = filled({least: BLIND}, {negative: [-1.0]})
    mask = found.changes_sign(0)
    assert mask.nonzero()[:, 0].tolist() == [least, negative]
    assert (cells.local(found, 0, 1.0).blind, cells.local(filled({least: BLIND}), 0, 1.0).blind) == (0, 1)


def test_cells_are_counted() -> None:
    rows = {ONE: BLIND, ONE + 5: (some(1, 5.0), some(40, 1e6)), ONE + 7: (some(1, 6.0), some(1, 7.0))}
    found = cells.local(filled(rows), 0, 1.0)
    assert (found.over, found.blind, found.kept) == ((2, 3), 2, 1)
    ends = [cells.ends_of_cell(cells.in_order().tolist().index(cell)) for cell in (ONE + 5, ONE + 7)]
    errors = ((5.0, 1e6), (6.0, 7.0))
    assert found.runs == found.clusters == tuple(Run(*e, *u) for e, u in zip(ends, errors, strict=True))


# --- intervals ------------------------------------------------------------------------------------------


@given(places=st.sets(st.integers(0, 60), min_size=1, max_size=14), most=st.integers(1, 5))
def test_intervals_cover_the_cells_and_little_else(places: set[int], most: int) -> None:
    listed = sorted(places)
    ours, eager = ([float(k * 37 % 101 + by) for k in listed] for by in (5, 1))
    first, second = (torch.tensor(of, dtype=torch.float64) for of in (ours, eager))
    found = runs.covered(torch.tensor(listed), first, second, lambda place: (str(place), str(place)), most)
    held = [range(int(run.low), int(run.high) + 1) for run in found]
    assert len(found) <= most
    assert all({one.start, one.stop - 1} <= places for one in held)
    assert [place for one in held for place in one if place in places] == listed
    clusters = 1 + sum(b - a > 1 for a, b in itertools.pairwise(listed))
    gaps = sorted(b - a - 1 for a, b in itertools.pairwise(listed))[::-1]
    assert len(found) == min(most, clusters)
    assert sum(map(len, held)) == listed[-1] - listed[0] + 1 - sum(gaps[: most - 1])
    for run, one in zip(found, held, strict=True):
        inside = [k for k, place in enumerate(listed) if place in one]
        assert (run.ulp, run.eager) == (max(ours[k] for k in inside), max(eager[k] for k in inside))


def test_at_most_four_intervals_are_written() -> None:
    found = cells.local(filled({ONE + 3 * k: (some(1, 5.0), some(1, 5.0)) for k in range(9)}), 0, 1.0)
    assert (len(found.runs), len(found.clusters)) == (4, 9)


# --- C6 -------------------------------------------------------------------------------------------------


def ran(ulp: float, *found: tuple[float, float, float]) -> Output:
    """An output with a largest error and some clusters, covered one by one."""
    clusters = tuple(Run(low.hex(), high.hex(), size, 9.0) for low, high, size in found)
    local = Local(runs=clusters, clusters=clusters)
    return Output("value", Accuracy((Worst(("0x1p+0",), ulp, "", ""),)), Accuracy(), local=local)


BEFORE = ran(9.0, (1.0, 2.0, 9.0), (8.0, 16.0, 5.0))
GROWN: dict[str, tuple[Output, tuple[str, ...]]] = {
    "the same": (BEFORE, ()),
    "less": (ran(3.0), ()),
    "twice as much": (ran(18.0, (1.0, 2.0, 18.0)), ()),
    "a part of a run": (ran(9.0, (1.25, 1.5, 9.0), (1.75, 2.0, 6.0)), ()),
    "4 ulp are no error": (ran(4.0), ()),
    "more than twice": (
        ran(18.1, (1.0, 2.0, 18.0)),
        ("value: the largest error has grown to 18.1 ulp where the certificate has 9 (C6)",),
    ),
    "more than twice in a run": (
        ran(9.0, (8.0, 16.0, 10.1)),
        (f"value: errors of 10.1 ulp from {(8.0).hex()} to {(16.0).hex()} are new (C6)",),
    ),
    "below a run": (
        ran(9.0, (0.5, 1.0, 5.0)),
        (f"value: errors of 5 ulp from {(0.5).hex()} to {(1.0).hex()} are new (C6)",),
    ),
    "between runs": (
        ran(9.0, (2.0, 8.0, 5.0)),
        (f"value: errors of 5 ulp from {(2.0).hex()} to {(8.0).hex()} are new (C6)",),
    ),
}


@pytest.mark.parametrize("what", GROWN)
def test_errors_that_have_grown_are_told(what: str) -> None:
    now, told = GROWN[what]
    assert tuple(runs.grown(BEFORE, now)) == told


def test_fewer_cells_that_are_covered_otherwise_are_no_new_ones() -> None:
    """Of six clusters two pairs are joined; of five of them another pair."""
    at = [ONE + place for place in (0, 2, 20, 40, 43, 80)]
    before, now = (
        cells.local(filled({cell: (some(1, 5.0), some(1, 5.0)) for cell in listed}), 0, 1.0)
        for listed in (at, [*at[:2], *at[2:3], at[3], at[5]])
    )
    assert {run.low for run in now.runs} - {run.low for run in before.runs} == set()
    joined = replace(BEFORE, given=Accuracy(), local=before)
    assert [*runs.grown(joined, replace(joined, local=now))] == []
    assert [*runs.grown(replace(joined, local=now), joined)] != []


# --- C3 -------------------------------------------------------------------------------------------------


def off(by: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """The product of two tensors, which is off by some multiple of the type's eps."""

    def product(x: Tensor, y: Tensor) -> Tensor:
        factor = 1 + by(x.detach().double(), y.detach().double()) * torch.finfo(x.dtype).eps
        return x * y * factor.to(x.dtype)

    return product


def none(x: Tensor, y: Tensor) -> Tensor:
    return 0 * x


def noise(x: Tensor, y: Tensor) -> Tensor:
    """Errors that say nothing of a neighbour's."""
    return 32 + 32 * (x * 12345.678).frac()


def rarely(x: Tensor, y: Tensor) -> Tensor:
    """Large errors at one point in eight."""
    return 64 * (((x + y) * 34567.89).frac() < 0.125).double()


def below(x: Tensor, y: Tensor) -> Tensor:
    return 64 * (x < 1.5).double()


Noise = Callable[[Tensor, Tensor], Tensor]
BOXES: dict[str, tuple[Noise, Noise, bool]] = {
    "errors where eager has none": (below, none, True),
    "errors of the same size nearby": (noise, lambda x, y: noise(y, x), False),
    "errors of eager elsewhere": (below, lambda x, y: 64 - below(x, y), True),
    "often where eager's are rare": (below, rarely, True),
    "as rare": (rarely, lambda x, y: rarely(y, x + 1), False),
    "twice as large": (lambda x, y: below(x, y) * 1.9, below, False),
    "more than twice as large": (lambda x, y: below(x, y) * 2.1, below, True),
    "within 4 ulp": (lambda x, y: none(x, y) + 1, none, False),
}


@pytest.mark.together
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("what", BOXES)
def test_a_box_around_a_point_is_compared_with_eagers(what: str, dtype: torch.dtype) -> None:
    given, eager, is_broken = BOXES[what]
    one = evaluator(X * Y, off(given), "xy", eager=off(eager))
    points = tuple(torch.linspace(first, 1.9, 12).to(dtype) for first in (1.1, 1.2))
    found = boxes.judged(one, one.compared(points))
    assert len(found) == 3
    for breach in itertools.chain.from_iterable(found):
        assert (breach.rule, breach.unit) == ("C3", "boxes")
        assert 0 < breach.count <= breach.of <= 12
        assert breach.ulp > 32
        assert 1.1 * (1 - boxes.WIDTH) <= float.fromhex(breach.inputs[0]) < 1.51
    assert [bool(of_output) for of_output in found] == [is_broken] * 3


def test_no_more_boxes_are_tried_than_asked_for() -> None:
    one = evaluator(X * Y, off(below), "xy", eager=off(none))
    points = tuple(torch.linspace(first, 1.4, 12) for first in (1.1, 1.2))
    assert [breach.of for [breach] in boxes.judged(one, one.compared(points), 5)] == [5, 5, 5]


def test_a_sample_is_judged_by_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    points = tuple(torch.linspace(first, 1.4, 12) for first in (1.1, 1.2))
    monkeypatch.setattr(tried_inputs, "sample", lambda *_: points)
    value, *_ = evaluator(X * Y, off(below), "xy", eager=off(none)).sampled(torch.float32).outputs
    assert [(breach.rule, breach.of) for breach in value.local.breaches] == [("C3", 12)]
    assert value.local.over == (12, 0)


def test_a_box_lies_around_its_point() -> None:
    centres = torch.tensor([1.0, -1e-30, 0.0, 3.4e38])
    near = boxes._near(centres, 1).view(4, 1 + boxes.NEAR)
    assert torch.equal(near[:, 0], centres)
    assert bool(near.isfinite().all())
    assert not near[2].any()
    apart = (near / centres[:, None] - 1)[:2].double().abs()
    assert 2.0**-8 < float(apart.max()) <= 2.0**-7 * (1 + 1e-5)
    assert torch.equal(near, boxes._near(centres, 1).view(4, -1))
    assert not torch.equal(near, boxes._near(centres, 2).view(4, -1))


# --- C4 -------------------------------------------------------------------------------------------------


def compared(
    ours: Callable[[Tensor], Tensor], eager: Callable[[Tensor], Tensor] | None, dtype: torch.dtype
) -> Compared:
    """The identity, of which some results are the next number."""
    x = tried_inputs.every(dtype)
    x = x[x.isfinite() & (x.abs() < 1e4)]
    real = exact.reals(x.double(), torch.zeros(len(x), dtype=torch.float64), dtype)

    def results(where: Callable[[Tensor], Tensor]) -> Tensor:
        next_ = (x.view(torch.int16) + 1).view(dtype)
        return torch.where(where(x.float()), next_, x)

    return Compared("value", (x,), results(ours), results(eager) if eager else None, real)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_no_binade_has_more_misrounded_results_than_eagers(dtype: torch.dtype) -> None:
    def wide(x: Tensor) -> Tensor:
        return x.abs() > 4

    def low(x: Tensor) -> Tensor:
        return (x == 1.5) | (x == -0.75) | (x == 1.25)

    assert compared(wide, wide, dtype).binades() == compared(low, None, dtype).binades() == ()
    assert compared(wide, lambda x: wide(x) | low(x), dtype).binades() == ()
    [breach] = compared(low, wide, dtype).binades()
    assert (breach.rule, breach.count, breach.unit) == ("C4", 2, "binades")
    assert (breach.ulp, breach.eager, breach.inputs) == (1.0, 0.0, ((1.25).hex(),))
    assert 16 < breach.of <= 512


def test_binades_are_judged_where_all_inputs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    every = tried_inputs.every
    monkeypatch.setattr(tried_inputs, "every", lambda dtype: every(dtype)[::17])

    def rounded(where: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda x: torch.where(where(x), x * 1.5 * (1 + 2**-9), x * 1.5)

    one = evaluator(X * 1.5, rounded(lambda x: (x > 1) & (x < 2)), eager=rounded(lambda x: x < 0))
    value = one.sampled(torch.float16).outputs[0]
    assert value.eager is not None
    assert value.given.misrounded < value.eager.misrounded
    assert [breach.rule for breach in value.local.breaches] == ["C4"]
    assert 1 < float.fromhex(value.local.breaches[0].inputs[0]) < 2
