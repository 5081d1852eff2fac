"""fusegen: a code-generating kernel compiler for PyTorch."""

import sys
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`fusegen.lift` on first use, since it imports torch."""
    if name != "lift":
        raise AttributeError(f"module 'fusegen' has no attribute {name!r}")
    import fusegen.lift  # noqa: F401

    return sys.modules["fusegen.lift"]
