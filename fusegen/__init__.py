"""fusegen: a code-generating kernel compiler for PyTorch."""

import importlib
import sys
from typing import Any

from fusegen.core.registration import register

__version__ = "0.1.0"
register(__version__)


def __getattr__(name: str) -> Any:
    """Import `lift`, `patch`, `losses`, `poolings` and others on first use, since they import torch."""
    if name == "lift":
        import fusegen.models.lift  # noqa: F401

        return sys.modules["fusegen.models.lift"]
    if name in ("patch", "unpatch"):
        from fusegen.models import patch

        return getattr(patch, name)
    if name in ("losses", "onnx", "poolings"):
        return importlib.import_module(f"fusegen.models.{name}")
    raise AttributeError(f"module 'fusegen' has no attribute {name!r}")
