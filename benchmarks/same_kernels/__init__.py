"""Comparison of the kernels of modules whose text changed with a revision; `__main__` is the tool."""
