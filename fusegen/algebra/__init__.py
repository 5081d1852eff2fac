"""Programs over the real numbers."""
