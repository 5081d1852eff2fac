"""The choice among candidates."""

from functools import partial

import pytest

from fusegen.core.candidates import Candidate, cheapest


@pytest.mark.parametrize(
    ("costs", "accurate", "chosen", "measured"),
    [
        ((3, 1, 2), "012", 1, "1"),  # errors are measured from the cheapest on, until one is within
        ((3, 1, 2), "02", 2, "12"),
        ((3, 1, 2), "", None, "120"),
        ((1, 1), "01", 0, "0"),  # of equals the first
        (((0, 2), (0, 1)), "01", 1, "1"),
        ((), "", None, ""),
    ],
)
def test_the_cheapest_within_the_budget_is_chosen(
    costs: tuple[object, ...], accurate: str, chosen: int | None, measured: str
) -> None:
    asked = []

    def is_accurate(place: int) -> bool:
        asked.append(place)
        return str(place) in accurate

    rows = [Candidate(k, cost, partial(is_accurate, k)) for k, cost in enumerate(costs)]
    assert (cheapest(rows), "".join(map(str, asked))) == (chosen, measured)
