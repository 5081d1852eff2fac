"""Whether modules whose text changed have the same kernels as in a revision; `__main__` is the tool."""
