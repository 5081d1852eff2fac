"""fusegen: a code-generating kernel compiler for PyTorch."""

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
    if name == "losses":
        from fusegen.models import losses

        return losses
    if name == "onnx":
        from fusegen.models import onnx

        return onnx
    if name == "poolings":
        from fusegen.models import pooling_layers

        return pooling_layers
    raise AttributeError(f"module 'fusegen' has no attribute {name!r}")
