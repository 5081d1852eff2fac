"""The explanation of a compiled spec: its rewrites with their preconditions, methods, costs and errors."""

from __future__ import annotations

from fusegen.explain.explanation import Explanation, explained
from fusegen.explain.formats import FORMATS
from fusegen.explain.records import records
from fusegen.explain.writing import written

__all__ = ["FORMATS", "Explanation", "explained", "records", "written"]
