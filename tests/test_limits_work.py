"""Guards at infinities are sought within a number of operations, so that many inputs take no hours."""

import pytest

from fusegen.algebra.limits import infinite
from fusegen.algebra.limits.tied_limits import MOST_OPERATIONS, Work
from fusegen.core.term import Name, Program, call

X, Y = Name("x"), Name("y")
ROOT = call("sqrt", call("add", call("square", X), call("square", Y)))


@pytest.mark.parametrize(("operations", "is_guarded"), [(MOST_OPERATIONS, True), (0, False)])
def test_an_input_has_a_guard_while_operations_are_left(
    monkeypatch: pytest.MonkeyPatch, operations: int, is_guarded: bool
) -> None:
    """Without a guard x / sqrt(x² + y²) is NaN at an infinite x."""
    works: list[Work] = []

    def work() -> Work:
        works.append(Work(operations))
        return works[-1]

    monkeypatch.setattr(infinite, "Work", work)
    program = Program(("x", "y"), (), (), (call("div", X, ROOT),))
    found = infinite.selected_at_infinity(program, ("x", "y"), {})
    assert (found != program) == is_guarded
    assert (works[0].left < operations) == is_guarded
