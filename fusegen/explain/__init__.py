"""How a formula became its kernels: what was declared, each step and what it rests on, and the costs."""

from __future__ import annotations

from fusegen.explain.explanation import Explanation, explained
from fusegen.explain.formats import FORMATS
from fusegen.explain.writing import written

__all__ = ["FORMATS", "Explanation", "explained", "written"]
