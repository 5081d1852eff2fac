"""Rows of a table as one test: each runs with fixtures of its own, and the test names all that fail.

A row alone is still found by its id, `test_it[row]`, and by `-k`.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

MARK = "together"


class Rows(pytest.Item):
    """Tests that differ by their row only."""

    def __init__(self, *, rows: Sequence[pytest.Item], **others: Any) -> None:
        """Hold some tests of one function."""
        super().__init__(**others)
        self.rows = rows
        self.own_markers = list(rows[0].own_markers)

    def runtest(self) -> None:
        """Refuse, since each row runs by itself (`pytest_runtest_protocol`)."""
        raise NotImplementedError

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """The place of the function."""
        path, line, _ = self.rows[0].reportinfo()
        return path, line, self.name


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Joins the rows of those that are left when others have chosen."""
    count = len(items)
    items[:] = joined(items)
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and hasattr(
        reporter, "_numcollected"
    ):  # which pytest shows, and counts while it collects
        reporter._numcollected -= count - len(items)


def joined(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """The tests, with those of a function marked `together` as one, where the first of them was."""
    functions: dict[object, list[pytest.Item]] = {}
    for item in items:
        functions.setdefault(function_of(item), []).append(item)
    for rows in functions.values():
        first = rows[0]
        if len(rows) == 1 or first.parent is None:
            yield from rows
        else:
            yield Rows.from_parent(first.parent, name=first.name.partition("[")[0], rows=rows)


def function_of(item: pytest.Item) -> object:
    """Return the function of a test marked `together`; of another test, the test."""
    return item.nodeid.partition("[")[0] if item.get_closest_marker(MARK) else item


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs the rows, and reports them as one test."""
    if not isinstance(item, Rows):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    following = [*item.rows[1:], nextitem]
    reports = [
        report
        for row, after in zip(item.rows, following, strict=True)
        for report in runtestprotocol(row, log=False, nextitem=after)
    ]
    for report in summaries(item, reports):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def summaries(item: Rows, reports: Sequence[pytest.TestReport]) -> Iterator[pytest.TestReport]:
    """A report of each phase, as pytest expects them; the one of the call says all."""
    common: dict[str, Any] = {"nodeid": item.nodeid, "location": item.location, "keywords": {item.name: 1}}
    seconds = sum(report.duration for report in reports)
    failed = [report for report in reports if report.failed]
    skipped = [report for report in reports if report.skipped]
    yield pytest.TestReport(**common, outcome="passed", longrepr=None, when="setup")
    if failed:
        told = "\n".join(map(text_of, failed))
        yield pytest.TestReport(**common, outcome="failed", longrepr=told, when="call", duration=seconds)
    elif len(skipped) == len(item.rows):
        yield pytest.TestReport(**common, outcome="skipped", longrepr=skipped[0].longrepr, when="call")
    else:
        yield pytest.TestReport(**common, outcome="passed", longrepr=None, when="call", duration=seconds)
    yield pytest.TestReport(**common, outcome="passed", longrepr=None, when="teardown")


def text_of(report: pytest.TestReport) -> str:
    """A heading that names the row and the phase, what pytest prints of them, and what they printed."""
    printed = f"{report.capstdout}{report.capstderr}"
    return f"_____ {Path(report.nodeid).name} ({report.when}) _____\n{report.longreprtext}\n{printed}"
