"""Standalone modules on problems in the form of KernelBench: correctness, accuracy, gradients and speed."""
