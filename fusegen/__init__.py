"""fusegen: a code-generating kernel compiler for PyTorch."""

__version__ = "0.1.0"
