"""Tests, times and reports of kernels."""
