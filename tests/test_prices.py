"""The counts of `benchmarks.prices` on small modules, and the prices that the house keeps already."""

import ast
from pathlib import Path

import pytest

from benchmarks import prices

SOURCES = {
    "core/term.py": "from fusegen.errors import Span",
    "errors/base.py": "from fusegen.core import term",
    "schedule/plan.py": "x = plan.thin\nwithin = mask = 1\ny = a if device is Device.CUDA else b",
    "schedule/thin_convolution.py": "thin = 1",
    "lower/term.py": "kinds = {Device.CPU: 1}\nif Device.CPU == device: mask = 2",
}
MODULES = {Path(path): ast.parse(text) for path, text in SOURCES.items()}


def test_prices_are_counted_where_they_arise() -> None:
    assert prices.in_circles(MODULES) == 2
    assert prices.shared_names(MODULES) == 2
    assert prices.device_tests(MODULES) == 2
    assert prices.named_forms(MODULES) == 1


@pytest.mark.full
def test_what_is_reached_stays(capsys: pytest.CaptureFixture[str]) -> None:
    prices.main()
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [name for name, *_ in rows] == [price.name for price in prices.PRICES]
    numbers = {name: [int(number.replace(",", "")) for number in row] for name, *row in rows}
    kept = {name: of for name, of in numbers.items() if not name.startswith("lines")}
    assert {name: of for name, of in kept.items() if of[0] > of[1]} == {}
