"""Programs that reduce the elements of rows: their phases, and their gradients."""
