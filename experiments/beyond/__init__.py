"""Studies of the theory, on synthetic data."""
