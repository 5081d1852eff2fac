"""The choice of a kernel and what it costs."""
