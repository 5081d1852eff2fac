"""Values that every stage shares."""
