"""Studies of what the paper leaves open, on synthetic data."""
