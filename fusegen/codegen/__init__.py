"""Kernels to text."""
