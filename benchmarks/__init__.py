"""Measurements of the compiler on formulas that are not in the library."""
