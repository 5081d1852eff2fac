"""The explanation of a compiled spec: its rewrites with their preconditions, methods, costs and errors."""

from fusegen.evidence.explain.explanation import Explanation
from fusegen.evidence.explain.formats import FORMATS
from fusegen.evidence.explain.of_windows import reduced
from fusegen.evidence.explain.records import records
from fusegen.evidence.explain.writing import written

__all__ = ["FORMATS", "Explanation", "records", "reduced", "written"]
