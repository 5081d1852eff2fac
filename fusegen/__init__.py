"""fusegen: a code-generating kernel compiler for PyTorch."""

import sys
from typing import Any

from fusegen.registration import register

__version__ = "0.1.0"
register(__version__)


def __getattr__(name: str) -> Any:
    """`lift`, `patch` and `unpatch` on first use, since they import torch."""
    if name == "lift":
        import fusegen.lift  # noqa: F401

        return sys.modules["fusegen.lift"]
    if name in ("patch", "unpatch"):
        from fusegen import dropin

        return getattr(dropin, name)
    raise AttributeError(f"module 'fusegen' has no attribute {name!r}")
