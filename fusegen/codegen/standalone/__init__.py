"""Modules as one readable file each: their own functions, and of the headers only what these use."""
