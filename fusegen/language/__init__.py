"""The reader of specs."""
