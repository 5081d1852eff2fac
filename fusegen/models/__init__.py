"""Models and networks of PyTorch."""
