"""The runtime of generated modules: operators, gradients, calls, and the build of kernels on first use.

A module hands its kernels to `Activation` and keeps what that makes. A folder of modules holds one copy
of these files, `_runtime`; they need torch and the standard library only, and Python 3.8 can read them.
"""

from importlib.util import find_spec
from typing import Any

from .activation import INTERFACE, Activation
from .batch_layers import BatchStatistics
from .channels import Channels
from .dropouts import Dropouts
from .parts import Parts
from .policy import set_compile_policy
from .rows import Rows
from .sources import Sources
from .windows import Windows

__all__ = [
    "INTERFACE",
    "Activation",
    "BatchStatistics",
    "Channels",
    "Dropouts",
    "Parts",
    "Rows",
    "Sources",
    "Windows",
    "set_compile_policy",
]


def __getattr__(name: str) -> Any:
    """Refuse a name that only the runtime of another interface has."""
    if name.startswith("__") or find_spec(f"{__name__}.{name}"):
        raise AttributeError(name)
    raise ImportError(f"this runtime, of interface {INTERFACE}, has no {name}; run fusegen build")
