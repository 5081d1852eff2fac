"""Files that a build owns."""
