"""Exact and IEEE evaluation, and error estimates."""
