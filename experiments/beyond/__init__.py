"""Studies of what the paper leaves open, on invented data."""
